"""Aligned-MTL: gradients made orthogonal and equally long before they are added."""

from collections.abc import Iterable
from typing import ClassVar, Literal, Unpack, get_args

import numpy as np
import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.maths._numerics import Array, equilibrate, factor, noise_of, regularised
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import PreferenceMethod, PreferenceOptions
from trimol.methods.base import Objectives

ScaleMode = Literal["min", "median", "rmse"]
# The least eigenvalue, relative to the largest, has 12 digits.
_WELL_CONDITIONED = 1e-4


def alignedmtl_weights(
    gramian: Tensor, preference: Tensor, scale_mode: ScaleMode = "min", rounding: float = 0.0
) -> Tensor:
    """σ V Σ⁻¹ Vᵀ ``preference``, in float64, where G = V Σ² Vᵀ on its range.

    The rank is that of the cosines, to the rounding of the Gramian's dtype, or to that of the
    gradients that it was formed from, ``rounding``: a gradient is not dropped for being short. Of
    eigenvalues of G that differ much the small ones have lost digits; the singular values are then
    those of a Cholesky factor, which keeps twice as many, at four times the work.
    """
    G = regularised(checked_gramian(gramian), 0.0)
    squared, V = np.linalg.eigh(G)
    w = preference.double().numpy()
    if squared[0] > _WELL_CONDITIONED * squared[-1]:
        scale = np.sqrt(_scale(squared, scale_mode))
        return torch.from_numpy(V @ (scale / np.sqrt(squared) * (w @ V)))
    # G = D C D with C = AᵀA, up to a factor: the singular values of A D are those of J.
    C, inverse = equilibrate(G)
    A, order = factor(C, 4 * noise_of(gramian, rounding))
    if not len(A):
        return preference.double()
    _, sigma, Vt = np.linalg.svd(A / inverse[order], full_matrices=False)
    scale = np.sqrt(_scale(sigma[::-1] ** 2, scale_mode))
    weights = np.zeros(len(G))
    weights[order] = Vt.T @ (scale / sigma * (Vt @ w[order]))
    return torch.from_numpy(weights)


def _scale(squared: Array, mode: ScaleMode) -> float:
    """σ²: the smallest of the eigenvalues, which ascend, their mean, or the (lower) median."""
    found = {"min": squared[0], "rmse": squared.mean(), "median": squared[(len(squared) - 1) // 2]}
    return float(found[mode])


class AlignedMTL(PreferenceMethod):
    r"""Independent component alignment: the gradients' matrix with condition number one.

    .. math::
        x_{t+1} = x_t - \alpha\, J^\top \lambda, \qquad
        \lambda = \sigma\, V \Sigma^{-1} V^\top w, \qquad J J^\top = V \Sigma^2 V^\top

    with w = ``preference`` and :math:`\sigma` the smallest singular value of J that is not zero:
    :math:`J^\top V \Sigma^{-1} V^\top` has orthonormal columns, the nearest to the gradients'.
    Weights may be negative. The step is as long as the *shortest* component, so that dependent
    gradients slow it down; ``scale_mode`` chooses another length. One backward per objective.

    Args:
        preference: w, at least 0; 1/M each by default. The authors' code takes ``[1.0] * M``: the
            sum of the aligned gradients.
        scale_mode: σ² is the ``"min"`` of the eigenvalues of :math:`JJ^\top` (the paper), their
            ``"median"``, or their mean, ``"rmse"`` (both from the authors' code).

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> aligned = trimol.AlignedMTL([x], objectives=2)
        >>> aligned(torch.stack([x[0], 4 * x[1]])).backward()
        >>> x.grad, aligned.weights
        (tensor([0.5000, 0.5000]), tensor([0.5000, 0.1250], dtype=torch.float64))

    Reference:
        D. Senushkin, N. Patakin, A. Kuznetsov, A. Konushin, *Independent Component Alignment for
        Multi-Task Learning*, CVPR 2023, Algorithm 1.
    """

    summary: ClassVar[str] = "The nearest orthogonal, equally long gradients, added."
    reference: ClassVar[str] = "senushkin2023independent"
    shown: ClassVar[tuple[str, ...]] = ("scale_mode",)

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        scale_mode: ScaleMode = "min",
        **options: Unpack[PreferenceOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        if scale_mode not in get_args(ScaleMode):
            raise BadValue(f"scale_mode must be min, median or rmse, found {scale_mode!r}")
        self.scale_mode: ScaleMode = scale_mode

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """σ V Σ⁻¹ Vᵀ w."""
        return self.solve_each(alignedmtl_weights, gramian, self.scale_mode, rounding)
