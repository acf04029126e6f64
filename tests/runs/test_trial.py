"""Trials: who is tried how often, on which seeds and data, and what a kill leaves behind."""

import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimol import _checks as checks
from trimol import methods
from trimol._failures import BadValue
from trimol.runs import _costs as costs
from trimol.runs import _final_runs as finals
from trimol.runs import _stops as stops
from trimol.runs import _trial_verdict as verdicts
from trimol.runs import _trying as trials
from trimol.runs._candidates import Candidate
from trimol.runs._grids import SCHEDULES, apart, grid, moves, normal, schedules, usual_trials
from trimol.runs._sentences import sentence
from trimol.runs.store import CONFIG, StoredRun, find
from trimol.runs.trial import Trial, TrialPlan, held_out, trial
from trimol.tasks import Settings, load
from trimol.tasks import _answers as answers
from trimol.training import Diverged

HERE = f"{Path(__file__).parent / 'trial_tasks.py'}:"
PLAN = TrialPlan(HERE + "Tug", ["mgda"], trials=4, steps=12, batch_size=8, seeds=3, tuning_seeds=2)


FINE, REFINE = trials.REACHES, trials.Trying._refine


def patched(patch: pytest.MonkeyPatch) -> None:
    """Time is not to be tested: a step of a method costs two of the baseline's. And few trials."""
    patch.setattr(finals, "step_costs", lambda made: {n: 1.0 + (n != "static") for n in made})
    patch.setattr(trials, "REACHES", ((10**0.5,),))
    patch.setattr(trials, "BEST", 2)
    patch.setattr(trials.Trying, "_refine", lambda self: None)


@pytest.fixture(autouse=True)
def steady_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Path]:
    folder = tmp_path_factory.mktemp("trial")
    with pytest.MonkeyPatch.context() as patch:
        patched(patch)
        return trial(PLAN, folder, jobs=1), folder


def configs(folder: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in folder.rglob(CONFIG)]


def records(found: Trial) -> dict:
    return {
        (budget, name, run.config.seed): run.record
        for budget, runs in (("samples", found.runs), ("time", found.timed))
        for name, own in runs.items()
        for run in own
    }


def test_final_runs_have_seeds_that_the_choice_has_not_seen(found):
    _, folder = found
    tuned = {c["seed"] for c in configs(folder / "tuning-only")}
    final = {c["seed"] for c in configs(folder / "runs")}
    assert (tuned, final) == ({0, 1, 5, 6, 7}, {2, 3, 4})
    assert all(c["validation_only"] for c in configs(folder / "tuning-only"))


def test_at_equal_time_the_dearer_method_has_fewer_steps(found):
    done, _ = found
    assert done.steps == {"static": 12, "mgda": 6}
    assert {run.config.steps for run in done.timed["mgda"]} == {6}
    assert {run.config.steps for run in done.runs["mgda"]} == {12}
    assert "static" not in done.timed
    assert {gain.budget for gain in done.verdict.gains} == {"samples", "time"}


@pytest.mark.slow
def test_at_equal_time_the_cheaper_method_has_more_steps(tmp_path, monkeypatch):
    """One that costs about the same is run once."""
    times = {"static": 1.0, "mgda": 0.4, "upgrad": 0.97}
    monkeypatch.setattr(finals, "step_costs", lambda made: {name: times[name] for name in made})
    seen: list[tuple[int, int]] = []
    plan = replace(PLAN, methods=["mgda", "upgrad"], trials=2)
    done = trial(plan, tmp_path, jobs=1, watch=lambda *steps: seen.append(steps))
    assert done.steps == {"static": 12, "mgda": 30, "upgrad": 12}
    assert {run.config.steps for run in done.timed["mgda"]} == {30}
    assert {run.config.steps for run in done.runs["mgda"]} == {12}
    assert [*done.timed] == ["mgda"]
    assert {g.method for g in done.verdict.gains if g.budget == "time"} == {"mgda"}
    assert len(set(seen[-1])) == 1  # all of them were counted


def test_what_is_chosen_is_the_best_on_validation_data(found):
    """By hand: the mean over seeds and losses, each relative to the baseline's median loss."""
    done, folder = found
    first = {
        (row["lr"], row["hyperparameters"], row["schedule"])
        for row in done.tuning.filter(method="static").to_dicts()[:4]
    }
    tried = [
        run.record
        for run in find(folder / "tuning-only" / "static")
        if (run.config.lr, json.dumps(run.config.hyperparameters), run.config.schedule) in first
    ]
    scales = {m: median(record[f"validation_loss/{m}"] for record in tried) for m in done.ways}
    assert len(tried) == 8
    for name, points in done.points.items():
        rows = done.tuning.filter(method=name).to_dicts()
        scores = [-fmean(point[m] / scales[m] for m in scales) for point in points]
        assert [row["score"] for row in rows] == pytest.approx(scores)
        again = [row for row in rows if row["again"] is not None]
        assert max(rows, key=lambda row: row["score"]) in again
        best = max(again, key=lambda row: row["again"])
        assert [row for row in rows if row["chosen"]] == [best]
        assert done.settings[name].lr == best["lr"]
    best = max(
        done.tuning.filter(method="static").drop_nulls("again").to_dicts(),
        key=lambda row: row["again"],
    )
    runs = [
        run.record
        for run in find(folder / "tuning-only" / "static")
        if (run.config.lr, json.dumps(run.config.hyperparameters), run.config.schedule)
        == (best["lr"], best["hyperparameters"], best["schedule"])
    ]
    assert len(runs) == 5  # two tuning seeds and three further ones
    by_hand = -fmean(fmean(run[f"validation_loss/{m}"] for run in runs) / scales[m] for m in scales)
    assert best["again"] == pytest.approx(by_hand)


@pytest.mark.slow
def test_test_data_have_no_part_in_the_choice(found, tmp_path):
    done, _ = found
    moved = trial(replace(PLAN, options={"test": 5.0}), tmp_path, jobs=1)
    assert moved.settings == done.settings
    assert moved.tuning.drop("candidate").equals(done.tuning.drop("candidate"))
    before, after = records(done), records(moved)
    assert all(before[key]["test_loss/right"] != after[key]["test_loss/right"] for key in before)


class Stop(KeyboardInterrupt):
    """Somebody pulls the plug."""


@pytest.mark.slow
@pytest.mark.parametrize("at", [30, 150, 260])
def test_a_trial_that_was_stopped_comes_out_the_same(found, tmp_path, at):
    done, _ = found

    def watch(steps: int, total: int) -> None:
        if steps >= at:
            raise Stop

    with pytest.raises(Stop):
        trial(PLAN, tmp_path, jobs=1, watch=watch)
    again = trial(PLAN, tmp_path, jobs=1)
    assert again.tuning.equals(done.tuning)
    assert records(again) == records(done)
    assert again.verdict == done.verdict


def test_costs_are_measured_once(found, monkeypatch):
    done, folder = found

    def never(configs: object) -> dict:
        raise AssertionError

    monkeypatch.setattr(finals, "step_costs", never)
    again = trial(PLAN, folder, jobs=1)
    assert again.costs == done.costs
    assert records(again) == records(done)


@pytest.mark.slow
def test_another_study_in_the_folder_takes_no_part(found, tmp_path, monkeypatch):
    done, folder = found
    both = shutil.copytree(folder, tmp_path / "both")
    other = trial(replace(PLAN, methods=["upgrad"]), both, jobs=1)
    assert {path.name for path in (both / "runs").iterdir() if [*path.iterdir()]} == {
        "static",
        "upgrad",
        "upgrad-equal-time",
    }
    alone = trial(replace(PLAN, methods=["upgrad"]), tmp_path / "alone", jobs=1)
    assert (records(other), other.verdict) == (records(alone), alone.verdict)
    # And back: nothing is run again.
    monkeypatch.setattr("trimol.runs._execute.train", None)
    again = trial(PLAN, both, jobs=1)
    assert (records(again), again.verdict) == (records(done), done.verdict)


def test_a_step_is_timed_without_diverging():
    made = {name: _config(name) for name in ("static", "mgda")}
    assert all(seconds > 0 for seconds in costs.step_costs(made).values())


def _config(method: str):
    from trimol.runs.config import configure

    return configure(HERE + "Tug", method, steps=3, lr=1e30, batch_size=8, schedule="linear")


def test_trials_and_runs_can_be_limited(tmp_path):
    """Everybody stops at so many settings, in the middle of a round if need be."""
    plan = replace(PLAN, most=7, timed=False, rates=(0.2, 0.7))
    done = trial(plan, tmp_path, jobs=1)
    lr = {name: done.tuning.filter(method=name)["lr"].to_list() for name in plan.contenders}
    assert lr["mgda"][:2] == [0.2, 0.7]
    assert lr["static"][:3] == [0.2] * 3  # every second one, with each of three weights
    assert dict(done.tuning.group_by("method").len().iter_rows()) == {"static": 7, "mgda": 7}
    assert done.tuning["again"].is_null().all()  # further seeds are trials, too
    assert (done.timed, done.costs) == ({}, {"static": 1.0, "mgda": 1.0})
    assert {len(runs) for runs in done.runs.values()} == {plan.seeds}
    with pytest.raises(BadValue, match="most must be a whole number of at least 1, found 0"):
        replace(PLAN, most=0)


def test_what_is_begun_with_is_limited_too(tmp_path):
    plan = replace(PLAN, most=2, timed=False, rates=(0.2, 0.5, 0.7))
    done = trial(plan, tmp_path, jobs=1)
    assert dict(done.tuning.group_by("method").len().iter_rows()) == {"static": 2, "mgda": 2}


def test_time_that_is_up_ends_the_trials_in_their_order(monkeypatch, tmp_path):
    monkeypatch.setattr(trials, "ROUND", 2)
    monkeypatch.setattr(trials, "ROUNDS", 0)
    short = replace(PLAN, minutes=1e-9)
    done = trial(short, tmp_path, jobs=1)
    assert "after 2 of 4 trials" in done.notes[0]
    assert dict(done.tuning.group_by("method").len().iter_rows()) == {"static": 2, "mgda": 2}
    # Going on, with all the time there is, changes nothing that was decided.
    monkeypatch.setattr(stops.time, "monotonic", lambda: 0.0)
    assert trial(short, tmp_path, jobs=1).tuning.equals(done.tuning)


def test_nothing_is_tried_around_the_best_after_the_time_is_up(monkeypatch, tmp_path):
    plan = replace(PLAN, minutes=1e-9)
    done = trial(plan, tmp_path, jobs=1)
    assert set(dict(done.tuning.group_by("method").len().iter_rows()).values()) == {4}
    assert any("as the time was up, what lies around the best" in n for n in done.notes)
    monkeypatch.setattr(stops.time, "monotonic", lambda: 0.0)
    again = trial(plan, tmp_path, jobs=1)
    assert (again.tuning.equals(done.tuning), again.notes) == (True, done.notes)


@pytest.mark.slow
def test_a_finished_study_is_not_cut_when_reading_it_takes_longer(monkeypatch, tmp_path, found):
    done, _ = found
    plan = replace(PLAN, minutes=1e6)
    assert trial(plan, tmp_path, jobs=1).tuning.equals(done.tuning)
    late = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(stops.time, "monotonic", lambda: next(late))
    assert trial(plan, tmp_path, jobs=1).tuning.equals(done.tuning)


@pytest.fixture
def lost(monkeypatch):
    """Runs that diverge, by label and seed."""
    which: set[tuple[str, int]] = set()
    real = trials.RunFolders.execute

    def execute(self, wanted):
        return [
            Diverged("gone") if (series.label, seed) in which else run
            for (series, _, seed), run in zip(wanted, real(self, wanted), strict=True)
        ]

    monkeypatch.setattr(trials.RunFolders, "execute", execute)
    return which


@pytest.mark.parametrize("label", ["mgda", "mgda (equal time)"])
def test_a_method_that_diverged_in_final_runs_is_not_considered(found, lost, label):
    lost.add((label, 4))
    done = trial(PLAN, found[1], jobs=1)
    assert (done.verdict.use, done.verdict.gains) == ("static", ())
    assert done.notes[-1].startswith("mgda is not considered: it diverged")
    assert sentence(done).endswith(": no method came to an end.")


def test_that_static_diverged_in_final_runs_is_said(found, lost):
    lost.add(("static", 4))
    done = trial(PLAN, found[1], jobs=1)
    assert {gain.n for gain in done.verdict.gains} == {2}
    assert "static diverged in 1 of 3 final runs" in done.notes[-1]
    lost |= {("static", 2), ("static", 3)}
    with pytest.raises(Diverged, match="every final run of static diverged"):
        trial(PLAN, found[1], jobs=1)


def test_a_method_of_which_nothing_came_to_an_end_is_out_and_static_is_not(found, lost):
    lost |= {("mgda", seed) for seed in range(2)}
    done = trial(PLAN, found[1], jobs=1)
    assert done.settings.keys() == {"static"}
    assert done.notes == ["mgda is not considered: no setting of it came to an end: gone"]
    lost |= {("static", seed) for seed in range(2)}
    with pytest.raises(Diverged, match="no setting of static came to an end: gone"):
        trial(PLAN, found[1], jobs=1)


def test_a_number_that_a_method_lacks_is_no_gain_elsewhere(found, monkeypatch):
    """`right` of one final run is NaN with MGDA: that must not leave `left` alone to decide."""
    real, gone = verdicts.numbers, {"mgda"}

    def numbers(record):
        method = next(n for n, own in done.runs.items() if record in [r.record for r in own])
        return {**real(record), **({"right": math.nan} if method in gone else {})}

    done, folder = found
    with monkeypatch.context() as patch:
        patch.setattr(verdicts, "numbers", numbers)
        patch.setattr(finals, "ALIKE", 9.0)  # no runs at equal time
        assert trial(PLAN, folder, jobs=1).verdict.gains == ()
        # A metric that static lacks, too, is one that nobody is judged by.
        gone.add("static")
        again = trial(PLAN, folder, jobs=1)
        assert {gain.metric for gain in again.verdict.gains} == {"left"}
        assert "right is not judged by" in again.notes[-1]


@pytest.mark.slow
def test_goals_are_what_is_judged_by(tmp_path):
    plan = replace(PLAN, task=HERE + "Judged", trials=2, seeds=2, tuning_seeds=1)
    done = trial(plan, tmp_path, jobs=1)
    assert done.ways == {"near": "higher"}
    assert {gain.metric for gain in done.verdict.gains} == {"near"}
    assert done.reached == {}


def test_goals_that_are_no_metrics_are_refused(tmp_path):
    plan = replace(PLAN, task=HERE + "Misnamed", trials=1)
    with pytest.raises(BadValue, match=r"goals must name metrics of the task \(it has none\)"):
        trial(plan, tmp_path, jobs=1)


@pytest.mark.slow
def test_validation_data_are_held_out_of_train_where_there_are_none(tmp_path):
    plan = replace(PLAN, options={"validation": False}, trials=2, seeds=2, tuning_seeds=1)
    done = trial(plan, tmp_path, jobs=1)
    assert done.held_out == 8
    run: StoredRun = done.runs["static"][0]
    assert run.config.hold_out == 8
    task = load(run.config.task, run.config.task_options)
    whole = answers.data(task)
    task.hold_out = 8
    data = answers.data(task)
    parts = [*data.train[0].flatten().tolist(), *data.validation[0].flatten().tolist()]
    assert sorted(parts) == sorted(whole.train[0].flatten().tolist())
    assert torch.equal(data.test[0], whole.test[0])


def test_a_task_that_has_none_to_hold_out_is_refused(tmp_path):
    with pytest.raises(BadValue, match=r"sampled must have validation data .* a sampler of"):
        trial(replace(PLAN, task=HERE + "Sampled"), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert held_out(load(HERE + "Tug")) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"methods": ["static"]}, "methods must be"),
        ({"methods": ["mgda", "mgda"]}, "methods must be"),
        ({"methods": []}, "methods must be"),
        ({"methods": ["smg"]}, "whose batches grow"),
        ({"seeds": 0}, "seeds"),
        ({"trials": 0}, "trials"),
        ({"minutes": 0.0}, "minutes"),
    ],
)
def test_plans_that_make_no_sense(wrong, said):
    with pytest.raises(BadValue, match=said):
        replace(PLAN, **wrong)


@given(st.sampled_from(methods.names()), st.integers(2, 6), st.integers(1, 80))
def test_every_method_has_as_many_different_candidates(method, objectives, trials):
    made = grid(method, objectives, Settings(lr=0.1), trials)
    assert len(made) == trials
    shown = {json.dumps([c.lr, dict(c.hyperparameters), c.schedule]) for c in made}
    assert len(shown) == trials
    assert made[0].lr == 0.1
    longer = grid(method, objectives, Settings(lr=0.1), usual_trials(objectives))
    for name, value in longer[0].hyperparameters.items():
        if name in ("weights", "prefer"):
            assert sum(value) == pytest.approx(1, abs=1e-5)


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=5),
    st.floats(1e-6, 1e6),
    st.sampled_from(SCHEDULES),
    st.sampled_from([reach for level in FINE for reach in level]),
)
def test_neighbours_differ_in_one_number(weights, lr, schedule, factor):
    own = {"weights": weights, "gamma": 0.5, "seed": 0}
    near = moves(Candidate(lr, own, schedule=schedule), factor)
    rates = [c.lr / lr for name, c in near if name == "lr"]
    assert rates == pytest.approx([factor, 1 / factor], rel=1e-2)
    for name, candidate in near:
        changed = [n for n, value in candidate.hyperparameters.items() if value != own[n]]
        assert (candidate.schedule, candidate.hyperparameters["seed"]) == (schedule, 0)
        if name.startswith("weights"):
            place, found = int(name.split()[1]), candidate.hyperparameters["weights"]
            assert (changed, candidate.lr) == (["weights"], lr)
            assert sum(found) == pytest.approx(1, abs=1e-5)
            others = [weight / own for weight, own in zip(found, weights, strict=True)]
            ratio = others[place] / others[place - 1]
            assert min(abs(ratio / factor - 1), abs(ratio * factor - 1)) < 1e-2
        else:
            assert changed == ([] if name == "lr" else [name])
    ratios = [c.hyperparameters["gamma"] for name, c in near if name == "gamma"]
    assert ratios == pytest.approx([0.5 * factor, 0.5 / factor], rel=1e-2)


def test_another_schedule_comes_with_its_step_sizes():
    near = schedules(Candidate(1.0, schedule="linear"))
    assert {c.schedule for c in near} == {None, "cosine"}
    assert [c.lr for c in near if c.schedule is None] == [1.78, 1.0, 0.562, 0.316]


def test_the_best_that_are_run_again_lie_apart(found):
    done, _ = found
    for name in done.settings:
        again = [
            Candidate(row["lr"], json.loads(row["hyperparameters"]), schedule=row["schedule"])
            for row in done.tuning.filter(method=name).to_dicts()
            if row["again"] is not None
        ]
        assert 1 < len(again) <= trials.BEST
        assert all(apart(a, b, trials.APART) for n, a in enumerate(again) for b in again[:n])


@pytest.mark.slow
def test_step_sizes_go_on_beyond_the_grid_for_all_weights(tmp_path, monkeypatch):
    """Not for the best weights alone: on a few seeds these may be the wrong ones."""
    monkeypatch.setattr(trials.Trying, "_search", lambda self: None)
    done = trial(replace(PLAN, trials=27), tmp_path, jobs=1)
    tried = done.tuning.filter(method="static")
    assert len(tried) > 27
    rows = tried.partition_by("hyperparameters")
    assert len(rows) == 3
    for row in rows:
        best = row.sort("score")["lr"][-1]
        assert row["lr"].min() < best < row["lr"].max()


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=12))
def test_weights_of_a_grid_sum_to_one(given):
    """To what methods ask for; and of two weights each is rounded by itself, as ever."""
    made = normal(given)
    assert checks.simplex(made, len(made)).tolist() == pytest.approx(made, abs=1e-6)
    rounded = [float(f"{weight / sum(given):.6g}") for weight in given]
    assert sum(one != other for one, other in zip(made, rounded, strict=True)) <= (len(made) > 2)
    assert made == pytest.approx(rounded, rel=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:MGDA. the loss of objective .* is 0 without:RuntimeWarning")
def test_weights_whose_best_is_a_kink_are_found(tmp_path, monkeypatch):
    """The larger of two losses that differ by 17: one part in a hundred off costs as much."""
    monkeypatch.setattr(trials, "REACHES", FINE)
    monkeypatch.setattr(trials.Trying, "_refine", REFINE)
    plan = replace(PLAN, task=HERE + "Kink", trials=9, steps=60, seeds=2, tuning_seeds=1)
    done = trial(plan, tmp_path, jobs=1)
    assert done.tuning.filter(method="static")["score"].max() > -1.01  # −1 is the best there is
    assert not any("around the best" in note for note in done.notes)
    tried = done.tuning.filter(method="static")
    assert tried["again"].max() > -1.002  # the last is finer than the margin of 0.5 %
    assert tried.filter("chosen")["again"].item() == tried["again"].max()


@pytest.mark.slow
def test_the_last_search_runs_what_is_close_with_all_seeds(tmp_path, monkeypatch):
    """And what is kept of it is the same when the trial is read again."""
    monkeypatch.setattr(trials.Trying, "_refine", REFINE)
    done = trial(PLAN, tmp_path, jobs=1)
    for name in done.settings:
        again = done.tuning.filter(method=name).drop_nulls("again")
        rates = [math.log10(lr) for lr in again["lr"].unique().sort()]
        assert min(b - a for a, b in itertools.pairwise(rates)) < 1 / 30
        folders = {f.parent for f in tmp_path.rglob(CONFIG) if f"/{name}" in str(f)}
        seeds = [{c["seed"] for c in configs(folder)} for folder in {f.parent for f in folders}]
        assert sum({0, 1, 5, 6, 7} <= own for own in seeds) == len(again)
    read = trial(PLAN, tmp_path, jobs=1)
    assert (read.verdict, read.settings) == (done.verdict, done.settings)


def test_no_last_search_where_the_time_is_up(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.Trying, "_refine", REFINE)
    done = trial(replace(PLAN, minutes=1e-6), tmp_path, jobs=1)
    assert done.tuning["again"].null_count() == len(done.tuning)


@pytest.mark.slow
def test_a_method_that_cannot_run_here_is_left_out(tmp_path):
    """Losses below zero, which STCH refuses: MGDA is judged all the same."""
    plan = replace(PLAN, task=HERE + "Below", methods=["stch", "mgda"], trials=3, seeds=2)
    done = trial(plan, tmp_path, jobs=1)
    assert done.settings.keys() == {"static", "mgda"}
    assert {gain.method for gain in done.verdict.gains} == {"mgda"}
    assert done.notes[0].startswith("stch is not considered: it cannot run here: ideal must be")
    again = trial(plan, tmp_path, jobs=1)
    assert (again.verdict, again.notes) == (done.verdict, done.notes)


def test_a_task_that_fails_is_an_error_all_the_same(tmp_path):
    with pytest.raises(BadValue, match="every must"):
        trial(replace(PLAN, task=HERE + "Odd"), tmp_path, jobs=1)
