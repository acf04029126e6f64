"""A row of the table that holds methods to their promises."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from trimol.methods import Method
from trimol.testing._problems import Problem, Step


def plain_call(method: Method, step: Step) -> Tensor:
    """How most methods are called: with the losses of each draw."""
    scalar: Tensor = method(*step.losses)
    return scalar


@dataclass(frozen=True)
class Row:
    """One method, how to use it, and what its mathematics promises.

    Every assert of the kit takes a row. What a row does not promise is not asserted; what every
    method owes (state, precision, heads, finite steps, …) is asserted without being promised.

    Attributes:
        make: The method's class (or anything that is called the same way).
        settings: Hyper-parameters with which the weights move visibly within a few steps.
        total: What the weights sum to: one, M, or anything.
        signed: Whether weights may be negative.
        combines: The direction is the weights times the gradients.
        moves_with: The weights that a step moves x with: those that it computes, or the old ones.
        moves_on: The draws that x moves on.
        conflict_free: No gradient has a negative inner product with the direction of a fresh
            method on full data.
        stationary: Where the direction of a fresh method is zero: ``"weakly"``, at every
            Pareto-stationary point; ``"strongly"``, where all weights of the combination that
            vanishes can be positive; ``"zero"``, where all gradients vanish (every method owes it).
        equivariant: Permuting the objectives permutes the weights.
        degree: The direction of c·F is c^degree times that of F; ``None``: nothing is promised.
        rowwise: What scaling single objectives keeps: the direction but for its length (``"ray"``),
            but for its length and sign (``"line"``), or ``"nothing"``.
        alone: With one objective the direction is its gradient (``"plain"``), only parallel to it
            (``"parallel"``), or another (``"nothing"`` is promised).
        sees: Evidence enters the weights: a step that is not finite is skipped. Otherwise the
            weights do not depend on the losses at all.
        call: How a step is taken, where it is not ``method(*losses)``.
        after: What must be called after the optimizer's step, with new losses on the same batches.
    """

    make: Callable[..., Method]
    settings: Mapping[str, Any] = field(default_factory=dict)
    total: Literal["one", "objectives", "any"] = "one"
    signed: bool = False
    combines: bool = True
    moves_with: Literal["new", "old"] = "new"
    moves_on: slice = field(default_factory=lambda: slice(None))
    conflict_free: bool = False
    stationary: Literal["zero", "strongly", "weakly"] = "zero"
    equivariant: bool = True
    degree: float | None = 1.0
    rowwise: Literal["nothing", "line", "ray"] = "nothing"
    alone: Literal["plain", "parallel", "nothing"] = "plain"
    sees: bool = True
    call: Callable[[Method, Step], Tensor] = plain_call
    after: Callable[[Method, Step], None] | None = None

    def new(self, params: Iterable[Tensor], objectives: int = 3, **options: Any) -> Method:
        """A fresh method with the row's settings."""
        return self.make(params, objectives, **{**self.settings, **options})

    def variant(self, *, settings: Mapping[str, Any], **changes: Any) -> "Row":
        """This row with other settings, and the promises that they change."""
        return replace(self, settings={**self.settings, **settings}, **changes)

    def used(self, method: Method, before: Tensor) -> Tensor:
        """The weights that the step just taken moved x with, given those before it."""
        return before if self.moves_with == "old" else method.weights

    def direction(self, method: Method, weights: Tensor, jacobian: Tensor) -> Tensor:
        """G λ with the length that the method's `length` and `max_norm` give it, by hand."""
        moved = weights.to(jacobian) @ jacobian
        mean = jacobian.mean(0).norm()
        nothing = 16 * torch.finfo(jacobian.dtype).eps * mean  # processors round differently
        if method.length == "mean gradient" and moved.norm() > nothing:
            moved = moved * (mean / moved.norm())
        if method.max_norm is not None and moved.norm() > method.max_norm:
            moved = moved * (method.max_norm / moved.norm())
        return moved

    def train(
        self,
        method: Method,
        problem: Problem,
        optimizer: torch.optim.Optimizer,
        seeds: Sequence[int],
    ) -> None:
        """A few steps, the seeds naming their batches."""
        for seed in seeds:
            optimizer.zero_grad()
            self.call(method, problem.step(method.draws, seed)).backward()
            optimizer.step()
            if self.after is not None:
                self.after(method, problem.step(method.draws, seed))

    def assert_weights(self, weights: Tensor, objectives: int) -> None:
        """Weights are finite, in float64, and as promised."""
        assert weights.shape == (objectives,), f"weights of shape {tuple(weights.shape)}"
        assert weights.dtype == torch.float64, f"weights in {weights.dtype}"
        assert weights.isfinite().all(), f"weights {weights.tolist()}"
        assert self.signed or (weights >= 0).all(), f"negative weights {weights.tolist()}"
        if self.total != "any":
            want = 1 if self.total == "one" else objectives
            error = abs(weights.sum().item() - want)
            assert error <= 1e-12 * want, f"weights sum to {want} up to {error:.1e}"
