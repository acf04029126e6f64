r"""Many runs of one method as one program: weights and gradients have a dimension of replicas.

Small problems spend their time in calling operators, not in arithmetic. R runs with their own
seeds, data or hyper-parameters then cost little more than one when they step together:
`replicated` gives the λ of all of them, R × M, and one :meth:`Replicated.direction` a step.

No method is known here by name, and none does anything for it: the same
:meth:`~trimol.methods.Method.weigh` computes on tensors with one more dimension.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol._warnings import warn
from trimol.gradients import Evidence
from trimol.gradients._delivery import Delivery, lengths
from trimol.gradients._rows import gram
from trimol.methods._registry import get
from trimol.methods.base import Method, Needs


class ReplicatedEvidence(Protocol):
    """What the losses of one step tell, for R replicas at once; d parameters each.

    Attributes:
        keeps: Which replicas keep their weights, as a batch of theirs lacks an objective; or None.
    """

    keeps: Tensor | None

    @property
    def rounding(self) -> float:
        """The ε of the gradients' dtype."""

    def values(self) -> Tensor:
        """The losses, R × M: the mean over the draws."""

    def gramian(self) -> Tensor:
        """GᵀG of the first draw, R × M × M, symmetric to rounding."""

    def product(self, weights: Tensor) -> Tensor:
        """G1ᵀ(G2 λ) of the first two draws, R × M, for λ of shape R × M."""

    def jacobian(self) -> Tensor:
        """Gᵀ of the first draw, R × M × d."""

    def combined(self, weights: Tensor, draws: slice = slice(None), *, retain: bool = False) -> Any:
        """G λ, R × d: the mean over these draws. A trainer may keep it parameter by parameter.

        ``retain``: it will be asked for again.
        """

    def weigh_heads(self, weights: Tensor, draws: slice = slice(None)) -> None:
        """The last word of a step: what is not weighed by the method gets gradients with this λ."""


class Jacobians:
    """Evidence from gradients that are at hand.

    Args:
        rows: One R × M × d tensor per draw.
        losses: R × M, for the methods that look at them; or what computes them.

    Example:
        >>> evidence = Jacobians([torch.eye(2).expand(3, 2, 2)])
        >>> evidence.combined(torch.full((3, 2), 0.5)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self, rows: Sequence[Tensor], losses: Tensor | Callable[[], Tensor] | None = None
    ) -> None:
        self.rows, self.losses = list(rows), losses
        self.keeps: Tensor | None = None

    @property
    def rounding(self) -> float:
        """The ε of the gradients' dtype."""
        return torch.finfo(self.rows[0].dtype).eps

    def values(self) -> Tensor:
        """The losses."""
        if self.losses is None:
            raise BadValue("evidence must tell the losses, which this method needs, found none")
        return self.losses if isinstance(self.losses, Tensor) else self.losses()

    def gramian(self) -> Tensor:
        """GᵀG of the first draw, in float64."""
        return gram(self.rows[0])

    def product(self, weights: Tensor) -> Tensor:
        """G1ᵀ(G2 λ), of the first two draws, or twice the only one."""
        first, second = (*self.rows, *self.rows)[:2]
        return (first @ _weighed(second, weights)[..., None])[..., 0]

    def jacobian(self) -> Tensor:
        """Gᵀ of the first draw."""
        return self.rows[0]

    def combined(
        self, weights: Tensor, draws: slice = slice(None), *, retain: bool = False
    ) -> Tensor:
        """G λ, the mean over the draws."""
        used = self.rows[draws]
        total = _weighed(used[0], weights)
        for rows in used[1:]:
            total = total + _weighed(rows, weights)
        return total / len(used) if len(used) > 1 else total

    def weigh_heads(self, weights: Tensor, draws: slice = slice(None)) -> None:
        """Nothing: there are no others."""


class _OfMany(Evidence):
    """Evidence of many runs, as a method asks for it; harmless for those whose is not finite.

    The direction, R × d, takes the place of a single run's scalar, whose gradient it is.
    """

    def __init__(
        self, source: ReplicatedEvidence, harmless: float | Tensor, delivery: Delivery
    ) -> None:
        self.source, self.harmless, self.delivery = source, harmless, delivery
        self.findings = {}
        self.broken = source.keeps  # which runs keep their λ, if any
        self.rows: Tensor | None = None

    @property
    def rounding(self) -> float:
        return self.source.rounding

    def finite(self, evidence: Tensor, instead: float | Tensor = 0.0) -> Tensor:
        """The evidence; of runs that keep their λ (as where it is not finite), a number instead."""
        if self.broken is None and evidence.isfinite().all():
            return evidence
        broken = ~evidence.isfinite().flatten(1).all(1)
        self.broken = broken if self.broken is None else self.broken | broken
        return torch.where(self.broken.view(-1, *[1] * (evidence.dim() - 1)), instead, evidence)

    def values(self) -> Tensor:
        return self.finite(self.source.values().double(), instead=self.harmless)

    def gramian(self, *, chunk: int | None = None, of: Sequence[Tensor] | None = None) -> Tensor:
        if of is not None:
            raise NotImplementedError("replicas have the Gramian of all that the method weighs")
        return self.finite(self.source.gramian())

    def product(self, weights: Tensor, *, keep_gradient: bool = False) -> Tensor:
        return self._noted("product", self.source.product(weights))

    def jacobian(self) -> Tensor:
        """As it comes: what is made of it is to be checked by `finite`."""
        if self.rows is None:
            self.rows = self.source.jacobian()
        return self.rows

    def rows_of(self, places: Sequence[int]) -> Tensor:
        return self.jacobian()[:, list(places)]

    def scalar(self, weights: Tensor, draws: slice = slice(None)) -> Any:
        mean = None
        if self.delivery.length == "mean gradient":
            uniform = torch.full_like(weights, 1 / weights.shape[-1])
            mean = lengths(self.source.combined(uniform, draws, retain=True))
        direction = self.source.combined(weights, draws)
        self.source.weigh_heads(self._on_heads(weights), draws)
        return self._rescaled(direction, mean)

    def scalar_along(self, weights: Tensor, direction: Tensor) -> Any:
        """The direction, but this batch's own where that is not finite, for all to see."""
        self.source.weigh_heads(self._on_heads(weights))
        if self.broken is not None:
            own = _weighed(self.jacobian(), weights)
            direction = torch.where(self.broken[:, None], own, direction)
        wanted = self.delivery.length == "mean gradient"
        return self._rescaled(direction, lengths(self.jacobian().mean(1)) if wanted else None)

    def _rescaled(self, direction: Any, mean: Tensor | None) -> Any:
        """The direction with the length that the delivery gives it, for each run."""
        if not self.delivery.rescales:
            return direction
        parts = [direction] if isinstance(direction, Tensor) else list(direction)
        rounding = torch.finfo(parts[0].dtype).eps
        factor = self.delivery.factor(lengths(parts), mean, rounding)
        scaled = [part * factor.to(part).view(-1, *[1] * (part.dim() - 1)) for part in parts]
        return scaled[0] if isinstance(direction, Tensor) else scaled


class Replicated:
    """R runs of one method that step together; made by `replicated`.

    Attributes:
        method: One method that holds them all: R is the first dimension of what it carries, and of
            the hyper-parameters in which the runs differ.
        skipped: For each replica, the steps that kept λ because gradients were not finite.
        kept: Those that kept it because an objective was absent.
    """

    def __init__(self, members: Sequence[Method], hyperparameters: Iterable[str]) -> None:
        if members[0].cost is not None:
            raise BadValue(f"cost must be None for replicas, found {members[0].cost:g}")
        self._moves = any(member.due for member in members)  # asked before the first step
        self.method = _joined(members, hyperparameters)
        self.skipped = torch.zeros(len(members), dtype=torch.int64)
        self.kept = torch.zeros_like(self.skipped)

    @property
    def weights(self) -> Tensor:
        """λ of every replica, R × M, in float64."""
        return self.method.weights

    @property
    def state(self) -> dict[str, Tensor]:
        """What else the method carries from step to step, by name."""
        return {name: t for name, t in _carried(self.method).items() if name != "weights"}

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.method.step)

    @property
    def replicas(self) -> int:
        """R."""
        return len(self.weights)

    @property
    def draws(self) -> int:
        """How many independent batches a step takes."""
        return self.method.draws

    @property
    def needs(self) -> Needs:
        """What the method computes with."""
        return self.method.needs

    @property
    def due(self) -> bool:
        """Whether the next step computes new weights (and so takes all its draws)."""
        return self._moves and self.step % self.method.every == 0

    def direction(self, evidence: Sequence[Tensor] | ReplicatedEvidence) -> Any:
        """New λ, then the direction that x moves against, R × d: x ← x − α · direction.

        Args:
            evidence: The gradients, one R × M × d tensor for each of the method's `draws` (one is
                enough where the step is not `due`), or an object that computes from them
                what is asked for.

        Example:
            >>> from trimol.methods import replicated
            >>> mgda = replicated("mgda", replicas=2, objectives=2)
            >>> mgda.direction([torch.tensor([[[1.0], [3.0]], [[-1.0], [3.0]]])])
            tensor([[1.],
                    [0.]])
        """
        due, before = self.due, self.weights
        source = self._checked(evidence, due) if isinstance(evidence, Sequence) else evidence
        seen = _OfMany(source, self.method.harmless, self.method.delivery)
        if due:
            told = self.method.weigh(seen)
            seen.broken = self.method.commit(told, seen.broken)
            if seen.broken is not None:
                keeps = source.keeps
                self._count(seen.broken if keeps is None else seen.broken & ~keeps)
            result: Any = self.method.scalar(seen, before, self.weights)
        else:
            result = seen.scalar(before)
        self.method.step.add_(1)
        if source.keeps is not None:
            self.kept += source.keeps
        return result

    def _count(self, kept: Tensor) -> None:
        """Count the runs whose gradients were not finite; the first time, say so."""
        if kept.any() and not self.skipped.any():
            warn(
                f"{type(self.method).__name__}: gradients with NaN or infinity in replicas "
                f"{kept.nonzero()[:, 0].tolist()}; their weights are kept as they are "
                "(counted in skipped, said once)"
            )
        self.skipped += kept

    def state_dict(self) -> dict[str, Any]:
        """All that changes from step to step."""
        return {
            "weights": self.weights.clone(),
            "state": {name: tensor.clone() for name, tensor in self.state.items()},
            "step": self.step,
            "skipped": self.skipped.clone(),
            "kept": self.kept.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        own, saved = tuple(self.weights.shape), tuple(state["weights"].shape)
        if saved != own:
            raise BadValue(f"state must have weights of shape {own}, found {saved}")
        if state["state"].keys() != self.state.keys():
            raise BadValue(f"state must have {list(self.state)}, found {list(state['state'])}")
        for name, tensor in {"weights": state["weights"], **state["state"]}.items():
            setattr(self.method, name, tensor.clone())
        self.method.step.fill_(int(state["step"]))
        self.skipped, self.kept = state["skipped"].clone(), state["kept"].clone()

    def _checked(self, rows: Sequence[Tensor], due: bool) -> Jacobians:
        allowed = {self.draws} if due else {1, self.draws}
        if len(rows) not in allowed:
            raise BadValue(
                f"evidence must hold {self.draws} tensors, one per draw, found {len(rows)}"
            )
        for tensor in rows:
            if tensor.dim() != 3 or tensor.shape[:2] != self.weights.shape:
                replicas, objectives = self.weights.shape
                raise BadValue(
                    f"evidence must have shape ({replicas}, {objectives}, d), found "
                    f"{tuple(tensor.shape)}"
                )
        return Jacobians(rows)


def replicated(
    name: str,
    *,
    replicas: int,
    objectives: int,
    weights: Tensor | Sequence[float] | None = None,
    **hyperparameters: Any,
) -> Replicated:
    """R runs of one method that step together.

    Args:
        name: The method's name, one of `trimol.methods.names()`.
        replicas: R.
        objectives: M, the number of losses.
        weights: λ at the start, M entries, or R × M; the method's own start by default.
        hyperparameters: The method's own, by name. A tensor holds one value for each replica, in
            its first dimension; anything else is for all.

    Raises:
        NotImplementedError: The method needs what replicas cannot tell.

    Example:
        Three step sizes of MoDo on the same two losses, x² and (x − 1)²:

        >>> import torch
        >>> modo = replicated("modo", replicas=3, objectives=2, gamma=torch.tensor([0.0, 0.1, 1.0]))
        >>> x = torch.full((3, 1), 2.0)
        >>> gradients = torch.stack([2 * x, 2 * (x - 1)], dim=1)
        >>> modo.direction([gradients, gradients])[:, 0]
        tensor([3.0000, 2.4000, 2.0000])
        >>> modo.weights
        tensor([[0.5000, 0.5000],
                [0.2000, 0.8000],
                [0.0000, 1.0000]], dtype=torch.float64)
    """
    kind, count = get(name), checks.count("replicas", replicas)
    if kind.needs == "representation":
        raise NotImplementedError(
            f"name must be a method that can run replicated, found {name!r}: run it alone, "
            "replica by replica"
        )
    given = {key: _each(key, value, count) for key, value in hyperparameters.items()}
    if isinstance(weights, Tensor) and weights.dim() == 2:
        given["weights"] = _each("weights", weights, count)
    elif weights is not None:
        given["weights"] = [weights] * count
    place = torch.zeros(1, requires_grad=True)
    members = [
        kind([place], objectives, **{key: values[r] for key, values in given.items()})
        for r in range(count)
    ]
    return Replicated(members, given)


def _weighed(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ_m λ_m ∇f_m for every replica: (R, M, d), (R, M) → (R, d)."""
    return (weights.to(rows)[:, None, :] @ rows)[:, 0]


def _each(name: str, value: Any, replicas: int) -> list[Any]:
    """The value for each replica."""
    if not isinstance(value, Tensor):
        return [value] * replicas
    if value.dim() == 0 or len(value) != replicas:
        raise BadValue(
            f"{name} must be one value, or a tensor with one for each of {replicas} replicas, "
            f"found shape {tuple(value.shape)}"
        )
    return [entry.item() if entry.dim() == 0 else entry for entry in value]


def _carried(method: Method) -> dict[str, Tensor]:
    """What is carried from step to step by each run on its own."""
    return {n: t for n, t in method.named_buffers() if n not in ("step", "skipped", "kept")}


def _joined(members: Sequence[Method], hyperparameters: Iterable[str]) -> Method:
    """The first member, made to hold all of them."""
    first, carried = members[0], [_carried(member) for member in members]
    for name in hyperparameters:
        if name not in carried[0]:
            vars(first)[name] = _together(name, [getattr(member, name) for member in members])
    for name in carried[0]:
        setattr(first, name, torch.stack([own[name] for own in carried]))
    return first


def _together(name: str, values: list[Any]) -> Any:
    """A hyper-parameter of all replicas: as it is where they agree, else R × 1 (or R × M)."""
    if isinstance(values[0], Tensor):
        return torch.stack(values)
    if all(value == values[0] for value in values):
        return values[0]
    if isinstance(values[0], float) or name == "seed":
        return torch.tensor(values, dtype=torch.float64 if name != "seed" else None)[:, None]
    raise BadValue(f"{name} must be the same for all replicas, found {sorted(set(values))}")
