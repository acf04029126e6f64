"""Poisson's equation, with a solution that was chosen first."""

import math
from typing import ClassVar

from trimol.tasks.pinn.helmholtz import Helmholtz


class Poisson(Helmholtz):
    r"""Poisson's equation on a square: two losses of one network u(x, y).

    .. math:: u_{xx} + u_{yy} = q \ \text{ for } |x|, |y| < 1

    with q and the border such that :math:`u = \cos(\pi x) \sin(\pi y)`: the easiest of the five.

    Example:
        >>> import numpy as np
        >>> Poisson().solution(np.array([[1.0, 0.5]])).round(6).tolist()
        [[-1.0]]
    """

    name: ClassVar[str] = "poisson"
    squared_number: ClassVar[float] = 0.0
    waves: ClassVar[tuple[float, float]] = (1.0, 1.0)
    shift: ClassVar[float] = math.pi / 2
