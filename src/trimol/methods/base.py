"""What every method has in common: losses in, one scalar out, state that survives a checkpoint."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence, Losses, NonFinite
from trimol.gradients._params import checked

if TYPE_CHECKING:
    from trimol.methods._replicated import Replicated, ReplicatedEvidence

Needs = Literal["nothing", "losses", "gramian", "product", "jacobian"]


@dataclass(frozen=True)
class Info:
    """What the last step saw: diagnostics, never carried to the next step.

    Attributes:
        losses: The M losses (mean over draws and processes).
        weights: λ after the step.
        updated: Whether this step computed new weights.
        skipped: How many steps so far kept λ because their gradients were not finite.
        route: How the gradients were computed: ``"tangents"``, ``"double-vjp"``, ``"backwards"``
            or ``"rows"``; empty where none were needed.
        reason: Why a faster exact way was not possible; empty if it was.
        gramian: GᵀG, for the methods that need it.
        product: G1ᵀ(G2 λ), for the methods that need it.
    """

    losses: Tensor
    weights: Tensor
    updated: bool
    skipped: int
    route: str = ""
    reason: str = ""
    gramian: Tensor | None = None
    product: Tensor | None = None

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


class Method(nn.Module):
    """A module that turns M losses into one scalar whose gradient is the method's direction.

    A subclass says what it `needs`, how many independent `draws` a step takes, how evidence becomes
    weights (:meth:`weigh`), and has a one-line `summary` and a `reference` (a key of
    ``references.bib``).

    Args:
        params: The parameters that the method weighs. Parameters that the losses reach but that
            are not given here (task heads) get the plain gradient of the losses' sum.
        objectives: M, the number of losses.
        weights: λ at the start; uniform by default.
        every: Compute new weights every so many steps only, and keep them in between. A step that
            keeps them needs one loss vector only, however many `draws` the others take.

    Attributes:
        weights: λ, one entry per objective, in float64.
        info: What the last step saw, or ``None`` before the first.
        growth: Samples by which its batch is to grow, per step (`trimol.data.GrowingBatches`).
        represents: Whether a call takes ``representation=``: what the shared parameters make of the
            batch, and all that the heads see of it.
    """

    needs: ClassVar[Needs]
    summary: ClassVar[str]
    reference: ClassVar[str]
    draws: int = 1
    growth: ClassVar[float] = 0.0
    represents: ClassVar[bool] = False
    simultaneous: bool = False
    weights: Tensor
    step: Tensor
    skipped: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: int,
        *,
        weights: Tensor | Sequence[float] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__()
        self.params = tuple(checked(params))
        self._start = checks.weights(weights, objectives)
        self.objectives = objectives
        self.every = checks.count("every", every)
        self.register_buffer("weights", self._start.to(_home(self.params[0].device)))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64))
        self.info: Info | None = None

    @abstractmethod
    def weigh(self, evidence: Evidence) -> Tensor:
        """New weights from the evidence of this step and the state."""

    def scalar(self, evidence: Evidence, weights: Tensor) -> Tensor:
        """The scalar whose gradient is the method's direction, given the weights to move with."""
        return evidence.scalar(weights)

    @classmethod
    def weigh_replicas(cls, replicas: "Replicated", evidence: "ReplicatedEvidence") -> Tensor:
        """New weights of many runs at once, R × M (:mod:`trimol.methods._replicated`)."""
        raise NotImplementedError(f"{cls.__name__} does not say how its replicas step together")

    @classmethod
    def move_replicas(
        cls, replicas: "Replicated", evidence: "ReplicatedEvidence", weights: Tensor
    ) -> Any:
        """The directions of many runs at once, R × d, given the weights to move with."""
        return evidence.combined(weights)

    @property
    def due(self) -> bool:
        """Whether the next step computes new weights (and so takes all its draws)."""
        return self.needs != "nothing" and int(self.step) % self.every == 0

    def forward(self, *losses: Losses, keep: bool = False) -> Tensor:
        """The scalar to differentiate, from one loss vector for each of the method's `draws`.

        Args:
            losses: The loss vectors.
            keep: Leave λ and all else that the method remembers as they are, and move along
                ∇F λ: for a batch that cannot tell new weights, because an objective has no sample
                in it (its loss is then 0, without a gradient). One loss vector will do.
        """
        due, before = self.due and not keep, self.weights
        self._check_count(len(losses), due)
        evidence = Evidence(losses, self.params, self.objectives)
        updated = due and self._update(evidence)
        if keep:
            result = evidence.scalar(self.weights)
        else:
            result = self.scalar(evidence, before if self.simultaneous else self.weights)
        self.step += 1
        self.info = Info(
            losses=evidence.losses,
            weights=self.weights,
            updated=updated,
            skipped=int(self.skipped),
            route=evidence.route,
            reason=evidence.reason,
            **evidence.findings,
        )
        return result

    def reset(self) -> Self:
        """Back to the state of a new instance."""
        self.weights = self._start.to(self.weights.device)
        self.step.zero_()
        self.skipped.zero_()
        self.info = None
        return self

    def extra_repr(self) -> str:
        """What ``print(method)`` shows in the brackets."""
        return f"objectives={self.objectives}, every={self.every}"

    def _update(self, evidence: Evidence) -> bool:
        """Take new weights; keep the old ones if the gradients are not finite."""
        try:
            self.weights = self.weigh(evidence).detach()
        except NonFinite:
            self.skipped += 1
            if self.skipped == 1:
                warnings.warn(
                    f"{type(self).__name__}: gradients with NaN or infinity; the weights are kept "
                    "as they are (counted in info.skipped, said once)",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return False
        return True

    def _check_count(self, found: int, due: bool) -> None:
        allowed = {self.draws} if due else {1, self.draws}
        if found not in allowed:
            raise BadValue(
                f"{type(self).__name__} takes {self.draws} loss vector"
                f"{'s, one per independent batch' if self.draws > 1 else ''}, found {found}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow ``.to()`` to another device, but keep λ in float64 and the counters on the CPU."""
        device = _home(fn(torch.empty(0)).device)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                self._buffers[name] = buffer.to(device)
        return self


def _home(device: torch.device) -> torch.device:
    """Where λ lives: beside the parameters, or on the CPU if there is no float64 there."""
    return torch.device("cpu") if device.type == "mps" else device
