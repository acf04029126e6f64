"""M-ConFIG: ConFIG on momenta, of which a step renews one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.gradients._autocast import no_autocast
from trimol.gradients._rows import combined_wide, gram
from trimol.methods._columns import Columns
from trimol.methods._gramian import each
from trimol.methods.base import Method, Needs, Objectives, Options, Range, State
from trimol.methods.config import config_weights

_FLOOR = 1e-8  # Adam's usual constant


def corrected(beta: float | Tensor, count: Tensor) -> Tensor:
    """The share of the count-th value in a moving average that is corrected for its start at zero.

    With m ← βm + (1 − β)g and m̂ = m/(1 − βᵗ): m̂ ← m̂ + (1 − β)/(1 − βᵗ) (g − m̂).
    """
    return (1 - beta) / (1 - beta ** count.double().clamp_min(1))


def pseudo_gradient(now: Tensor, before: Tensor, beta: float | Tensor, count: Tensor) -> Tensor:
    """The gradient whose moving average would take the direction from ``before`` to ``now``."""
    t = count.double()
    new, old = (1 - beta**t) / (1 - beta), beta * (1 - beta ** (t - 1)) / (1 - beta)
    return new.to(now) * now - old.to(now) * before


class MConFIG(Method):
    r"""Momentum ConFIG: `ConFIG` on the momenta of the gradients, one new gradient a step.

    .. math::
        \hat m_i &\leftarrow \frac{\beta_1 m_i + (1 - \beta_1)\, g_i}{1 - \beta_1^{t_i}}
            \ \text{ for one } i = t \bmod M, \qquad
        d_t = \operatorname{ConFIG}(\hat m_1, \dots, \hat m_M) \\
        \tilde g_t &= \frac{(1 - \beta_1^t)\, d_t - \beta_1 (1 - \beta_1^{t-1})\, d_{t-1}}
            {1 - \beta_1}, \qquad
        \hat s_t \leftarrow \frac{\beta_2 s_{t-1} + (1 - \beta_2)\, \tilde g_t^2}{1 - \beta_2^t},
            \qquad x_{t+1} = x_t - \alpha \frac{d_t}{\sqrt{\hat s_t} + 10^{-8}}

    with :math:`\beta_1` = ``beta1``, :math:`\beta_2` = ``beta2``. Adam's second moment is part of
    the method, of the gradient :math:`\tilde g` whose momentum the direction would be: train with
    plain SGD. (``beta2=None`` leaves it out, for an optimizer of your choice.)

    Cost: **one backward, of one loss**, less than plain training; and if only the losses in
    ``method.wanted`` are computed and the others are None, one forward of one loss, too. The first
    step wants all of them, so that every momentum begins with a gradient. (The authors' code stands
    still until all have one.) A momentum is up to M steps old: take smaller steps than with ConFIG.
    Memory for M + 2 gradients, kept in ``state_dict()``. λ are ConFIG's weights of the momenta.

    Args:
        params: The parameters that the method weighs. One that is frozen keeps its momenta.
        beta1: β₁ in [0, 1).
        beta2: β₂ in [0, 1), or None for the direction d itself.
        weights: λ before the first step; matters only where that step's gradients are not finite.
        every: Take a new gradient every so many steps; those between move along λ times this
            batch's gradients, for a backward of all losses, and without the second moment.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([3.0, 1.0], requires_grad=True)
        >>> mconfig = trimol.MConFIG([x], objectives=["pde", "boundary"])
        >>> optimizer = torch.optim.SGD([x], lr=0.1)
        >>> losses = {"pde": lambda: x[0] ** 2, "boundary": lambda: (x[1] - 4) ** 2}
        >>> for _ in range(3):
        ...     wanted = mconfig.wanted
        ...     given = {name: losses[name]() if name in wanted else None for name in losses}
        ...     mconfig(given).backward()
        ...     optimizer.step(); optimizer.zero_grad()
        ...     print(wanted, x.detach().numpy().round(2))
        ('pde', 'boundary') [2.9 1.1]
        ('boundary',) [2.8 1.2]
        ('pde',) [2.7 1.3]

    Reference:
        Q. Liu, M. Chu, N. Thuerey, *ConFIG: Towards Conflict-free Training of Physics Informed
        Neural Networks*, ICLR 2025, Algorithm 1.
    """

    needs: ClassVar[Needs] = "jacobian"
    summary: ClassVar[str] = (
        "ConFIG on momenta, with Adam's second moment: one loss's backward a step. For PINNs."
    )
    reference: ClassVar[str] = "liu2025config"
    shown: ClassVar[tuple[str, ...]] = ("beta1", "beta2")
    search: ClassVar[Mapping[str, Range]] = {}
    no_metric: ClassVar[str] = "whose direction has a second moment of its own"
    momenta: Tensor
    counts: Tensor
    last: Tensor
    squares: Tensor
    steps_of: Tensor
    turn: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        beta1: float = 0.9,
        beta2: float | None = 0.999,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.beta1 = checks.below_one("beta1", beta1)
        self.beta2 = None if beta2 is None else checks.below_one("beta2", beta2)
        none = torch.zeros(len(self.params), dtype=torch.int64)
        self.carry(
            momenta=Columns.empty(self.params, self.objectives),
            counts=none.expand(self.objectives, -1),  # t_i, for every parameter
            last=Columns.empty(self.params),
            squares=Columns.empty(self.params),
            steps_of=none,  # t, for every parameter
            turn=torch.zeros((), dtype=torch.int64),
        )

    @property
    def wanted(self) -> tuple[str | int, ...]:
        """The objectives whose gradients the next step takes; the losses of others may be None.

        A step between those of ``every`` moves along the gradients of all.
        """
        return tuple(self.names[place] for place in self._places()) if self.due else self.names

    def _places(self) -> Sequence[int]:
        """All where no gradient was seen yet, then one after the other."""
        turn = int(self.turn.flatten()[0])
        return range(self.objectives) if turn == 0 else [turn % self.objectives]

    def weigh(self, evidence: Evidence) -> State:
        """Renew the momentum whose turn it is; ConFIG of all of them."""
        columns, places = Columns(self.params), list(self._places())
        rows = evidence.rows_of(places)
        momenta, counts = self._renewed(rows, places, columns)
        with no_autocast():
            weights = _weights(evidence.finite(gram(momenta)), evidence.rounding).to(self.weights)
            now = _combined(weights, momenta)
        before, squares = columns.of(self.last).to(now), columns.of(self.squares).to(now)
        done = self.steps_of[..., columns.live] + 1
        if self.beta2 is not None:
            count = columns.spread(done).to(now.device)
            seen = pseudo_gradient(now, before, self.beta1, count).square()
            squares = torch.lerp(squares, seen, corrected(self.beta2, count).to(now))
            evidence.finite(squares.amax(-1, keepdim=True))  # one that overflows would stay
        return {
            "weights": weights,
            "momenta": columns.put(self.momenta, momenta),
            "counts": counts,
            "last": columns.put(self.last, now),
            "squares": columns.put(self.squares, squares.expand_as(now)),
            "steps_of": _placed(self.steps_of, columns.live, done),
            "turn": self.turn + 1,
        }

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves along d/√ŝ; along this batch's gradients where no momentum was renewed."""
        if after is before:
            return evidence.scalar(after)
        columns = Columns(self.params)
        direction = columns.of(self.last)
        if self.beta2 is not None:
            direction = direction / (columns.of(self.squares).sqrt() + _FLOOR)
        return evidence.scalar_along(after, direction)

    def _renewed(self, rows: Tensor, places: list[int], columns: Columns) -> tuple[Tensor, Tensor]:
        """The momenta of the parameters that have gradients, and how often they were renewed."""
        own = columns.of(self.momenta)
        wide = torch.promote_types(own.dtype, rows.dtype)
        momenta = own.expand(*own.shape[:-1], rows.shape[-1]).to(wide, copy=True)
        count = self.counts[..., places, :][..., columns.live] + 1
        share = columns.spread(corrected(self.beta1, count)).to(momenta)
        momenta[..., places, :] = torch.lerp(momenta[..., places, :], rows.to(wide), share)
        counts = self.counts.clone()
        counts[..., places, :] += columns.live.to(counts)
        return momenta, counts


def _weights(gramian: Tensor, rounding: float) -> Tensor:
    """ConFIG's, of equal preference."""
    equal = torch.ones(gramian.shape[:-1], dtype=torch.float64)
    return each(config_weights, [gramian, equal], rounding)


def _combined(weights: Tensor, rows: Tensor) -> Tensor:
    """λᵀ m̂, summed in float64."""
    if rows.dim() == 2:
        return combined_wide(weights, rows, rows.dtype)
    return (weights[..., None, :] @ rows.to(weights))[..., 0, :].to(rows)


def _placed(all_of: Tensor, live: Tensor, new: Tensor) -> Tensor:
    result = all_of.clone()
    result[..., live] = new
    return result
