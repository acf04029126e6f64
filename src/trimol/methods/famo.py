"""FAMO: losses that fall at the same rate, from their values alone."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence, Losses, observed
from trimol.methods.base import Method, Needs

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
        params: The parameters that the method weighs.
        objectives: M, the number of losses.
        beta: β, the step size of ξ.
        gamma: γ, the decay of ξ towards uniform z.
        adam: Give δ + γξ to Adam, as the authors do; False is the plain step written above.
        min_losses: The least value of each loss, subtracted from it; zero by default.
        weights: λ before the first step; matters only where that step's losses are not finite.
        every: Compute new weights every so many steps.

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
    logits: Tensor
    moments: Tensor
    before: Tensor
    observations: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: int,
        *,
        beta: float = 0.025,
        gamma: float = 1e-3,
        adam: bool = True,
        min_losses: Tensor | Sequence[float] | None = None,
        weights: Tensor | Sequence[float] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(params, objectives, weights=weights, every=every)
        self.beta = checks.nonnegative("beta", beta)
        self.gamma = checks.nonnegative("gamma", gamma)
        self.adam = adam
        lowest = [0.0] * objectives if min_losses is None else min_losses
        self.min_losses = checks.vector("min_losses", lowest, objectives)
        self.register_buffer("logits", torch.zeros_like(self.weights))
        self.register_buffer("moments", self.weights.new_zeros(2, objectives))
        self.register_buffer("before", torch.zeros_like(self.weights))  # zero: nothing to compare
        self.register_buffer("observations", torch.zeros((), dtype=torch.int64))

    def weigh(self, evidence: Evidence) -> Tensor:
        """c z/ℓ of the batch (after ξ's step, if the last one was not observed)."""
        losses = self._above(evidence.values())
        self._learn(losses)
        self.before = losses
        return famo_weights(self.logits, losses)

    @torch.no_grad()
    def observe(self, losses: Losses) -> None:
        """Step ξ: call with the losses of the same batch, after the optimizer's step.

        Does nothing where there is nothing to compare with (the step kept its weights), or where
        these losses are not finite.

        Args:
            losses: M losses, one vector; no graph is needed.
        """
        after = observed(losses, self.objectives)
        if after.isfinite().all():
            self._learn(self._above(after))
        self.before = torch.zeros_like(self.before)

    def reset(self) -> Self:
        """Back to the state of a new instance."""
        for buffer in (self.logits, self.moments, self.before, self.observations):
            buffer.zero_()
        return super().reset()

    def extra_repr(self) -> str:
        """What ``print(method)`` shows in the brackets."""
        return f"{super().extra_repr()}, beta={self.beta:g}, gamma={self.gamma:g}, adam={self.adam}"

    def _learn(self, after: Tensor) -> None:
        """The step of ξ, if a step on x waits to be judged."""
        if not self.before.any():
            return
        step = famo_slope(self.logits, self.before, after) + self.gamma * self.logits
        self.observations += 1
        if self.adam:
            first = torch.lerp(step, self.moments[0], _BETA1)
            second = torch.lerp(step.square(), self.moments[1], _BETA2)
            self.moments = torch.stack([first, second])
            first = first / (1 - _BETA1 ** int(self.observations))
            second = second / (1 - _BETA2 ** int(self.observations))
            step = first / (second.sqrt() + _FLOOR)
        self.logits = self.logits - self.beta * step

    def _above(self, losses: Tensor) -> Tensor:
        """ℓ, measured from its least value."""
        above = losses.to(self.weights) - self.min_losses.to(self.weights)
        if (above < 0).any():
            m = int(above.argmin())
            raise BadValue(
                f"losses must be at least min_losses, since FAMO takes their logarithm, found "
                f"{losses[m].item():g} for objective {m}, below {self.min_losses[m].item():g}"
            )
        return above + (_EPSILON * above.max()).clamp_min(torch.finfo(above.dtype).tiny)
