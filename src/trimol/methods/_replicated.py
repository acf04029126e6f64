r"""Many runs of one method as one program: weights and gradients have a dimension of replicas.

Small problems spend their time in calling operators, not in arithmetic. R runs with their own
seeds, data or hyper-parameters then cost little more than one when they step together:
`replicated` gives the λ of all of them, R × M, and one :meth:`Replicated.direction` a step.

No method is known here by name. A method says how its replicas step in
:meth:`~trimol.methods.Method.weigh_replicas`, by the same functions that one run takes.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.methods._registry import get
from trimol.methods.base import Method, Needs


class ReplicatedEvidence(Protocol):
    """What the losses of one step tell, for R replicas at once; d parameters each."""

    def gramian(self) -> Tensor:
        """GᵀG of the first draw, R × M × M, symmetric to rounding."""

    def product(self, weights: Tensor) -> Tensor:
        """G1ᵀ(G2 λ) of the first two draws, R × M, for λ of shape R × M."""

    def jacobian(self) -> Tensor:
        """Gᵀ of the first draw, R × M × d."""

    def combined(self, weights: Tensor, draws: slice = slice(None)) -> Any:
        """G λ, R × d: the mean over these draws. A trainer may keep it parameter by parameter."""


class Jacobians:
    """Evidence from gradients that are at hand.

    Args:
        rows: One R × M × d tensor per draw.

    Example:
        >>> evidence = Jacobians([torch.eye(2).expand(3, 2, 2)])
        >>> evidence.combined(torch.full((3, 2), 0.5)).shape
        torch.Size([3, 2])
    """

    def __init__(self, rows: Sequence[Tensor]) -> None:
        self.rows = list(rows)

    def gramian(self) -> Tensor:
        """GᵀG of the first draw, in float64."""
        rows = self.rows[0].double()
        return rows @ rows.mT

    def product(self, weights: Tensor) -> Tensor:
        """G1ᵀ(G2 λ), of two draws."""
        first, second = self.rows[:2]
        return (first @ _weighed(second, weights)[..., None])[..., 0]

    def jacobian(self) -> Tensor:
        """Gᵀ of the first draw."""
        return self.rows[0]

    def combined(self, weights: Tensor, draws: slice = slice(None)) -> Tensor:
        """G λ, the mean over the draws."""
        used = self.rows[draws]
        total = _weighed(used[0], weights)
        for rows in used[1:]:
            total = total + _weighed(rows, weights)
        return total / len(used) if len(used) > 1 else total


class Replicated:
    """The state of R runs of one method; made by `replicated`.

    Attributes:
        members: R ordinary methods, which hold the (checked) hyper-parameters of each replica.
        weights: λ of every replica, R × M, in float64.
        state: What else a method carries from step to step, by name; R is the first dimension.
        step: Steps done.
        skipped: For each replica, the steps that kept λ because gradients were not finite.
        broken: Which replicas these are in the last step; ``None`` if there are none.
    """

    def __init__(self, members: Sequence[Method]) -> None:
        self.members = list(members)
        self.weights = torch.stack([member.weights for member in members])
        self.state: dict[str, Tensor] = {}
        self.step = 0
        self.skipped = torch.zeros(len(self.members), dtype=torch.int64)
        self.broken: Tensor | None = None
        self._values: dict[str, Any] = {}

    @property
    def replicas(self) -> int:
        """R."""
        return len(self.members)

    @property
    def draws(self) -> int:
        """How many independent batches a step takes."""
        return self.members[0].draws

    @property
    def needs(self) -> Needs:
        """What the method computes with."""
        return self.members[0].needs

    @property
    def due(self) -> bool:
        """Whether the next step computes new weights (and so takes all its draws)."""
        return self.step % self.members[0].every == 0 and self._moves

    @property
    def _moves(self) -> bool:
        if "due" not in self._values:  # asked at step 0, when every method that ever moves is due
            self._values["due"] = any(member.due for member in self.members)
        return bool(self._values["due"])

    def value(self, name: str) -> Any:
        """A hyper-parameter: as it is where all replicas agree, else R × 1 numbers in float64."""
        if name not in self._values:
            found = [getattr(member, name) for member in self.members]
            same = all(value == found[0] for value in found)
            self._values[name] = found[0] if same else self.weights.new_tensor(found)[:, None]
        return self._values[name]

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
        due = self.due
        seen = self._checked(evidence, due) if isinstance(evidence, Sequence) else evidence
        kind, before, self.broken = type(self.members[0]), self.weights, None
        if due:
            self._update(kind.weigh_replicas(self, seen))
        used = before if self.members[0].simultaneous else self.weights
        result = kind.move_replicas(self, seen, used) if due else seen.combined(used)
        self.step += 1
        return result

    def finite(self, evidence: Tensor) -> Tensor:
        """The evidence, zero for the replicas whose is not finite: these keep their λ."""
        if evidence.isfinite().all():
            return evidence
        good = evidence.isfinite().flatten(1).all(1)
        self.broken = ~good
        return torch.where(good.view(-1, *[1] * (evidence.dim() - 1)), evidence, 0.0)

    def keep(self, **state: Tensor) -> None:
        """Carry these tensors to the next step; broken replicas keep what they had."""
        for name, tensor in state.items():
            if self.broken is not None:
                broken = self.broken.view(-1, *[1] * (tensor.dim() - 1))
                tensor = torch.where(broken, self.state[name], tensor)
            self.state[name] = tensor

    def _update(self, weights: Tensor) -> None:
        if self.broken is not None:
            weights = torch.where(self.broken[:, None], self.weights, weights)
            if not self.skipped.any():
                warnings.warn(
                    f"{type(self.members[0]).__name__}: gradients with NaN or infinity in replicas "
                    f"{self.broken.nonzero()[:, 0].tolist()}; their weights are kept as they are "
                    "(counted in skipped, said once)",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self.skipped += self.broken
        self.weights = weights

    def state_dict(self) -> dict[str, Any]:
        """All that changes from step to step."""
        return {
            "weights": self.weights.clone(),
            "state": {name: tensor.clone() for name, tensor in self.state.items()},
            "step": self.step,
            "skipped": self.skipped.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        found = tuple(state["weights"].shape)
        if found != tuple(self.weights.shape):
            raise BadValue(
                f"state must have weights of shape {tuple(self.weights.shape)}, found {found}"
            )
        self.weights = state["weights"].clone()
        self.state = {name: tensor.clone() for name, tensor in state["state"].items()}
        self.step, self.skipped = int(state["step"]), state["skipped"].clone()

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
        NotImplementedError: The method has not said how its replicas step.

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
    if kind.needs != "nothing" and kind.weigh_replicas.__func__ is Method.weigh_replicas.__func__:  # type: ignore[attr-defined]
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
    _check_alike(members)
    return Replicated(members)


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


def _check_alike(members: Sequence[Method]) -> None:
    """What decides the shape of a step must be the same for all replicas."""
    for name in ("draws", "every", "simultaneous"):
        found = {getattr(member, name) for member in members}
        if len(found) > 1:
            raise BadValue(f"{name} must be the same for all replicas, found {sorted(found)}")
