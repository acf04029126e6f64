"""The bounds cover the truth at their rate, and are exact where there is no noise."""

import math

import pytest
import torch
from torch import Tensor

from trimol.errors._bracket import Norm, Numbers, root


def norm_of(vectors: Tensor, sizes: Tensor | None = None) -> Norm:
    equal = torch.ones(len(vectors), dtype=torch.float64)
    return Norm(vectors @ vectors.T, equal if sizes is None else sizes)


# Spectra of the noise: one direction, a few, many alike, and one that towers over many.
SPECTRA = {
    "one": [1.0],
    "three": [1.0, 0.5, 0.1],
    "many": [1.0] * 60,
    "towering": [4.0] + [0.3] * 40,
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("length", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("clusters", [4, 16])
def test_a_norm_is_below_its_bound_at_the_stated_rate(
    spectrum: str, length: float, clusters: int
) -> None:
    random = torch.Generator().manual_seed(0)
    scale = torch.tensor(SPECTRA[spectrum], dtype=torch.float64).sqrt()
    mean = torch.zeros(len(scale), dtype=torch.float64)
    mean[0] = length  # along the noisiest direction, where it is hardest
    trials, alpha = 200, 0.1
    missed = 0
    for _ in range(trials):
        noise = torch.randn(clusters, len(scale), generator=random, dtype=torch.float64)
        missed += norm_of(mean + noise * scale).upper(alpha) < length
    # Three standard deviations of a binomial count above the nominal rate.
    assert missed <= alpha * trials + 3 * math.sqrt(alpha * (1 - alpha) * trials)


def test_a_number_is_above_its_bound_at_the_stated_rate() -> None:
    random = torch.Generator().manual_seed(0)
    sizes = torch.tensor([8.0, 8.0, 8.0, 8.0, 3.0], dtype=torch.float64)
    values = torch.randn(4000, 5, generator=random, dtype=torch.float64) / sizes.sqrt()
    missed = sum(Numbers(v[:, None], sizes).lower(0.1).item() > 0 for v in values)
    assert missed / 4000 == pytest.approx(0.1, abs=0.02)


def test_the_estimate_of_the_square_is_unbiased_and_its_error_right() -> None:
    random = torch.Generator().manual_seed(0)
    mean = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    found = [
        norm_of(mean + torch.randn(12, 3, generator=random, dtype=torch.float64))
        for _ in range(2000)
    ]
    squares = torch.tensor([norm.square for norm in found])
    assert squares.mean().item() == pytest.approx(1.0, abs=0.04)
    typical = torch.tensor([norm.square_error for norm in found]).square().mean().sqrt().item()
    assert typical == pytest.approx(squares.std().item(), rel=0.1)


def test_the_plain_square_is_too_large_by_the_noise() -> None:
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(500, 16, 50, generator=random, dtype=torch.float64)
    plain = vectors.mean(1).square().sum(1).mean().item()
    assert plain == pytest.approx(50 / 16, rel=0.05)
    corrected = torch.tensor([norm_of(v).square for v in vectors]).mean().item()
    assert corrected == pytest.approx(0.0, abs=0.1)


def test_exact_without_noise() -> None:
    norm = norm_of(torch.tensor([[3.0, 4.0]] * 5, dtype=torch.float64))
    assert norm.square == pytest.approx(25.0)
    assert norm.square_error == pytest.approx(0.0, abs=1e-6)
    assert norm.upper(0.05) == pytest.approx(5.0, abs=1e-6)
    numbers = Numbers(torch.full((5, 1), 2.0, dtype=torch.float64), torch.ones(5).double())
    assert numbers.lower(0.05).tolist() == [2.0]


def test_clusters_count_by_their_samples() -> None:
    sizes = torch.tensor([3.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    vectors = torch.tensor([[2.0], [0.0], [0.0], [0.0]], dtype=torch.float64)
    assert Numbers(vectors, sizes).mean.tolist() == [1.0]
    norm = norm_of(vectors, sizes)
    # The ratio estimate's variance by hand: residuals 2, −⅔, −⅔, −⅔ of weights 2, ⅔, ⅔, ⅔.
    variance = (2.0**2 + 3 * (2 / 3) ** 2) / 3 / 4
    assert Numbers(vectors, sizes).error.item() == pytest.approx(variance**0.5)
    assert norm.square == pytest.approx(1.0 - variance)


def test_the_root_stays_in_its_bounds() -> None:
    below = root(-1.0, 0.25, 0.0, 2.0)
    assert (below.value, below.error) == (0.0, 0.5)
    assert root(100.0, 1.0, 0.0, 2.0).value == 2.0
    assert root(100.0, 1.0, 0.0, 20.0).error == pytest.approx(1 / 20, rel=0.01)
