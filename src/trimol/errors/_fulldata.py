"""Losses and gradients over a whole data set: exact means over batches of any sizes.

The mean over N samples is the mean over batches *weighted by their sizes*: a ragged last batch
counts for as many samples as it holds. Where objectives have samples of their own (a data set for
each, labels that are missing), each objective's mean is over *its* samples. Sums are kept in
float64, and joined over processes once, at the end. Memory: one M × d sum, and the gradients and
graph of one batch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as counting
from typing import Any

import torch
from torch import Tensor

from trimol._failures import BadType, BadValue, UserError
from trimol.data._draws import batch_size
from trimol.errors._inputs import LossVector, Samples, are_tensors, one_batch
from trimol.gradients import _reduce as reduce
from trimol.gradients._autocast import no_autocast
from trimol.gradients._graph import record
from trimol.gradients._rows import all_rows

# How many samples a batch holds: one number, or one for each objective, in order or by name.
Size = Callable[[Any], float | Tensor | Sequence[float] | Mapping[str, float]]
_END = object()


class NotFinite(BadValue):
    """A loss or a gradient over whole data is NaN or infinite."""


@dataclass(frozen=True)
class FullData:
    """Means over a whole data set, in float64."""

    losses: Tensor  # F_S, one entry per objective
    jacobian: Tensor  # ∇F_S, M × d
    samples: float | Tensor  # of all processes; M numbers where objectives have their own


def full_data(
    losses: Callable[[Any], Tensor] | LossVector,
    params: Sequence[Tensor],
    loader: Iterable[Any],
    *,
    name: str = "loader",
    size: Size | None = None,
) -> FullData:
    """Go over ``loader`` (``name`` in errors) once, for the mean losses and their mean gradients.

    Under an initialised ``torch.distributed`` group the means are over the samples of all
    processes, each of which calls this with as many batches, of any sizes. With M numbers from
    ``size``, an objective that has no sample in a batch has 0 there; so has one whose loss is None.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().mean(), (x * z).mean()])
        >>> full_data(losses, [x], torch.arange(4.0).split(3)).jacobian  # E[z] = 1.5
        tensor([[-3.0000],
                [ 1.5000]], dtype=torch.float64)
    """
    sums: Sums | None = None
    walk = Walk(loader, params, name=name, size=size)
    for batch, samples in walk:
        vector, own = walk.read(losses, batch, samples)
        sums = sums or Sums(len(vector), params)
        vector, rows = without_absent(vector, own_rows(vector, params), own)
        walk.check(vector, rows)
        sums.add(vector, rows, own)
    if sums is None:
        raise BadValue(f"{name} must hold at least one batch, found none (used up before?)")
    return sums.means(name)


def own_rows(vector: Tensor, params: Sequence[Tensor]) -> Tensor:
    """The M × d gradients of one batch, on this process alone."""
    graph = record(vector, params)
    with no_autocast(), graph.apart():
        return all_rows(graph, joined=False)


def without_absent(vector: Tensor, rows: Tensor, samples: float | Tensor) -> tuple[Tensor, Tensor]:
    """Losses and gradients, those of objectives without a sample being 0, whatever they were."""
    if not isinstance(samples, Tensor) or samples.dim() == 0 or bool((samples > 0).all()):
        return vector, rows
    absent = (samples == 0).expand(len(vector)).to(rows.device)
    return vector.detach().masked_fill(absent, 0), rows.masked_fill(absent[:, None], 0)


class Sums:
    """Σ n F and Σ n ∇F over the batches so far, n the samples of each, or of each objective."""

    def __init__(self, objectives: int, params: Sequence[Tensor]) -> None:
        # Not every accelerator has float64.
        device = torch.device("cpu") if params[0].device.type == "mps" else params[0].device
        width = sum(p.numel() for p in params)
        self.samples: float | Tensor = 0.0
        self.losses = torch.zeros(objectives, dtype=torch.float64, device=device)
        self.jacobian = torch.zeros(objectives, width, dtype=torch.float64, device=device)

    def add(self, vector: Tensor, rows: Tensor, samples: float | Tensor) -> None:
        """Add one batch."""
        each = _for_each(samples, len(vector))
        self.samples = self.samples + samples
        self.losses.add_(vector.detach().to(self.losses) * self.losses.new_tensor(each))
        # One row in float64 at a time.
        for total, row, number in zip(self.jacobian, rows, each, strict=True):
            total.add_(row.to(total.device), alpha=number)

    def means(self, name: str = "loader") -> FullData:
        """The sums of all processes over their number of samples; the sums are used up."""
        own = self.losses.new_tensor(_for_each(self.samples, len(self.losses)))
        each = reduce.mean_small(own)
        check_present(each, name)
        for row, number in zip(self.jacobian, each.tolist(), strict=True):
            (joined,) = reduce.mean_large([row])  # one more row at a time, not one more Jacobian
            torch.div(joined, number, out=row)
        losses = reduce.mean_small(self.losses) / each
        samples = each * reduce.processes()
        single = not isinstance(self.samples, Tensor)
        return FullData(losses, self.jacobian, samples[0].item() if single else samples.cpu())


class Walk:
    """Go over a loader batch by batch, with the number of samples of each, in step with others.

    Each process says at every batch whether it has one, and whether its last one was good: none
    waits for another that has stopped. They talk on the device of ``params``.
    """

    def __init__(
        self, loader: Iterable[Any], params: Sequence[Tensor], *, name: str, size: Size | None
    ) -> None:
        self.loader, self.name, self.size = loader, name, size
        self.device = params[0].device if reduce.is_distributed() else torch.device("cpu")
        self.number = 0
        self.failure = ""

    def read(
        self, losses: Callable[[Any], Tensor] | LossVector, batch: Any, samples: Samples
    ) -> tuple[Tensor, float | Tensor]:
        """The losses of a batch, and how many samples each is the mean of."""
        if isinstance(losses, LossVector):
            try:
                return losses.read(batch, samples, self.place)
            except (ValueError, TypeError, IndexError) as error:  # such as too many to unpack
                if self.number or isinstance(error, UserError) or not are_tensors(self.loader):
                    raise
                raise BadType(
                    f"{self.name} must be an iterable of batches, found {one_batch(self.loader)} "
                    f"(losses of the first: {error})"
                ) from error
        if isinstance(samples, Mapping):
            raise BadValue("size must give numbers in order where losses are, found them by name")
        return losses(batch), samples

    def __iter__(self) -> Iterator[tuple[Any, Samples]]:
        batches = iter(self.loader)
        for self.number in counting():
            batch = next(batches, _END)
            samples = 0.0 if batch is _END else _size(batch, self.size, self.place)
            if not self._all_go_on(batch is not _END):
                return
            yield batch, samples

    @property
    def place(self) -> str:
        """Where we are, for an error."""
        return f"batch {self.number} of {self.name}"

    def check(self, losses: Tensor, rows: Tensor, *, everywhere: bool = False) -> None:
        """Stop at a loss or gradient with NaN or infinity: at once, or in step with the others.

        ``everywhere``: every process checks the same numbers, and so stops by itself.
        """
        # A sum is finite only if its terms are; it is ten times as fast as looking at each.
        if rows.sum().isfinite() and losses.sum().isfinite():
            return
        good = losses.detach().isfinite() & rows.isfinite().all(1)
        if good.all():
            return
        bad = int(good.logical_not().nonzero()[0])
        self.failure = (
            f"objective {bad} must have a finite loss and gradient, found NaN or infinity in "
            f"{self.place} (loss {losses[bad]:g})"
        )
        if everywhere or not reduce.is_distributed():
            raise NotFinite(self.failure)

    def _all_go_on(self, has_batch: bool) -> bool:
        """Whether every process has a batch (True) or none has (False)."""
        own = [float(has_batch), float(bool(self.failure))]
        state = torch.tensor(own, dtype=torch.float32, device=self.device)
        going, failed = reduce.mean_small(state).tolist()
        if failed:
            elsewhere = f"found NaN or infinity in {self.name} on another process"
            raise NotFinite(self.failure or elsewhere)
        if 0 < going < 1:
            raise BadValue(
                f"{self.name} must have as many batches on every process, found one that ran out "
                f"after {self.number}"
            )
        return bool(going == 1)


def check_present(samples: Tensor, name: str) -> None:
    """Raise if an objective has no sample at all in the data ``name``."""
    for number, count in enumerate(samples.reshape(-1).tolist()):
        if not count:
            raise BadValue(
                f"objective {number} must have at least one sample in {name}, found none"
            )


def _for_each(samples: float | Tensor, objectives: int) -> list[float]:
    """The number of samples of each objective."""
    if not isinstance(samples, Tensor):
        return [samples] * objectives
    each: list[float] = samples.tolist()
    if len(each) not in (1, objectives):
        raise BadValue(
            f"size must give one number or {objectives}, one per objective, found {len(each)}"
        )
    return each if len(each) == objectives else each * objectives


def _size(batch: Any, size: Size | None, place: str) -> Samples:
    """How many samples a batch holds: one number, or M in float64, or by name."""
    try:
        told = batch_size(batch) if size is None else size(batch)
        samples = _float64([*told.values()] if isinstance(told, Mapping) else told)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"cannot tell how many samples {place} holds: {error}; pass size=, from a batch to "
            "its number of samples"
        ) from error
    if samples.dim():
        if not ((samples >= 0) & (samples < float("inf"))).all():
            raise BadValue(f"{place} must hold no fewer than 0 samples, found {samples.tolist()}")
        if isinstance(told, Mapping):
            return dict(zip(told, samples.tolist(), strict=True))
        return samples
    if not 0 < samples < float("inf"):
        raise BadValue(f"{place} must hold at least one sample, found {samples:g}")
    return float(samples)


def _float64(sizes: Any) -> Tensor:
    numbers = sizes.cpu() if isinstance(sizes, Tensor) else sizes
    result = torch.as_tensor(numbers, dtype=torch.float64)
    if result.dim() > 1:
        raise BadValue(f"size must give one number or M, found shape {tuple(result.shape)}")
    return result
