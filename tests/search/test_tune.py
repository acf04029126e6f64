"""`tune`: a budget that is kept, results that are kept, and what is chosen."""

import json
import math
import random
from pathlib import Path
from statistics import fmean, stdev

import pytest

import trimol
from trimol.search import Setting, Tuned

BEST = 0.8


def bowl(setting: Setting, seed: int = 0, noise: float = 0.0) -> dict[str, float]:
    """Two metrics that are both best at weights (0.8, 0.2) and a learning rate of 1."""
    a, _ = setting.weights
    off = abs(a - BEST) + 0.1 * abs(setting.lr - 1)
    luck = random.Random(f"{setting.key} {seed}").gauss(0, noise)
    return {"a": 1 + off + luck, "b": 2 + off + luck}


def tuned(budget: int, **options: object) -> tuple[Tuned, list[Setting]]:
    calls: list[Setting] = []

    def train(setting: Setting, seed: int) -> dict[str, float]:
        calls.append(setting)
        return bowl(setting, seed, noise=float(options.get("noise", 0.0)))

    own = {name: value for name, value in options.items() if name != "noise"}
    found = trimol.tune(train, objectives=["a", "b"], lr=1.0, budget=budget, **own)
    return found, calls


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 10, 20, 23])
def test_the_budget_is_never_exceeded(budget):
    found, calls = tuned(budget)
    assert len(calls) == found.spent <= budget
    assert calls[0].weights == (0.5, 0.5)


def test_more_trainings_come_nearer():
    off = [abs(tuned(budget)[0].weights[0] - BEST) for budget in (1, 10, 40)]
    assert off[0] == pytest.approx(0.3)
    assert off[2] < 0.05
    assert off[2] <= off[1] <= off[0]


def test_what_somebody_has_now_is_tried_first_and_is_the_reference():
    found, calls = tuned(10, current={"weights": [4.0, 1.0], "lr": 1.0})
    assert calls[0].weights == (0.8, 0.2)
    assert found.setting == found.reference == calls[0]
    assert found.sentence.startswith("Keep static, weights (0.8, 0.2), learning rate 1: none of ")


def test_a_gain_has_an_interval_on_seeds_that_the_search_did_not_see():
    found, _ = tuned(30, noise=0.01)
    assert found.seeds == 3
    truth = bowl(found.reference), bowl(found.setting)
    gain = sum(math.log(a / b) for a, b in zip(*(t.values() for t in truth), strict=True)) / 2
    assert abs(found.gain - gain) < 2 * found.ci
    assert gain > 0.12  # of 0.2 that there is
    assert f"{100 * -math.expm1(-found.gain):.2g} ± " in found.sentence


def test_a_gain_that_was_luck_is_not_kept():
    """All settings are alike but for noise: in half of the searches the reference is kept."""
    kept = 0
    for seed in range(12):

        def train(setting, seed):
            luck = random.Random(f"{setting.key} {seed}").gauss(0, 0.1)
            return {"a": 1 + luck, "b": 1 + luck}

        found = trimol.tune(train, objectives=["a", "b"], lr=1.0, budget=10, seed=100 * seed)
        kept += found.setting == found.reference
    assert 3 <= kept <= 11


def test_a_search_that_was_killed_goes_on_with_what_it_had(tmp_path):
    whole, _ = tuned(10)
    calls = 0

    def dies(setting):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return bowl(setting)

    with pytest.raises(KeyboardInterrupt):
        trimol.tune(dies, objectives=["a", "b"], lr=1.0, budget=10, folder=tmp_path)
    kept = json.loads((tmp_path / "trainings.json").read_text())["trainings"]
    assert len(kept) == 3
    calls = 4
    found = trimol.tune(dies, objectives=["a", "b"], lr=1.0, budget=10, folder=tmp_path)
    assert found.setting == whole.setting
    assert calls - 4 == whole.spent - 3


def test_diverged_settings_are_passed_over():
    def train(setting):
        value = bowl(setting)
        return {name: float("nan") for name in value} if setting.lr > 2 else value

    found = trimol.tune(train, objectives=["a", "b"], lr=1.0, budget=10)
    assert found.lr <= 2
    assert any("became NaN" in trial.note for trial in found.trials)


def test_a_search_without_a_better_setting_goes_on_with_what_was_meant_to_confirm_it():
    found, calls = tuned(20, current={"weights": [4.0, 1.0], "lr": 1.0})
    assert found.setting == found.reference
    assert found.spent == len(calls) >= 18


@pytest.mark.parametrize("samples", [40, 4000])
def test_few_validation_samples_are_no_reason_to_change(samples, tmp_path):
    """Weights that fit the noise of 40 samples are not kept; those of 4000 have none to fit."""
    folder = tmp_path / str(samples)
    options = {"validation": samples}
    kept = 0
    for seed in range(6):
        found = trimol.tune(
            f"{Path(__file__).with_name('noisy_task.py')}:Noisy",
            budget=5,
            steps=30,
            folder=folder / str(seed),
            task_options={**options, "seed": seed},
            jobs=1,
        )
        kept += found.setting == found.reference
        assert found.error is None or found.error > 0
    assert kept >= 3 if samples == 40 else kept <= 2


def test_the_noise_of_samples_is_that_of_fresh_samples(tmp_path):
    """The jackknife's standard error beside the spread over many draws of validation data."""
    from trimol.search import TaskProblem, Training
    from trimol.search._tune import standard_error

    task = f"{Path(__file__).with_name('noisy_task.py')}:Noisy"
    settings = [Setting("static", 0.1, {"weights": [w, 1 - w]}) for w in (0.5, 0.9)]
    gains, errors = [], []
    for seed in range(20):
        problem = TaskProblem(
            task, tmp_path / str(seed), steps=30, options={"validation": 50, "seed": seed}, jobs=1
        )
        points = problem.train([Training(setting, 0) for setting in settings])
        groups = [problem.points_without_parts(setting, 0) for setting in settings]
        gains.append(points[1]["a"] - points[0]["a"])
        errors.append(standard_error([b["a"] - a["a"] for a, b in zip(*groups, strict=True)]))
    assert fmean(errors) == pytest.approx(stdev(gains), rel=0.35)


def test_a_task_is_tuned_and_its_runs_are_kept(tmp_path):
    found = trimol.tune("digits", budget=6, steps=20, folder=tmp_path)
    assert found.spent <= 6
    assert sum(found.weights) == pytest.approx(1, abs=2e-3)
    runs = list((tmp_path / "tuning-only" / "static").glob("*/seed-*"))
    assert len(runs) == found.spent
    assert found.command.startswith("trimol run digits --method static --lr ")
    assert trimol.tune("digits", budget=6, steps=20, folder=tmp_path).setting == found.setting


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 0}, "budget must be a whole number of at least 1, found 0"),
        ({"objectives": None}, "objectives must be given with a function, found None"),
        (
            {"current": {"weights": [1, 2, 3]}},
            r"current weights must be 2 numbers above 0, found \[",
        ),
        (
            {"goals": {"accuracy": "higher"}},
            r"goals must name metrics of the training \(a, b\), fou",
        ),
    ],
)
def test_bad_input_is_one_line(options, said):
    given = {"objectives": ["a", "b"], "lr": 1.0, **options}
    with pytest.raises(ValueError, match=said):
        trimol.tune(lambda setting: bowl(setting), **given)


def test_a_function_must_return_metrics():
    with pytest.raises(TypeError, match="train must return metrics by name, found float"):
        trimol.tune(lambda setting: 1.0, objectives=["a", "b"], lr=1.0)
