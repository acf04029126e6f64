"""What a user hands over to be measured, checked, and left as it was."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from trimol._checks import Names, in_order
from trimol._failures import BadType, BadValue
from trimol._generators import generators_kept
from trimol._warnings import warn
from trimol.gradients import Losses
from trimol.gradients._absent import connected, counted, reached
from trimol.gradients._graph import record
from trimol.gradients._presence import Presence
from trimol.gradients._sharded import current
from trimol.gradients.losses import as_vector, loss_vector

# How many samples a batch holds: one number, or one for each objective, in order or by name.
Samples = float | Tensor | Mapping[str, float]


class LossVector:
    """The user's losses, checked: as many on every batch, as many as weights, reaching params.

    Args:
        losses: From a batch to its losses: in order or by name, None for one that is not there.
        params: The parameters.
        weights: How many weights there are; None for none.
        called: The objectives' names; by default those of the first batch, or places.
    """

    def __init__(
        self,
        losses: Callable[[Any], Losses],
        params: Sequence[Tensor],
        weights: int | None,
        called: Names = (),
    ) -> None:
        if not callable(losses):
            raise BadType(
                "losses must be a function from a batch to its loss vector, found "
                f"{type(losses).__name__}"
            )
        self.losses, self.params, self.weights, self.called = losses, params, weights, called
        self.seen: set[int] = set()
        self.told = False

    def __call__(self, batch: Any) -> Tensor:
        """The loss vector of a batch that has all of them."""
        vector, samples = self.read(batch, 1.0)
        if isinstance(samples, Tensor):
            absent = self.called[samples.tolist().index(0)]
            raise BadValue(f"losses must be there for every objective, found None for {absent!r}")
        return vector

    def read(self, batch: Any, samples: Samples, place: str = "") -> tuple[Tensor, float | Tensor]:
        """The loss vector of a batch, and how many samples each loss is the mean of.

        Args:
            batch: The batch.
            samples: How many samples it holds, or of each objective, in order or by name.
            place: Where it is, for a warning.

        Returns:
            The vector, 0 for a loss that is absent; and the samples, one number for each objective
            where some is absent, and 0 for that one.
        """
        given = self.losses(batch)
        self._name(given)
        if isinstance(samples, Mapping):
            samples = torch.tensor(in_order("size", samples, self.called), dtype=torch.float64)
        counts = samples if isinstance(samples, Tensor) and samples.dim() else None
        if counts is not None and len(counts) == len(self.called):
            (given,) = counted([given], counts[None], self.called, self.params)
        vector, declared = loss_vector(given, self.called)
        vector = connected(vector, self.params)
        there = self._there(vector, declared, counts, place)
        if all(there):
            return vector, samples
        return vector, torch.as_tensor(samples).double().cpu() * torch.tensor(there)

    def _name(self, given: Losses) -> None:
        """Find out what the objectives are called, or whether they are as many as before."""
        by_name = isinstance(given, Mapping)
        if not self.called:
            if by_name and self.weights is not None:
                raise BadType(
                    "weights must be by name where the losses are (method.weights_by_name), found "
                    f"{self.weights} numbers"
                )
            self.called = (
                tuple(given) if isinstance(given, Mapping) else tuple(range(_length(given)))
            )
        elif not by_name and isinstance(self.called[0], str):
            raise BadType(
                f"losses must be by name, as {', '.join(map(repr, self.called))} are, found "
                f"{type(given).__name__}"
            )
        if not by_name and _length(given) != len(self.called):
            raise BadValue(
                f"losses must give as many losses on every batch, found {len(self.called)} and "
                f"{_length(given)}"
            )
        if self.weights not in (None, len(self.called)):
            raise BadValue(
                f"weights must have {len(self.called)} entries, one per objective, found "
                f"{self.weights}"
            )

    def _there(
        self, vector: Tensor, declared: list[bool], counts: Tensor | None, place: str
    ) -> list[bool]:
        """Which losses there are.

        One that reaches no parameter would have a zero gradient, and make R_opt zero. It is looked
        for where a loss is seen for the first time, or is 0, as of no samples.
        """
        if counts is not None and len(counts) == len(declared):
            for count, own, name in zip(counts.tolist(), declared, self.called, strict=True):
                if count and not own:
                    raise BadValue(
                        f"size must give 0 where a loss is None, found {count:g} for objective "
                        f"{name!r}"
                    )
            declared = [own and bool(n) for own, n in zip(declared, counts.tolist(), strict=True)]
        present = {m for m, own in enumerate(declared) if own}
        if present <= self.seen and bool((vector.detach() != 0)[declared].all()):
            return declared
        presence = Presence(self.called, 1, counts, keep=False, due=False)
        there = reached(record(vector, self.params), self.called, declared, presence)
        if presence.silent and not self.told:
            self.told = True
            name, where = self.called[min(presence.silent)], f" in {place}" if place else ""
            warn(
                f"the loss of objective {name!r} is 0 without a gradient{where}: it is "
                "taken for absent there (said once); where that is so, say None or size="
            )
        self.seen |= {m for m, own in enumerate(there) if own}
        return there


def _length(losses: Losses) -> int:
    """How many losses there are, of those that are in order."""
    if isinstance(losses, Sequence) and not isinstance(losses, str):
        return len(losses)
    return len(as_vector(losses))


def names_of(weights: Any) -> Names:
    """The objectives' names, where weights are by name."""
    return tuple(weights) if isinstance(weights, Mapping) else ()


def checked_weights(
    weights: Tensor | Sequence[float] | Mapping[Any, float] | None,
) -> Tensor | None:
    """λ in float64, scaled to sum to one; where some are below zero, their absolute values.

    The sum of weights of both signs (`trimol.PBI`'s) may be next to zero, or below it. Weights that
    are all zero stay so: the direction of `trimol.ConFIG` is zero where gradients are opposed.
    """
    if weights is None:
        return None
    listed = list(weights.values()) if isinstance(weights, Mapping) else weights
    given = torch.as_tensor(listed, dtype=torch.float64).detach().cpu()
    if given.dim() != 1 or not given.isfinite().all():
        raise BadValue(f"weights must be finite numbers in one dimension, found {weights!r}")
    total = given.abs().sum()
    # What sums to one in single precision is left as it is, to the last bit.
    return given if total == 0 or abs(given.sum() - 1) < 1e-6 else given / total


def check_rho(rho: float) -> None:
    """Raise unless ρ is a number of at least 0."""
    if not isinstance(rho, Real) or not 0 <= rho < float("inf"):
        raise BadValue(f"rho must be a finite number of at least 0, found {rho!r}")


def check_loader(name: str, loader: Iterable[Any]) -> None:
    """Raise unless this is an iterable of batches."""
    # A tensor and a data set can be iterated too, but sample by sample.
    if isinstance(loader, Tensor) or not hasattr(loader, "__iter__"):
        raise BadType(
            f"{name} must be an iterable of batches (a DataLoader, a list of batches), found "
            f"{type(loader).__name__}"
        )
    # Parts of one tensor, as `split` gives them, are batches; inputs and labels are one batch.
    if are_tensors(loader) and len({(each.dtype, each.shape[1:]) for each in loader}) > 1:
        raise BadType(f"{name} must be an iterable of batches, found {one_batch(loader)}")


def are_tensors(loader: object) -> bool:
    """Whether it is several tensors: batches, or the inputs and labels of one."""
    several = isinstance(loader, tuple | list) and len(loader) > 1
    return several and all(isinstance(each, Tensor) for each in loader)  # type: ignore[attr-defined]


def one_batch(loader: Any) -> str:
    """What may have been meant by several tensors, in words."""
    kind = type(loader).__name__
    return f"a {kind} of {len(loader)} tensors: for one batch of them write [(x, y)]"


def check_again(name: str, loader: Iterable[Any] | None) -> None:
    """Raise unless this can be gone over again and again."""
    if isinstance(loader, Iterator):
        raise BadType(
            f"{name} must be batches that can be gone over again and again (a DataLoader, a list), "
            f"found {type(loader).__name__}"
        )


@contextmanager
def undisturbed(params: Sequence[Tensor], *owners: Any) -> Iterator[None]:
    """With gradients on; random generators (the owners' own, too) and shards put back."""
    devices = {p.device for p in params}
    with shards_kept(), generators_kept(*owners, devices=devices), torch.enable_grad():
        yield


@contextmanager
def shards_kept() -> Iterator[None]:
    """What FSDP2 holds in shards before, it does after.

    A forward pass without a backward leaves the outermost module gathered, and the next one would
    take these values again, although the optimizer has moved the shards meanwhile.
    """
    apart = [group for group in shard_groups() if not group.is_unsharded]
    try:
        yield
    finally:
        for group in apart:
            group.reshard()


def shard_groups() -> list[Any]:
    """The groups of parameters that FSDP2 gathers together; none where it holds none."""
    shards = current()
    owners = () if shards is None else shards.owner.values()
    return list({id(group): group for _, group in owners}.values())
