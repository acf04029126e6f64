"""Scores of several settings, each relative to the median: no units, and no outlier counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimol.runs._judging import gains

POSITIVE = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=9), POSITIVE, POSITIVE)
def test_scores_know_no_units_and_reward_what_is_better(
    pairs: list[tuple[float, float]], a: float, b: float
) -> None:
    goals = {"x": {"up": "higher"}, "y": {"down": "lower"}}
    each = [{"up": u, "down": d} for u, d in pairs]
    scores = gains(each, goals)
    scaled = gains([{"up": a * own["up"], "down": b * own["down"]} for own in each], goals)
    assert scaled == pytest.approx(scores, rel=1e-6, abs=1e-6)
    for i, one in enumerate(each):
        for j, other in enumerate(each):
            if one["up"] >= other["up"] and one["down"] <= other["down"]:
                assert scores[i] >= scores[j] - 1e-9


def test_one_setting_astray_changes_no_choice() -> None:
    goals = {"x": {"a": "lower"}, "y": {"b": "lower"}}
    each = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, {"a": 3.0, "b": 1.5}]
    before = gains(each, goals)
    after = gains([*each, {"a": 1e30, "b": 50.0}, {"a": 2.0, "b": 2.0}], goals)
    assert after[:3] == pytest.approx(before)


def test_who_tells_everybody_the_same_is_not_the_best_trial() -> None:
    goals = {"loss": {"AUC": "higher"}, "gap": {"gap": "lower"}}
    found = ((0.5, 0.0), (0.70, 0.06), (0.72, 0.2), (0.45, 0.9))
    each = [{"AUC": auc, "gap": gap} for auc, gap in found]
    by_size, by_spread = gains(each, goals), gains(each, goals, spread=True)
    assert by_size.index(max(by_size)) == 0
    assert by_spread.index(max(by_spread)) == 1
    # The median of the AUC is 0.6, of the gap 0.13; what no other dominates is 0.22 and 0.2 apart.
    by_hand = [50 * ((auc - 0.6) / 0.22 - (gap - 0.13) / 0.2) for auc, gap in found]
    assert by_spread == pytest.approx(by_hand)
