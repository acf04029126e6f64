"""Losses and gradients over a whole data set: exact means over batches of any sizes.

The mean over N samples is the mean over batches *weighted by their sizes*: a ragged last batch
counts for as many samples as it holds. Sums are kept in float64. Memory: one M × d sum, and the
gradients and graph of one batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from trimol.data.draws import batch_size
from trimol.gradients import jacobian, reduce

_END = object()


@dataclass(frozen=True)
class FullData:
    """Means over a whole data set, in float64.

    Attributes:
        losses: F_S, one entry per objective.
        jacobian: ∇F_S, M × d: one row per objective.
        samples: How many samples they are the mean of (per process).
    """

    losses: Tensor
    jacobian: Tensor
    samples: float


def full_data(
    losses: Callable[[Any], Tensor],
    params: Sequence[Tensor],
    loader: Iterable[Any],
    *,
    name: str = "loader",
    size: Callable[[Any], float] | None = None,
) -> FullData:
    """Go over ``loader`` once and return the mean losses and their mean gradients.

    Under an initialised ``torch.distributed`` group the means are over the samples of all
    processes, each of which calls this with as many batches, of any sizes.

    Args:
        losses: From a batch to its loss vector, the mean over the batch.
        params: The parameters to differentiate with respect to.
        loader: The batches.
        name: How to call the loader in an error.
        size: How many samples a batch holds; read off the batch by default.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().mean(), (x * z).mean()])
        >>> full_data(losses, [x], torch.arange(4.0).split(3)).jacobian  # E[z] = 1.5
        tensor([[-3.0000],
                [ 1.5000]], dtype=torch.float64)
    """
    sums: _Sums | None = None
    for number, (batch, share, mean) in enumerate(_weighed(loader, params, name, size)):
        vector = losses(batch)
        sums = sums or _Sums(len(vector), params)
        sums.add(vector if share == 1 else vector * share, mean, f"batch {number} of {name}")
    if sums is None:
        raise ValueError(f"{name} must hold at least one batch, found none (used up before?)")
    return sums.means()


class _Sums:
    """Σ n F and Σ n ∇F over the batches so far, n the number of samples of each."""

    def __init__(self, objectives: int, params: Sequence[Tensor]) -> None:
        # Not every accelerator has float64.
        device = torch.device("cpu") if params[0].device.type == "mps" else params[0].device
        width = sum(p.numel() for p in params)
        self.params = params
        self.samples = 0.0
        self.losses = torch.zeros(objectives, dtype=torch.float64, device=device)
        self.jacobian = torch.zeros(objectives, width, dtype=torch.float64, device=device)

    def add(self, vector: Tensor, samples: float, place: str) -> None:
        """Add one batch."""
        rows = jacobian(vector, self.params).to(self.jacobian.device)
        values = reduce.mean_small(vector.detach().double().to(self.losses.device))
        _check_finite(values, rows, place)
        self.samples += samples
        self.losses.add_(values, alpha=samples)
        for total, row in zip(self.jacobian, rows, strict=True):  # one row in float64 at a time
            total.add_(row, alpha=samples)

    def means(self) -> FullData:
        """The sums over the number of samples."""
        return FullData(
            self.losses.div_(self.samples), self.jacobian.div_(self.samples), self.samples
        )


def _check_finite(losses: Tensor, rows: Tensor, place: str) -> None:
    good = losses.isfinite() & rows.isfinite().all(1)
    if not good.all():
        bad = int(good.logical_not().nonzero()[0])
        raise ValueError(
            f"objective {bad} must have a finite loss and gradient, found NaN or infinity in "
            f"{place} (loss {losses[bad]:g})"
        )


def _weighed(
    loader: Iterable[Any],
    params: Sequence[Tensor],
    name: str,
    size: Callable[[Any], float] | None,
) -> Iterator[tuple[Any, float, float]]:
    """Each batch, its size relative to the mean over the processes, and that mean.

    Gradients are averaged over processes, so what is sampled more on one must weigh more there.
    Each process says at every batch whether it has one: none waits for another that has not.
    """
    batches = iter(loader)
    device = params[0].device if reduce.is_distributed() else torch.device("cpu")
    for number in count():
        batch = next(batches, _END)
        found = 0.0 if batch is _END else _size(batch, size, f"batch {number} of {name}")
        state = torch.tensor([found, float(batch is not _END)], dtype=torch.float64, device=device)
        mean, going = reduce.mean_small(state).tolist()
        if going == 0:
            return
        if going < 1:
            raise ValueError(
                f"{name} must have as many batches on every process, found one that ran out "
                f"after {number}"
            )
        yield batch, found / mean, mean


def _size(batch: Any, size: Callable[[Any], float] | None, place: str) -> float:
    try:
        found = float(batch_size(batch) if size is None else size(batch))
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"cannot tell how many samples {place} holds: {error}; pass size=, from a batch to "
            "its number of samples"
        ) from error
    if not 0 < found < float("inf"):
        raise ValueError(f"{place} must hold at least one sample, found {found:g}")
    return found
