"""Three answers: how often each is given where the truth is known."""

import numpy as np
import pytest

from trimol.compare import Spending, decide
from trimol.compare._answer import detectable

STUDIES = 1500


def answers(gain: float, noise: float, seeds: int, *, kind: str = "normal") -> list:
    generator = np.random.default_rng(seeds)
    shape = STUDIES, seeds
    luck = {
        "normal": lambda: generator.standard_normal(shape),
        "collapse": lambda: generator.choice([-1, 0, 1], shape, p=[0.25, 0.5, 0.25]) * 2**0.5,
        "heavy": lambda: generator.standard_t(3, shape) / 3**0.5,
    }[kind]()
    return [decide((gain + noise * own).tolist()) for own in luck]


def share(found: list, kind: str) -> float:
    return sum(each.kind == kind for each in found) / len(found)


@pytest.mark.parametrize("kind", ["normal", "collapse", "heavy"])
@pytest.mark.parametrize("seeds", [5, 9, 18])
def test_a_method_that_gains_nothing_is_hardly_ever_advised(seeds, kind):
    assert share(answers(0.0, 0.1, seeds, kind=kind), "use") <= 0.035  # one side of 5 %, and luck


@pytest.mark.parametrize("seeds", [5, 9, 18])
def test_the_power_is_what_the_plan_promises(seeds):
    gain = 0.1 * detectable(seeds)
    assert share(answers(gain, 0.1, seeds), "use") == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize("gain", [0.0, 0.02, 0.2])
def test_intervals_hold(gain):
    found = answers(gain, 0.1, 6)
    assert sum(abs(a.gain - gain) <= a.ci for a in found) / STUDIES == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("noise", [0.01, 0.1])
@pytest.mark.parametrize("gain", [0.06, 0.1])
def test_staying_is_hardly_ever_wrong(gain, noise):
    """Who stays is told that no method gains more than so much: it does in few studies."""
    found = [a for a in answers(gain, noise, 6) if a.kind == "stay"]
    assert sum(a.most < gain for a in found) / STUDIES <= 0.05


def test_what_seems_open_is_decided_by_as_many_more_seeds():
    few = next(a for a in answers(0.1, 0.12, 5) if a.kind == "undecided" and a.gain > 0.08)
    assert few.more
    again = answers(few.gain, few.detectable / detectable(5), 5 + few.more)
    assert share(again, "use") == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize("gains", [[], [0.5], [0.5, 0.5, 0.5, 0.5]])
def test_too_few_seeds_decide_nothing(gains):
    assert decide(gains).kind == "undecided"


def test_a_gain_next_to_nothing_is_no_reason_to_change():
    """0.15 ± 0.06 % is surely above 0."""
    gains = [0.0012, 0.0018, 0.0010, 0.0021, 0.0014]
    assert decide(gains).p < 0.01
    assert decide(gains).kind == "stay"


def test_numbers_without_noise():
    assert decide([0.2] * 5).kind == "use"
    assert decide([0.0] * 5).kind == "stay"
    assert decide([-0.2] * 5).kind == "stay"


@pytest.mark.parametrize("methods", [1, 4])
@pytest.mark.parametrize("budget", [1, 5, 14, 15, 20, 30, 50, 100, 1000])
def test_a_plan_spends_the_budget(budget, methods):
    plan = Spending(budget, methods)
    assert plan.tuning + 2 * plan.seeds == budget
    assert plan.seeds == 0 or plan.seeds >= 5
    assert plan.seeds == 0 or plan.tuning > methods
