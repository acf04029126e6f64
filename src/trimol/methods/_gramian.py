"""What the methods have in common whose weights are a function of the Gramian alone."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.gradients._stepping import Momentum
from trimol.methods.base import Method, Needs, Objectives, Options, State, StepOptions


class GramianOptions(Options, total=False):
    """The keywords that these methods share."""

    chunk: int | None


class GramianMethod(Method):
    """A method that turns the Gramian of the gradients into weights; one backward per objective.

    Args:
        weights: λ before the first step; matters only where that step's gradients are not finite.
        chunk: How many gradients to hold at once; see :func:`trimol.gradients.gramian`.
    """

    needs: ClassVar[Needs] = "gramian"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        chunk: int | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=weights, **options)
        self.chunk = None if chunk is None else checks.count("chunk", chunk)

    @abstractmethod
    def solve(self, gramian: Tensor) -> Tensor:
        """The weights, in float64, from GᵀG (or from many: leading dimensions are a batch)."""

    def weigh(self, evidence: Evidence) -> Tensor | State:
        """The weights of this batch's Gramian."""
        return self.solve(evidence.gramian(chunk=self.chunk)).to(self.weights)


class ShortestMethod(GramianMethod):
    """A Gramian's method that looks for short steps: of the optimizer's, with its momentum."""

    def weigh(self, evidence: Evidence) -> Tensor:
        """The weights of the Gramian of this batch's steps."""
        gramian = evidence.gramian(chunk=self.chunk)
        return self.solve(of_steps(gramian, evidence.momentum)).to(self.weights)


class RoundedMethod(GramianMethod):
    """A Gramian's method that asks whether gradients depend on each other, which rounding hides."""

    @abstractmethod
    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """As `solve`, of gradients whose entries are rounded to ``rounding``, relative."""

    def solve(self, gramian: Tensor) -> Tensor:
        """The weights where no more is known than the Gramian and its dtype."""
        return self.solve_rounded(gramian, 0.0)

    def solve_moving(self, gramian: Tensor, momentum: Momentum, rounding: float) -> Tensor:
        """As `solve_rounded`, where the step has a part that is decided before the gradient.

        That part is left alone, unless a method says what it means for it.
        """
        return self.solve_rounded(gramian, rounding)

    def weigh(self, evidence: Evidence) -> Tensor | State:
        """The weights of this batch's Gramian, and of the dtype of its gradients."""
        return self.weights_of(evidence)

    def weights_of(self, evidence: Evidence) -> Tensor:
        """These weights."""
        gramian, momentum = evidence.gramian(chunk=self.chunk), evidence.momentum
        if momentum is None:
            return self.solve_rounded(gramian, evidence.rounding).to(self.weights)
        return self.solve_moving(gramian, momentum, evidence.rounding).to(self.weights)


class PreferenceOptions(GramianOptions, total=False):
    """The keywords of those with a preference."""

    preference: Tensor | Sequence[float] | None


class PreferenceMethod(RoundedMethod):
    """Such a method that weighs the losses by a preference, at least 0; 1/M each by default."""

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        preference: Tensor | Sequence[float] | None = None,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.preference = checks.weights(preference, objectives, "preference")

    def solve_each(self, rule: Callable[..., Tensor], gramian: Tensor, *others: Any) -> Tensor:
        """What a rule makes of every Gramian with the preference."""
        return each(rule, [gramian, self.preference.expand(gramian.shape[:-1])], *others)


def of_steps(gramian: Tensor, momentum: Momentum | None) -> Tensor:
    """The Gramian of the M steps that the optimizer would take with one gradient each.

    With k the part of a step that is decided before, and S the metric, step m is k + S ∇f_m, and
    their inner products in S⁻¹ are GᵀSG + h1ᵀ + 1hᵀ + kᵀS⁻¹k with h = Gᵀk. Weights that sum to one
    make the step k + S G λ of them. Without an optimizer it is the Gramian as it is.
    """
    if momentum is None:
        return gramian
    pull = momentum.pull.to(gramian)
    return gramian + pull[:, None] + pull[None, :] + momentum.size.to(gramian)


def each(solve: Callable[..., Tensor], tensors: Sequence[Tensor], *values: Any) -> Tensor:
    """A solver of one problem, for every problem of a batch, one after another.

    Args:
        solve: From one Gramian (and other tensors), then the values, to weights.
        tensors: The Gramian, (…, M, M), and others with the same leading dimensions.
        values: Hyper-parameters: the same for all, or tensors with one for each, (…, 1).

    Example:
        >>> each(lambda gramian, c: c * gramian.diagonal(), [torch.ones(2, 3, 3)], 0.5).shape
        torch.Size([2, 3])
    """
    if tensors[0].dim() == 2:
        return solve(*tensors, *(v.item() if isinstance(v, Tensor) else v for v in values))
    gramian = (tensors[0] + tensors[0].mT) / 2  # batched products are symmetric to rounding only
    return torch.stack(
        [
            each(solve, own, *(v[i] if isinstance(v, Tensor) else v for v in values))
            for i, own in enumerate(zip(gramian, *tensors[1:], strict=True))
        ]
    )
