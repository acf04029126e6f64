"""What a user hands over to be measured, checked, and left as it was."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from trimol._failures import BadType, BadValue
from trimol.gradients import Evidence, Losses
from trimol.gradients._sharded import current
from trimol.gradients.losses import as_vector


class LossVector:
    """The user's losses, checked: as many on every batch, as many as weights, reaching params."""

    def __init__(
        self, losses: Callable[[Any], Losses], params: Sequence[Tensor], weights: int | None
    ) -> None:
        if not callable(losses):
            raise BadType(
                "losses must be a function from a batch to its loss vector, found "
                f"{type(losses).__name__}"
            )
        self.losses, self.params, self.weights = losses, params, weights
        self.objectives: int | None = None

    def __call__(self, batch: Any) -> Tensor:
        """The loss vector of a batch."""
        vector = as_vector(self.losses(batch))
        if self.objectives is None:
            self._first(vector)
        if len(vector) != self.objectives:
            raise BadValue(
                f"losses must give as many losses on every batch, found {self.objectives} and "
                f"{len(vector)}"
            )
        return vector

    def _first(self, vector: Tensor) -> None:
        self.objectives = len(vector)
        if self.weights not in (None, self.objectives):
            raise BadValue(
                f"weights must have {self.objectives} entries, one per objective, found "
                f"{self.weights}"
            )
        # A loss that reaches no parameter would have a zero gradient, and make R_opt zero.
        Evidence([vector], self.params, self.objectives)


def checked_weights(weights: Tensor | Sequence[float] | None) -> Tensor | None:
    """λ in float64, scaled to sum to one; where some are below zero, their absolute values.

    The sum of weights of both signs (`trimol.PBI`'s) may be next to zero, or below it. Weights that
    are all zero stay so: the direction of `trimol.ConFIG` is zero where gradients are opposed.
    """
    if weights is None:
        return None
    given = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
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


def check_again(name: str, loader: Iterable[Any] | None) -> None:
    """Raise unless this can be gone over again and again."""
    if isinstance(loader, Iterator):
        raise BadType(
            f"{name} must be batches that can be gone over again and again (a DataLoader, a list), "
            f"found {type(loader).__name__}"
        )


@contextmanager
def undisturbed(params: Sequence[Tensor]) -> Iterator[None]:
    """With gradients on; torch's random state (loaders take from it, too) and shards put back."""
    cuda = sorted({p.get_device() for p in params if p.is_cuda})
    with shards_kept(), torch.random.fork_rng(cuda), torch.enable_grad():
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
