"""Gaps: against loops over rows, and intervals against what they promise."""

import numpy as np
import pytest
import torch
from torch import Tensor

from trimol.tasks.fairness import gaps

KINDS = ("parity", "opportunity", "odds")


def batch(rows: int = 60) -> tuple[Tensor, Tensor, Tensor]:
    logits = torch.randn(rows, dtype=torch.float64, requires_grad=True)
    return logits, torch.randint(2, (rows,)), torch.randint(2, (rows,))


def slow(chances: list[float], label: Tensor, group: Tensor, kind: str) -> float:
    """The gap by hand."""

    def rate(member: int, labels: tuple[int, ...]) -> float:
        told = [
            c
            for c, y, g in zip(chances, label.tolist(), group.tolist(), strict=True)
            if y in labels and g == member
        ]
        return sum(told) / len(told)

    among = {"parity": [(0, 1)], "opportunity": [(1,)], "odds": [(0,), (1,)]}[kind]
    return max(abs(rate(0, labels) - rate(1, labels)) for labels in among)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharpness", [1.0, 5.0])
def test_the_relaxed_gap_is_that_of_mean_chances(kind: gaps.Fairness, sharpness: float) -> None:
    logits, label, group = batch()
    found = gaps.relaxed_gap(logits, label, group, kind, sharpness=sharpness)
    chances = (sharpness * logits).sigmoid().tolist()
    assert found.item() == pytest.approx(slow(chances, label, group, kind))
    torch.autograd.gradcheck(
        lambda z: gaps.relaxed_gap(z, label, group, kind, sharpness=sharpness), logits
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_counted_gap_is_that_of_decisions_in_whatever_batches(kind: gaps.Fairness) -> None:
    logits, label, group = batch(200)
    table = sum(
        gaps.decisions(*part)
        for part in zip(logits.detach().split(30), label.split(30), group.split(30), strict=True)
    )
    decided = (logits > 0).double().tolist()
    assert gaps.hard_gap(table, kind) == pytest.approx(slow(decided, label, group, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_chances_that_are_sharp_are_decisions(kind: gaps.Fairness) -> None:
    logits, label, group = batch(200)
    table = gaps.decisions(logits.detach(), label, group)
    sharp = gaps.relaxed_gap(logits, label, group, kind, sharpness=1e6)
    assert sharp.item() == pytest.approx(gaps.hard_gap(table, kind), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_is_absent_makes_no_gap(kind: gaps.Fairness) -> None:
    logits, label, _ = batch()
    alone = torch.ones_like(label)
    gap = gaps.relaxed_gap(logits, label, alone, kind)
    (slope,) = torch.autograd.grad(gap, logits)
    assert gap == 0
    assert not slope.any()
    assert gaps.telling(label, alone, kind) == 0


def test_odds_are_told_by_the_label_of_which_both_groups_are_there() -> None:
    logits, label = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([1, 1, 0])
    group = torch.tensor([0, 1, 1])  # of label 0 there is one group
    gap = gaps.relaxed_gap(logits, label, group, "odds")
    assert gap.item() == pytest.approx(torch.tensor(3.0).sigmoid().item() - 0.5)
    assert gaps.telling(label, group, "odds") == 2


def test_the_published_gap_is_of_sums() -> None:
    logits, label, group = batch()
    chances = logits.sigmoid().tanh()
    by_hand = sum(
        c if g else -c for c, y, g in zip(chances, label, group, strict=True) if y == 1
    ) / len(label)
    found = gaps.summed_gap(logits, label, group, "opportunity")
    assert found.item() == pytest.approx(abs(by_hand.item()))


def test_equal_treatment_of_unequal_groups_does_not_minimise_the_published_gap() -> None:
    label, group = torch.ones(100), (torch.arange(100) < 20).long()
    alike, nobody = torch.full((100,), 2.0), torch.full((100,), -20.0)
    assert gaps.relaxed_gap(alike, label, group, "opportunity") == pytest.approx(0, abs=1e-6)
    assert gaps.summed_gap(alike, label, group, "opportunity") > 0.4
    assert gaps.summed_gap(nobody, label, group, "opportunity") < 1e-6


def test_newcombes_published_example() -> None:
    """56/70 against 48/80: 0.2 with the interval 0.0524 to 0.3339 (Newcombe 1998, table II)."""
    table = torch.zeros(2, 2, 2)
    table[0, 1], table[1, 1] = torch.tensor([56, 70]), torch.tensor([48, 80])
    assert gaps.hard_gap(table, "opportunity") == pytest.approx(0.2)
    assert gaps.gap_interval(table, "opportunity") == pytest.approx((0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_holds_the_true_gap_as_often_as_it_says(kind: gaps.Fairness) -> None:
    random = np.random.default_rng(0)
    rates = np.array([[0.1, 0.6], [0.2, 0.5]])  # by group and label
    sizes = np.array([[300, 120], [150, 60]])
    mean = (rates * sizes).sum(1) / sizes.sum(1)
    truth = {"parity": abs(mean[0] - mean[1]), "opportunity": 0.1, "odds": 0.1}[kind]
    held = 0
    for _ in range(400):
        told = random.binomial(sizes, rates)
        table = torch.from_numpy(np.stack([told, sizes], -1))
        low, high = gaps.gap_interval(table, kind)
        held += low <= truth <= high
    assert held >= 0.93 * 400


def test_groups_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of both groups"):
        gaps.hard_gap(torch.ones(2, 2, 2) * torch.tensor([[[1.0]], [[0.0]]]), "parity")
