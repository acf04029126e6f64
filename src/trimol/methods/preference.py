"""Preference: a weighted sum of the losses, under hard upper bounds on some of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.gradients._delivery import Heads, Length
from trimol.maths import box
from trimol.methods._gramian import each
from trimol.methods.base import Method, Metric, Needs, Objectives


def preference_multipliers(gramian: Tensor, demand: Tensor, penalty: float) -> Tensor:
    """argmin ½νᵀHν − νᵀ``demand`` over 0 ≤ ν ≤ C, exactly, in float64.

    Args:
        gramian: H, of the bounded objectives' gradients.
        demand: κ(f − b) − ⟨∇f, ∇F p⟩: how much faster each of them has to fall.
        penalty: C.
    """
    H, wanted = (t.detach().cpu().double().numpy() for t in (gramian, demand))
    return torch.from_numpy(box.minimise(H, wanted, penalty))


class Preference(Method):
    r"""Descent on the preferred weighted sum that keeps some losses below given bounds.

    .. math::
        d = \arg\min_d\ \tfrac12 \|d - \nabla F_z(x)\, p\|^2 + C \sum_{j \in B} \xi_j
        \quad \text{s.t.} \quad \langle \nabla f_j(x), d \rangle
            \ge \kappa\, (f_j(x) - b_j) - \xi_j, \quad \xi_j \ge 0

    with :math:`p` = ``prefer``, :math:`b` = ``bounds``, :math:`\kappa` = ``kappa`` and
    :math:`C` = ``penalty``. Its dual is solved exactly:

    .. math::
        \nu = \arg\min_{0 \le \nu \le C} \tfrac12 \|\nabla F_z(x) (p + \nu)\|^2
            - \kappa\, \nu^\top (f - b), \qquad
        \lambda = \frac{p + \nu}{1 + \sum_j \nu_j}, \qquad \nabla F_z(x)\, \lambda \propto d

    What that promises, for small steps on the full gradient: a loss above its bound falls to it,
    like exp(−κt) with t the sum of the learning rates over 1 + Σν; one below its bound stays below;
    and x stands still exactly where p + ν are the multipliers (KKT) of *minimise*
    :math:`p^\top F` *subject to* :math:`f_j \le b_j`. Where bounds contradict each other or are out
    of reach, ν stops at C: descent on :math:`p^\top F + C \sum_j \max(0, f_j - b_j)`. Without
    bounds it is static weighting by p. On mini-batches the bounds hold for the batch's losses.

    One backward per objective.

    Args:
        prefer: p, on the simplex; uniform by default. May be zero for a loss that is only bounded.
        bounds: The upper bound of each bounded objective: ``{1: 0.2}`` is f_1 ≤ 0.2;
            by name where the objectives have names, ``{"cvr": 0.2}``.
        kappa: κ, how fast a loss goes to its bound, from above or below.
        penalty: C, the largest multiplier: how much of pᵀF a unit of a loss above its bound is
            worth at most.
        chunk: How many gradients to hold at once; see :func:`trimol.gradients.gramian`.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([2.0], requires_grad=True)
        >>> method = trimol.Preference([x], objectives=2, prefer=[1.0, 0.0], bounds={1: 4.0})
        >>> optimizer = torch.optim.SGD([x], lr=0.1)
        >>> for _ in range(200):
        ...     optimizer.zero_grad()
        ...     method(torch.cat([x**2, (x - 3) ** 2])).backward()
        ...     optimizer.step()
        >>> x.detach()  # as near to 0 as the bound allows
        tensor([1.0000])

    Reference:
        C. Gong, X. Liu, Q. Liu, *Automatic and Harmless Regularization with Constrained and
        Lexicographic Optimization: A Dynamic Barrier Approach*, NeurIPS 2021, for one bound; for
        preferences by constraints L. Chen et al., *FERERO*, NeurIPS 2024.
    """

    needs: ClassVar[Needs] = "gramian"
    summary: ClassVar[str] = (
        "A weighted sum of the losses under hard upper bounds on some of them, by an exact QP."
    )
    reference: ClassVar[str] = "gong2021automatic"
    shown: ClassVar[tuple[str, ...]] = ("bounds", "kappa")
    prefers: ClassVar[str | None] = "prefer"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        prefer: Tensor | Sequence[float] | None = None,
        bounds: Mapping[int, float] | Mapping[str, float] | None = None,
        kappa: float = 1.0,
        penalty: float = 100.0,
        chunk: int | None = None,
        every: int = 1,
        length: Length = "own",
        max_norm: float | None = None,
        heads: Heads = "plain",
        optimizer: Optimizer | None = None,
        metric: Metric = "step",
        guard: bool = False,
    ) -> None:
        start = checks.simplex(prefer, objectives, "prefer")
        super().__init__(
            params,
            objectives,
            weights=start,
            every=every,
            length=length,
            max_norm=max_norm,
            heads=heads,
            optimizer=optimizer,
            metric=metric,
            guard=guard,
        )
        self.prefer = start
        self.bounds = checks.bounds(bounds or {}, objectives)
        self.kappa = checks.positive("kappa", kappa)
        self.penalty = checks.positive("penalty", penalty)
        self.chunk = None if chunk is None else checks.count("chunk", chunk)

    @property
    def due(self) -> bool:
        """As for every method; without bounds the weights never move."""
        return super().due and bool(self.bounds)

    def weigh(self, evidence: Evidence) -> Tensor:
        """(p + ν)/(1 + Σν) of the batch."""
        losses = evidence.values().to(self.weights)
        gramian = evidence.gramian(chunk=self.chunk).to(self.weights)
        prefer, bounded = self.prefer.to(self.weights), list(self.bounds)
        # κ(f − b) − ⟨∇f, ∇F p⟩: what the preferred direction leaves to be done for each bound.
        above = losses[..., bounded] - losses.new_tensor(list(self.bounds.values()))
        pulled = (gramian[..., bounded, :] @ prefer[..., None])[..., 0]
        inner = gramian[..., bounded, :][..., bounded]
        demand = self.kappa * above - pulled
        multipliers = each(preference_multipliers, [inner, demand], self.penalty)
        # λ = (p + ν)/(1 + Σν): p sums to one.
        weights = prefer.expand(self.weights.shape).clone()
        weights[..., bounded] += multipliers.to(weights)
        return weights / weights.sum(-1, keepdim=True)
