r"""How good a set of points is as a front: hypervolume, its derivatives, and distances.

Every objective is to be made small. Points are rows: n points of M objectives, as an array, a
tensor or nested lists; what comes back are floats and NumPy arrays in float64.

*Hypervolume.* The volume of :math:`\{y : p \le y \le r \text{ for some point } p\}` is cut into
slices along the last objective, and these again, down to two objectives:

.. math:: \mathrm{HV}_M(p_1, \dots, p_n) = \sum_k (z_{k+1} - z_k)\,
          \mathrm{HV}_{M-1}(p_1, \dots, p_k), \qquad z_1 \le \dots \le z_n \le z_{n+1} = r_M

with the points in the order of their last entry z. All terms are positive, so nothing cancels: the
result is exact to the rounding of a sum, at any scale. Any M will do, at a cost of O(n log n) for
two objectives, O(n²) for three and O(n^(M-1)) beyond: 100 points of five take about a second.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from trimol._failures import BadValue
from trimol.maths._numerics import Array

Points = Tensor | npt.ArrayLike
Mask = npt.NDArray[np.bool_]


def nondominated(points: Points) -> Mask:
    """Which points no other one dominates: is as good in all objectives, and better in one.

    Equal points do not dominate each other.

    Example:
        >>> nondominated([[1, 2], [2, 1], [2, 2], [1, 2]])
        array([ True,  True, False,  True])
    """
    return _undominated(_checked("points", points))


def ranks(points: Points) -> npt.NDArray[np.int64]:
    """The layer of each point: 0 if nondominated, 1 if so among the others, and so on.

    Example:
        >>> ranks([[1, 1], [2, 2], [1, 3], [3, 3]])
        array([0, 1, 1, 2])
    """
    checked = _checked("points", points)
    found = np.full(len(checked), -1)
    while (left := np.flatnonzero(found < 0)).size:
        found[left[_undominated(checked[left])]] = found.max() + 1
    return found


def hypervolume(points: Points, reference: Points) -> float:
    """The volume that the points dominate, up to the reference point; 0 where none is below it.

    Args:
        points: n points of M objectives; n may be 0.
        reference: A point that is worse than all that count. A point that is not below it in every
            objective dominates nothing that is counted.

    Example:
        >>> hypervolume([[1, 2], [2, 1]], reference=[3, 3])
        3.0
        >>> hypervolume([[1, float("nan")]], reference=[3, 3])
        Traceback (most recent call last):
        trimol._failures.BadValue: points must be finite, found nan in point 0, objective 1

    Reference:
        E. Zitzler, L. Thiele, *Multiobjective evolutionary algorithms: a comparative case study
        and the strength Pareto approach*, 1999; by slicing objectives: L. While et al., *A faster
        algorithm for calculating hypervolume*, 2006.
    """
    checked, corner = _with_reference(points, reference)
    return _volume(checked, corner)


def contributions(points: Points, reference: Points) -> Array:
    """What each point alone dominates: how much hypervolume would be lost without it.

    Example:
        >>> contributions([[1, 2], [2, 1], [2, 2]], reference=[3, 3])
        array([1., 1., 0.])
    """
    checked, corner = _with_reference(points, reference)
    each = (_alone(p, np.delete(checked, k, 0), corner) for k, p in enumerate(checked))
    return np.array(list(each))


def hypervolume_gradient(points: Points, reference: Points) -> Array:
    r"""∂HV/∂p, n × M: minus the area of each point's face that no other point covers.

    Where a coordinate is shared the hypervolume has a kink. Then this is the derivative towards
    smaller values, along which the point would improve. It is 0 for a point that is dominated in
    every coordinate, or not below the reference.

    Example:
        >>> hypervolume_gradient([[1, 2], [2, 1]], reference=[3, 3])
        array([[-1., -1.],
               [-1., -1.]])

    Reference:
        M. Emmerich, A. Deutz, *Time complexity and zeros of the hypervolume indicator gradient
        field*, 2014.
    """
    checked, corner = _with_reference(points, reference)
    gradient = np.zeros_like(checked)
    for k, m in np.ndindex(*checked.shape):
        if checked[k, m] < corner[m]:
            # The face p_m = const is seen from below: what has a smaller p_m covers it.
            cover = np.delete(checked[checked[:, m] < checked[k, m]], m, 1)
            gradient[k, m] = -_alone(np.delete(checked[k], m), cover, np.delete(corner, m))
    return gradient


def igd(points: Points, front: Points) -> float:
    """Inverted generational distance: how far the front's points are from the nearest, on average.

    Example:
        >>> igd([[0, 1], [1, 0]], front=[[0, 1], [0.5, 0.5], [1, 0]])  # √½ / 3
        0.23570226039551587

    Reference:
        C. Coello Coello, M. Reyes Sierra, *A study of the parallelization of a coevolutionary
        multi-objective evolutionary algorithm*, 2004.
    """
    return float(_lengths(_apart(points, front)).min(0).mean())


def igd_plus(points: Points, front: Points) -> float:
    """As `igd`, where only being worse than the front's point counts as distance.

    Unlike `igd` it never prefers a set to one that dominates it.

    Example:
        >>> igd_plus([[0, 0.5]], front=[[0, 1], [1, 0]])
        0.25

    Reference:
        H. Ishibuchi et al., *Modified distance calculation in generational distance and inverted
        generational distance*, 2015.
    """
    return float(_lengths(np.maximum(_apart(points, front), 0)).min(0).mean())


def spacing(points: Points) -> float:
    """How unevenly the points are spread: the deviation of their distances to the nearest other.

    Distances are sums over objectives. 0 for even gaps, and for fewer than three points.

    Example:
        >>> spacing([[0, 2], [1, 1], [2, 0]])
        0.0

    Reference:
        J. Schott, *Fault tolerant design using single and multicriteria genetic algorithm
        optimization*, 1995.
    """
    checked = _checked("points", points)
    if len(checked) < 3:
        return 0.0
    distances = np.abs(checked[:, None] - checked).sum(-1)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.min(1)
    return float(_lengths(nearest - nearest.mean())) / math.sqrt(len(checked) - 1)


def _undominated(points: Array) -> Mask:
    """`nondominated`, of points that were checked."""
    no_worse = (points[:, None] <= points).all(-1)
    return np.asarray(~(no_worse & ~no_worse.T).any(0))


def _volume(points: Array, reference: Array) -> float:
    """The hypervolume (module docstring) of points that were checked."""
    points = np.unique(points[(points < reference).all(1)], axis=0)
    points = points[_undominated(points)]
    if len(points) < 2:  # as it is with one objective
        return float(np.prod(reference - points, axis=1).sum())
    return _sliced(points, reference)


def _sliced(points: Array, reference: Array) -> float:
    """The sum over slices, for M ≥ 2, of points below the reference."""
    size = len(reference)
    if size == 2:
        return float(_areas(points, np.ones((1, len(points)), bool), reference)[0])
    points = points[points[:, -1].argsort()]
    thick = np.diff(points[:, -1], append=reference[-1])
    below, corner = points[:, :-1], reference[:-1]
    if size == 3:
        areas = _areas(below, np.tri(len(points), dtype=bool), corner)
        return float(areas @ thick)
    volumes = [_volume(below[: k + 1], corner) if t > 0 else 0.0 for k, t in enumerate(thick)]
    return float(np.dot(volumes, thick))


def _areas(points: Array, taken: Mask, reference: Array) -> Array:
    """The area that the points dominate which a row of ``taken`` names, for each row."""
    order = points[:, 0].argsort()
    heights = np.where(taken[:, order], points[order, 1], reference[1])
    lowest = np.minimum.accumulate(heights, axis=1)
    widths = np.diff(points[order, 0], append=reference[0])
    return np.asarray((reference[1] - lowest) @ widths)


def _alone(point: Array, others: Array, reference: Array) -> float:
    """The volume that the point dominates and none of the others does."""
    if not (point < reference).all() or (others <= point).all(1).any():
        return 0.0
    own = float(np.prod(reference - point))
    return max(own - _volume(np.maximum(others, point), reference), 0.0)


def _apart(points: Points, front: Points) -> Array:
    """Every point minus every point of the front, n × N × M."""
    checked, known = _checked("points", points), _checked("front", front)
    if not len(checked) or not len(known) or checked.shape[1] != known.shape[1]:
        raise BadValue(
            "points and front must hold at least one point each, of as many objectives, found "
            f"shapes {checked.shape} and {known.shape}"
        )
    return np.asarray(checked[:, None] - known)


def _lengths(vectors: Array) -> Array:
    """Euclidean, of vectors whose squares may be too large or too small for a number."""
    scale = float(np.abs(vectors).max()) or 1.0
    return np.asarray(np.sqrt(((vectors / scale) ** 2).sum(-1)) * scale)


def _with_reference(points: Points, reference: Points) -> tuple[Array, Array]:
    """Both, checked."""
    checked, corner = _checked("points", points), _array(reference)
    if corner.shape != checked.shape[1:] or not np.isfinite(corner).all():
        raise BadValue(
            f"reference must be {checked.shape[1]} finite numbers, one per objective, found "
            f"{corner.tolist()}"
        )
    return checked, corner


def _checked(name: str, points: Points) -> Array:
    """Finite numbers, n × M with M ≥ 1."""
    array = _array(points)
    if array.ndim != 2 or not array.shape[1]:
        raise BadValue(
            f"{name} must have shape (points, objectives), at least one objective, found "
            f"{array.shape}"
        )
    if not np.isfinite(array).all():
        point, objective = np.argwhere(~np.isfinite(array))[0]
        raise BadValue(
            f"{name} must be finite, found {array[point, objective]} in point {point}, "
            f"objective {objective}"
        )
    return array


def _array(values: Any) -> Array:
    """In float64, on the host."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)
