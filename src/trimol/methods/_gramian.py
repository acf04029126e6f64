"""What the methods have in common whose weights are a function of the Gramian alone."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs

if TYPE_CHECKING:
    from trimol.methods._replicated import Replicated, ReplicatedEvidence


class GramianMethod(Method):
    """A method that turns the Gramian of the gradients into weights; one backward per objective.

    Args:
        params: The parameters that the method weighs.
        objectives: M, the number of losses.
        weights: λ before the first step; matters only where that step's gradients are not finite.
        every: Compute new weights every so many steps.
        chunk: How many gradients to hold at once; see :func:`trimol.gradients.gramian`.
    """

    needs: ClassVar[Needs] = "gramian"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: int,
        *,
        weights: Tensor | Sequence[float] | None = None,
        every: int = 1,
        chunk: int | None = None,
    ) -> None:
        super().__init__(params, objectives, weights=weights, every=every)
        self.chunk = None if chunk is None else checks.count("chunk", chunk)

    @abstractmethod
    def solve(self, gramian: Tensor) -> Tensor:
        """The weights, in float64, from GᵀG."""

    def weigh(self, evidence: Evidence) -> Tensor:
        """The weights of this batch's Gramian."""
        return self.solve(evidence.gramian(chunk=self.chunk)).to(self.weights)

    @classmethod
    def weigh_replicas(cls, replicas: "Replicated", evidence: "ReplicatedEvidence") -> Tensor:
        """The weights of every replica's Gramian, one after another."""
        gramians = replicas.finite(evidence.gramian())
        gramians = (gramians + gramians.mT) / 2
        found = []
        for member, weights, gramian in zip(
            replicas.members, replicas.weights, gramians, strict=True
        ):
            if isinstance(member, GramianMethod):
                member.weights = weights
                member.step.fill_(replicas.step)
                found.append(member.solve(gramian))
        return torch.stack(found).to(replicas.weights)
