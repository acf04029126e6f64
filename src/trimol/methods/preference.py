"""Preference: a weighted sum of the losses, under bounds or with progress on others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.gradients._delivery import Heads, Length
from trimol.maths import box
from trimol.methods._gramian import each
from trimol.methods.base import Method, Metric, Needs, Objectives


def preference_multipliers(gramian: Tensor, demand: Tensor, cap: Tensor) -> Tensor:
    """argmin ½νᵀHν − νᵀ``demand`` over 0 ≤ ν ≤ ``cap``, exactly, in float64.

    Args:
        gramian: H, of the constrained objectives' gradients.
        demand: How much faster each of them has to fall than along ∇F p.
        cap: The largest multiplier of each.
    """
    H, wanted, most = (t.detach().cpu().double().numpy() for t in (gramian, demand, cap))
    return torch.from_numpy(box.minimise(H, wanted, most))


class Preference(Method):
    r"""Descent on the preferred weighted sum that keeps bounds, or makes progress, on other losses.

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

    ``progress`` asks for a share τ of what a step of the same length along a loss's own gradient
    would do for it, whatever the preferred losses want:

    .. math:: \langle \nabla f_j(x), d \rangle
              \ge \tau_j\, \|\nabla f_j(x)\|\, \|\nabla F_z(x)\, p\| - \xi_j

    in the same program, with C in units of :math:`\|\nabla F p\| / \|\nabla f_j\|`. With one
    preferred loss and τ for all others this is priority-constrained descent: the primary loss falls
    as fast as the guarantee for the secondary ones allows, and gives way where they oppose it. It
    holds for every step on the full gradient, exactly, unless secondary gradients oppose each other
    so much that it would take multipliers beyond C. There is no moving average: the lengths are
    this batch's.

    One backward per objective.

    Args:
        prefer: p, on the simplex; uniform by default. May be zero for a loss that is only bounded.
        bounds: The upper bound of each bounded objective: ``{1: 0.2}`` is f_1 ≤ 0.2;
            by name where the objectives have names, ``{"cvr": 0.2}``.
        progress: τ, from 0 (no loss is raised) to 1, for each of some objectives, ``{1: 0.02}``, or
            one number for all that are not preferred (p_j = 0); None asks for none.
        kappa: κ, how fast a loss goes to its bound, from above or below.
        penalty: C, the largest multiplier: how much of pᵀF a unit of a loss above its bound is
            worth at most; for ``progress`` relative to the lengths of the gradients.
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
        preferences by constraints L. Chen et al., *FERERO*, NeurIPS 2024; for progress *Not All
        Objectives Are Born Equal: Priority-Constrained Descent for Hierarchical Multi-Objective
        Optimization*, TMLR 2026.
    """

    needs: ClassVar[Needs] = "gramian"
    summary: ClassVar[str] = (
        "A weighted sum of the losses under hard upper bounds on, or with sure progress of, others."
    )
    reference: ClassVar[str] = "gong2021automatic"
    shown: ClassVar[tuple[str, ...]] = ("bounds", "progress", "kappa")
    prefers: ClassVar[str | None] = "prefer"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        prefer: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        bounds: Mapping[int, float] | Mapping[str, float] | None = None,
        progress: float | Mapping[int, float] | Mapping[str, float] | None = None,
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
        self.bounds = checks.bounds({} if bounds is None else bounds, objectives)
        self.progress = self._shares(progress)
        self.kappa = checks.positive("kappa", kappa)
        self.penalty = checks.positive("penalty", penalty)
        self.chunk = None if chunk is None else checks.count("chunk", chunk)

    @property
    def due(self) -> bool:
        """As for every method; where nothing is asked for, the weights never move."""
        return super().due and bool(self._constrained)

    def _shares(
        self, progress: float | Mapping[int, float] | Mapping[str, float] | None
    ) -> dict[int, float]:
        """τ by the objectives' places."""
        if progress is None:
            return {}
        if not isinstance(progress, Mapping):
            secondary = (self.prefer == 0).nonzero().flatten().tolist()
            if not secondary:
                raise BadValue(
                    "progress must name objectives, {1: 0.02}, where prefer is 0 for none of them, "
                    f"found {progress!r}"
                )
            progress = dict.fromkeys(secondary, progress)
        told = checks.by_objective("progress", progress, self.names)
        return {place: checks.fraction("progress", share) for place, share in told.items()}

    @property
    def _constrained(self) -> list[int]:
        """The objectives of which something is asked, each once."""
        return list(dict.fromkeys([*self.bounds, *self.progress]))

    def weigh(self, evidence: Evidence) -> Tensor:
        """(p + ν)/(1 + Σν) of the batch."""
        losses = evidence.values().to(self.weights)
        gramian = evidence.gramian(chunk=self.chunk).to(self.weights)
        prefer, asked = self.prefer.to(self.weights), self._constrained
        inner = gramian[..., asked, :][..., asked]
        # What the preferred direction leaves to be done for each of them.
        wanted, cap = self._wanted(losses, gramian, prefer)
        pulled = (gramian[..., asked, :] @ prefer[..., None])[..., 0]
        multipliers = each(preference_multipliers, [inner, wanted - pulled, cap])
        # λ = (p + ν)/(1 + Σν): p sums to one.
        weights = prefer.expand(self.weights.shape).clone()
        weights[..., asked] += multipliers.to(weights)
        return weights / weights.sum(-1, keepdim=True)

    def _wanted(self, losses: Tensor, gramian: Tensor, prefer: Tensor) -> tuple[Tensor, Tensor]:
        """How fast each objective of which something is asked must fall, and its largest ν."""
        along = (prefer * (gramian @ prefer[..., None])[..., 0]).sum(-1, keepdim=True)
        preferred, lengths = along.clamp_min(0).sqrt(), gramian.diagonal(dim1=-2, dim2=-1).sqrt()
        wanted, cap = torch.full_like(losses, -torch.inf), torch.zeros_like(losses)
        for place, bound in self.bounds.items():
            at = slice(place, place + 1)
            wanted[..., at] = self.kappa * (losses[..., at] - bound)
            cap[..., at] = self.penalty
        for place, share in self.progress.items():
            at = slice(place, place + 1)
            own = lengths[..., at]
            fall = share * own * preferred
            relative = self.penalty * preferred / torch.where(own > 0, own, 1)
            wanted[..., at] = torch.maximum(wanted[..., at], fall)
            cap[..., at] = torch.maximum(cap[..., at], relative)
        return wanted[..., self._constrained], cap[..., self._constrained]
