r"""Conflict avoidance: how far weights λ are from the conflict-avoiding ones λ*_ρ(x).

.. math::
    \lambda^*_\rho(x) = \arg\min_{\lambda \in \Delta^M}
        \|\nabla F_S(x)\, \lambda\|^2 + \rho \|\lambda\|^2

is what MGDA on the whole training data would use. Two squared distances from it are of interest:
between directions, E_ca, and between weights, E_caw. Both are for one run; the paper takes the
expectation over runs inside the norm.

Reference:
    L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
    Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 2.2.
"""

from torch import Tensor

from trimol.errors.pareto import combined


def direction_distance(jacobian: Tensor, weights: Tensor, avoiding: Tensor) -> float:
    r"""E_ca = ‖∇F_S (λ − λ*_ρ)‖². One number for every λ*, also where λ* is not unique.

    Args:
        jacobian: The M × d gradients, one row per objective, in float64.
        weights: λ.
        avoiding: λ*_ρ.

    Example:
        >>> import torch
        >>> jacobian = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
        >>> direction_distance(jacobian, torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
        0.5
    """
    return float(combined(jacobian, weights.double() - avoiding.double()).square().sum())


def weight_distance(weights: Tensor, avoiding: Tensor) -> float:
    r"""E_caw = ‖λ − λ*_ρ‖². For ρ > 0 only: with ρ = 0 there may be several λ*.

    Example:
        >>> import torch
        >>> weight_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
        0.5
    """
    return float((weights.double() - avoiding.double()).square().sum())
