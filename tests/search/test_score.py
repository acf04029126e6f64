"""One number for a training's metrics: no metric outweighs all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimol.search._score import Scorer, percent

WAYS = {"a": "lower", "b": "lower", "c": "lower"}


def scorer(*points: dict[str, float], ways=WAYS) -> Scorer:
    made = Scorer(ways)
    made.fit(points)
    return made


def test_a_trivial_solution_is_no_gain():
    """One loss is brought to 0 while the others are ten times as large, and the other way round."""
    made = scorer(dict.fromkeys(WAYS, 1.0))
    assert made.score({"a": 1e-12, "b": 10.0, "c": 10.0}) < 0
    assert made.score({"a": 1e12, "b": 0.1, "c": 0.1}) > 0
    assert made.score({"a": 0.0, "b": 1.0, "c": 1.0}) == pytest.approx(2 / 3)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_better_and_worse_by_a_factor_are_opposites(before, now):
    there = scorer({"a": before}, ways={"a": "lower"}).score({"a": now})
    back = scorer({"a": now}, ways={"a": "lower"}).score({"a": before})
    assert there == pytest.approx(-back, abs=1e-12)
    assert abs(there) <= 2


@given(st.floats(0.8, 1.2))
def test_a_small_gain_is_a_share(ratio):
    gain = scorer({"a": 5.0}, ways={"a": "lower"}).score({"a": 5.0 * ratio})
    assert gain == pytest.approx(1 - ratio, abs=0.03)
    assert float(percent(gain).split()[0]) == pytest.approx(
        100 * abs(1 - ratio), rel=0.06, abs=1e-9
    )


def test_numbers_below_zero_have_differences():
    made = Scorer({"a": "lower"})
    made.fit([{"a": 2.0}], [{"a": -1.0}])
    assert not made.is_ratio
    assert made.score({"a": -1.0}) == pytest.approx(1.5)


@pytest.mark.parametrize("points", [[{"a": 0.0}], [{"a": 0.0}, {"a": 0.0}, {"a": 1.0}]])
def test_a_reference_of_zero(points):
    made = Scorer({"a": "lower"})
    made.fit(points)
    assert made.score({"a": 0.0}) == 0
    assert made.score({"a": 1.0}) < 0
