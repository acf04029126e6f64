"""The example of the stability lower bound is built as the paper says."""

import math

import pytest
import torch

from trimol.paper.tasks.lower_bound import StabilityLowerBound


@pytest.mark.parametrize("samples", [10, 64, 1000])
def test_the_construction(samples):
    example = StabilityLowerBound(samples=samples)
    least, v = 16 * samples ** (-1 / 3), example.direction
    assert example.mu == pytest.approx(least)
    assert torch.allclose(example.matrix @ v, least * v)
    assert torch.linalg.eigvalsh(example.matrix)[0] == pytest.approx(least)
    (z,) = example.data().train
    other = example.neighbour()
    assert torch.allclose(z.mean(0), least * v)
    assert torch.allclose(other.mean(0), (least - 1 / samples) * v)
    assert (z != other).any(1).sum() == 1
    assert torch.allclose((z - other)[0], v)
    assert torch.allclose(example.start, 7 * v)
    assert example.b2.tolist() == [1.0, 1 + math.sqrt(2)]
    assert example.objectives == ("f1", "f2")


def test_the_pull_along_the_simplex_is_a_unit_vector():
    b = StabilityLowerBound().b2
    centred = b - b.mean()
    assert centred.tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2)])


def test_a_spread_keeps_the_mean():
    example = StabilityLowerBound(samples=8, spread=2.0)
    (z,) = example.data().train
    assert torch.allclose(z.mean(0), example.population)
    assert (z @ example.direction).std() > 2
    with pytest.raises(ValueError, match=r"samples must be even for a spread of 2.0, found 7"):
        StabilityLowerBound(samples=7, spread=2.0)


def test_the_theorems_settings():
    example = StabilityLowerBound(samples=100)
    assert example.longest == 86
    assert example.step_size(16) == pytest.approx(1 / (4 * example.mu * 16))
    both = torch.cat([example.data().train[0], example.neighbour()])
    bound = example.lipschitz(both)
    assert example.gamma_limit(16) == pytest.approx(1 / (2 * 2 * 16 * math.sqrt(2) * bound**2))
    with pytest.raises(ValueError, match=r"steps must be from 1 to 4 n\^\(2/3\) = 86, found 87"):
        example.step_size(87)
