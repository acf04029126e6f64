"""Every domain at every step: stratified however it is split, each passed through in epochs."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimol.data import Domains, split

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def mixed(sizes: list[int], seed: int = 0) -> Tensor:
    """Domains of these sizes, in random order."""
    numbers = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return numbers[torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))]


def batch(sampler: Domains, step: int) -> Tensor:
    (found,) = sampler.indices(step)
    return found


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(1, 9), st.integers(0, 2**64 - 1))
def test_every_domain_is_passed_through_once_in_each_of_its_epochs(
    sizes: list[int], batch_size: int, seed: int
) -> None:
    domain = mixed(sizes)
    sampler = Domains(domain, batch_size, seed=seed)
    taken = torch.cat([batch(sampler, step) for step in range(30)])
    for number, size in enumerate(sizes):
        own = taken[domain[taken] == number]
        assert len(own) == 30 * batch_size
        members = (domain == number).nonzero()[:, 0].tolist()
        for epoch in own.split(size)[: 30 * batch_size // size]:
            assert sorted(epoch.tolist()) == members


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(1, 9), st.integers(1, 4), st.integers(0, 50))
def test_every_split_is_stratified(
    sizes: list[int], batch_size: int, parts: int, step: int
) -> None:
    domain = mixed(sizes)
    found = batch(Domains(domain, batch_size), step)
    assert len(found) == batch_size * len(sizes)
    for part in split(found, min(parts, len(found))):
        counts = domain[part].bincount(minlength=len(sizes))
        assert counts.max() - counts.min() <= 1
        if batch_size % parts == 0:
            assert counts.tolist() == [batch_size // parts] * len(sizes)


@settings(deadline=None, max_examples=30)
@given(SIZES, st.integers(1, 9), st.integers(0, 99), st.permutations(range(8)))
def test_a_batch_is_a_function_of_seed_and_step(
    sizes: list[int], batch_size: int, seed: int, order: list[int]
) -> None:
    domain = mixed(sizes)
    used = Domains(domain, batch_size, seed=seed)
    jumbled = {step: batch(used, step) for step in order}  # the order of asking does not matter
    for step in range(8):
        assert torch.equal(jumbled[step], batch(Domains(domain, batch_size, seed=seed), step))


def test_orders_differ_by_epoch_domain_and_seed() -> None:
    sampler, domain = Domains(mixed([50, 50]), 50, seed=1), mixed([50, 50])
    places = {n: (domain == n).nonzero()[:, 0].tolist() for n in (0, 1)}

    def order(found: Tensor, number: int) -> list[int]:
        return [places[number].index(i) for i in found.tolist() if domain[i] == number]

    first, second = batch(sampler, 0), batch(sampler, 1)
    other = batch(Domains(domain, 50, seed=2), 0)
    orders = [order(first, 0), order(first, 1), order(second, 0), order(other, 0)]
    assert len({tuple(each) for each in orders}) == 4


def test_every_order_of_an_epoch_is_equally_likely() -> None:
    sampler = Domains(torch.zeros(3, dtype=torch.int64), 3, seed=5)
    found = [tuple(batch(sampler, step).tolist()) for step in range(1200)]
    counts = [found.count(order) for order in set(found)]
    assert len(counts) == 6
    assert sum((c - 200) ** 2 / 200 for c in counts) < 20.5  # χ² with 5 degrees: p = 0.001


def test_it_is_interleaved() -> None:
    domain = mixed([7, 4, 9])
    assert domain[batch(Domains(domain, 3), 2)].tolist() == [0, 1, 2] * 3


def test_an_epoch_is_that_of_the_longest_domain() -> None:
    sampler = Domains(mixed([7, 20, 3]), 6)
    assert sampler.steps_per_epoch == 4
    assert sampler.budget(0) == 18
    assert sampler.samples(4) == 72
    assert sampler.steps_within(71) == 3
    assert sampler.sizes == [7, 20, 3]


def test_a_state_is_taken_up() -> None:
    domain = mixed([7, 4])
    sampler = Domains(domain, 3, seed=8)
    used = [next(iter(sampler)) for _ in range(5)]
    fresh = Domains(domain, 3)
    assert next(iter(fresh)) != used[0]  # another seed, whose order is remembered
    fresh.load_state_dict(sampler.state_dict())
    assert next(iter(fresh)) == next(iter(sampler))
    fresh.load_state_dict(sampler.state_dict(step=0))
    assert [next(iter(fresh)) for _ in range(5)] == used
    with pytest.raises(ValueError, match=r"sizes=\[7, 4\], this sampler has sizes=\[7, 5\]|size="):
        Domains(mixed([7, 5]), 3).load_state_dict(sampler.state_dict())
    with pytest.raises(ValueError, match=r"saved with sizes=\[7, 4\].*sizes=\[6, 5\]"):
        Domains(mixed([6, 5]), 3).load_state_dict(sampler.state_dict())


@pytest.mark.parametrize(
    ("domain", "options", "message"),
    [
        (torch.tensor([0, 2]), {}, "without a gap, found none of number 1"),
        (torch.tensor([1, 2]), {}, "without a gap, found none of number 0"),
        (torch.tensor([-1, 0]), {}, "domain must be a whole number of at least 0, found -1"),
        (torch.tensor([], dtype=torch.int64), {}, "must not be empty"),
        (
            torch.tensor([0, 1]),
            {"growth": 1.0},
            "growth must be 0 with several .* found 1.0",
        ),
        (
            torch.tensor([0, 1]),
            {"batch_size": 0},
            "batch_size must be a whole number of at least 1, found 0",
        ),
    ],
)
def test_what_cannot_be_sampled(domain: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Domains(domain, **{"batch_size": 2, **options})


@pytest.mark.parametrize("domain", [torch.zeros(3), torch.zeros(3, 1, dtype=torch.int64), [0, 1]])
def test_what_is_no_domain(domain: Any) -> None:
    with pytest.raises(TypeError, match="domain must be a 1-D tensor of whole numbers"):
        Domains(domain, 2)
