"""Angles and lengths of mean gradients from a few batches: slow sums, and how often they miss."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.errors._spread import Spread, spread

FIRST, SECOND = torch.eye(2).double()


def drawn(means, noise, batches, seed):
    random = torch.Generator().manual_seed(seed)
    shape = (batches, *means.shape)
    return means + noise * torch.randn(shape, generator=random, dtype=torch.float64)


def slow_gramian(rows):
    """Σ_{a≠b} ⟨v_a,i, v_b,j⟩ / (n(n − 1)), pair by pair."""
    pairs = list(itertools.permutations(range(len(rows)), 2))
    return sum(rows[a] @ rows[b].T for a, b in pairs) / len(pairs)


@given(st.integers(3, 7), st.integers(2, 4), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_it_is_the_mean_over_pairs_of_different_batches(batches, objectives, width, seed):
    rows = drawn(torch.ones(objectives, width).double(), 1.0, batches, seed)
    found = spread(list(rows), torch.ones(batches))
    torch.testing.assert_close(found.gramian, slow_gramian(rows))
    noise = (rows - rows.mean(0)).square().sum((0, 2)) / (batches - 1)
    torch.testing.assert_close(found.variance, noise)


def test_without_a_batch_it_is_what_the_others_give():
    rows = drawn(torch.ones(2, 3).double(), 1.0, 6, seed=1)
    found = spread(list(rows), torch.ones(6))
    without = [slow_gramian(torch.cat([rows[:b], rows[b + 1 :]])) for b in range(6)]
    seen = []
    found.bracket(lambda gramian: seen.append(gramian) or gramian[..., 0, 1])
    torch.testing.assert_close(seen[1], torch.stack(without))


def test_batches_of_all_sizes_count_by_their_samples():
    samples = drawn(torch.ones(2, 3).double(), 1.0, 12, seed=2)
    sizes = [1, 2, 4, 5]
    parts = samples.split(sizes)
    found = spread([part.mean(0) for part in parts], torch.tensor(sizes))
    mean = samples.mean(0)
    torch.testing.assert_close(found.plain, mean @ mean.T)


def test_each_objective_may_have_its_own_number_of_samples():
    samples = drawn(torch.ones(2, 3).double(), 1.0, 12, seed=2)
    sizes = torch.tensor([[1, 3], [2, 3], [9, 6]])
    rows = [
        torch.stack([part[0].mean(0), part[1].mean(0)])
        for part in zip(
            samples[:, 0].split(sizes[:, 0].tolist()),
            samples[:, 1].split(sizes[:, 1].tolist()),
            strict=True,
        )
    ]
    mean = samples.mean(0)
    torch.testing.assert_close(spread(rows, sizes).plain, mean @ mean.T)


def test_a_metric_is_a_scale_of_the_columns():
    rows, scale = drawn(torch.ones(2, 5).double(), 1.0, 6, seed=3), torch.rand(5).double()
    scaled = spread(list(rows * scale.sqrt()), torch.ones(6))
    torch.testing.assert_close(
        spread(list(rows), torch.ones(6), scale=scale).products, scaled.products
    )


def test_without_noise_nothing_is_uncertain():
    rows = torch.tensor([[3.0, 0.0], [-1.0, 1.0]])
    cosine = spread([rows] * 8, torch.ones(8)).cosine(FIRST, SECOND)
    assert cosine.low == pytest.approx(cosine.high) == pytest.approx(-math.sqrt(0.5))


def test_the_cosine_with_a_zero_gradient_is_not_known():
    rows = torch.tensor([[3.0, 0.0], [0.0, 0.0]])
    cosine = spread([rows] * 8, torch.ones(8)).cosine(FIRST, SECOND)
    assert math.isnan(cosine.value)
    assert (cosine.low, cosine.high) == (-1, 1)


def missed(means, noise, statistic, truth, runs=300):
    """How often a bracket of 95 % misses."""
    found = [spread(list(drawn(means, noise, 16, seed)), torch.ones(16)) for seed in range(runs)]
    return sum(not statistic(each).covers(truth) for each in found) / runs


@pytest.mark.parametrize("noise", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("angle", [0.3, 0.5, 0.7])
def test_brackets_of_cosines_miss_as_rarely_as_they_say(noise, angle):
    direction = angle * math.pi
    means = torch.zeros(2, 6).double()
    means[0, 0], means[1, :2] = 1, torch.tensor([math.cos(direction), math.sin(direction)])
    rate = missed(means, noise, lambda s: s.cosine(FIRST, SECOND), math.cos(direction))
    assert rate <= 0.085  # 5 %, and three standard errors of 300 runs


@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_brackets_of_lengths_miss_as_rarely_as_they_say(noise):
    means = torch.ones(2, 6).double()
    assert missed(means, noise, lambda s: s.norm(FIRST), math.sqrt(6)) <= 0.085


@pytest.mark.parametrize("width", [2, 50])
def test_noise_alone_is_rarely_taken_for_conflict(width):
    """With no gradient at all, and noise that opposes itself: the worst case."""
    false = 0
    for seed in range(300):
        noise = drawn(torch.zeros(1, width).double(), 1.0, 16, seed)
        found = spread(list(torch.cat([noise, -noise], 1)), torch.ones(16))
        false += found.cosine(FIRST, SECOND).high < 0
    assert false / 300 <= 0.05


def test_it_is_a_table_of_products():
    assert Spread(torch.zeros(8, 2, 8, 2).double()).gramian.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("width", [2, 20])
def test_brackets_of_the_noise_miss_as_rarely_as_they_say(width):
    means = torch.ones(2, width).double()
    assert missed(means, 0.5, lambda s: s.noise(0), 0.25) <= 0.1


def test_the_noise_of_a_gradient_that_may_be_zero_has_no_bound():
    found = spread(list(drawn(torch.zeros(2, 4).double(), 1.0, 16, seed=0)), torch.ones(16))
    assert found.noise(0).high == math.inf
    assert found.noise(0).low > 1
