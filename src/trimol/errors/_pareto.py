r"""Pareto stationarity: how far a point is from where no direction improves every objective.

.. math:: R(x) = \min_{\lambda \in \Delta^M} \|\nabla F(x)\, \lambda\|

is zero exactly at the Pareto stationary points. With the gradients over the training data it is
R_opt, with those of the population (or of test data, its estimate) R_pop; R_gen = R_pop − R_opt.

Reference:
    L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
    Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 2.1.
"""

from torch import Tensor

from trimol import simplex
from trimol.gradients._rows import gram


def stationarity(jacobian: Tensor) -> float:
    r"""min over λ of ‖∇F λ‖: the norm, not squared, of the shortest convex combination.

    The norm is taken of ∇F λ itself: √(λᵀGλ) would lose half of the digits near zero.

    Example:
        >>> import torch
        >>> stationarity(torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double())
        2.4
    """
    return float(combined(jacobian, simplex.min_norm(gram(jacobian))).norm())


def combined(jacobian: Tensor, weights: Tensor) -> Tensor:
    """∇F λ, a vector of d entries."""
    return weights.to(jacobian) @ jacobian
