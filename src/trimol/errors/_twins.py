r"""Estimates of uniform stability from twin runs: how much one training sample matters.

K twins are pairs of runs on neighbouring data sets with the same random numbers. Of each twin k and
each sample z of a pool we know

.. math:: D_{kz} = \|\nabla F_z(A(S)) - \nabla F_z(A(S'))\|_F^2

and :math:`\epsilon_F^2 = \sup_z \mathbb E_A[D_z]` is wanted. The largest of noisy means is too
large on average; the mean of a sample that *other* twins chose is not, but may miss the largest.
The truth for the pool lies between the two expectations.

Reference:
    L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
    Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 3.1.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from torch import Tensor

Interval = tuple[float, float]
RESAMPLES = 1000


def largest_mean(squared: Tensor) -> float:
    """The largest over the pool of the mean over twins: biased upward.

    Args:
        squared: D, twins × pool.

    Example:
        >>> import torch
        >>> largest_mean(torch.tensor([[1.0, 4.0], [3.0, 0.0]]))
        2.0
    """
    return float(squared.mean(0).max())


def chosen_mean(squared: Tensor) -> float:
    """The mean of the sample that the other half of the twins chose; both halves in turn.

    Args:
        squared: D, twins × pool, of at least two twins.

    Example:
        The first twin would choose the second sample, which is worth 0 to the second twin:

        >>> import torch
        >>> chosen_mean(torch.tensor([[1.0, 4.0], [3.0, 0.0]]))
        0.5
    """
    return _chosen(squared.double().numpy())


def interval_of_chosen(squared: Tensor, *, seed: int = 0) -> Interval:
    """95 % bootstrap interval of `chosen_mean`, over the twins and over the pool.

    Twins are resampled within their half, so that choosing and judging stay independent.
    """
    array = squared.double().numpy()
    twins, pool = array.shape
    halves = [np.arange(0, twins, 2), np.arange(1, twins, 2)]

    def resampled(generator: np.random.Generator) -> float:
        rows = np.empty(twins, dtype=np.int64)
        for half in halves:
            rows[half] = generator.choice(half, len(half))
        return _chosen(array[rows][:, generator.integers(pool, size=pool)])

    return _percentiles(resampled, seed)


def interval_of_mean(values: Tensor, *, seed: int = 0) -> Interval:
    """95 % bootstrap interval of a mean.

    Example:
        >>> import torch
        >>> interval_of_mean(torch.ones(5))
        (1.0, 1.0)
    """

    array = values.double().numpy()

    def resampled(generator: np.random.Generator) -> float:
        return float(generator.choice(array, len(array)).mean())

    return _percentiles(resampled, seed)


def _chosen(squared: npt.NDArray[np.float64]) -> float:
    first, second = squared[0::2].mean(0), squared[1::2].mean(0)
    return float(first[second.argmax()] + second[first.argmax()]) / 2


def _percentiles(resampled: Callable[[np.random.Generator], float], seed: int) -> Interval:
    generator = np.random.default_rng(seed)
    found = [resampled(generator) for _ in range(RESAMPLES)]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
