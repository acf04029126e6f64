"""MGDA: the weights whose combined gradient is shortest."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths._by_products import MinNorm
from trimol.maths._numerics import Array
from trimol.maths.min_norm import min_norm, min_norm_batched, min_norm_pairs_on_host
from trimol.methods._gramian import of_steps
from trimol.methods._products import ProductsMethod, ProductsOptions
from trimol.methods.base import Objectives


def mgda_weights(gramian: Tensor, rho: float | Tensor = 0.0) -> Tensor:
    """λ*_ρ in float64, whatever the dtype of the Gramian, (…, M, M); ρ is a number, or (…, 1)."""
    if isinstance(rho, Tensor):
        gramian = gramian + rho[..., None] * torch.eye(gramian.shape[-1]).to(gramian)
        rho = 0.0
    if gramian.dim() == 2:
        weights = min_norm(gramian, rho).double()
        return weights / weights.sum()  # to one in float64
    if gramian.shape[1:] == (2, 2) and gramian.device.type == "cpu":
        pairs = gramian.detach().double().numpy()
        return torch.from_numpy(min_norm_pairs_on_host(pairs, rho))
    return min_norm_batched(gramian, rho)


Normalize = Literal["none", "l2", "loss", "loss+"]


def normalised(gramian: Tensor, evidence: Evidence, normalize: Normalize) -> Tensor:
    """The Gramian of ∇f_m / n_m, n_m = ‖∇f_m‖ (``"l2"``), f_m (``"loss"``) or both (``"loss+"``).

    A gradient of zero is left as it is. With an optimizer's momentum it is that of its steps.
    """
    momentum = evidence.momentum
    if normalize == "none":
        return of_steps(gramian, momentum)
    sizes = torch.ones_like(gramian[..., 0], dtype=torch.float64)
    if normalize in ("l2", "loss+"):
        norms = gramian.double().diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
        sizes = torch.where(norms > 0, norms, 1.0)
    if normalize in ("loss", "loss+"):
        sizes = sizes * _positive(evidence.values(), normalize).to(sizes)
    # One side after the other: the product of two sizes may be too large or too small a number.
    divided = gramian.double() / sizes[..., None] / sizes[..., None, :]
    if momentum is not None:
        momentum = momentum._replace(pull=momentum.pull.to(sizes) / sizes)
    return of_steps(divided, momentum)


def _positive(losses: Tensor, normalize: Normalize) -> Tensor:
    if (losses <= 0).any():
        raise BadValue(
            f"losses must be above 0 with normalize={normalize!r}, found {losses.min().item():g}"
        )
    return losses


class MGDA(ProductsMethod):
    r"""(Regularised) multiple-gradient descent: the conflict-avoidant direction of this batch.

    .. math::
        \lambda^*_\rho(x) = \arg\min_{\lambda \in \Delta^M}
            \|\nabla F_z(x)\, \lambda\|^2 + \rho \|\lambda\|^2, \qquad
        x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda^*_\rho(x_t)

    The quadratic problem is solved exactly (:func:`trimol.simplex.min_norm`). On mini-batches this
    is the naive stochastic MGDA: the weights are a function of the same noise as the gradients, so
    that the direction is biased. One backward per objective.

    With ``solver="products"`` it is solved to a gap that is known, by products :math:`G\lambda`
    with :math:`G = \nabla F_z^\top \nabla F_z`: a backward and a forward-mode pass each, whatever
    M. It starts at what the steps before have told of G. With :math:`d = \nabla F_z\, \lambda` and
    ρ = 0, the gap is

    .. math::
        \text{gap} = 1 - \frac{\min_m (G \lambda)_m}{\lambda^\top G \lambda},
        \quad\text{so that}\quad
        \langle \nabla f_m, d \rangle \ge (1 - \text{gap})\, \|d\|^2, \quad
        \|d - d^*\|^2 \le \text{gap}\, \|d\|^2 :

    a gap below 1 conflicts with no objective, and gap 0 is MGDA. (With ρ, G is G + ρI.)
    ``info.gap`` is that of every step, ``info.products`` counts them. The first step, and each
    step in which products would cost more than M backwards, or where rounding would hide the gap
    (half precision, all but stationary points), is solved exactly; ``info.reason`` says so.

    Args:
        rho: ρ, the regularisation of λ towards uniform.
        normalize: What the gradients are divided by where λ is computed (and nowhere else), as in
            the code of Sener and Koltun: ``"l2"`` their norms, ``"loss"`` the losses, ``"loss+"``
            both. The direction is then no longer the shortest, and may conflict.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> mgda = trimol.MGDA([x], objectives=2)
        >>> mgda(torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])).backward()
        >>> x.grad, mgda.weights
        (tensor([-1.,  1.]), tensor([0.7500, 0.2500], dtype=torch.float64))

    Reference:
        J.-A. Désidéri, *Multiple-gradient descent algorithm (MGDA) for multiobjective
        optimization*, 2012; ρ: Chen et al., *Three-Way Trade-Off in Multi-Objective Learning*,
        2023, Algorithm 1.
    """

    summary: ClassVar[str] = (
        "The shortest convex combination of the gradients: avoids conflict, biased on mini-batches."
    )
    reference: ClassVar[str] = "desideri2012multiple"
    shown: ClassVar[tuple[str, ...]] = ("rho", "normalize", "solver")

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        rho: float = 0.0,
        normalize: Normalize = "none",
        **options: Unpack[ProductsOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.rho = checks.nonnegative("rho", rho)
        checks.one_of("normalize", normalize, get_args(Normalize))
        self.normalize: Normalize = normalize
        if normalize != "none":
            self.refuse(f"normalize={normalize!r}, which needs the gradients themselves")

    def sought(self, product: Callable[[Array], Array]) -> MinNorm:
        """The shortest direction."""
        return MinNorm(self.rho)

    def exact(self, evidence: Evidence) -> Tensor:
        """The weights of this batch's Gramian, of normalised gradients where that is asked for."""
        gramian = normalised(evidence.gramian(chunk=self.chunk), evidence, self.normalize)
        weights = self.solve(gramian)
        if gramian.dim() == 2:
            self.note_gap(evidence, gramian, weights)
        return weights.to(self.weights)

    def solve(self, gramian: Tensor) -> Tensor:
        """λ*_ρ of the batch."""
        return mgda_weights(gramian, self.rho)
