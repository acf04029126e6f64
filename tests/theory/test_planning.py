import math
from fractions import Fraction as Q
from typing import get_args

import pytest

from trimol.theory import Constants, bounds, plan, rates
from trimol.theory._orders import Schedule
from trimol.theory._planning import Objective, goals

OBJECTIVES = get_args(Objective)
# Exponents of the step sizes. With convexity there are none between ¾ and 1, where (1 − α)^T takes
# an n that nobody has to be gone, and is not planned with. Floats, for speed: up to rounding.
GRID = [i / 4 for i in range(9)]
ROUNDING = 1e-9
C = Constants(ell_f=3.0, ell_f1=2.0, M=3, n=10_000, c_F=2.0, mu=0.5)


def merit(objective, orders, schedule):
    first = goals(objective, orders)[0]
    bounded = objective != "conflict" or orders["R_opt"].exponent(schedule) >= 0
    return min(order.exponent(schedule) for order in first) if bounded else -math.inf


@pytest.mark.parametrize("convex", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_schedule_of_a_grid_is_better(objective, convex):
    orders = rates.orders("modo", "SC" if convex else "NC")
    made = plan(10**6, objective, strongly_convex=convex)
    reached = merit(objective, orders, made.schedule)
    regularizers = [0.0, 1 / 6, 1 / 3] if objective == "weights" else [math.inf]
    steps = [2.0] if objective == "optimization" else [0.2, 0.4, 0.6, 2 / 3, 0.75, 0.8, 1, 4 / 3, 2]
    tried = (
        merit(objective, orders, Schedule(a, c, t, r))
        for a in [*GRID, 5 / 8 if convex else 5 / 6]
        for c in [*GRID, 1 / 3]
        for t in steps
        for r in regularizers
    )
    assert max(tried) <= reached + ROUNDING


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("T", [50, 1000, 100_000, 10**7])
def test_with_given_steps_no_step_sizes_are_better(objective, T):
    orders = rates.orders("modo", "NC")
    made = plan(10_000, objective, T=T)
    assert made.T == T
    reached = merit(objective, orders, made.schedule)
    regularizers = [0.0, 1 / 6, 1 / 3] if objective == "weights" else [math.inf]
    tried = (
        merit(objective, orders, Schedule(a, c, float(made.schedule.t), r))
        for a in GRID
        for c in GRID
        for r in regularizers
    )
    assert max(tried) <= reached + 1e-2  # the exponent of T in n is rounded to a fraction


def test_the_papers_choices():
    risk = plan(10_000, "risk")
    assert risk.schedule == Schedule(Q(1, 2), Q(1, 2), Q(2, 3))
    assert risk.exponents["R_pop"] == Q(1, 6)
    convex = plan(10_000, "risk", strongly_convex=True)
    assert convex.exponents["R_pop"] == Q(1, 2)
    assert convex.region == "III"
    assert convex.schedule.t < 2  # fewer steps than the paper's T = n², for the same rate
    balance = plan(10_000)
    assert balance.region == "IV"
    assert (balance.schedule.c, balance.schedule.t) == (Q(1, 4), Q(4, 5))
    assert balance.exponents["R_pop"] == Q(1, 10)
    assert plan(10_000, "conflict").region == "I"


def test_what_is_given_up():
    assert any("direction is not said to vanish" in line for line in plan(100, "risk").given_up)
    assert any("optimization error is not" in line for line in plan(100, "conflict").given_up)
    grows = plan(100, "optimization").given_up
    assert any("generalization error has a bound that grows" in line for line in grows)
    assert all("could vanish" in line for line in plan(100, "balance").given_up)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_more_samples_take_more_steps_of_smaller_size(objective):
    plans = [plan(n, objective) for n in (100, 10_000, 1_000_000)]
    assert [p.T for p in plans] == sorted(p.T for p in plans)
    assert [p.alpha for p in plans] == sorted((p.alpha for p in plans), reverse=True)
    assert [p.gamma for p in plans] == sorted((p.gamma for p in plans), reverse=True)


def test_conflict_avoidance_takes_faster_weights():
    """γ/α, how well weights can follow, grows from risk to balance to conflict."""
    ratios = [
        (p := plan(10_000, objective)).gamma / p.alpha
        for objective in ("risk", "balance", "conflict")
    ]
    assert ratios == sorted(ratios)
    assert len(set(ratios)) == 3


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("mu", [None, 0.5])
def test_with_constants_the_limits_are_met_and_bounds_are_numbers(objective, mu):
    c = Constants(ell_f=3.0, ell_f1=2.0, M=3, n=10_000, c_F=2.0, mu=mu)
    made = plan(objective=objective, constants=c)
    assert not made.refused
    assert made.strongly_convex == (mu is not None)
    assert made.alpha <= bounds.largest_alpha(c)
    assert set(made.bounds) >= {"R_opt", "R_gen", "R_pop", "E_ca"}
    assert ("E_caw" in made.bounds) == (objective == "weights")
    total = float(made.bounds["R_opt"]) + float(made.bounds["R_gen"])
    assert float(made.bounds["R_pop"]) == pytest.approx(total)
    if mu and objective == "risk":
        assert made.gamma <= bounds.largest_gamma(c, made.T)
        assert any(limit.what == "gamma * T" for limit in made.bounds["R_gen"].limits)


def test_convexity_that_is_not_relied_on():
    made = plan(objective="risk", constants=C, strongly_convex=False)
    assert made.schedule == plan(10_000, "risk").schedule
    assert not any(limit.what == "gamma * T" for limit in made.bounds["R_gen"].limits)


def test_a_plan_reads_well():
    text = str(plan(objective="balance", constants=C, T=5000))
    assert text.startswith(
        "balance: risk and conflict vanish alike (MoDo, strongly convex, n = 10000)"
    )
    assert "T = 5000" in text
    assert "which says nothing: it is at most 3 anyway" in text
    assert "region IV" in text


def test_without_a_gap_there_is_no_number_for_optimization():
    c = Constants(ell_f=3.0, ell_f1=2.0, M=3, n=10_000)
    made = plan(constants=c)
    assert "c_F" in made.refused["R_opt"]
    assert "R_pop" not in made.bounds
    assert "no number: constants must have c_F" in str(made)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "n must be given where constants are not"),
        ({"n": 1}, "n must be at least 2"),
        ({"n": 10, "constants": C}, "n must be that of constants, 10000, found 10"),
        ({"n": 10, "objective": "speed"}, "objective must be one of risk, .*found 'speed'"),
        ({"n": 10, "T": 0}, "T must be a whole number of at least 1, found 0"),
    ],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(ValueError, match=said):
        plan(**arguments)


def test_convexity_cannot_be_claimed_against_the_constants():
    c = Constants(ell_f=3.0, ell_f1=2.0, M=3, n=100)
    with pytest.raises(ValueError, match="strongly_convex must be False where constants has no mu"):
        plan(constants=c, strongly_convex=True)
