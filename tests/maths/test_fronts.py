"""Hypervolume and its kin against exact fractions, pymoo, and what must hold of any set."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trimol._failures import BadValue
from trimol.maths import fronts

SMALL = settings(max_examples=60, deadline=None)


def by_inclusion_exclusion(points, reference):
    """Σ over subsets S of (-1)^(|S|+1) Π (r - max over S), in fractions: exact, and exponential."""
    points = [[Fraction(float(v)) for v in p] for p in points]
    corner = [Fraction(float(v)) for v in reference]
    total = Fraction(0)
    for size in range(1, len(points) + 1):
        for chosen in itertools.combinations(points, size):
            sides = (r - max(column) for r, *column in zip(corner, *chosen, strict=True))
            total += (-1) ** (size + 1) * math.prod(max(side, Fraction(0)) for side in sides)
    return total


@st.composite
def sets(draw, most=5, objectives=5):
    """Points with ties, repeats, some beyond the reference; each objective on its own scale."""
    m, n = draw(st.integers(1, objectives)), draw(st.integers(0, most))
    coarse = draw(arrays(np.float64, (n, m), elements=st.integers(-1, 5).map(float)))
    fine = draw(arrays(np.float64, (n, m), elements=st.floats(0, 0.5)))
    scale = 10.0 ** draw(arrays(np.int64, m, elements=st.sampled_from([-12, 0, 12])))
    return (coarse + fine * draw(st.booleans())) * scale, 4.0 * scale


@SMALL
@given(sets())
def test_hypervolume_is_that_of_exact_fractions(drawn):
    points, reference = drawn
    exact = by_inclusion_exclusion(points, reference)
    assert fronts.hypervolume(points, reference) == pytest.approx(float(exact), rel=1e-14, abs=0)


@SMALL
@given(sets())
def test_contributions_are_what_is_lost_without_a_point(drawn):
    points, reference = drawn
    whole = by_inclusion_exclusion(points, reference)
    lost = [
        float(whole - by_inclusion_exclusion(np.delete(points, k, 0), reference))
        for k in range(len(points))
    ]
    own = np.prod(np.maximum(reference - points, 0), axis=1)  # rounding is relative to this
    found = fronts.contributions(points, reference)
    assert (np.abs(found - lost) <= 1e-14 * own).all()
    assert (found >= 0).all()


@settings(max_examples=30, deadline=None)
@given(sets(most=4, objectives=4))
def test_gradient_is_the_one_sided_difference(drawn):
    """The hypervolume is linear in a coordinate until it meets another: a short step is exact."""
    points, reference = drawn
    points = np.round(points / reference * 64)  # whole numbers: a step of 1/2 meets nothing
    reference = np.full_like(reference, 64.0)
    found = fronts.hypervolume_gradient(points, reference)
    whole = by_inclusion_exclusion(points, reference)
    for k, m in np.ndindex(*points.shape):
        moved = points.copy()
        moved[k, m] -= 0.5
        gained = by_inclusion_exclusion(moved, reference) - whole
        expected = -2 * gained if points[k, m] < reference[m] else 0
        assert found[k, m] == float(expected)


@pytest.mark.parametrize("objectives", [2, 3, 4, 5])
def test_all_agree_with_pymoo(objectives):
    pytest.importorskip("pymoo")
    from pymoo.indicators.hv import HV
    from pymoo.indicators.igd import IGD
    from pymoo.indicators.igd_plus import IGDPlus
    from pymoo.indicators.spacing import SpacingIndicator
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    rng = np.random.default_rng(objectives)
    reference = np.full(objectives, 0.9)
    for n in (1, 12, 25):
        points, front = rng.random((n, objectives)), rng.random((9, objectives))
        assert fronts.hypervolume(points, reference) == pytest.approx(
            HV(ref_point=reference)(points), rel=1e-11
        )
        assert fronts.igd(points, front) == pytest.approx(IGD(front)(points))
        assert fronts.igd_plus(points, front) == pytest.approx(IGDPlus(front)(points))
        layers = NonDominatedSorting().do(points)
        assert all((fronts.ranks(points)[layer] == r).all() for r, layer in enumerate(layers))
        if n > 2:  # pymoo divides by n, Schott by n - 1
            theirs = SpacingIndicator()(points) * math.sqrt(n / (n - 1))
            assert fronts.spacing(points) == pytest.approx(theirs)


@SMALL
@given(sets(most=6))
def test_nondominated_is_its_definition(drawn):
    points, _ = drawn
    dominated = [any((q <= p).all() and (q < p).any() for q in points) for p in points]
    assert fronts.nondominated(points).tolist() == [not d for d in dominated]
    assert (fronts.nondominated(points) == (fronts.ranks(points) == 0)).all()


@SMALL
@given(sets(), st.randoms())
def test_neither_order_nor_repeats_nor_dominated_points_count(drawn, random):
    points, reference = drawn
    volume = fronts.hypervolume(points, reference)
    again = [*points.tolist(), *points.tolist(), (reference * 2).tolist()]
    random.shuffle(again)
    assert fronts.hypervolume(again, reference) == volume
    if fronts.nondominated(points).any():
        best = points[fronts.nondominated(points)]
        assert fronts.hypervolume(best, reference) == volume


def test_one_point_more_never_lowers_the_hypervolume_nor_raises_igd_plus():
    rng = np.random.default_rng(0)
    points, front = rng.random((10, 3)), rng.random((5, 3))
    volumes = [fronts.hypervolume(points[:k], np.ones(3)) for k in range(11)]
    distances = [fronts.igd_plus(points[:k], front) for k in range(1, 11)]
    assert volumes[0] == 0
    assert volumes == sorted(volumes)
    assert distances == sorted(distances, reverse=True)


def test_igd_may_prefer_a_dominated_set_and_igd_plus_does_not():
    front = [[0.0, 1.0], [1.0, 0.0]]
    better, worse = [[0.0, 0.0]], [[0.5, 0.5]]
    assert fronts.igd(better, front) > fronts.igd(worse, front)
    assert fronts.igd_plus(better, front) < fronts.igd_plus(worse, front)


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1e12, 1e200])
def test_distances_at_any_scale(scale):
    points, front = np.array([[0.0, 3.0]]), np.array([[4.0, 0.0]])
    assert fronts.igd(points * scale, front * scale) == pytest.approx(5 * scale, rel=1e-14)
    assert fronts.igd_plus(points * scale, front * scale) == pytest.approx(3 * scale, rel=1e-14)
    line = np.array([[0.0, 3.0], [1.0, 2.0], [3.0, 0.0]]) * scale
    assert fronts.spacing(line) == pytest.approx(math.sqrt(4 / 3) * scale, rel=1e-14)


def test_one_objective_is_a_length():
    points = [[3.0], [1.0], [1.0], [9.0]]
    assert fronts.hypervolume(points, [4.0]) == 3.0
    assert fronts.hypervolume_gradient(points, [4.0]).ravel().tolist() == [0, -1, -1, 0]
    assert fronts.contributions(points, [4.0]).tolist() == [0, 0, 0, 0]
    assert fronts.ranks(points).tolist() == [1, 0, 0, 2]


def test_tensors_do_as_arrays():
    points = torch.tensor([[1.0, 2.0], [2.0, 1.0]], requires_grad=True)
    assert fronts.hypervolume(points, torch.tensor([3, 3])) == 3.0
    assert fronts.hypervolume(torch.empty(0, 2), [3, 3]) == 0.0
    assert fronts.nondominated(points.bfloat16()).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fronts.hypervolume([[1, math.nan]], [2, 2]), "found nan in point 0, objective 1"),
        (lambda: fronts.nondominated([[math.inf]]), "found inf in point 0, objective 0"),
        (lambda: fronts.hypervolume([1, 2], [2, 2]), r"found \(2,\)"),
        (lambda: fronts.hypervolume([[1, 2]], [2]), r"reference must be 2 finite numbers"),
        (lambda: fronts.contributions([[1, 2]], [2, math.nan]), "reference must be 2 finite"),
        (lambda: fronts.igd(np.empty((0, 2)), [[1, 2]]), r"found shapes \(0, 2\) and \(1, 2\)"),
        (lambda: fronts.igd_plus([[1, 2]], [[1]]), r"found shapes \(1, 2\) and \(1, 1\)"),
        (lambda: fronts.spacing([[math.nan, 1]]), "points must be finite"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(BadValue, match=said):
        call()
