"""What settings of a trial are scored by: losses in their sizes, metrics in what can be won."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimol.methods._registry import BASELINE
from trimol.runs._attempts import PLATEAU, Attempt, Attempts
from trimol.runs._candidates import Candidate
from trimol.runs._judging import LEAST, spreads

WAYS = {"AUC": "higher", "gap": "lower"}
# A classifier that tells everybody the same, useful ones with larger and larger gaps, one astray.
TRIVIAL, FAIR, USEFUL, ASTRAY = (0.5, 0.0), (0.70, 0.06), (0.72, 0.2), (0.45, 0.9)


def tried(points, ways=WAYS, *, spread=True):
    """Attempts of the baseline, one a point, scored."""
    found = Attempts(ways, seeds=1, spread=spread)
    for place, values in enumerate(points):
        own = dict(zip(ways, values, strict=True))
        found.of(BASELINE)[str(place)] = Attempt(Candidate(float(place)), [own], "")
    found.set_scales()
    return found


def best(found):
    return [*found.best(BASELINE).points[0].values()]


def test_who_tells_everybody_the_same_does_not_win():
    """Relative to its size, chance loses a third of the AUC and wins all of the gap."""
    points = [TRIVIAL, FAIR, USEFUL, ASTRAY]
    assert best(tried(points, spread=False)) == [*TRIVIAL]
    assert best(tried(points)) == [*FAIR]


def test_scores_by_hand():
    found = tried([TRIVIAL, FAIR, USEFUL, ASTRAY])
    assert found.scales == pytest.approx({"AUC": 0.22, "gap": 0.2})  # without the one astray
    assert found.sizes == pytest.approx({"AUC": 0.6, "gap": 0.13})
    scores = [own.score for own in found.of(BASELINE).values()]
    by_hand = [(auc / 0.22 - gap / 0.2) / 2 for auc, gap in (TRIVIAL, FAIR, USEFUL, ASTRAY)]
    assert scores == pytest.approx(by_hand)
    assert found.worth() == pytest.approx(PLATEAU * (0.6 / 0.22 + 0.13 / 0.2) / 2)


def test_losses_are_relative_to_their_sizes():
    ways = {"first": "lower", "second": "lower"}
    found = tried([(1.0, 40.0), (2.0, 10.0), (4.0, 20.0)], ways, spread=False)
    assert found.scales == found.sizes == {"first": 2.0, "second": 20.0}
    assert found.worth() == PLATEAU


def test_what_hardly_differs_counts_by_a_share_of_its_size():
    """One setting that is best in all: nothing lies apart, and noise is not stretched."""
    found = tried([(0.9, 0.1), (0.8, 0.2), (0.7, 0.3)])
    assert found.scales == pytest.approx({"AUC": LEAST * 0.8, "gap": LEAST * 0.2})
    assert best(found) == [0.9, 0.1]


def test_a_single_metric_is_its_own_score():
    found = tried([(0.5,), (0.9,), (0.7,)], {"AUC": "higher"})
    assert (best(found), found.worth()) == ([0.9], pytest.approx(PLATEAU * 0.7))


sizes = st.floats(1e-12, 1e12)
numbers = st.one_of(st.just(0.0), sizes, sizes.map(lambda size: -size))


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=8))
def test_spreads_are_those_of_a_slow_front(points):
    """Every pair compared; duplicates, zeros and one point alone among them."""
    ways = {"a": "lower", "b": "higher", "c": "lower"}
    costs = [(a, -b, c) for a, b, c in points]
    front = [
        own
        for own in costs
        if not any(
            all(x <= y for x, y in zip(other, own, strict=True)) and other != own for other in costs
        )
    ]
    slow = np.ptp(np.array(front), axis=0)
    fast = spreads([dict(zip(ways, own, strict=True)) for own in points], ways)
    assert [*fast.values()] == slow.tolist()


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_scores_are_finite_and_nobody_dominated_is_best(points):
    found = tried(points)
    assert all(
        own.score > -math.inf and math.isfinite(own.score) for own in found.of(BASELINE).values()
    )
    auc, gap = best(found)
    clear = [p for p in points if p[0] >= auc and p[1] <= gap and p != (auc, gap)]
    top = max(own.score for own in found.of(BASELINE).values())
    for other in clear:  # equal to rounding, or not there
        own = next(a for a in found.of(BASELINE).values() if (*a.points[0].values(),) == other)
        assert own.score == pytest.approx(top, rel=1e-9)
