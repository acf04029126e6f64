"""Numbers as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimol.cli._run_view import bar, trend
from trimol.report._numbers import duration, interval, spread


@pytest.mark.parametrize(
    ("mean", "half", "exponent", "shown"),
    [
        (0.13014, 0.0038, 0, ("0.1301", "0.0038")),
        (6.36e-3, 3.3e-4, -3, ("6.36", "0.33")),
        (0.0, 0.0, -3, ("0", "0")),
        (1.5, None, 0, ("1.5", "")),
        (1.5, math.nan, 0, ("1.5", "")),
        (123.456, 45.6, 0, ("123", "46")),
        (1.0, 0.0996, 0, ("1.000", "0.100")),
        (-2.5, 0.31, 0, ("−2.50", "0.31")),
        (1.0, 1e-17, 0, ("1.00000", "0.00000")),
    ],
)
def test_means_with_their_spread(
    mean: float, half: float | None, exponent: int, shown: tuple[str, str]
) -> None:
    assert spread(mean, half, exponent) == shown
    assert interval(mean, half, exponent) == " ± ".join(filter(None, shown))


@given(st.floats(allow_nan=False), st.integers(1, 20))
def test_a_bar_is_as_wide_as_asked_for(fraction: float, width: int) -> None:
    assert len(bar(fraction, width)) == width


@given(st.lists(st.floats(width=32), max_size=30), st.integers(1, 12))
def test_a_trend_has_a_bar_for_each_finite_value(values: list[float], width: int) -> None:
    finite = [value for value in values if math.isfinite(value)]
    found = trend(values, width)
    assert len(found) == min(len(finite), width)
    recent = finite[-width:]
    if recent and max(recent) > min(recent) and math.isfinite(max(recent) - min(recent)):
        assert found[recent.index(max(recent))] == "█"
        assert found[recent.index(min(recent))] == "▁"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (59.6, "1 min 0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
