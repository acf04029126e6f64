"""ConFIG: the direction that makes the same angle with every gradient."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trimol.maths._numerics import EPS, equilibrate, factor, noise_of, regularised
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import PreferenceMethod


def config_weights(gramian: Tensor, preference: Tensor, rounding: float = 0.0) -> Tensor:
    """The weights of (Σ gᵢᵀu) u with u the unit vector along U⁺ ``preference``, in float64.

    With the unit gradients U and their cosines C = UUᵀ, U⁺p = Uᵀ(C⁺p): the pseudo-inverse is taken
    of a Cholesky factor A of C, C = AᵀA, which keeps twice as many digits as C itself. Its rank is
    that of the cosines, to the rounding of the gradients: one is not dropped for being short.
    """
    G = checked_gramian(gramian)
    norms, weights = np.sqrt(G.diagonal()), np.zeros(len(G))
    # G = D C D up to a factor, D powers of two; then rows of A as long as the cosines ask for.
    C, _ = equilibrate(regularised(G, 0.0))
    A, order = factor(C, 4 * noise_of(gramian, rounding))
    if not len(A):
        return torch.from_numpy(weights)
    columns = np.linalg.norm(A, axis=0)
    columns[columns == 0] = 1
    wanted = preference.double().numpy()[order] * (norms[order] > 0)
    _, sigma, Vt = np.linalg.svd(A / columns, full_matrices=False)
    # What of p the gradients can reach at all; what is rounding of it is zero.
    reached = Vt @ wanted
    floor = 16 * len(G) * max(EPS, rounding) * np.linalg.norm(wanted)
    reached[np.abs(reached) <= floor * sigma[0] / sigma] = 0
    y = Vt.T @ (reached / sigma**2)
    squared = float(np.sum((reached / sigma) ** 2))
    if squared > 0:  # length Σ gᵢᵀu = Σ ‖gᵢ‖ (C C⁺p)ᵢ / ‖U⁺p‖
        along = norms[order] @ (Vt.T @ reached)
        weights[order] = along / squared * y / np.where(norms[order] > 0, norms[order], 1)
    return torch.from_numpy(weights)


class ConFIG(PreferenceMethod):
    r"""Conflict-free inverse gradients: every loss falls, all at the same angle to the step.

    .. math::
        x_{t+1} = x_t - \alpha \Big(\sum_m g_m^\top u\Big)\, u, \qquad
        u = \frac{U^+ p}{\|U^+ p\|}, \qquad U = \big[g_1/\|g_1\|, \dots, g_M/\|g_M\|\big]^\top

    with p = ``preference``: :math:`g_m^\top u / \|g_m\| \propto p_m`, so that with equal p the step
    has the same cosine with every gradient, whatever its length, and is as long as the gradients
    reach along it. Where the gradients are independent no loss rises. Where they are dependent no
    such direction may exist: :math:`U^+p` is then the nearest in least squares, a loss may rise,
    and it is zero where it is rounding. Weights may be negative. The pseudo-inverse is exact, from
    the Gramian in float64. One backward per objective.

    Args:
        preference: p, at least 0; equal by default. Its length does not matter.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> config = trimol.ConFIG([x], objectives=2)
        >>> config(torch.stack([x[0], 3 * x[1]])).backward()
        >>> x.grad, config.weights
        (tensor([2., 2.]), tensor([2.0000, 0.6667], dtype=torch.float64))

    Reference:
        Q. Liu, M. Chu, N. Thuerey, *ConFIG: Towards Conflict-free Training of Physics Informed
        Neural Networks*, ICLR 2025, eq. (2) and (3).
    """

    summary: ClassVar[str] = (
        "The direction at the same angle to every gradient, by the pseudo-inverse: for PINNs."
    )
    reference: ClassVar[str] = "liu2025config"

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """The weights of (Σ gᵢᵀu) u."""
        return self.solve_each(config_weights, gramian, rounding)
