"""Data of many replicas: their sets, and the samples that all of them take in a step."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.data import IndependentDraws
from trimol.data._lookup import Rows
from trimol.tasks import Batch, Data, Task
from trimol.tasks import _answers as answers
from trimol.training._kept import task_kept


class Neighbours:
    """R data sets, each the same as one but for one sample; held as one.

    Args:
        data: The data set S.
        places: For each replica the number of the training sample that is replaced; −1 for none.
        substitutes: What it is replaced by, one sample for each replica.

    Example:
        >>> data = Data(train=(torch.arange(4),), test=(torch.arange(2),))
        >>> neighbours = Neighbours(data, torch.tensor([-1, 2]), (torch.tensor([7, 9]),))
        >>> neighbours[1].train
        (tensor([0, 1, 9, 3]),)
        >>> neighbours.batch(torch.tensor([[0, 2], [0, 2]]))
        (tensor([[0, 2],
                [0, 9]]),)
    """

    def __init__(self, data: Data, places: Tensor, substitutes: Batch) -> None:
        self.data, self.places, self.substitutes = data, places, substitutes
        self._all = tuple(
            torch.cat([own, new]) for own, new in zip(data.train, substitutes, strict=True)
        )

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, replica: int) -> Data:
        place = int(self.places[replica])
        if place < 0:
            return self.data
        train = tuple(tensor.clone() for tensor in self.data.train)
        for tensor, new in zip(train, self.substitutes, strict=True):
            tensor[place] = new[replica]
        return Data(train, self.data.test, self.data.validation)

    def batch(self, indices: Tensor) -> Batch:
        """The samples with these numbers (R × B), for each replica from its own data set."""
        size = len(self.data.train[0])
        own = size + torch.arange(len(self))[:, None]
        places = torch.where(indices == self.places[:, None], own, indices)
        return tuple(tensor[places] for tensor in self._all)


class Sets:
    """One data set for all replicas, or one for each, of one size; one object is held once."""

    def __init__(self, data: Sequence[Data], replicas: int) -> None:
        held = {id(each): each for each in data}
        counts = {len(each.train[0]) for each in held.values()}
        if len(counts) > 1:
            raise BadValue(
                f"data must have as many training samples for every replica, found {sorted(counts)}"
            )
        self.each = [data[0]] * replicas if len(data) == 1 else list(data)
        self.alike = len(held) == 1
        if not self.alike:
            numbers = {key: number for number, key in enumerate(held)}
            self._own = torch.tensor([numbers[id(each)] for each in data])[:, None]
            columns = zip(*(each.train for each in held.values()), strict=True)
            self._stacked = [_stacked(column) for column in columns]

    def __getitem__(self, replica: int) -> Data:
        return self.each[replica]

    def batch(self, indices: Tensor) -> Batch:
        """The samples with these numbers (R × B), for each replica from its own data set."""
        if self.alike:
            return tuple(tensor[indices] for tensor in self.each[0].train)
        return tuple(tensor[self._own, indices] for tensor in self._stacked)


def _stacked(column: Sequence[Tensor | Rows]) -> Tensor | Rows:
    """Samples of several sets, sets × samples; of splits of one tensor only their numbers."""
    splits = [each for each in column if isinstance(each, Rows)]
    if len(splits) == len(column) and all(each.tensor is splits[0].tensor for each in splits):
        return Rows(splits[0].tensor, torch.stack([each.order for each in splits]))
    return torch.stack([each[:] for each in column])


class ReplicaSampler(Protocol):
    """The samples of a step, for all replicas at once."""

    def batch(self, step: int) -> Batch:
        """R × B samples, the method's draws one after the other."""

    def budget(self, step: int) -> int:
        """How many samples a replica takes in this step."""


class BySeed:
    """The samplers of the single runs, one for each seed."""

    def __init__(
        self,
        data: Sets | Neighbours,
        seeds: Sequence[int],
        make: Callable[[int], IndependentDraws],
    ) -> None:
        self.data, self.seeds = data, list(seeds)
        self.samplers = {seed: make(seed) for seed in dict.fromkeys(seeds)}

    def batch(self, step: int) -> Batch:
        drawn = {seed: sampler.indices(step)[0] for seed, sampler in self.samplers.items()}
        return self.data.batch(torch.stack([drawn[seed] for seed in self.seeds]))

    def budget(self, step: int) -> int:
        return self.samplers[self.seeds[0]].budget(step)


def data_of(task: Task, seeds: Sequence[int]) -> Data | list[Data]:
    """The task's data for runs with these seeds: one for all, or one for each."""
    if type(task).data_for is Task.data_for:
        return answers.data(task)
    known = {}
    for seed in dict.fromkeys(seeds):
        with task_kept(task, None):  # every run begins with the task as it is now
            known[seed] = answers.data(task, seed)
    return [known[seed] for seed in seeds]


def source_of(data: Data | Sequence[Data] | Neighbours, replicas: int) -> Sets | Neighbours:
    """The data of all replicas: one for all, one for each, or neighbours."""
    if isinstance(data, Data):
        return Sets([data], replicas)
    if len(data) != replicas:
        raise BadValue(f"data must be one for each of {replicas} seeds, found {len(data)}")
    return data if isinstance(data, Neighbours) else Sets(data, replicas)
