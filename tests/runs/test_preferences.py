"""Preferences for a front: even on the simplex, and added where the front is thin."""

from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol._failures import BadValue
from trimol.runs._preferences import FINEST, SHARED, even, thin


@given(points=st.integers(1, 60), objectives=st.integers(2, 7))
@settings(deadline=None, max_examples=60)
def test_so_many_different_preferences_on_the_simplex(points: int, objectives: int) -> None:
    found = np.array(even(points, objectives))
    assert found.shape == (points, objectives)
    assert len(np.unique(found.round(12), axis=0)) == points
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
    assert found.min() >= SHARED / objectives - 1e-12
    assert even(points, objectives) == [tuple(row) for row in found.tolist()]


@pytest.mark.parametrize("points", [2, 3, 10, 37])
def test_two_objectives_are_divided_equally(points: int) -> None:
    first = np.linspace(1 - SHARED / 2, SHARED / 2, points)
    np.testing.assert_allclose(even(points, 2), np.stack([first, 1 - first], 1), atol=1e-12)


@pytest.mark.parametrize("objectives", [3, 4])
@pytest.mark.parametrize("divisions", [1, 2, 4])
def test_the_whole_lattice_where_the_number_fits(objectives: int, divisions: int) -> None:
    found = even(comb(divisions + objectives - 1, objectives - 1), objectives)
    steps = (np.array(found) - SHARED / objectives) / (1 - SHARED) * divisions
    np.testing.assert_allclose(steps, steps.round(), atol=1e-9)


def test_what_is_between_two_lattices_has_all_corners_and_no_two_points_close() -> None:
    found = np.array(even(12, 3))
    for corner in np.eye(3):
        assert np.abs(found - corner).max(1).min() <= SHARED
    nearest = min(np.linalg.norm(a - b) for a, b in combinations(found, 2))
    assert nearest > 0.9 * np.sqrt(2) / 4 * (1 - SHARED)  # the spacing of the lattice of 15


def slow_thin(preferences: list, reached: np.ndarray, count: int) -> list:
    """For two objectives: sort, find the largest gap, halve it, again."""
    width = reached.max(0) - reached.min(0)
    scaled = (reached - reached.min(0)) / np.where(width > 0, width, np.inf)
    line = sorted(zip((p[0] for p in preferences), scaled.tolist(), strict=True))
    new = []
    while len(new) < count:
        gaps = [
            (np.linalg.norm(np.subtract(a[1], b[1])), i)
            for i, (a, b) in enumerate(pairwise(line))
            if abs(a[0] - b[0]) > FINEST
        ]
        if not gaps or max(gaps)[0] <= 1e-9:
            break
        _, i = max(gaps)
        middle = (line[i][0] + line[i + 1][0]) / 2
        line.insert(i + 1, (middle, np.mean([line[i][1], line[i + 1][1]], 0).tolist()))
        new.append(middle)
    return new


losses = st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2)


@given(reached=st.lists(losses, min_size=2, max_size=9), count=st.integers(0, 6))
@settings(deadline=None, max_examples=80)
def test_two_objectives_are_halved_where_neighbours_are_farthest_apart(reached, count) -> None:
    # Without ties, of which either may be halved first; halves of one gap tie.
    places = np.array(reached) + np.random.default_rng(0).normal(size=(len(reached), 2))
    at = even(len(reached), 2)
    found = [first for first, _ in thin(at, places, count)]
    expected = slow_thin(at, places, count)
    assert len(found) == len(expected)
    np.testing.assert_allclose(found[:1], expected[:1], atol=1e-9)


@given(
    st.integers(2, 4).flatmap(
        lambda m: st.lists(
            st.lists(st.floats(0, 1), min_size=m, max_size=m), min_size=3, max_size=8
        )
    ),
    st.integers(1, 5),
    st.floats(1e-9, 1e9),
)
@settings(deadline=None, max_examples=60)
def test_new_preferences_are_new_on_the_simplex_and_know_no_units(reached, count, unit) -> None:
    places = np.array(reached)
    at = even(len(places), places.shape[1])
    found = thin(at, places, count)
    assert len(found) <= count
    np.testing.assert_allclose([sum(p) for p in found], 1.0)
    everything = np.array([*at, *found])
    apart = [np.abs(a - b).max() for a, b in combinations(everything, 2)]
    assert min(apart) > FINEST / 4
    # Powers of two change no digit.
    scale = 2.0 ** np.floor(np.log2(unit))
    assert thin(at, places * scale, count) == found


def test_nothing_is_added_to_points_that_are_all_alike() -> None:
    assert thin(even(4, 2), np.ones((4, 2)), 3) == []


def test_a_jump_is_not_halved_for_ever() -> None:
    """Weighted sums on a concave front: one preference jumps, whatever is tried there."""
    at = even(5, 2)
    for _ in range(12):
        reached = np.array([[0.0, 1.0] if p[0] > 0.4321 else [1.0, 0.0] for p in at])
        at += thin(at, reached, 4)
    firsts = sorted(p[0] for p in at)
    assert min(b - a for a, b in pairwise(firsts)) > FINEST / 2.1


def test_a_thousand_objectives_have_preferences_up_to_a_limit() -> None:
    at = np.array(even(3, 1500))
    assert at.shape == (3, 1500)
    np.testing.assert_allclose(at.sum(1), 1.0)
    with pytest.raises(BadValue, match="points must be at most 1500 for 1500 losses, found 1501"):
        even(1501, 1500)
