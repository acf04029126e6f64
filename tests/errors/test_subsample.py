"""Random batches: each at most once, seeded, whatever kind of loader they come from."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from trimol.errors._subsample import subsample

DATA = TensorDataset(torch.arange(50.0))


@pytest.mark.parametrize("shuffle", [True, False])
def test_of_a_loader_are_new_batches_from_all_its_samples(shuffle: bool) -> None:
    loader = DataLoader(DATA, batch_size=5, shuffle=shuffle)
    chosen, count = subsample(loader, 4, seed=0)
    batches = [batch.tolist() for (batch,) in chosen]
    assert count == len(batches) == 4
    assert [len(batch) for batch in batches] == [5] * 4
    samples = [sample for batch in batches for sample in batch]
    assert len(set(samples)) == 20
    assert samples != sorted(samples)
    again, _ = subsample(loader, 4, seed=0)
    assert [batch.tolist() for (batch,) in again] == batches
    other, _ = subsample(loader, 4, seed=1)
    assert [batch.tolist() for (batch,) in other] != batches


def test_every_sample_comes_as_often() -> None:
    loader = DataLoader(DATA, batch_size=5)
    seen: Counter[float] = Counter()
    for seed in range(300):
        for (batch,) in subsample(loader, 2, seed)[0]:
            seen.update(batch.tolist())
    assert set(seen) == set(map(float, range(50)))
    assert max(seen.values()) < 2 * min(seen.values())  # 60 each, on average


def test_of_a_list_are_batches_of_it() -> None:
    batches = list(range(10))
    chosen, count = subsample(batches, 4, seed=[0, 7])
    found = list(chosen)
    assert count == len(set(found)) == 4
    assert set(found) <= set(batches)


def test_no_more_than_there_are() -> None:
    assert subsample([1, 2, 3], 8, seed=0)[1] == 3
    chosen, count = subsample(DataLoader(DATA, batch_size=20), 8, seed=0)
    assert (len(list(chosen)), count) == (3, 3)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.arange(12.0))


def test_of_other_iterables_the_first() -> None:
    sampler = WeightedRandomSampler([1.0] * 50, 50)
    for loader in (DataLoader(DATA, batch_size=5, sampler=sampler), DataLoader(Stream(), 3)):
        chosen, count = subsample(loader, 2, seed=0)
        assert count == len(list(chosen)) == 2
    chosen, _ = subsample((n for n in range(9)), 3, seed=0)
    assert list(chosen) == [0, 1, 2]
