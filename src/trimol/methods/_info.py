"""What a method says of its last step."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimol._checks import Names


@dataclass(frozen=True)
class Info:
    """What the last step saw: diagnostics, never carried to the next step.

    Attributes:
        names: What the objectives are called: the names that the method was given, else numbers.
        losses: The M losses (mean over draws and processes).
        weights: λ after the step.
        updated: Whether this step computed new weights.
        skipped: How many steps so far kept λ because their gradients were not finite.
        kept: How many steps so far kept λ because an objective had no sample in one of their
            draws, or because they were told to.
        absent: The names of the objectives that this step had no sample of; their loss is NaN.
        route: How the gradients were computed: ``"tangents"``, ``"double-vjp"``, ``"backwards"``,
            ``"rows"`` or ``"factors"``; empty where none were needed.
        reason: Why a faster exact way was not possible; empty if it was.
        gramian: GᵀG, for the methods that need it.
        product: G1ᵀ(G2 λ), for the methods that need it.
        products: How many products G λ a solver by products asked for.
        gap: For the shortest direction: how far λ is from the weights that are sought, 0 where it
            is these to rounding. λᵀHλ is at most so much, relative, above each (Hλ)_m; see `MGDA`.
        extra: What new weights cost in this step, by counted passes, as a share of a plain step
            (a forward and a backward of the batch): 0.67 is 67 % on top.
        waits: With ``cost``: the weights are new again after so many steps.
        scale: What `length` and `max_norm` multiplied the direction by; 1 where they did nothing.
        start: λ of a new instance.
        guarded: With ``guard``: ``"free"`` where the step raised no loss as it was, ``"changed"``
            where weights were added until it raised none, ``"failed"`` where none were found that
            do, and the step was left as it was.
        effect: With ``guard``: by how much the optimizer's step changes each loss, to first order;
            above zero, it rises.
        added: With ``guard``: what was added to the weights for this step alone.
    """

    names: Names
    losses: Tensor
    weights: Tensor
    updated: bool
    skipped: int
    kept: int = 0
    absent: tuple[str | int, ...] = ()
    route: str = ""
    reason: str = ""
    gramian: Tensor | None = None
    product: Tensor | None = None
    products: int = 0
    gap: float | None = None
    extra: float = 0.0
    waits: int = 0
    scale: float = 1.0
    start: Tensor | None = None
    guarded: Literal["", "free", "changed", "failed"] = ""
    effect: Tensor | None = None
    added: Tensor | None = None

    @property
    def moved(self) -> float:
        """The largest change of a weight since the start, times M: 0.01 is 1 % of a uniform one."""
        if self.start is None:
            return 0.0
        change = self.weights - self.start.to(self.weights)
        return float(change.abs().max()) * len(self.weights)

    @property
    def losses_by_name(self) -> dict[str | int, float]:
        """The losses, by the names of the objectives."""
        return dict(zip(self.names, self.losses.tolist(), strict=True))

    @property
    def weights_by_name(self) -> dict[str | int, float]:
        """λ after the step, by the names of the objectives."""
        return dict(zip(self.names, self.weights.tolist(), strict=True))

    @property
    def norms(self) -> Tensor | None:
        """The gradients' norms ‖∇f_m‖, where the Gramian is known."""
        return None if self.gramian is None else self.gramian.diagonal().clamp_min(0).sqrt()

    @property
    def cosines(self) -> Tensor | None:
        """The cosines between gradients, where the Gramian is known (NaN for a zero gradient)."""
        if self.gramian is None or self.norms is None:
            return None
        return self.gramian / torch.outer(self.norms, self.norms)

    def __str__(self) -> str:
        """A line an objective, then what the step did."""
        columns: dict[str, Tensor] = {"loss": self.losses, "weight": self.weights}
        if (norms := self.norms) is not None:
            columns["‖gradient‖"] = norms
        if self.effect is not None:
            columns["effect"] = self.effect
        named = [str(name) for name in self.names]
        widest = max(map(len, named))
        lines = [" " * widest + "".join(f"{title:>12}" for title in columns)]
        for at, name in enumerate(named):
            numbers = "".join(f"{float(each[at]):>12.4g}" for each in columns.values())
            lines.append(f"{name:<{widest}}{numbers}")
        return "\n".join([*lines, self._done()])

    def _done(self) -> str:
        """Whether and how the weights were computed, and what a user should not miss."""
        how = f" by {self.route}" if self.route else ""
        new = f"weights new{how}, {self.extra:.0%} of a plain step on top"
        said = [new if self.updated else "weights as they were"]
        if (cosines := self.cosines) is not None and len(self.names) > 1:
            said.append(f"least cosine of two gradients {_least(cosines):.2g}")
        if self.absent:
            said.append(f"no sample of {', '.join(map(str, self.absent))}")
        if self.skipped or self.kept:
            said.append(f"weights kept in {self.kept + self.skipped} steps so far")
        if self.guarded:
            said.append(f"guard: {self.guarded}")
        return "; ".join(said)


def _least(cosines: Tensor) -> float:
    """The least entry beside the diagonal; NaN where all of these are."""
    apart = cosines[~torch.eye(len(cosines), dtype=torch.bool, device=cosines.device)]
    known = apart[~apart.isnan()]
    return float(known.min()) if len(known) else math.nan
