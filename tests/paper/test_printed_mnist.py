"""The paper's printed cells, and when a number of ours agrees with one."""

import math

import pytest

from trimol import methods
from trimol.paper import _printed_mnist as table3_paper
from trimol.paper._printed_mnist import Printed, printed, verdict, within_spread


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("306.9 ± 3.9", (0.3069, 0.0039, 0.00005)),
        ("1.9 ± 0.01", (0.0019, 0.00001, 0.00005)),
        ("2 ± 1", (0.002, 0.001, 0.0005)),
    ],
)
def test_cells_keep_their_rounding(cell: str, expected: tuple[float, ...]) -> None:
    found = printed(cell, unit=1e-3, runs=10)
    assert (found.mean, found.std, found.rounding) == pytest.approx(expected, rel=1e-12)


def values(mean: float, std: float, n: int) -> list[float]:
    """n numbers with exactly this mean and standard deviation."""
    steps = [i - (n - 1) / 2 for i in range(n)]
    scale = std / math.sqrt(sum(s * s for s in steps) / (n - 1))
    return [mean + scale * s for s in steps]


@pytest.mark.parametrize(
    ("mean", "expected"),
    [(2.0, "agrees"), (2.249, "agrees"), (1.751, "agrees"), (2.251, "differs"), (1.749, "differs")],
)
def test_verdict_at_two_standard_errors_and_rounding(mean: float, expected: str) -> None:
    # Our standard error is 0.3 / √9 = 0.1, the paper's 0: two of ours, and 0.05 of rounding.
    cell = Printed(mean=2.0, std=0.0, rounding=0.05, runs=10)
    assert verdict(values(mean, 0.3, 9), cell) == expected


def test_both_standard_errors_count() -> None:
    ours = values(1.0, 0.3, 9)  # standard error 0.1
    assert verdict(ours, Printed(1.28, 0.0, 0.0, 16)) == "differs"
    assert verdict(ours, Printed(1.28, 0.4, 0.0, 16)) == "agrees"  # 2 √(0.1² + 0.1²) = 0.283
    assert verdict(ours, Printed(1.29, 0.4, 0.0, 16)) == "differs"


def test_within_two_standard_deviations() -> None:
    cell = Printed(mean=2.0, std=0.1, rounding=0.05, runs=10)
    assert within_spread(2.249, cell)
    assert not within_spread(2.251, cell)
    assert not within_spread(1.749, cell)


def test_table_is_whole() -> None:
    assert set(table3_paper.methods()) <= set(methods.names())
    for method in table3_paper.methods():
        found = table3_paper.cells(method)
        assert list(found) == ["cross-entropy", "MSE", "Huber", "R_pop", "R_opt", "R_gen"]
        # R_gen = R_pop − R_opt in every run: the means differ by no more than its own.
        assert abs(found["R_pop"].mean - found["R_opt"].mean) <= found["R_gen"].mean + 1.5e-4
