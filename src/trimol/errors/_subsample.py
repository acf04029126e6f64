"""Random batches of a data set, for an estimate that does not go over all of it."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset

from trimol._checks import whole_number


def subsample(
    loader: Iterable[Any], batches: int, seed: int | Sequence[int]
) -> tuple[Iterable[Any], int]:
    """At most so many batches of ``loader``, at random without replacement, and how many.

    - A ``DataLoader`` that goes over a data set once, shuffled or not: new batches of as many
      samples each, whose samples are drawn at random from the whole data set.
    - A list of batches (any sequence): batches of it at random, each as it is.
    - Any other iterable, such as a ``DataLoader`` with a sampler of its own or a generator: its
      first batches. It must deal its data in random order.

    Example:
        >>> chosen, count = subsample([10, 20, 30, 40], 2, seed=0)
        >>> list(chosen), count
        ([30, 10], 2)
    """
    count, random = whole_number("batches", batches, least=1), np.random.default_rng(seed)
    if isinstance(loader, DataLoader) and _goes_over_once(loader):
        data: Any = loader.dataset
        samples = random.permutation(len(data))[: count * int(loader.batch_size or 1)]
        some = _over(loader, samples.tolist())
        return some, len(some)
    if isinstance(loader, Sequence):
        places = random.permutation(len(loader))[:count].tolist()
        return (loader[place] for place in places), len(places)
    return islice(loader, count), min(count, _length(loader, count))


def _length(loader: Iterable[Any], unknown: int) -> int:
    """How many batches there are; ``unknown`` if the loader does not tell."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:  # no __len__, or one that asks an iterable data set in vain
        return unknown


def _goes_over_once(loader: DataLoader[Any]) -> bool:
    """Whether each sample of the data set comes once, in batches of one size."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return False
    sampler = loader.sampler
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    return isinstance(sampler, SequentialSampler)


def _over(loader: DataLoader[Any], indices: list[int]) -> DataLoader[Any]:
    """A loader like this one, over some of its samples, in this order."""
    return DataLoader(
        Subset(loader.dataset, indices),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
