"""Evidence of the global batch: means over the processes of an initialised ``torch.distributed``.

Every rank holds the gradients of its own part of the batch. The gradient of the global batch is
their mean, as in ``DistributedDataParallel``; without a process group each function returns what
it was given.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Whether evidence has to be joined over processes."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def processes() -> int:
    """How many processes share a batch."""
    return dist.get_world_size() if is_distributed() else 1


def mean_large(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Mean over ranks of gradients: one all-reduce of the flattened whole per dtype."""
    if not is_distributed():
        return tensors
    joined = list(tensors)
    for dtype in dict.fromkeys(t.dtype for t in tensors):  # a set's order may differ by rank
        places = [i for i, t in enumerate(tensors) if t.dtype == dtype]
        flat = torch.cat([tensors[i].reshape(-1) for i in places])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        sizes = [tensors[i].numel() for i in places]
        for i, part in zip(places, torch.split(flat, sizes), strict=True):
            joined[i] = part.view_as(tensors[i])
    return joined


def mean_small(numbers: Tensor) -> Tensor:
    """Mean over ranks of a few numbers, summed in rank order: bit-identical on every rank.

    They travel in float64: a rank whose losses are all absent does not know the others' dtype.
    """
    if not is_distributed():
        return numbers
    return torch.stack(_gathered(numbers.double().contiguous())).mean(0).to(numbers.dtype)


def sum_small(numbers: Tensor) -> Tensor:
    """Sum over ranks of a few numbers, in rank order: bit-identical on every rank."""
    return torch.stack(_gathered(numbers.contiguous())).sum(0) if is_distributed() else numbers


def spread(rows: Tensor) -> Tensor:
    """Mean over ranks of n × d rows, of which each rank keeps its share of the columns.

    All shares are ⌈d / W⌉ wide: the last ones are filled up with zeros.
    """
    if not is_distributed():
        return rows
    world = dist.get_world_size()
    count, width = len(rows), -(-rows.shape[1] // world)
    padded = torch.nn.functional.pad(rows, (0, world * width - rows.shape[1]))
    by_rank = padded.view(count, world, width).transpose(0, 1).contiguous()
    own = rows.new_empty(count, width)
    # Its name before torch 2.13.
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(own, by_rank.view(world * count, width))
    return own / world


def share(vector: Tensor) -> Tensor:
    """This rank's share of a vector that all ranks have, as `spread` deals columns out."""
    if not is_distributed():
        return vector
    world, rank = dist.get_world_size(), dist.get_rank()
    width = -(-len(vector) // world)
    padded = torch.nn.functional.pad(vector, (0, world * width - len(vector)))
    return padded[rank * width : (rank + 1) * width]


def collected(share: Tensor, width: int) -> Tensor:
    """A vector of ``width`` entries from every rank's share of it."""
    return torch.cat(_gathered(share.contiguous()))[:width] if is_distributed() else share


def texts(own: str, device: torch.device) -> list[str]:
    """What every process says, in rank order. Lengths go first: they may differ."""
    content = torch.tensor(list(own.encode()), dtype=torch.uint8, device=device)
    size = torch.tensor([len(content)], device=device)
    sizes = [int(each) for each in _gathered(size)]
    padded = torch.nn.functional.pad(content, (0, max(sizes) - len(content)))
    pairs = zip(_gathered(padded), sizes, strict=True)
    return [bytes(part[:length].tolist()).decode() for part, length in pairs]


def _gathered(own: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return parts
