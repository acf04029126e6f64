"""The growing sampler: its sizes, and that all else is as for `IndependentDraws`."""

import itertools
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from trimol.data import GrowingBatches, IndependentDraws

exact = settings(derandomize=True, deadline=None, max_examples=100)


@exact
@given(
    size=st.integers(1, 60),
    start=st.integers(1, 60),
    growth=st.one_of(st.integers(0, 50), st.floats(0, 1e6)),
    cap=st.one_of(st.none(), st.integers(1, 200)),
    step=st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)),
    seed=st.integers(0, 2**64 - 1),
    replacement=st.booleans(),
)
def test_every_batch_has_the_size_of_the_rule(
    size: int, start: int, growth: float, cap: int | None, step: int, seed: int, replacement: bool
) -> None:
    if not replacement:
        start, cap = min(start, size), None if cap is None else min(cap, size)
    cap = None if cap is None else max(cap, start)
    sampler = GrowingBatches(
        size, start, growth=growth, cap=cap, seed=seed, replacement=replacement
    )
    (drawn,) = sampler.indices(step)
    most = max(size, start) if cap is None else cap
    assert len(drawn) == sampler.budget(step) == min(most, start + int(growth * step))
    assert 0 <= drawn.min() <= drawn.max() < size
    assert replacement or len(drawn.unique()) == len(drawn)


def test_without_a_cap_it_grows_to_all_the_data() -> None:
    sampler = GrowingBatches(20, 4, growth=3)
    assert [sampler.budget(step) for step in range(8)] == [4, 7, 10, 13, 16, 19, 20, 20]
    assert sorted(sampler.indices(10**6)[0].tolist()) == list(range(20))
    assert sampler.samples(8) == 109
    assert sampler.samples(0) == 0


def test_without_growth_it_is_a_sampler_of_constant_batches() -> None:
    growing, constant = (
        GrowingBatches(100, 8, growth=0, seed=3),
        IndependentDraws(100, 8, 1, seed=3),
    )
    for step in (0, 1, 500):
        assert torch.equal(growing.indices(step)[0], constant.indices(step)[0])


def test_with_replacement_the_cap_may_exceed_the_data() -> None:
    sampler = GrowingBatches(5, 2, growth=4, cap=12, replacement=True)
    assert [len(sampler.indices(step)[0]) for step in range(4)] == [2, 6, 10, 12]


def test_a_fresh_sampler_goes_on_where_the_old_one_stopped() -> None:
    def make(seed: int = 0) -> GrowingBatches:
        return GrowingBatches(50, 3, growth=1.5, cap=30, seed=seed, steps=10)

    straight = make(seed=8)
    whole = [*straight, *straight]
    old = make(seed=8)
    before = list(itertools.islice(old, 4))
    fresh = make()
    fresh.load_state_dict(pickle.loads(pickle.dumps(old.state_dict())))
    assert [*before, *fresh, *fresh] == whole
    assert [len(batch) for batch in whole[:5]] == [3, 4, 6, 7, 9]


def test_a_loader_yields_the_growing_batches() -> None:
    data = TensorDataset(torch.arange(100))
    sampler = GrowingBatches(data, 2, growth=2, steps=5)
    loader = DataLoader(data, batch_sampler=sampler)
    assert len(loader) == 5
    for step, (x,) in enumerate(loader):
        assert torch.equal(x, sampler.indices(step)[0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"growth": -1}, ValueError, "growth must be finite and at least 0, found -1"),
        ({"growth": float("nan")}, ValueError, "growth must be finite and at least 0, found nan"),
        ({"growth": "fast"}, TypeError, "growth must be a number, found 'fast'"),
        ({"growth": True}, TypeError, "growth must be a number, found True"),
        ({"cap": 0}, ValueError, "cap must be a whole number of at least 1, found 0"),
        ({"cap": 7}, ValueError, "cap must be at least batch_size=8, found 7"),
        ({"cap": 101}, ValueError, "cap=101 needs as many distinct samples, but data has 100"),
        ({"data": 7}, ValueError, "batch_size must be at most 7, the number of samples"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number of at least 1, found 0"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        GrowingBatches(**{"data": 100, "batch_size": 8, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (GrowingBatches(100, 8, growth=2), r"saved with growth=2.0, this sampler has growth=1.0"),
        (GrowingBatches(100, 8, cap=9), "saved with cap=9, this sampler has cap=100"),
    ],
)
def test_the_state_of_another_setting_is_refused(other: GrowingBatches, message: str) -> None:
    sampler = GrowingBatches(100, 8)
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict(other.state_dict(step=5))
    assert sampler.step == 0


@pytest.mark.parametrize("samples", [0, 7, 8, 16, 17, 100, 5000])
@pytest.mark.parametrize("growth", [0.0, 0.3, 2.0])
def test_steps_within_a_budget(samples: int, growth: float) -> None:
    sampler = GrowingBatches(1000, 8, growth=growth, cap=50)
    steps = sampler.steps_within(samples)
    assert sampler.samples(steps) <= samples < sampler.samples(steps + 1)
