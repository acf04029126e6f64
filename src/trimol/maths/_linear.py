r"""Linear programs over the simplex, of a few variables.

.. math:: \max_{\alpha \in \Delta,\ t}\ c^\top (\alpha, t) \quad \text{s.t.} \quad
          A (\alpha, t) \ge b

with t free. A solution is at a vertex, where as many constraints are tight as there are variables.
Where there are few such choices all of them are tried, exactly and at once. Beyond, the dual
simplex method of HiGHS (scipy's ``linprog``) finds one, to absolute tolerances of 1e-10. Every row
of A is scaled to a largest entry of one, and c too: nothing depends on the unit of the losses.
"""

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when first used, which keeps the import short

from trimol.maths._numerics import Array

_TOLERANCE = 1e-10
# Up to so many vertices are tried: 210 for five variables and five rows. That takes a tenth of the
# time that HiGHS takes, and as long for six.
_VERTICES = 300
# Constraints whose determinant is below this, rows of length one, have no vertex.
_SINGULAR = 1e-14


def over_simplex(objective: Array, rows: Array, least: Array, *, free: int = 0) -> Array | None:
    """The α of a solution; None where no α on the simplex satisfies all rows.

    Args:
        objective: c, for α and then for the free variables; bounded on what is allowed.
        rows: A.
        least: b; minus infinity for a row that asks for nothing.
        free: How many variables after α are free.

    Example:
        >>> c, one = np.array([1.0, 3.0, 2.0]), np.array([[0.0, -1.0, 0.0]])
        >>> over_simplex(c, one, np.array([-0.25]))  # at most a quarter on the best
        array([0.  , 0.25, 0.75])
    """
    asked = np.isfinite(least)
    sizes = np.abs(rows[asked]).max(1, initial=0.0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    size = len(objective) - free
    # Every constraint: α ≥ 0, then the rows.
    sides = np.vstack([np.eye(size, len(objective)), rows[asked] / sizes[:, None]])
    bounds = np.append(np.zeros(size), least[asked] / sizes)
    scaled = objective / (np.abs(objective).max() or 1.0)
    few = math.comb(len(sides), len(objective) - 1) <= _VERTICES
    solution = (_best_vertex if few else _by_highs)(scaled, sides, bounds, size)
    if solution is None:
        return None
    alpha = np.maximum(solution[:size], 0)
    return np.asarray(alpha / alpha.sum())


def _best_vertex(objective: Array, sides: Array, bounds: Array, size: int) -> Array | None:
    """The best of all points where constraints that determine it are tight, and all hold."""
    variables = len(objective)
    chosen = _choices(len(sides), variables - 1)
    systems = np.zeros((len(chosen), variables, variables))
    systems[:, 0, :size] = 1
    systems[:, 1:] = sides[chosen]
    targets = np.column_stack([np.ones(len(chosen)), bounds[chosen]])
    regular = np.abs(np.linalg.det(systems)) > _SINGULAR
    points = np.linalg.solve(systems[regular], targets[regular][..., None])[..., 0]
    points = points[(points @ sides.T >= bounds - _TOLERANCE).all(1)]
    return points[(points @ objective).argmax()] if len(points) else None


@lru_cache(maxsize=64)
def _choices(among: int, number: int) -> npt.NDArray[np.int64]:
    chosen = list(combinations(range(among), number))
    return np.array(chosen, dtype=np.int64).reshape(len(chosen), number)


def _by_highs(objective: Array, sides: Array, bounds: Array, size: int) -> Array | None:
    """By scipy's ``linprog``."""
    total = (np.arange(len(objective)) < size).astype(np.float64)
    solution = scipy.optimize.linprog(
        -objective,
        A_ub=-sides[size:],
        b_ub=-bounds[size:],
        A_eq=total[None],
        b_eq=[1.0],
        bounds=[(0, None) if among else (None, None) for among in total],
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        },
    )
    return solution.x
