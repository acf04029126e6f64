"""ExcessMTL: more weight on the losses that are farthest above their least."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods._columns import Columns
from trimol.methods.base import Method, Needs, Objectives, Range, State, StepOptions


def excess(rows: Tensor, squares: Tensor) -> Tensor:
    """gᵀ H⁻¹ g with H = diag(√squares), for every row, in float64 (batchable): (…, M, d) → (…, M).

    The squares hold those of this gradient, so that an entry without them has no gradient.
    """
    root = squares.sqrt()
    return (rows / torch.where(root > 0, root, 1.0) * rows).sum(-1, dtype=torch.float64)


def excessmtl_step(weights: Tensor, relative: Tensor, lr: float | Tensor) -> Tensor:
    """λ ∝ λ exp(η e): an exponentiated gradient step, on tensors (batchable)."""
    tiny = torch.finfo(weights.dtype).tiny  # a weight that is lost may come back
    steep = (lr * relative).clamp_max(1e6)
    return torch.softmax(weights.clamp_min(tiny).log() + steep, -1)


class ExcessMTL(Method):
    r"""Robust multi-task learning with excess risks: weight for what can still be gained.

    .. math::
        \lambda_{t+1,m} \propto \lambda_{t,m} \exp\Big(\eta\, \frac{e_{t,m}}{e_{0,m}}\Big), \qquad
        e_{t,m} = g_{t,m}^\top H_{t,m}^{-1} g_{t,m}, \qquad
        H_{t,m} = \operatorname{diag}\Big(\sum_{s \le t} g_{s,m}^2\Big)^{1/2}

    with :math:`\eta` = ``lr``. e estimates how far a loss is above its least, by a Newton step with
    AdaGrad's diagonal for the curvature: a loss that is large because of noisy labels and cannot
    fall has a small one. :math:`e_0` is that of the first step, or the mean of the first ``warmup``
    ones, during which λ stays. At the first step all ratios are 1. (The authors' code takes e as it
    is there, so that λ depends on the losses' unit from then on.)

    λ sums to one. One backward per objective; memory for the squares of M gradients, kept in
    ``state_dict()``.

    Args:
        params: The parameters that the method weighs. One that is frozen keeps its squares.
        lr: η, the step size of log λ.
        warmup: Steps that only measure e₀; the paper has three epochs of them.
        weights: λ0, on the simplex; uniform by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> excess = trimol.ExcessMTL([x], objectives=2, lr=1.0)
        >>> for scale in (1.0, 0.5):
        ...     loss = excess(torch.stack([scale * x[0], x[1]]))
        >>> excess.weights
        tensor([0.3814, 0.6186], dtype=torch.float64)

    Reference:
        Y. He, S. Zhou, G. Zhang, H. Yun, Y. Xu, B. Zeng, T. Chilimbi, H. Zhao, *Robust Multi-Task
        Learning with Excess Risks*, ICML 2024, Algorithm 1.
    """

    needs: ClassVar[Needs] = "jacobian"
    summary: ClassVar[str] = (
        "More weight on the losses that are farthest above their least, by AdaGrad's curvature."
    )
    reference: ClassVar[str] = "he2024robust"
    moved_by: ClassVar[str | None] = "lr"
    shown: ClassVar[tuple[str, ...]] = ("lr", "warmup")
    search: ClassVar[Mapping[str, Range]] = {"lr": (1e-3, 1.0)}
    no_metric: ClassVar[str] = "whose excess risks have a metric of their own"
    squares: Tensor
    initial: Tensor
    seen: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        lr: float = 0.01,
        warmup: int = 0,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=checks.simplex(weights, objectives), **options)
        self.lr = checks.nonnegative("lr", lr)
        self.warmup = checks.whole_number("warmup", warmup, least=0)
        self.carry(
            squares=Columns.empty(self.params, self.objectives),
            initial=torch.zeros_like(self.weights),
            seen=torch.zeros((), dtype=torch.int64),
        )

    def weigh(self, evidence: Evidence) -> State:
        """Add up the squares; one step of log λ along the excess risks."""
        rows, columns = evidence.jacobian(), Columns(self.params)
        own = columns.of(self.squares)
        own = own.to(torch.promote_types(own.dtype, rows.dtype))
        squares = own + rows.to(own).square()
        evidence.finite(squares.amax(-1))  # one that overflows would stay, and hide its entry
        found = evidence.finite(excess(rows, squares)).to(self.weights)
        seen = self.seen.to(found.device)[..., None]
        measures = seen < max(self.warmup, 1)
        initial = torch.where(
            measures, self.initial + (found - self.initial) / (seen + 1), self.initial
        )
        relative = found / torch.where(initial > 0, initial, 1.0)
        moved = excessmtl_step(self.weights, relative, self.lr)
        return {
            "weights": torch.where(seen < self.warmup, self.weights, moved),
            "squares": columns.put(self.squares, squares),
            "initial": initial,
            "seen": self.seen + 1,
        }
