"""The sampler: uniform, independent, exactly resumable, and in step with `draws`."""

import itertools
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trimol.data import IndependentDraws, draws, pairs, sizes
from trimol.maths._streams import permutation

exact = settings(derandomize=True, deadline=None, max_examples=200)

# All seeds are fixed, so each test below has one fixed p-value; a right sampler would fall below
# this by an unlucky choice of the seed once in a thousand.
LEVEL = 1e-3


def table(sampler: IndependentDraws, steps: int) -> list[NDArray[np.int64]]:
    """One (steps, size) array per draw."""
    drawn = zip(*(sampler.indices(step) for step in range(steps)), strict=True)
    return [torch.stack(sets).numpy() for sets in drawn]


def p_uniform(outcomes: Iterable[Any], cells: int) -> float:
    """Chi-square test that the outcomes are uniform over so many cells."""
    counts = Counter(outcomes)
    assert len(counts) <= cells
    observed = [*counts.values(), *[0] * (cells - len(counts))]
    return float(stats.chisquare(observed).pvalue)


def p_overlap(a: NDArray[np.int64], b: NDArray[np.int64], size: int) -> float:
    """Chi-square test that rows of a and b share as many indices as independent sets do."""
    count = a.shape[1]
    shared = [len(set(x) & set(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    law = stats.hypergeom(size, count, count).pmf(np.arange(count + 1))
    observed = np.bincount(shared, minlength=count + 1)
    return float(stats.chisquare(observed, law / law.sum() * len(shared)).pvalue)


@pytest.mark.parametrize("size", [5, 6], ids=["shuffled", "rejected"])
def test_without_replacement_every_ordered_choice_is_equally_likely(size: int) -> None:
    first, second = table(IndependentDraws(size, 6, seed=1), steps=6000)
    choices = set(itertools.permutations(range(size), 3))
    for drawn in (first, second):
        outcomes = [tuple(row) for row in drawn.tolist()]
        assert set(outcomes) == choices
        assert p_uniform(outcomes, len(choices)) > LEVEL


def test_with_replacement_every_sequence_is_equally_likely() -> None:
    first, second = table(IndependentDraws(5, 6, replacement=True, seed=2), steps=6000)
    for drawn in (first, second):
        assert p_uniform(map(tuple, drawn.tolist()), cells=5**3) > LEVEL


@pytest.mark.parametrize("replacement", [False, True])
def test_indices_of_larger_data_are_uniform(replacement: bool) -> None:
    sampler = IndependentDraws(500, 64, replacement=replacement, seed=3)
    for drawn in table(sampler, steps=1000):
        counts = np.bincount(drawn.ravel(), minlength=500)
        assert len(counts) == 500
        # Without replacement the counts vary less than independent ones, by 1 - 32/500.
        scale = 1 if replacement else 1 - 32 / 500
        statistic = ((counts - 64) ** 2 / (64 * scale)).sum()
        p = stats.chi2(499).sf(statistic)
        assert LEVEL < p < 1 - LEVEL


@pytest.mark.parametrize("replacement", [False, True])
def test_draws_of_one_step_are_independent(replacement: bool) -> None:
    sampler = IndependentDraws(8, 12, k=3, replacement=replacement, seed=4)
    drawn = table(sampler, steps=6000)
    for a, b in itertools.combinations(drawn, 2):
        assert p_uniform(zip(a[:, 0], b[:, 0], strict=True), cells=64) > LEVEL
        assert p_uniform(zip(a[:, -1], b[:, 0], strict=True), cells=64) > LEVEL
        if not replacement:
            assert p_overlap(a, b, size=8) > LEVEL


def test_halves_of_one_shuffle_fail_the_test_of_independence() -> None:
    """The test has power: what `draws` makes of a shuffled batch is disjoint."""
    generator = torch.Generator().manual_seed(0)
    shuffles = [torch.randperm(8, generator=generator)[:6] for _ in range(500)]
    halves = torch.stack(shuffles).numpy()
    assert p_overlap(halves[:, :3], halves[:, 3:], size=8) < 1e-12


def test_steps_are_independent() -> None:
    first, second = table(IndependentDraws(10, 8, seed=5), steps=6000)
    for earlier, later in itertools.product((first, second), repeat=2):
        assert p_overlap(earlier[:-1:2], later[1::2], size=10) > LEVEL


def test_neighbouring_seeds_are_independent() -> None:
    one, _ = table(IndependentDraws(10, 8, seed=6), steps=6000)
    other, _ = table(IndependentDraws(10, 8, seed=7), steps=6000)
    assert p_overlap(one, other, size=10) > LEVEL


def test_no_remainder_is_favoured() -> None:
    """3·2^61 fits twice into 2^64: taken without rejection, its first third would come thrice."""
    sampler = IndependentDraws(3 * 2**61, 4000, replacement=True)
    for drawn in sampler.indices(0):
        assert p_uniform((drawn // 2**61).tolist(), cells=3) > LEVEL


def test_words_that_tie_are_drawn_again() -> None:
    class Ties:
        words: Any = iter([[5, 5, 1], [9, 2, 4]])

        def random_raw(self, size: int) -> NDArray[np.uint64]:
            return np.array(next(self.words), dtype=np.uint64)

    stream: Any = Ties()
    assert permutation(stream, 3).tolist() == [1, 2, 0]


def test_the_cost_does_not_grow_with_the_data() -> None:
    """A permutation of 10^15 numbers would not fit any memory."""
    for drawn in IndependentDraws(10**15, 64).indices(0):
        assert len(set(drawn.tolist())) == 32
        assert drawn.max() > 10**14


@exact
@given(
    size=st.integers(1, 60),
    k=st.integers(1, 5),
    batch=st.integers(1, 100),
    step=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**64 - 1),
    replacement=st.booleans(),
)
def test_every_draw_is_within_budget_and_data(
    size: int, k: int, batch: int, step: int, seed: int, replacement: bool
) -> None:
    batch = max(batch, k) if replacement else max(k, min(batch, size * k))
    drawn = IndependentDraws(size, batch, k, seed=seed, replacement=replacement).indices(step)
    assert [len(indices) for indices in drawn] == sizes(batch, k)
    for indices in drawn:
        assert indices.dtype == torch.int64
        assert 0 <= indices.min() <= indices.max() < size
        assert replacement or len(indices.unique()) == len(indices)


def test_the_sequence_is_fixed_for_all_versions() -> None:
    """A checkpoint of today resumes tomorrow: these numbers must never change."""
    sparse, dense = IndependentDraws(1000, 8, seed=11), IndependentDraws(7, 10, seed=11)
    first, second = sparse.indices(3)
    assert first.tolist() == [808, 385, 896, 175]
    assert second.tolist() == [717, 634, 551, 852]
    first, second = dense.indices(3)
    assert first.tolist() == [3, 1, 4, 5, 0]
    assert second.tolist() == [1, 0, 5, 6, 4]


def test_seed_step_and_draw_all_count_in_full() -> None:
    """No two of these may collide, as they would in a generator with a 32-bit seed."""
    keys = [0, 1, 2, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    seen = [
        tuple(indices.tolist())
        for seed, step in itertools.product(keys, repeat=2)
        for indices in IndependentDraws(10**9, 8, seed=seed).indices(step)
    ]
    assert len(set(seen)) == len(seen) == 2 * len(keys) ** 2


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 7, 10, 13])
def test_a_fresh_sampler_goes_on_where_the_old_one_stopped(stop: int, replacement: bool) -> None:
    def make(seed: int = 0) -> IndependentDraws:
        return IndependentDraws(30, 9, k=2, replacement=replacement, seed=seed, steps=10)

    straight = make(seed=8)
    whole = [*straight, *straight, *straight]
    old = make(seed=8)
    before = list(itertools.islice(itertools.chain(old, old), stop))
    fresh = make()
    fresh.load_state_dict(pickle.loads(pickle.dumps(old.state_dict())))
    assert [*before, *fresh, *fresh] == whole[: stop - stop % 10 + 20]
    assert (fresh.step, fresh.seed) == (stop - stop % 10 + 20, 8)


def test_an_iteration_goes_on_and_never_repeats() -> None:
    sampler = IndependentDraws(1000, 8, steps=3)
    rounds = [list(sampler) for _ in range(3)]
    expected = [torch.cat(sampler.indices(step)).tolist() for step in range(9)]
    assert rounds == [expected[:3], expected[3:6], expected[6:]]
    assert len(sampler) == 3


def test_a_loop_left_early_leaves_the_rest() -> None:
    sampler = IndependentDraws(1000, 8, steps=5)
    for _ in zip(range(2), sampler, strict=False):
        pass
    assert sampler.step == 2
    assert len(list(sampler)) == 3


def test_without_steps_it_is_endless() -> None:
    sampler = IndependentDraws(1000, 8)
    assert len(list(itertools.islice(sampler, 500))) == 500
    with pytest.raises(TypeError, match="endless sampler has no length"):
        len(sampler)


def test_index_sets_for_data_in_memory() -> None:
    x = torch.arange(100) ** 2
    sampler = IndependentDraws(x, 10, k=3, steps=4)
    drawn = [[x[indices] for indices in sets] for sets in sampler.sets()]
    assert sampler.step == len(drawn) == 4
    for step, parts in enumerate(drawn):
        assert [len(part) for part in parts] == [4, 3, 3]
        for part, indices in zip(parts, sampler.indices(step), strict=True):
            assert torch.equal(part, indices**2)


def test_asking_for_a_step_does_not_move_the_sampler() -> None:
    sampler = IndependentDraws(1000, 8)
    first = sampler.indices(0)
    sampler.indices(99)
    assert sampler.step == 0
    assert all(map(torch.equal, first, sampler.indices(0)))


# From Python 3.12 on, a fork beside torch's threads warns.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@forks
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("batch", "k"), [(64, 2), (11, 3)])
def test_draws_of_a_loader_are_the_independent_sets(workers: int, batch: int, k: int) -> None:
    data = TensorDataset(torch.arange(5000), -torch.arange(5000))
    sampler = IndependentDraws(data, batch, k, seed=9, steps=6)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=workers)
    steps = list(draws(loader, k))
    assert len(steps) == len(draws(loader, k)) == 6
    for step, parts in enumerate(steps):
        for (x, y), indices in zip(parts, sampler.indices(step), strict=True):
            assert torch.equal(x, indices)
            assert torch.equal(y, -indices)


@forks
@pytest.mark.parametrize("workers", [0, 2])
def test_training_resumes_from_the_step_used(workers: int) -> None:
    data = TensorDataset(torch.arange(5000))

    def make(seed: int) -> tuple[IndependentDraws, Any]:
        sampler = IndependentDraws(data, 8, seed=seed)
        return sampler, pairs(DataLoader(data, batch_sampler=sampler, num_workers=workers))

    sampler, loader = make(seed=10)
    used = len(list(itertools.islice(loader, 3)))
    # Workers ask ahead, and that is why the state takes the step.
    assert sampler.step > used if workers else sampler.step == used
    fresh, resumed = make(seed=0)
    fresh.load_state_dict(sampler.state_dict(step=used))
    (first,), (second,) = next(iter(resumed))
    assert torch.equal(first, sampler.indices(3)[0])
    assert torch.equal(second, sampler.indices(3)[1])


class NoLength(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 0}, ValueError, "k must be a whole number of at least 1, found 0"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole .* 1, found 0"),
        ({"batch_size": 2, "k": 3}, ValueError, "batch_size must be at least k=3, found 2"),
        (
            {"batch_size": 8.0},
            TypeError,
            "batch_size must be a whole .* 1, found 8.0",
        ),
        ({"seed": -1}, ValueError, "seed must be a whole number of at least 0, found -1"),
        ({"seed": 2**64}, ValueError, r"seed must be below 2\*\*64, found 18446744073709551616"),
        ({"steps": 0}, ValueError, "steps must be a whole number of at least 1, found 0"),
        ({"data": 0}, ValueError, "data must be a whole number of at least 1, found 0"),
        ({"data": []}, ValueError, "data must not be empty, found a list of length 0"),
        ({"data": NoLength()}, TypeError, "data must be a size or have a length, found NoLength"),
        ({"data": 3}, ValueError, "batch_size must be at most 6, 2 times .*, found 8"),
        ({"data": 3, "batch_size": 7}, ValueError, "batch_size must be at most 6, .* found 7"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        IndependentDraws(**{"data": 100, "batch_size": 8, **arguments})
    assert "\n" not in str(caught.value)


def test_as_many_samples_as_the_data_has_are_allowed() -> None:
    for drawn in IndependentDraws(4, 8).indices(0):
        assert sorted(drawn.tolist()) == [0, 1, 2, 3]
    assert len(IndependentDraws(1, 8, replacement=True).indices(0)[0]) == 4


@pytest.mark.parametrize("step", [-1, 2**64])
def test_a_step_out_of_range_is_named(step: int) -> None:
    sampler = IndependentDraws(100, 8)
    with pytest.raises(ValueError, match="step must be"):
        sampler.indices(step)
    with pytest.raises(ValueError, match="step must be"):
        sampler.state_dict(step=step)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (IndependentDraws(50, 8), "saved with size=50, this sampler has size=100"),
        (IndependentDraws(100, 6), "saved with batch_size=6, this"),
        (IndependentDraws(100, 8, k=4), "saved with k=4, this"),
        (IndependentDraws(100, 8, replacement=True), "saved with replacement=True, this"),
    ],
)
def test_the_state_of_another_setting_is_refused(other: IndependentDraws, message: str) -> None:
    sampler = IndependentDraws(100, 8)
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict(other.state_dict(step=5))
    assert sampler.step == 0
