"""The tasks with known answers, and the table that is made of them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trimol import tasks
from trimol.runs import compare
from trimol.runs._regimes import Regime
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


def test_what_was_asked_is_kept_and_counted(verdicts, answers, tmp_path, monkeypatch):
    plan = verdicts.Plan(tmp_path, look_only=True)
    first = verdicts.asked(plan, "collapse", 7)
    assert first["regime"] in answers["collapse"].regimes
    assert verdicts.right_regime(answers["collapse"], first)
    assert not verdicts.right_regime(answers["collapse"], first | {"warnings": []})
    monkeypatch.setattr(verdicts, "look", None)  # nothing is asked again
    assert verdicts.asked(plan, "collapse", 7) == first
    table = verdicts.study(plan, ["collapse", "late"], [7, 8])
    (row,), (said,) = table["rows"], table["said"]
    assert (said["seed"], said["regime"]) == (7, first["regime"])
    assert (row["n"], row["regime_right"], row["tried"]) == (1, 1, 0)
    assert json.dumps(row)


def test_a_method_where_static_suffices_is_wrong(verdicts, answers):
    assert verdicts.right_use(answers["bowls"], {"use": "static"})
    assert not verdicts.right_use(answers["bowls"], {"use": "stch"})
    assert verdicts.right_use(answers["concave"], {"use": "stch"})
    assert not verdicts.right_use(answers["concave"], {"use": "static"})


def test_what_is_said_of_built_in_tasks_is_kept(load_script, tmp_path, monkeypatch):
    real = load_script("benchmarks/real_verdicts.py")
    for name, budget in real.BUDGETS.items():
        assert set(budget.options) <= set(known_options(name, budget.options)[0])
    asked = []

    def diagnose(name, *, folder, **given):
        asked.append((name, given["steps"]))
        folder.mkdir()
        return SimpleNamespace(regime="none", use="static", sentence="Stay.", trial=None)

    monkeypatch.setattr(real, "diagnose", diagnose)
    first = real.asked(tmp_path, "digits")
    assert real.asked(tmp_path, "digits") == first
    assert asked == [("digits", real.BUDGETS["digits"].steps)]
    assert [path.name for path in tmp_path.iterdir()] == ["digits.json"]
    assert real.study(tmp_path)["rows"] == [first]
