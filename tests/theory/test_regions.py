from fractions import Fraction as Q

import pytest

from trimol.theory import regions
from trimol.theory._orders import Schedule


@pytest.mark.parametrize(
    ("a", "c", "t", "expected"),
    [
        (Q(1), Q(1, 3), Q(3, 4), "I"),
        (Q(1, 2), Q(0), Q(1, 2), "I"),
        (Q(1, 2), Q(1, 4), Q(2), "II"),
        (Q(3, 4), Q(1, 4), Q(3, 2), "II"),
        (Q(1, 2), Q(3, 2), Q(2), "III"),
        (Q(1, 2), Q(1, 4), Q(4, 5), "IV"),
        (Q(3, 4), Q(1, 4), Q(4, 5), "IV"),
        (Q(1, 2), Q(1, 2), Q(2, 3), None),  # γ = Θ(α)
        (Q(1, 2), Q(1, 4), Q(1), None),  # T = Θ(n)
        (Q(1, 2), Q(1), Q(2), None),  # γ = Θ(1/T)
        (Q(1, 2), Q(3, 2), Q(1, 2), None),
    ],
)
def test_known_points(a, c, t, expected):
    assert regions.region(Schedule(a, c, t)) == expected


def test_the_figures_arrows():
    """At a point of each region: which of the three bounds vanish."""
    arrows = {
        "I": Schedule(Q(1), Q(1, 3), Q(3, 4)),
        "II": Schedule(Q(3, 4), Q(1, 4), Q(3, 2)),
        "III": Schedule(Q(1, 2), Q(3, 2), Q(2)),
        "IV": regions.PRINTED_BALANCE,
    }
    expected = {
        "I": (False, True, True),
        "II": (True, False, True),
        "III": (True, True, False),
        "IV": (True, True, True),
    }
    for name, schedule in arrows.items():
        cell = regions.cell(schedule)
        assert cell.region == name
        assert tuple(cell.exponents[e] > 0 for e in regions.ERRORS) == expected[name]


def test_the_grid_covers_the_diagram():
    c, t = [Q(i, 8) for i in range(17)], [Q(i, 8) for i in range(1, 17)]
    cells = regions.grid(c, t)
    assert len(cells) == len(c) * len(t)
    assert {cell.region for cell in cells} == {"I", "II", "III", "IV", None}
    assert [cell.schedule.c for cell in cells[: len(c)]] == c
    for cell in cells:
        if cell.region == "IV":
            assert all(exponent > 0 for exponent in cell.exponents.values())
        if cell.region == "III":
            assert cell.exponents["R_gen"] > 0 >= cell.exponents["E_ca"]
