"""The tasks with known answers, and the table that is made of them."""

import json
import math
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trimol import tasks
from trimol.compare._answer import detectable
from trimol.runs import compare
from trimol.runs._regimes import Regime
from trimol.search import Setting
from trimol.tasks.loading import known_options
from trimol.training import start, train
from trimol.training.replicas import Replicas

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def verdicts(load_script):
    sys.path.insert(0, str(BENCHMARKS))  # as for a script
    try:
        return load_script("benchmarks/verdicts.py")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def answers(verdicts):
    return verdicts.BY_NAME


OWN = [
    *("bowls", "valley", "concave", "triangle", "scaled"),
    *("noise", "agreeing", "late", "collapse"),
]


def made(answers, name, **options):
    return tasks.load(answers[name].task, options)


def test_there_is_one_for_every_regime_and_verdict(answers):
    assert len(answers) >= 10
    told = {regime for answer in answers.values() for regime in answer.regimes}
    assert told == set(Regime.__args__)
    assert {answer.static for answer in answers.values()} == {True, False}
    assert set(OWN) | {"digits", "mnist"} == set(answers)


def test_static_weights_with_a_large_step_size_get_through_the_valley(answers):
    """What is held to be known: they come to the middle of the front."""
    task, zero = made(answers, "valley", seed=1), torch.zeros(2)
    runs = Replicas(task, "static", seeds=range(24), lr=1.0, schedule=lambda step: 1 - step / 300)
    ends = task.values(*runs.train(steps=300).params.values(), zero).amax(-1)
    middle = task.values(task.answer(zero).of_mean, zero).max().item()
    assert ends.median().item() == pytest.approx(middle, rel=5e-3)
    assert (ends > middle + 1).sum() <= 1  # is stuck


@pytest.mark.parametrize("name", OWN)
def test_each_has_data_to_choose_on_and_a_goal(answers, name):
    task, other = made(answers, name, seed=1), made(answers, name, seed=2)
    data = task.data()
    assert data.validation is not None
    assert task.goals
    assert "worst" in task.metrics(task.model(), data.test)
    assert not torch.equal(data.train[0], other.data().train[0])
    assert type(task).__doc__


@pytest.mark.parametrize("name", OWN)
def test_the_mean_loss_of_every_data_set_is_the_formula(answers, name):
    """So that nothing but the noise of mini-batches is random."""
    task = made(answers, name, seed=1)
    model, data = task.model(), task.data()
    on = [task.losses(model, part) for part in (data.train, data.validation, data.test)]
    torch.testing.assert_close(on[0], on[1])
    torch.testing.assert_close(on[0], on[2])


@pytest.mark.parametrize("name", OWN)
def test_the_gradients_are_those_of_the_losses(answers, name):
    task = made(answers, name, seed=1)
    z = task.data().train[0][:6].unflatten(0, (2, 3)).mean(1)  # two points, a mean of three each
    torch.manual_seed(0)
    x = torch.randn(2, len(task.model()()), dtype=torch.float64)
    found = task.jacobian(x, z)
    for place in range(2):
        own = torch.func.jacrev(lambda point, place=place: task.values(point, z[place]))(x[place])
        torch.testing.assert_close(found[place], own)


def worst(task, method, steps=150, lr=None, seed=0, **hyperparameters):
    rate = task.settings["static"].lr if lr is None else lr
    run = start(task, method, lr=rate, batch_size=16, seed=seed, hyperparameters=hyperparameters)
    model = train(run, steps).model
    with torch.no_grad():
        return float(task.metrics(model, task.data().test)["worst"])


def test_no_weighting_reaches_a_concave_front_and_a_method_does(answers):
    task = made(answers, "concave")
    weights = [[w, 1 - w] for w in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert min(worst(task, "static", weights=each) for each in weights) > 0.9
    assert worst(task, "stch") < 0.64


def test_weights_undo_a_factor(answers):
    task = made(answers, "scaled")
    assert worst(task, "static") > 6
    assert worst(task, "static", lr=0.1, weights=[1 / 31, 30 / 31]) < 2.1  # 2 is the least


def test_min_norm_weights_collapse_and_equal_ones_do_not(answers):
    task = made(answers, "collapse")
    assert worst(task, "mgda") > 1.5
    assert worst(task, "static") < 0.01


@pytest.mark.parametrize("name", ["bowls", "late"])
def test_equal_weights_are_the_best_there_is(answers, name):
    task = made(answers, name)
    # The least of all points of a fine grid, whatever way leads there.
    grid = torch.cartesian_prod(*[torch.linspace(-5, 5, 201, dtype=torch.float64)] * 2)
    least = min(float(task.level(x).max()) for x in grid[::3])
    assert worst(task, "static", lr=0.1) < least * 1.03


def test_they_train_together(answers, tmp_path):
    task = answers["bowls"].task
    given = {"seeds": 2, "steps": 5, "batch_size": 16, "task_options": {"seed": 3}}
    both = compare(task, ["static", "stch"], folder=tmp_path, together=True, **given)
    assert len(both.runs) == 2


def test_a_landscape_is_best_where_it_says_and_its_gain_is_the_truth(verdicts):
    shape = replace(verdicts.SHAPES["steep, wrong start"], gain=0.1)
    right = Setting("static", 10**0.5 / 10, {"weights": [1, 10**0.5]})
    start = Setting("static", 0.1, {"weights": [1, 1]})
    assert shape.levels(right) == pytest.approx([1, 2])
    assert shape.gain_of(right, start) == pytest.approx(
        -math.log(1.15), abs=4e-3
    )  # 0.3 · 0.5², twice
    method = Setting("upgrad", right.lr)
    assert shape.gain_of(right, method) == pytest.approx(-math.log(0.9))
    assert shape.gain_of(right, method, planted=False) == pytest.approx(0)
    drawn = [shape(right, seed, True)["m0"] for seed in range(400)]
    assert statistics.fmean(drawn) == pytest.approx(1, abs=0.02)
    assert statistics.stdev(drawn) == pytest.approx(0.1, rel=0.15)


LOWER, HIGHER = -math.log(0.9), math.log(1.1)  # a tenth better
NOISY = {
    "outliers": LOWER,
    "collapses": LOWER,
    "four metrics": (LOWER + HIGHER) / 2,
    "three objectives": (2 * LOWER + HIGHER) / 3,
    "methods collapse": LOWER - 0.1 * math.log(1.5),
}


@pytest.mark.parametrize(("name", "truth"), NOISY.items())
def test_the_mean_of_noisy_trainings_has_the_true_gain(verdicts, name, truth):
    shape = replace(verdicts.SHAPES[name], gain=0.1)
    pair = Setting("static", 0.1, {"weights": [1] * shape.objectives}), Setting("upgrad", 0.1)
    base, own = (
        {
            m: statistics.fmean(math.log(shape(s, seed, True)[m]) for seed in range(1500))
            for m in shape.goals
        }
        for s in pair
    )
    signs = {m: 1 if way == "lower" else -1 for m, way in shape.goals.items()}
    gain = statistics.fmean(sign * (base[m] - own[m]) for m, sign in signs.items())
    assert gain == pytest.approx(truth, abs=0.01)
    assert shape.gain_of(*pair) == pytest.approx(truth, abs=1e-4)


def test_a_planted_gain_is_diagnosed_kept_and_counted(verdicts, tmp_path, monkeypatch):
    assert len(verdicts.SHAPES) >= 14
    gains = (0.0, 0.2, verdicts.LIMIT)
    cases = [verdicts.Case("planted", "flat, noise 1 %", 20, 1, gain) for gain in gains]
    found = [verdicts.asked(tmp_path, case) for case in cases]
    assert found[1]["use"] == "upgrad"
    assert found[1]["truth"] == pytest.approx(-math.log(0.8), abs=0.02)
    monkeypatch.setattr(verdicts, "diagnose", None)  # nothing is asked again
    table = verdicts.study(tmp_path, cases, "--seeds 0")
    assert table["diagnoses"] == found
    rows = {row["of"]: row for row in table["rows"]}
    assert set(rows) == {"budget", "name", "gain"}
    assert (rows["budget"]["n"], rows["name"]["name"]) == (3, "flat, noise 1 %")
    assert rows["budget"]["truth"]["false stay"] == [0, 1]
    assert json.loads(json.dumps(table)) == table


def said(use, truth, gain=0.05, **others):
    row = {"name": "flat", "budget": 20, "gain": gain, "use": use, "truth": truth, "said": 0.03}
    row |= {"by_tuning": truth, "ci": 0.05, "seeds": 5, "noise": 0.03}
    return row | others


def test_what_is_wrong_is_counted_by_both_truths(verdicts):
    rows = verdicts.with_truth([said("upgrad", -0.01), said("static", 0.09), said("mgda", 0.05)])
    assert [row["of_budget"] for row in rows] == pytest.approx([0.13 / 3] * 3)
    found = verdicts.rates(rows)
    assert found["truth"] == {"false use": [1, 1], "false stay": [1, 1], "covered": [2, 3]}
    assert found["of_budget"] == {"false use": [0, 0], "false stay": [0, 0], "covered": [3, 3]}
    assert found["stays wrong"] == [1, 1]
    assert (found["found"], found["promised"]) == ([1, 1], pytest.approx(0.8, abs=0.1))


def test_the_chance_of_a_gain_is_that_of_the_plan(verdicts):
    row = said("upgrad", 0.03 * detectable(5))
    assert verdicts.chance(row) == pytest.approx(0.8, abs=0.02)
    assert verdicts.chance(row | {"truth": 0.002, "noise": 1e-5}) == 0  # too small to be named


def test_a_task_with_a_known_answer_is_asked_once(verdicts, answers, tmp_path, monkeypatch):
    case = verdicts.Case("known", "collapse", 3, 7)  # too few trainings to decide
    first = verdicts.asked(tmp_path, case)
    assert first["checked"] in answers["collapse"].regimes
    assert verdicts.right_regime(answers["collapse"], first)
    assert not verdicts.right_regime(answers["collapse"], first | {"warnings": []})
    monkeypatch.setattr(verdicts, "diagnose", None)
    assert verdicts.asked(tmp_path, case) == first
    (row,) = verdicts.study(tmp_path, [case], "")["rows"]
    assert (row["n"], row["check_right"], row["undecided"]) == (1, 1, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["known-collapse-0-0-3-7.json"]


def test_a_method_where_static_suffices_is_wrong(verdicts, answers):
    ends = {
        (name, use): verdicts.outcome(answers[name], {"use": use})
        for name in ("bowls", "concave")
        for use in ("static", "stch", "undecided")
    }
    assert [key for key, end in ends.items() if end == "right"] == [
        ("bowls", "static"),
        ("concave", "stch"),
    ]
    assert sum(end == "undecided" for end in ends.values()) == 2


def test_what_is_said_of_built_in_tasks_is_kept(load_script, tmp_path, monkeypatch):
    real = load_script("benchmarks/real_verdicts.py")
    for name, plan in real.PLANS.items():
        assert set(plan.options) <= set(known_options(name, plan.options)[0])
    asked = []

    def diagnose(name, *, folder, **given):
        asked.append((name, given["budget"], given["steps"]))
        folder.mkdir()
        return SimpleNamespace(
            regime="none",
            use="static",
            sentence="Stay.",
            answer=None,
            evidence={"trial": {"is_ratio": True}},
            spent=given["budget"],
        )

    monkeypatch.setattr(real, "diagnose", diagnose)
    work = tmp_path / "work"
    work.mkdir()
    first = real.asked(work, "digits", 30)
    assert real.asked(work, "digits", 30) == first
    assert asked == [("digits", 30, real.PLANS["digits"].steps)]
    assert [path.name for path in work.iterdir()] == ["digits-30.json"]
    table = real.study(work)
    assert table["rows"] == [first]
    assert "digits" not in table["missing"]
    before = tmp_path / "before.json"
    row = {"task": "digits", "use": "stch", "regime": "noise", "tried": 6, "other": 1}
    before.write_text(json.dumps({"rows": [row]}))
    (beside,) = real.study(work, before)["rows"]
    assert beside["before"] == {"use": "stch", "regime": "noise", "tried": 6}
    before.write_text(json.dumps({"rows": [beside]}))
    assert real.study(work, before)["rows"] == [beside]
