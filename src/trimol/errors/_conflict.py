r"""Conflict avoidance: how far weights λ are from the conflict-avoiding ones λ*_ρ(x).

.. math::
    \lambda^*_\rho(x) = \arg\min_{\lambda \in \Delta^M}
        \|\nabla F_S(x)\, \lambda\|^2 + \rho \|\lambda\|^2

is what MGDA on the whole training data would use. Two squared distances from it are of interest:
between directions, E_ca, and between weights, E_caw. `conflict_direction` and `weight_distance` are
for one run. The paper takes the expectation over runs *inside* the norm:
`conflict_over_runs` does, and gives the mean of the squares beside it, which is what the paper's
experiments average.

Reference:
    L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
    Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 2.2.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.errors._pareto import combined


@dataclass(frozen=True)
class ConflictOverRuns:
    r"""E_ca (or E_caw) of an algorithm, from n runs of it that end with vectors v_1 … v_n.

    Attributes:
        definition: ‖(1/n) Σ v_i‖², the definition ‖E_A[v]‖² with the mean for the expectation. On
            average it is too large by Var(v)/n, the noise that is left in the mean.
        mean_square: (1/n) Σ ‖v_i‖², the mean of E_ca over runs: an upper bound of the definition,
            and what the paper's experiments report.
        unbiased: Σ_{i≠j} ⟨v_i, v_j⟩ / (n(n − 1)), which is ‖E_A[v]‖² on average for independent
            runs. It can be negative where that is near zero. None for one run.
        runs: n.
    """

    definition: float
    mean_square: float
    unbiased: float | None
    runs: int


def conflict_over_runs(directions: Iterable[Tensor]) -> ConflictOverRuns:
    r"""E_ca over runs that differ in their randomness only, by each of its readings.

    .. math:: E_{ca} = \big\| E_A[\nabla F_S(x) (\lambda - \lambda^*_\rho(x))] \big\|^2, \qquad
              E_{caw} = \big\| E_A[\lambda - \lambda^*_\rho(x)] \big\|^2

    Args:
        directions: One vector a run, from independent seeds: ``errors.direction`` for E_ca, or the
            differences λ − λ*_ρ for E_caw. One is held at a time, so that a generator which loads
            them needs little memory.

    Example:
        Two runs that disagree: neither avoids conflict, their mean does.

        >>> import torch
        >>> conflict_over_runs([torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])])
        ConflictOverRuns(definition=0.0, mean_square=1.0, unbiased=-1.0, runs=2)
    """
    total: Tensor | None = None
    squares, runs = 0.0, 0
    for direction in directions:
        vector = _vector(direction, runs)
        if total is not None and len(total) != len(vector):
            raise BadValue(
                f"directions must be of one length, found {len(total)} and {len(vector)}"
            )
        total = vector.clone() if total is None else total + vector
        squares += float(vector.square().sum())
        runs += 1
    if total is None:
        raise BadValue("directions must hold at least one vector, found none")
    summed = torch.tensor(squares, dtype=torch.float64)
    definition, mean_square, unbiased = _readings(total, summed, runs)
    return ConflictOverRuns(
        float(definition), float(mean_square), None if unbiased is None else float(unbiased), runs
    )


def conflict_of_sets(directions: Tensor) -> tuple[Tensor, Tensor]:
    """The same for many training sets at once: E_ca without bias, and the mean of squares.

    Args:
        directions: The vectors of every run, ... × runs × d; the leading dimensions are kept.

    Example:
        >>> import torch
        >>> conflict_of_sets(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        (tensor(0.), tensor(2.))
    """
    runs = directions.shape[-2]
    squares = directions.square().sum((-2, -1))
    _, mean_square, unbiased = _readings(directions.sum(-2), squares, runs)
    if unbiased is None:
        raise BadValue(f"directions must be of at least 2 runs, found {runs}")
    return unbiased, mean_square


def _readings(total: Tensor, squares: Tensor, runs: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The three readings of `ConflictOverRuns`, from Σ v_i (... × d) and Σ ‖v_i‖² (...)."""
    square = total.square().sum(-1)
    # ‖Σ v_i‖² has the pairs i = j, whose mean is Var(v) too large: without them there is no bias.
    unbiased = (square - squares) / (runs * (runs - 1)) if runs > 1 else None
    return square / runs**2, squares / runs, unbiased


def _vector(direction: Tensor, place: int) -> Tensor:
    if not isinstance(direction, Tensor) or direction.dim() != 1:
        given = tuple(direction.shape) if isinstance(direction, Tensor) else repr(direction)
        raise BadValue(f"directions must be vectors, found {given} at place {place}")
    vector = direction.detach().to("cpu", torch.float64)
    if not vector.isfinite().all():
        raise BadValue(f"directions must be finite, found NaN or infinity at place {place}")
    return vector


def conflict_direction(jacobian: Tensor, weights: Tensor, avoiding: Tensor) -> Tensor:
    r"""∇F_S (λ − λ*_ρ), a vector of d entries: E_ca is its squared norm.

    One vector for every λ*, also where λ* is not unique.

    Args:
        jacobian: The M × d gradients, one row per objective, in float64.
        weights: λ.
        avoiding: λ*_ρ.

    Example:
        >>> import torch
        >>> jacobian = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
        >>> conflict_direction(jacobian, torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
        tensor([ 0.5000, -0.5000], dtype=torch.float64)
    """
    return combined(jacobian, weights.double() - avoiding.double())


def cosines(gramian: Tensor) -> Tensor:
    """The cosines between gradients, M × M, from their Gramian; NaN for those of a zero gradient.

    Example:
        >>> import torch
        >>> cosines(torch.tensor([[4.0, -1.0], [-1.0, 1.0]]))
        tensor([[ 1.0000, -0.5000],
                [-0.5000,  1.0000]])
    """
    norms = gramian.diagonal().clamp_min(0).sqrt()
    # Dividing twice, as the product of two tiny norms may be zero.
    cosine = (gramian / norms / norms[:, None]).clamp(-1, 1)
    return cosine.diagonal_scatter(norms / norms)


def conflicting(gramian: Tensor) -> float:
    """The fraction of pairs of gradients with a negative cosine: 0 where there is no pair.

    Example:
        >>> import torch
        >>> conflicting(torch.tensor([[4.0, -1.0, 0.0], [-1.0, 1.0, 2.0], [0.0, 2.0, 9.0]]))
        0.3333333333333333
    """
    first, second = torch.triu_indices(len(gramian), len(gramian), offset=1)
    pairs = gramian[first, second]
    return float((pairs < 0).double().mean()) if len(pairs) else 0.0


def weight_distance(weights: Tensor, avoiding: Tensor) -> float:
    r"""E_caw = ‖λ − λ*_ρ‖². For ρ > 0 only: with ρ = 0 there may be several λ*.

    Example:
        >>> import torch
        >>> weight_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
        0.5
    """
    return float((weights.double() - avoiding.double()).square().sum())
