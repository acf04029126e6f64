"""Rates as data: the tables made from them are the paper's, typed in here as printed."""

import math
from fractions import Fraction as Q

import numpy as np
import pytest

from trimol.theory import Constants, bounds, rates, regions
from trimol.theory._orders import Branch, Decay, Order, Power, Schedule
from trimol.theory._search import best

# Table 1 as printed: powers of (α, γ, ρ, T, n) by cell; (1 − α)^(T/2) is "gone". M is not in it.
START, NOISE, WEIGHTS = (-Q(1, 2), 0, 0, -Q(1, 2), 0), (Q(1, 2), 0, 0, 0, 0), (0, Q(1, 2), 0, 0, 0)
RHO, DRAWN, SAMPLING = (0, 0, Q(1, 2), 0, 0), (0, 0, 0, Q(1, 2), -Q(1, 2)), (0, 0, 0, 0, -Q(1, 2))
MOVED, ONE = (0, 1, 0, 1, 0), (0, 0, 0, 0, 0)
NEAR, FAR = (0, 1, -1, 0, 0), (1, -1, -2, 0, 0)
TABLE_1 = [
    ("NC", "static", [{START, NOISE}], [{DRAWN}], Q(1, 6), [{ONE}]),
    ("NC", "modo", [{START, NOISE, WEIGHTS}], [{DRAWN}], Q(1, 6), [{NEAR, FAR}]),
    ("SC", "static", [{"gone", NOISE}], [{SAMPLING}], Q(1, 2), [{ONE}]),
    (
        "SC",
        "modo",
        [{START, NOISE, WEIGHTS, RHO}, {"gone", NOISE, MOVED}],
        [{SAMPLING}],
        Q(1, 2),
        [{NEAR, FAR}],
    ),
    (
        "SC",
        "modo",
        [{START, NOISE, WEIGHTS, RHO}, {"gone", NOISE, MOVED}],
        [{DRAWN}],
        Q(1, 6),
        [{NEAR, FAR}],
    ),
]
# What the theorems have and the table leaves out.
OMITTED_OPTIMIZATION, OMITTED_WEIGHTS = {("NC", "modo"): RHO}, "gone"

# Table 2 as printed: batch, NC, Lipschitz λ*, bounded function, opt, CA, gen (powers of T and n).
GEN = (Q(1, 2), -Q(1, 2))
TABLE_2 = [
    ("smg", "t", False, True, False, Q(1, 8), None, None),
    ("crmogm", "1", True, False, True, Q(1, 4), None, None),
    ("moco", "1", True, False, False, Q(1, 20), Q(1, 5), None),
    ("moco", "1", True, False, True, Q(1, 4), None, None),
    ("smg", "t", True, False, False, Q(1, 8), Q(1, 2), GEN),
    ("moco", "1", True, False, False, Q(1, 16), Q(1, 4), GEN),
    ("modo", "1", True, False, False, Q(1, 4), None, GEN),
    ("modo", "1", True, False, False, Q(1, 8), Q(1, 4), GEN),
]


def cell(order):
    return [
        {
            "gone" if isinstance(term, Decay) else tuple(term[v] for v in STEPS)
            for term in branch.terms
        }
        for branch in order.branches
    ]


STEPS = ("alpha", "gamma", "rho", "T", "n")


@pytest.mark.parametrize("reading", ["printed", "derived"])
def test_table_1(reading):
    rows = rates.table1(reading=reading)
    assert len(rows) == len(TABLE_1)
    for row, (case, method, opt, gen, risk, weights) in zip(rows, TABLE_1, strict=True):
        assert (row.case, row.method, row.risk) == (case, method, risk)
        omitted = OMITTED_OPTIMIZATION.get((case, method))
        assert cell(row.optimization) == [own | ({omitted} if omitted else set()) for own in opt]
        assert cell(row.generalization) == gen
        decay = {OMITTED_WEIGHTS} if method == "modo" else set()
        assert cell(row.weight_distance) == [own | decay for own in weights]


def test_table_2_printed():
    for row, expected in zip(rates.table2(reading="printed"), TABLE_2, strict=True):
        gen = row.generalization
        found = None if gen is None else tuple(gen.branches[0].terms[0][v] for v in ("T", "n"))
        assert (
            row.method,
            row.batch,
            row.nonconvex,
            row.lipschitz_weights,
            row.bounded_function,
            row.optimization,
            row.conflict,
            found,
        ) == expected


def test_table_2_derived_differs_in_the_generalization_of_smg_alone():
    """Batches of O(t) draw O(T²) samples: the union bound gives T n^-½, not T^½ n^-½."""
    pairs = zip(rates.table2(reading="printed"), rates.table2(), strict=True)
    different = [(one, two) for one, two in pairs if one.generalization != two.generalization]
    ((one, two),) = different
    assert one.method == two.method == "smg"
    assert str(two.generalization) == "T n^-1/2"


def test_schedules_that_the_text_names():
    """The exponents that the paper's discussions give for the schedules they name."""
    half, quarter = Q(1, 2), Q(1, 4)
    nc, sc = rates.orders("modo", "NC"), rates.orders("modo", "SC")
    risk = Schedule(half, half, Q(2, 3))
    assert nc["R_pop"].exponent(risk) == Q(1, 6)
    assert nc["E_ca"].exponent(risk) == 0
    both = Schedule(half, quarter, Q(4, 5))
    assert (nc["R_pop"].exponent(both), nc["E_ca"].exponent(both)) == (Q(1, 10), Q(1, 10))
    convex = Schedule(half, Q(3, 2), Q(2))
    assert sc["R_pop"].exponent(convex) == half
    assert sc["E_ca"].exponent(convex) < 0
    direction = Schedule(Q(3, 4), quarter, Q(1), r=half)
    for reading in ("printed", "derived"):
        ca = rates.orders("modo", reading=reading)["E_ca"]
        assert ca.exponent(direction) == quarter
    moco = Schedule(Q(3, 4), math.inf, Q(1), b=half)
    assert rates.orders("moco")["E_ca"].exponent(moco) == quarter
    assert rates.orders("moco")["R_opt"].exponent(moco) == Q(1, 16)


def test_the_printed_balance_can_be_bettered():
    """α = T^-¾ instead of T^-½ costs no risk, and E_ca falls twice as fast."""
    orders = rates.orders("modo")
    printed = regions.PRINTED_BALANCE
    better = Schedule(Q(3, 4), printed.c, printed.t)
    assert orders["R_pop"].exponent(better) == orders["R_pop"].exponent(printed)
    assert orders["E_ca"].exponent(better) == 2 * orders["E_ca"].exponent(printed)


@pytest.mark.parametrize("case", ["NC", "SC"])
@pytest.mark.parametrize(
    ("a", "c", "t"),
    [(Q(1, 2), Q(1, 2), Q(2, 3)), (Q(3, 4), Q(1, 4), Q(4, 5)), (Q(1, 2), Q(3, 2), Q(2))],
)
def test_rates_are_the_slopes_of_the_bounds(case, a, c, t):
    """The exponent is how fast the bound falls with n, measured on the bound itself."""
    schedule = Schedule(a, c, t)
    orders = rates.orders("modo", case)

    def values(n):
        T = round(n ** float(t))
        problem = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=n, c_F=1.0, mu=1.0)
        steps = {"alpha": 0.5 * T ** -float(a), "gamma": 1e-3 * T ** -float(c), "T": T}
        convex = case == "SC"
        slow = convex and c >= 1
        gen = (
            bounds.generalization_sc(problem, **steps)
            if slow
            else bounds.generalization(problem, T=T)
        )
        opt = bounds.optimization_sc if convex else bounds.optimization
        return {
            "R_opt": float(opt(problem, **steps)),
            "R_gen": float(gen),
            "E_ca": float(bounds.conflict(problem, **steps)),
        }

    low, high = values(10**14), values(10**15)
    for name in low:
        expected = float(orders[name].exponent(schedule))
        if name == "R_gen" and expected < 0:
            expected = 0.0  # a probability stops at one
        slope = -math.log10(high[name] / low[name])
        assert slope == pytest.approx(expected, abs=0.02), name


def test_search_against_a_grid():
    """No schedule of a grid is better than the linear programs' for goals of random terms."""
    rng = np.random.default_rng(0)
    grid = [i / 4 for i in range(9)]
    for _ in range(5):
        orders = [Order((Branch(tuple(_random_power(rng) for _ in range(3))),)) for _ in range(2)]
        _, exponents = best(orders)
        tried = (
            min(order.exponent(Schedule(a, c, t)) for order in orders)
            for a in grid
            for c in grid
            for t in grid[1:]
        )
        assert max(tried) <= min(exponents) + 1e-9
        assert min(exponents) <= 1  # the sampling term of each


def _random_power(rng):
    sign = [Q(int(v), 2) for v in rng.integers(-2, 3, 3)]
    return Power.of(alpha=str(sign[0]), gamma=str(sign[1]), T=str(sign[2]), n=-1)


def test_unknown_method():
    with pytest.raises(ValueError, match=r"method and case must be one of .*found modo C"):
        rates.orders("modo", "C")
    assert rates.methods() == ("static", "modo", "smg", "moco")


def test_bad_schedules():
    with pytest.raises(ValueError, match="a must be at least 0, found -1"):
        Schedule(Q(-1), Q(0))
    with pytest.raises(ValueError, match="t must be a finite number above 0, found 0"):
        Schedule(Q(0), Q(0), Q(0))


def test_powers_of_zero():
    """ρ = 0 takes a term with ρ away, and makes one with 1/ρ infinite."""
    static = Schedule(Q(1, 2), math.inf)
    assert Power.of(rho="1/2").exponent(static) == math.inf
    assert Power.of(gamma=1, rho=-1, T=-1).exponent(Schedule(Q(1, 2), Q(1))) == -math.inf
    assert rates.orders("modo")["R_opt"].exponent(static) == Q(1, 4)
