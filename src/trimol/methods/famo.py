"""FAMO: losses that fall at the same rate, from their values alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence, Losses, observed
from trimol.gradients._presence import Counts
from trimol.methods.base import Method, Needs, Objectives, Options, Range, State

# Added to the losses so that a loss of zero has a logarithm: relative to the largest loss, where
# the authors' 1e-8 is absolute and so makes small losses look alike.
_EPSILON = 1e-8
_BETA1, _BETA2, _FLOOR = 0.9, 0.999, 1e-8  # Adam's usual constants


def famo_weights(logits: Tensor, losses: Tensor) -> Tensor:
    """c z/ℓ with z = softmax(ξ) and c = 1/Σ(z/ℓ), on tensors (batchable); losses above 0."""
    # z/ℓ = softmax(ξ − log ℓ) up to a factor: no overflow however small a loss is.
    return torch.softmax(logits - losses.log(), -1)


def famo_slope(logits: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """δ = (∂z/∂ξ)ᵀ(log ℓ(x_t) − log ℓ(x_{t+1})), on tensors (batchable); losses above 0."""
    z, fall = torch.softmax(logits, -1), before.log() - after.log()
    return z * (fall - (z * fall).sum(-1, keepdim=True))


class FAMO(Method):
    r"""Fast adaptive multitask optimization: all losses fall at a similar relative rate.

    .. math::
        x_{t+1} &= x_t - \alpha\, c_t \sum_m \frac{z_{t,m}}{\ell_m(x_t)} \nabla \ell_m(x_t),
            \quad z_t = \operatorname{softmax}(\xi_t), \quad
            c_t = \Big(\sum_m \frac{z_{t,m}}{\ell_m(x_t)}\Big)^{-1} \\
        \xi_{t+1} &= \xi_t - \beta\, (\delta_t + \gamma \xi_t), \quad \delta_t =
            \Big(\frac{\partial z_t}{\partial \xi_t}\Big)^{\!\top}
            \big(\log \ell(x_t) - \log \ell(x_{t+1})\big)

    with :math:`\beta` = ``beta``, :math:`\gamma` = ``gamma`` and ξ = ``logits``. ℓ(x_{t+1}) is the
    loss of the *same batch after the optimizer's step*: tell it with one line, :meth:`observe`.
    Without that line the next step's losses stand in for it: right on average (over the steps the
    noise of the batches telescopes) and without the extra forward, but noisier.

    One backward, as for plain training; :meth:`observe` adds a forward. Losses must be positive.

    Args:
        beta: β, the step size of ξ.
        gamma: γ, the decay of ξ towards uniform z.
        adam: Give δ + γξ to Adam, as the authors do; False is the plain step written above.
        min_losses: The least value of each loss, subtracted from it; zero by default.
        weights: λ before the first step; matters only where that step's losses are not finite.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([2.0, 1.0], requires_grad=True)
        >>> def losses(): return torch.stack([x.square().sum(), (x - 4).square().sum()])
        >>> famo, optimizer = trimol.FAMO([x], objectives=2), torch.optim.SGD([x], lr=0.1)
        >>> famo(losses()).backward()
        >>> optimizer.step()
        >>> with torch.no_grad():
        ...     famo.observe(losses())  # the same batch
        >>> famo.weights
        tensor([0.7222, 0.2778], dtype=torch.float64)
        >>> famo.logits
        tensor([-0.0250,  0.0250], dtype=torch.float64)

    Reference:
        B. Liu, Y. Feng, P. Stone, Q. Liu, *FAMO: Fast Adaptive Multitask Optimization*, NeurIPS
        2023, Algorithm 1.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Losses fall at a similar relative rate, from their values alone: the cost of plain "
        "training."
    )
    reference: ClassVar[str] = "liu2023famo"
    moved_by: ClassVar[str | None] = "beta"
    shown: ClassVar[tuple[str, ...]] = ("beta", "gamma", "adam")
    search: ClassVar[Mapping[str, Range]] = {"beta": (2.5e-3, 0.25)}
    logits: Tensor
    moments: Tensor
    before: Tensor
    observations: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        beta: float = 0.025,
        gamma: float = 1e-3,
        adam: bool = True,
        min_losses: Tensor | Sequence[float] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.beta = checks.nonnegative("beta", beta)
        self.gamma = checks.nonnegative("gamma", gamma)
        self.adam = checks.flag("adam", adam)
        lowest = [0.0] * self.objectives if min_losses is None else min_losses
        self.min_losses = checks.vector("min_losses", lowest, objectives)
        zeros = torch.zeros_like(self.weights)
        self.carry(
            logits=zeros,
            moments=zeros.expand(2, self.objectives),
            before=zeros,  # nothing to compare with yet
            observations=torch.zeros((), dtype=torch.int64),
        )

    @property
    def harmless(self) -> Tensor:
        """Losses above the least."""
        return 1 + self.min_losses

    def weigh(self, evidence: Evidence) -> State:
        """c z/ℓ of the batch (after ξ's step, if the last one was not observed)."""
        losses = self._above(evidence.values())
        learned = self._learned(losses)
        return {**learned, "weights": famo_weights(learned["logits"], losses), "before": losses}

    @torch.no_grad()
    def observe(self, losses: Losses, counts: Counts | None = None) -> None:
        """Step ξ: call with the losses of the same batch, after the optimizer's step.

        Does nothing where there is nothing to compare with (the step kept its weights), or where
        these losses are not finite, or one of them is absent.

        Args:
            losses: M losses, one vector; no graph is needed.
            counts: How many samples of each objective they are means over, as in the call.
        """
        after = observed(losses, self.names, counts)
        learned = self._learned(self._above(after)) if after.isfinite().all() else {}
        self.commit({"weights": self.weights, **learned, "before": torch.zeros_like(self.before)})

    def _learned(self, after: Tensor) -> dict[str, Tensor]:
        """ξ after its step (and Adam's state), of the runs in which a step on x waits to be judged.

        The step is δ + γξ, which Adam divides by its size: first / √second, both averages
        corrected for their start at zero.
        """
        waits = self.before.any(-1, keepdim=True)
        count = self.observations + waits[..., 0].to(self.observations)
        step = famo_slope(self.logits, self.before, after) + self.gamma * self.logits
        moments = self.moments
        if self.adam:
            first = torch.lerp(step, self.moments[..., 0, :], _BETA1)
            second = torch.lerp(step.square(), self.moments[..., 1, :], _BETA2)
            moments = torch.stack([first, second], -2)
            done = count.to(step)[..., None]
            step = first / (1 - _BETA1**done) / ((second / (1 - _BETA2**done)).sqrt() + _FLOOR)
        return {
            "logits": torch.where(waits, self.logits - self.beta * step, self.logits),
            "moments": torch.where(waits[..., None], moments, self.moments),
            "observations": count,
        }

    def _above(self, losses: Tensor) -> Tensor:
        """ℓ, measured from its least value."""
        above = losses.to(self.weights) - self.min_losses.to(self.weights)
        if (above < 0).any():
            place = int(above.argmin())
            lowest = self.min_losses.expand(above.shape).flatten()[place].item()
            raise BadValue(
                f"losses must be at least min_losses, since FAMO takes their logarithm, found "
                f"{losses.flatten()[place].item():g} for objective "
                f"{self.names[place % self.objectives]!r}, below {lowest:g}"
            )
        largest = above.amax(-1, keepdim=True)
        return above + (_EPSILON * largest).clamp_min(torch.finfo(above.dtype).tiny)
