r"""The box: the exact minimiser of a convex quadratic between zero and a cap.

.. math:: \nu = \arg\min_{0 \le \nu \le C}\ \tfrac12 \nu^\top H \nu - q^\top \nu

for a Gramian H of any rank, which an unbounded solver (`trimol.maths.cone`) may not be given: where
H does not resist q, the cap does. An active set, on the equilibrated Gramian, in float64.
"""

import numpy as np

from trimol.maths._numerics import Array

# Raises the equilibrated Gramian to definiteness by a few roundings, so that the multipliers of
# dependent gradients are unique.
_RAISE = 1e-13
_ROUNDING = 1e-14


def minimise(gramian: Array, pull: Array, cap: float | Array) -> Array:
    """argmin ½νᵀHν − νᵀ ``pull`` over 0 ≤ ν ≤ ``cap``; zero for gradients of zero.

    The cap is one for all entries, or one for each.
    """
    sizes = np.sqrt(np.diagonal(gramian))
    moving = (sizes > 0).nonzero()[0]
    minimiser, scale = np.zeros(len(gramian)), sizes[moving]
    if not (pull[moving] > 0).any():
        return minimiser
    C = gramian[np.ix_(moving, moving)] / np.outer(scale, scale)
    C += (_RAISE - min(0, np.linalg.eigvalsh(C)[0])) * np.eye(len(C))
    top = np.broadcast_to(cap, sizes.shape)[moving]
    minimiser[moving] = _active_set(C, pull[moving] / scale, top * scale) / scale
    return minimiser.clip(0, cap)


def _active_set(C: Array, q: Array, top: Array) -> Array:
    """Free the entry that gains most; solve on the free ones, stepping no further than the box.

    Every step lowers the objective, so that no set of free entries comes twice; the bound on the
    number of steps only guards against cycles by rounding.
    """
    y, free = np.zeros_like(q), np.zeros(len(q), dtype=bool)
    for _ in range(10 * len(q)):
        # What an entry at a border gains by leaving it, beyond the rounding of its slope.
        slope = C @ y - q
        gain = np.where(free, 0, np.where(y > 0, slope, -slope))
        gain -= _ROUNDING * (np.abs(C) @ y + np.abs(q))
        if not (gain > 0).any():
            break
        free[gain.argmax()] = True
        while free.any():
            # The minimiser on the free entries, the others held; go there as far as the box lets.
            held = q[free] - C[np.ix_(free, ~free)] @ y[~free]
            move = np.linalg.solve(C[np.ix_(free, free)], held) - y[free]
            room = np.where(move > 0, top[free] - y[free], y[free])
            share = np.divide(room, np.abs(move), out=np.full_like(room, np.inf), where=move != 0)
            y[free] = (y[free] + min(share.min(), 1) * move).clip(0, top[free])
            if share.min() >= 1:
                break
            # What reached a border stays there.
            blocking = share <= share.min()
            stopped = free.nonzero()[0][blocking]
            y[stopped] = np.where(move[blocking] > 0, top[stopped], 0)
            free[stopped] = False
    return y
