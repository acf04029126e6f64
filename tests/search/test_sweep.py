"""Sweeps: the same trials however often they are stopped, chosen on validation data alone."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
from sweep_tasks import write

from trimol._extras import MissingExtra
from trimol.runs import Interrupted, store
from trimol.runs.study import load
from trimol.search import Sweep, SweepPlan, Trial, TrialState, sweep
from trimol.training import Diverged

STEPS = 12


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("task"))


def plan(task: str, **others: object) -> SweepPlan:
    given = {
        "methods": ["static", "modo"],
        "steps": STEPS,
        "batch_size": 20,
        "lr": "log:1e-3..1",
        "schedule": ["constant", "linear"],
        "settings": {"static": {"weights": "simplex"}, "modo": {"gamma": "log:1e-3..10"}},
        "trials": 8,
    }
    return SweepPlan(task, **{**given, **others})


def content(found: Sweep) -> list[tuple[object, ...]]:
    """What a sweep came to, trial by trial, in order."""
    return [
        (t.setting.method, t.number, json.dumps(found.settings(t)), found.values(t), t.note)
        for t in found.trials
    ]


@pytest.fixture(scope="module")
def whole(task: str, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A search that nothing interrupted."""
    return sweep(plan(task), tmp_path_factory.mktemp("whole"))


class Killed(Exception):
    """In place of a kill: nothing after it is done."""


def killed_after(steps: int):
    """A watch that kills the search after so many steps of its runs."""
    count = iter(range(steps))

    def watch(config: object, step: int, record: object) -> None:
        if record is None and next(count, None) is None:
            raise Killed

    return watch


@pytest.mark.slow
@pytest.mark.parametrize("kills", [(1,), (30, 7, 55), (95, 90)])
def test_a_killed_search_comes_to_the_same_trials(
    task: str, whole: Sweep, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    for steps in kills:
        with pytest.raises(Killed):
            sweep(plan(task), tmp_path, watch=killed_after(steps))
        assert not (tmp_path / "study.json").exists()  # it does not look finished
    assert content(sweep(plan(task), tmp_path)) == content(whole)


def test_nothing_is_run_twice(task: str, whole: Sweep, tmp_path: Path) -> None:
    ran: list[int] = []
    folder = tmp_path / "again"
    shutil.copytree(whole.folder, folder)
    again = sweep(plan(task), folder, watch=lambda config, step, record: ran.append(step))
    assert content(again) == content(whole)
    assert ran == []
    more = sweep(plan(task, trials=9), folder, watch=lambda c, step, r: ran.append(step))
    assert [t for t in content(more) if t[1] < 8] == content(whole)
    assert len(ran) == 2 * (STEPS + 1)  # a run of each method, with one look at its end


def test_only_trainings_and_the_study_are_stored(whole: Sweep) -> None:
    names = {path.name for path in whole.folder.iterdir()}
    assert names == {".lock", "tuning-only", "study.json", "trials.parquet", "axes.parquet"}


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_a_trial_that_is_trained_again_is_named(
    task: str, whole: Sweep, tmp_path: Path, name: str
) -> None:
    folder = shutil.copytree(whole.folder, tmp_path / "again")
    run = sorted((folder / "tuning-only" / "modo").glob("*/seed-0"))[0]
    (run / "checkpoint.pt").unlink(missing_ok=True)
    (run / name).unlink()
    with pytest.warns(RuntimeWarning) as said:
        again = sweep(plan(task), folder)
    line = f"{run / name} is gone: the run is made again from its last checkpoint, or from its"
    assert [str(each.message) for each in said] == [f"{line} start"]
    assert content(again) == content(whole)


def test_another_plan_may_share_the_folder(task: str, whole: Sweep, tmp_path: Path) -> None:
    sweep(plan(task, trials=1, steps=6), tmp_path)
    assert content(sweep(plan(task), tmp_path)) == content(whole)
    assert len(runs_in(tmp_path)) == 18


def runs_in(folder: Path) -> list[store.StoredRun]:
    return list(store.find(folder / store.ASIDE))


@pytest.mark.slow
def test_the_number_of_jobs_decides_nothing(
    task: str, whole: Sweep, tmp_path: Path, quick_workers: None
) -> None:
    with pytest.raises(Killed):
        sweep(plan(task), tmp_path, jobs=2, show=kill_at_second())
    assert content(sweep(plan(task), tmp_path, jobs=2)) == content(whole)


def kill_at_second():
    calls = iter(range(1))

    def stop(trials: object) -> None:
        if next(calls, None) is None:
            raise Killed

    return stop


def test_an_interrupted_sweep_says_how_to_resume(task: str, tmp_path: Path) -> None:
    def stop(trials: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^interrupted after 8 trials, and all is saved: run"):
        sweep(plan(task), tmp_path, show=stop)
    assert not (tmp_path / "study.json").exists()


def test_one_methods_trials_do_not_depend_on_others(
    task: str, whole: Sweep, tmp_path: Path
) -> None:
    own = {"methods": ["modo"], "settings": {"modo": {"gamma": "log:1e-3..10"}}}
    alone = sweep(plan(task, **own), tmp_path)
    assert content(alone) == [t for t in content(whole) if t[0] == "modo"]


@pytest.mark.slow
def test_tpe_learns_and_seeds_differ(task: str, tmp_path: Path) -> None:
    """Of 24 trials, the later ones are nearer to the best step size; by random they are not."""
    own = {"methods": ["static"], "settings": {}, "schedule": None, "lr": "log:1e-6..1"}
    tried = {}
    for search, seed in (("tpe", 0), ("tpe", 1), ("random", 0)):
        folder = tmp_path / f"{search}{seed}"
        found = sweep(plan(task, **own, trials=24, search=search, seed=seed, steps=2), folder)
        tried[search, seed] = [trial.setting.lr for trial in found.trials]
    assert tried["tpe", 0] != tried["tpe", 1]
    late = {key: sum(lr > 0.01 for lr in lrs[12:]) / 12 for key, lrs in tried.items()}
    assert min(late["tpe", 0], late["tpe", 1]) > 0.6
    assert late["random", 0] < 0.6  # a third of the range, by ratio


@pytest.mark.slow
def test_a_grid_is_run_once_and_needs_no_optuna(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    own = {"lr": "log:0.01..1:3", "trials": None, "settings": {"static": {"weights": "simplex:2"}}}
    found = sweep(plan(task, **own), tmp_path)
    assert found.plan.how == "grid"
    assert len({trial.setting.key for trial in of_method(found, "static")}) == 18
    assert [len(of_method(found, method)) for method in ("static", "modo")] == [3 * 2 * 3, 6]
    assert len(runs_in(tmp_path)) == 24
    wider = sweep(plan(task, **{**own, "lr": "log:0.001..1:4"}), tmp_path)
    assert len(wider.trials) == 32
    assert len(runs_in(tmp_path)) == 32  # 24 of them were there
    with pytest.raises(MissingExtra, match=r"needs optuna: pip install 'trimol\[studies\]'"):
        sweep(plan(task), tmp_path / "other")


def test_the_best_is_what_a_slow_search_of_the_runs_finds(whole: Sweep) -> None:
    """Read from the runs' own folders: the least mean of losses relative to their medians."""
    from statistics import median

    runs = {run.path: run.record for run in runs_in(whole.folder)}
    assert len(runs) == 16
    names = ("validation_loss/fit", "validation_loss/slope")
    middle = {name: median(record[name] for record in runs.values()) for name in names}
    cost = {
        path: sum(record[name] / middle[name] for name in names) for path, record in runs.items()
    }
    for method, best in whole.best.items():
        own = {path: value for path, value in cost.items() if method in path.parts}
        assert whole.folders(best) == [min(own, key=own.__getitem__)]
    front = {
        path
        for path, a in runs.items()
        if not any(
            all(b[n] <= a[n] for n in names) and any(b[n] < a[n] for n in names)
            for b in runs.values()
        )
    }
    assert {whole.folders(trial)[0] for trial in whole.front} == front


def test_test_data_are_never_looked_at(task: str, whole: Sweep, tmp_path: Path) -> None:
    """Test data that are all NaN change nothing."""
    poisoned = sweep(plan(task, options={"poison": True}), tmp_path)
    assert content(poisoned) == content(whole)
    for run in runs_in(tmp_path):
        assert not [name for name in run.record if "test" in name]


def test_without_validation_data_samples_of_train_serve_as_such(task: str, tmp_path: Path) -> None:
    own = {"settings": {}, "schedule": None, "trials": None, "lr": [0.1, 0.2]}
    found = sweep(plan(task, **own, options={"held_out": False}), tmp_path)
    runs = runs_in(tmp_path)
    assert len(runs) == len(found.trials)
    assert {run.config.hold_out for run in runs} == {found.problem.hold_out} != {0}
    for run in runs:
        assert not [name for name in run.record if "test" in name]
    assert SweepPlan("digits", ["static"], steps=1, lr=[1, 2]).problem.hold_out == 1437 // 5
    with pytest.raises(ValueError, match="must have validation data to choose settings on, found"):
        SweepPlan("quadratic", ["static"], steps=1, options={"samples": 9})


def test_goals_are_the_tasks_where_it_has_some(task: str, tmp_path: Path) -> None:
    found = sweep(plan(task.replace("Curves", "Judged"), trials=3), tmp_path)
    assert found.plan.goals == {"fit": {"error": "lower"}}
    for method, best in found.best.items():
        errors = [found.values(t)["validation/error"] for t in of_method(found, method)]
        assert found.values(best) == {"validation/error": min(errors)}
    assert [len(found.values(t)) for t in found.trials] == [1] * 6


def test_a_best_at_the_edge_is_noted(task: str, tmp_path: Path) -> None:
    own = {"methods": ["static"], "settings": {}, "schedule": None, "trials": None}
    found = sweep(plan(task, **own, lr=[0.1, 1e-4, 1e-5]), tmp_path)
    assert found.edges(found.best["static"]) == ["lr"]
    said = "The best static is at the edge of what was tried of lr: better settings may lie beyond."
    assert said in load(tmp_path).notes


def test_what_diverges_is_noted_and_not_chosen(task: str, tmp_path: Path) -> None:
    own = {"methods": ["static"], "settings": {}, "schedule": None, "trials": None}
    found = sweep(plan(task, **own, lr=[0.1, 1e30]), tmp_path)
    good, bad = found.trials
    assert "nan" in bad.note or "inf" in bad.note
    assert (found.values(bad), bad.score) == ({}, -math.inf)
    assert found.best["static"] is good
    study = load(tmp_path)
    assert f"1 failed (the first: {bad.note})" in " ".join(study.notes)
    assert study.tables["trials"]["score"].to_list() == [0.0, None]
    with pytest.raises(Diverged, match="no setting of static came to an end: "):
        sweep(plan(task, **own, lr=[1e29, 1e30]), tmp_path / "b")


def test_what_is_infinite_on_validation_data_is_never_the_best(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three trials: then the median is infinite, too, and nothing is relative to that."""
    own = {"methods": ["static"], "settings": {}, "schedule": None, "trials": None}
    given = plan(task, **own, lr=[0.3, 0.2, 0.1])
    record = store.StoredRun.record.fget

    def spoilt(run: store.StoredRun) -> dict[str, float]:
        found = dict(record(run))
        return found | ({"validation_loss/fit": math.inf} if run.config.lr > 0.1 else {})

    monkeypatch.setattr(store.StoredRun, "record", property(spoilt))
    found = sweep(given, tmp_path)
    assert found.best["static"].setting.lr == 0.1
    assert found.trials[0].note == "fit became NaN or infinite"


def test_tpe_goes_on_after_what_diverges(task: str, tmp_path: Path) -> None:
    own = {"methods": ["static"], "settings": {}, "schedule": None, "lr": "log:1e-3..1e40"}
    found = sweep(plan(task, **own, trials=24), tmp_path)
    lost = [trial.state is TrialState.FAILED for trial in found.trials]
    assert 0 < sum(lost) < 24
    assert sum(lost[12:]) < sum(lost[:12])


def test_values_are_means_over_seeds(task: str, tmp_path: Path) -> None:
    own = {"methods": ["static"], "settings": {}, "schedule": None, "trials": None}
    found = sweep(plan(task, **own, lr=[0.1, 0.2], seeds=3), tmp_path)
    for trial in found.trials:
        records = [store.load(folder).record for folder in found.folders(trial)]
        assert len({r["validation_loss/fit"] for r in records}) == 3
        mean = sum(r["validation_loss/fit"] for r in records) / 3
        assert found.values(trial)["validation_loss/fit"] == pytest.approx(mean)
    rows = load(tmp_path).rows
    assert {row["n"] for row in rows} == {3}


def of_method(found: Sweep, method: str) -> list[Trial]:
    return [trial for trial in found.trials if trial.setting.method == method]


@pytest.mark.slow
def test_halving_gives_up_on_the_worst_and_changes_no_other(task: str, tmp_path: Path) -> None:
    own = {"search": "random", "trials": 9}
    full = sweep(plan(task, **own, steps=18), tmp_path / "full")
    cut = sweep(plan(task, **own, steps=18, prune="halving"), tmp_path / "cut")
    for method in ("static", "modo"):
        before, after = of_method(full, method), of_method(cut, method)
        assert [t.setting for t in before] == [t.setting for t in after]
        complete = [t.number for t in after if t.is_complete]
        assert 1 <= len(complete) <= 3
        for number in complete:
            assert after[number].points == before[number].points
        for trial in after:
            pruned = trial.state is TrialState.PRUNED
            assert pruned == trial.note.startswith("pruned after 1/")
            assert pruned != trial.is_complete
            assert pruned != bool(trial.points)
    steps = [run.config.steps for run in runs_in(tmp_path / "cut")]
    assert sorted(set(steps)) == [2, 6, 18]
    assert steps.count(2) == 18
    assert steps.count(6) <= 8
    assert "were pruned by successive halving" in " ".join(load(tmp_path / "cut").notes)
    assert "pruned" not in " ".join(load(tmp_path / "full").notes)
    halved, again = plan(task, **own, steps=18, prune="halving"), tmp_path / "again"
    for steps in (10, 60):
        with pytest.raises(Killed):
            sweep(halved, again, watch=killed_after(steps))
    assert content(sweep(halved, again)) == content(cut)
    assert content(sweep(halved, again, watch=killed_after(0))) == content(cut)  # all is read


def test_a_search_is_a_study_with_a_command_that_repeats_it(whole: Sweep) -> None:
    study = load(whole.folder)
    table = study.tables["trials"]
    assert len(table) == len(whole.trials)
    assert table["best"].sum() == 2
    assert table["setting/weights.fit"].is_not_null().sum() == 8
    assert {row["metric"] for row in study.rows} == {"validation_loss/fit", "validation_loss/slope"}
    assert "--set static.weights=simplex" in study.command
    assert "--trials 8" in study.command
    assert "trimol compare" in study.notes[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lr": "log:0..1"}, "static.lr must begin above 0 to go by ratio"),
        ({"lr": [0.1], "schedule": None, "settings": {}}, "something to try"),
        ({"settings": {"stch": {"mu": [1]}}}, "settings must be of static, modo, found 'stch'"),
        ({"settings": {"modo": {"gamma": [-1.0]}}}, "gamma must be a finite number"),
        (
            {"methods": ["stch"], "settings": {"stch": {"prefer": "simplex:2"}}},
            r"prefer must be above 0, found \[1.0, 0.0\]",
        ),
        ({"settings": {"modo": {"nu": [1.0]}}}, "modo has no hyper-parameter 'nu'"),
        ({"search": "all"}, "search must be 'grid' or 'random' or 'tpe', found 'all'"),
        ({"search": "grid", "trials": None}, "lr must have a number of points for a grid"),
        ({"lr": [0.1, 0.2], "settings": {}}, "trials must be left out for a grid"),
        ({"prune": "early"}, "prune must be 'none' or 'halving', found 'early'"),
        ({"prune": "halving", "steps": 8}, "steps must be at least 9 to be halved, found 8"),
        ({"methods": []}, "methods must be one or more different names"),
        ({"trials": 0}, "trials must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_searched_is_said_at_once(task: str, given: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan(task, **given)
