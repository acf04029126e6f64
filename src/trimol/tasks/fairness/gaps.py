"""How differently a classifier treats two groups: as a loss, as counted, and with an interval.

Parity compares how often each group is told yes; opportunity compares that among those whose label
is yes; odds among those whose label is yes and among those whose label is no, and takes the larger.
"""

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.tasks.multitask import masked_mean

Fairness = Literal["parity", "opportunity", "odds"]
Relaxation = Literal["rates", "sums"]
# Among whom groups are compared: those with these labels.
_AMONG: dict[str, tuple[tuple[int, ...], ...]] = {
    "parity": ((0, 1),),
    "opportunity": ((1,),),
    "odds": ((0,), (1,)),
}


def relaxed_gap(
    logits: Tensor, label: Tensor, group: Tensor, fairness: Fairness, *, sharpness: float = 1.0
) -> Tensor:
    r"""The difference of the groups' mean chances of yes: a loss, whose least value is 0.

    .. math:: \Big|\, \operatorname*{mean}_{i \in A} \sigma(k z_i)
              - \operatorname*{mean}_{i \in B} \sigma(k z_i) \Big|

    with the log-odds z and k = ``sharpness``: the larger, the nearer to decisions at one half. 0,
    connected to the graph, where one of the groups is absent.

    Example:
        >>> z = torch.tensor([2.0, 2.0, 0.0], requires_grad=True)
        >>> gap = relaxed_gap(z, torch.tensor([1, 0, 1]), torch.tensor([1, 1, 0]), "parity")
        >>> round(gap.item(), 3)
        0.381
    """
    chances = (sharpness * logits).sigmoid()
    gaps = []
    for first, second in _compared(label, group, fairness):
        apart = (masked_mean(chances, first) - masked_mean(chances, second)).abs()
        gaps.append(apart * (first.any() & second.any()))
    return torch.stack(gaps).amax()


def summed_gap(logits: Tensor, label: Tensor, group: Tensor, fairness: Fairness) -> Tensor:
    r"""The published relaxation: a difference of sums over the groups, not of their means.

    .. math:: \frac1n \Big|\, \sum_{i \in A} \tanh \sigma(z_i)
              - \sum_{i \in B} \tanh \sigma(z_i) \Big|

    It is least where both groups have as many yes, whatever their sizes: a classifier that treats
    groups of different sizes alike does not minimise it.

    Reference:
        K. Padh, D. Antognini, E. Lejal-Glaude, B. Faltings, C. Musat, *Addressing Fairness in
        Classification with a Model-Agnostic Multi-Objective Algorithm*, UAI 2021, for tanh; with
        sums in the code of COSMOS and LibMOON.
    """
    chances = logits.sigmoid().tanh()
    gaps = []
    for first, second in _compared(label, group, fairness):
        apart = torch.where(first, chances, 0).sum() - torch.where(second, chances, 0).sum()
        gaps.append(apart.abs() / len(logits))
    return torch.stack(gaps).amax()


def telling(label: Tensor, group: Tensor, fairness: Fairness) -> Tensor:
    """How many samples of a batch tell of the gap: none where a group is absent."""
    pairs = _compared(label, group, fairness)
    counts = [(first | second).sum() * (first.any() & second.any()) for first, second in pairs]
    return torch.stack(counts).sum()


def _compared(label: Tensor, group: Tensor, fairness: Fairness) -> Iterator[tuple[Tensor, Tensor]]:
    """The members of both groups, for each comparison."""
    for labels in _AMONG[fairness]:
        among = torch.stack([label == wanted for wanted in labels]).any(0)
        yield among & (group == 1), among & (group != 1)


def decisions(logits: Tensor, label: Tensor, group: Tensor) -> Tensor:
    """What adds up over batches: for each group and label, how many were told yes, and of how many.

    >>> decisions(torch.tensor([1.0, -1.0]), torch.tensor([1, 1]), torch.tensor([0, 1]))[:, 1]
    tensor([[1., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    table = torch.zeros(2, 2, 2, dtype=torch.float64, device=logits.device)
    told = torch.stack([logits > 0, torch.ones_like(logits, dtype=torch.bool)], 1).double()
    return table.index_put_((group.long(), label.long()), told, accumulate=True)


def hard_gap(table: Tensor, fairness: Fairness) -> float:
    """The difference of the groups' rates of yes, from counted decisions."""
    return max(abs(_rate(a) - _rate(b)) for a, b in _counted(table, fairness))


def gap_interval(table: Tensor, fairness: Fairness, level: float = 0.95) -> tuple[float, float]:
    """Where the gap of all people is, whom these samples stand for: its ends, at this level.

    Newcombe's interval for a difference of two rates (*Statistics in Medicine* 17, 1998, method
    10), taken without its sign. Of two gaps, each is at half of the error.

    >>> table = torch.tensor([[[0, 0], [50, 100]], [[0, 0], [40, 100]]])
    >>> [round(end, 3) for end in gap_interval(table, "opportunity")]
    [0.0, 0.232]
    """
    pairs = _counted(table, fairness)
    z = NormalDist().inv_cdf(1 - (1 - level) / (2 * len(pairs)))
    ends = [_without_sign(*_newcombe(a, b, z)) for a, b in pairs]
    return max(low for low, _ in ends), max(high for _, high in ends)


def _counted(table: Tensor, fairness: Fairness) -> list[tuple[Tensor, Tensor]]:
    """Of each comparison the two groups' numbers of yes and of all."""
    both = [table[:, list(labels)].double().sum(1) for labels in _AMONG[fairness]]
    if not all(of.all() for of in (counts[:, 1] for counts in both)):
        raise BadValue("data must have rows of both groups to measure the gap, found one")
    return [(counts[0], counts[1]) for counts in both]


def _rate(counts: Tensor) -> float:
    return float(counts[0] / counts[1])


def _wilson(counts: Tensor, z: float) -> tuple[float, float]:
    """Wilson's interval for a rate."""
    n, p = float(counts[1]), _rate(counts)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def _newcombe(a: Tensor, b: Tensor, z: float) -> tuple[float, float]:
    (low_a, high_a), (low_b, high_b) = _wilson(a, z), _wilson(b, z)
    p, q = _rate(a), _rate(b)
    return p - q - math.hypot(p - low_a, high_b - q), p - q + math.hypot(high_a - p, q - low_b)


def _without_sign(low: float, high: float) -> tuple[float, float]:
    return (0.0 if low < 0 < high else min(abs(low), abs(high))), max(abs(low), abs(high))
