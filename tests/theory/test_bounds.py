"""The theorems as functions: against the printed formulas, by units, and at their limits."""

import inspect
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.theory import Constants, bounds

C = Constants(ell_f=1.7, ell_f1=2.3, M=3, n=5000, c_F=4.0, mu=0.6)
STEPS = {"alpha": 0.05, "gamma": 2e-8, "T": 700}

sizes = st.floats(0.05, 20.0)


@st.composite
def problems(draw):
    ell_f1 = draw(sizes)
    return Constants(
        ell_f=draw(sizes),
        ell_f1=ell_f1,
        M=draw(st.integers(1, 40)),
        n=draw(st.integers(10, 10**7)),
        c_F=draw(st.floats(0.0, 100.0)),
        mu=ell_f1 * draw(st.floats(0.01, 1.0)),
    )


@st.composite
def settings_of(draw, constants):
    """Step sizes within every limit."""
    T = draw(st.integers(1, 10**6))
    gamma = bounds.largest_gamma(constants, T) * draw(st.floats(0.01, 1.0))
    alpha = bounds.largest_alpha(constants) * draw(st.floats(0.01, 1.0))
    return {"alpha": alpha, "gamma": gamma, "T": T}


def every(constants, steps, rho=0.0, reading="derived"):
    """All bounds that take these arguments, by name."""
    read = {"reading": reading}
    found = {
        "optimization": bounds.optimization(constants, **steps, rho=rho),
        "optimization_last": bounds.optimization_last(constants, **steps, rho=rho, **read),
        "optimization_sc": bounds.optimization_sc(constants, **steps, rho=rho, **read),
        "conflict": bounds.conflict(constants, **steps, rho=rho, **read),
        "stability": bounds.stability(constants, T=steps["T"], **read),
        "argument_stability": bounds.argument_stability(constants, **steps, **read),
        "stability_sc": bounds.stability_sc(constants, **steps, **read),
        "generalization": bounds.generalization(constants, T=steps["T"], **read),
        "generalization_sc": bounds.generalization_sc(constants, **steps, **read),
        "population": bounds.population(constants, **steps, rho=rho, **read),
        "population_sc": bounds.population_sc(constants, **steps, rho=rho, **read),
    }
    if rho:
        found["conflict_weight"] = bounds.conflict_weight(constants, **steps, rho=rho)
    return found


def test_printed_formulas():
    """As the paper prints them at the ends of its proofs, written out here a second time."""
    a, g, T = STEPS["alpha"], STEPS["gamma"], STEPS["T"]
    rho, M, n, lf, l1, mu, cF = 0.02, 3, 5000, 1.7, 2.3, 0.6, 4.0
    root = math.sqrt(M) * lf**2
    printed = every(C, STEPS, rho, "printed")
    argument = 48 / (mu * n) * lf**2
    argument *= a + (12 + 4 * M * lf**2) / (mu * n) + 10 * M * lf**4 * g / mu
    expected = {
        "optimization": math.sqrt(
            cF / (a * T) + rho + 0.5 * g * (root + rho) * (3 * root + rho) + 0.5 * a * l1 * lf**2
        ),
        "optimization_last": math.sqrt(
            2
            * l1
            * (
                (1 - a * mu) ** (T - 1) * cF
                + 0.5 * a / mu * l1 * lf**2
                + 0.5 / mu * M * (g * T * lf) ** 2
            )
        ),
        "conflict": 8 / (g * T)
        + 12 * math.sqrt(M * l1 * lf**2 * a / g)
        + 2 * rho / g
        + 4 * rho
        + 2 * g * (1 + M * g) * (root + rho) ** 2,
        "conflict_weight": 4 * (1 - rho * g) ** T
        + g * (root + rho) ** 2 / rho
        + 8 * a * M * l1 * lf**2 / (rho**2 * g),
        "stability": 4 * M * lf**2 * T / n,
        "argument_stability": argument,
        "stability_sc": M * l1**2 * argument,
    }
    for name, value in expected.items():
        assert float(printed[name]) == pytest.approx(value, rel=1e-12), name
    lower = bounds.stability_lower_sc(n=1000, gamma=1e-6, T=100, ell_f=20.0, reading="printed")
    assert float(lower) == pytest.approx(1e-6 * 100 / (2 * 1000**2) + 1 / (16 * 1000))


def test_generalization_is_stability_and_sampling():
    c = replace(C, G=2.0, variance=0.5)
    bound = bounds.generalization(c, T=10, samples=2)
    assert float(bound) == pytest.approx(4 * math.sqrt(4 * 4 * 20 / 5000) + math.sqrt(0.5 / 5000))
    slow = bounds.generalization_sc(c, **STEPS)
    stable = bounds.stability_sc(c, **STEPS)
    assert float(slow) == pytest.approx(4 * math.sqrt(stable.value) + math.sqrt(0.5 / 5000))


def test_population_is_the_sum():
    whole = bounds.population(C, **STEPS, rho=0.1)
    parts = bounds.optimization(C, **STEPS, rho=0.1), bounds.generalization(C, T=STEPS["T"])
    assert float(whole) == pytest.approx(sum(map(float, parts)))
    assert set(whole.assumptions) == {a for part in parts for a in part.assumptions}


def test_strongly_convex_optimization_is_the_smaller_bound():
    slow = {"alpha": 0.001, "gamma": 1e-12, "T": 10_000}
    fast = {"alpha": 0.01, "gamma": 1e-2, "T": 10_000}
    for steps, of in ((slow, "E[R_opt(x_T)]"), (fast, "E[min_t R_opt(x_t)]")):
        both = [bounds.optimization(C, **steps), bounds.optimization_last(C, **steps)]
        found = bounds.optimization_sc(C, **steps)
        assert float(found) == min(map(float, both))
        assert found.of == of


@given(st.data(), problems(), st.floats(0.01, 100.0), st.one_of(st.just(0.0), st.floats(1e-3, 5.0)))
@settings(deadline=None, max_examples=60)
def test_units(data, c, s, rho):
    """Multiply every loss by s, and the steps so that nothing changes: bounds scale as errors do.

    A constant lost in a proof shows here: the paper's printed E_ca and argument stability fail.
    """
    steps = data.draw(settings_of(c))
    scaled = Constants(
        ell_f=s * c.ell_f, ell_f1=s * c.ell_f1, M=c.M, n=c.n, c_F=s * c.c_F, mu=s * c.mu
    )
    same = {
        "alpha": steps["alpha"] / s,
        "gamma": steps["gamma"] / s**2,
        "T": steps["T"],
    }
    powers = {"conflict": 2, "stability": 2, "stability_sc": 2, "argument_stability": 0}
    powers["conflict_weight"] = 0
    before, after = every(c, steps, rho), every(scaled, same, s**2 * rho)
    assert before.keys() == after.keys()
    for name, bound in before.items():
        expected = s ** powers.get(name, 1) * float(bound)
        assert float(after[name]) == pytest.approx(expected, rel=1e-9), name


def test_printed_constants_that_fail_the_units():
    s, steps = 10.0, {"alpha": 1e-3, "gamma": 1e-3, "T": 10}
    small = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=1000, c_F=1.0)
    large = replace(small, ell_f=s, ell_f1=s, c_F=s)
    same = {"alpha": 1e-3 / s, "gamma": 1e-3 / s**2, "T": 10}
    one = bounds.conflict(small, **steps, rho=0.1, reading="printed")
    other = bounds.conflict(large, **same, rho=0.1 * s**2, reading="printed")
    assert other.terms["regularization"] > 2 * s**2 * one.terms["regularization"]
    assert other.terms["noise of the weights"] < s**2 * one.terms["noise of the weights"]


@given(st.data(), problems(), st.sampled_from(["ell_f", "ell_f1", "c_F", "M"]))
@settings(deadline=None, max_examples=60)
def test_bounds_are_finite_positive_and_grow_with_the_constants(data, c, name):
    factor = data.draw(st.integers(2, 5))
    worse = replace(c, **{name: getattr(c, name) * factor})
    steps = data.draw(settings_of(worse))
    steps["gamma"] = min(steps["gamma"], bounds.largest_gamma(c, steps["T"]))
    steps["alpha"] = min(steps["alpha"], bounds.largest_alpha(c))
    before, after = every(c, steps, 0.1), every(worse, steps, 0.1)
    for key, bound in before.items():
        assert 0 < bound.value < math.inf, key
        assert after[key].value >= bound.value * (1 - 1e-12), key
        assert bound.value == pytest.approx(sum(bound.terms.values()) ** bound.power)


@given(problems(), st.integers(1, 10**5))
@settings(deadline=None, max_examples=30)
def test_more_samples_and_more_convexity_help(c, T):
    more = replace(c, n=10 * c.n)
    steps = {"alpha": bounds.largest_alpha(c), "gamma": bounds.largest_gamma(c, T), "T": T}
    for bound in (bounds.stability_sc, bounds.generalization_sc):
        assert float(bound(more, **steps)) < float(bound(c, **steps))
    flat = replace(c, mu=c.mu / 2)
    flat_steps = {"alpha": bounds.largest_alpha(flat), "gamma": bounds.largest_gamma(flat, T)}
    assert flat_steps["alpha"] <= steps["alpha"]
    assert flat_steps["gamma"] <= steps["gamma"]
    assert float(bounds.argument_stability(flat, **flat_steps, T=T)) > float(
        bounds.argument_stability(c, **flat_steps, T=T)
    )


def test_more_steps_help_optimization_and_hurt_stability():
    opt = [float(bounds.optimization(C, alpha=0.05, gamma=0, T=T)) for T in (10, 100, 1000)]
    gen = [float(bounds.stability(C, T=T)) for T in (10, 100, 1000)]
    assert opt == sorted(opt, reverse=True)
    assert gen == sorted(gen)
    assert float(bounds.stability(C, T=10**6)) == 4 * C.second_moment  # drawn for sure


@pytest.mark.parametrize("name", ["optimization", "optimization_last", "population"])
def test_the_limit_on_alpha_is_refused(name):
    most = 1 / (2 * C.ell_f1)
    function = getattr(bounds, name)
    function(C, alpha=most, gamma=0.0, T=10)
    with pytest.raises(ValueError, match=r"alpha must be at most 1/\(2 ell_f1\) = 0\.2173.*found"):
        function(C, alpha=most * 1.001, gamma=0.0, T=10)


def test_the_limits_of_the_strongly_convex_case_are_refused():
    T = 100
    most_alpha, most_gamma = bounds.largest_alpha(C), bounds.largest_gamma(C, T)
    assert most_alpha == C.mu / (2 * C.ell_f1**2)
    bounds.stability_sc(C, alpha=most_alpha, gamma=most_gamma, T=T)
    with pytest.raises(ValueError, match=r"alpha must be at most mu/\(2 ell_f1\^2\)"):
        bounds.stability_sc(C, alpha=most_alpha * 1.001, gamma=most_gamma, T=T)
    with pytest.raises(ValueError, match=r"gamma \* T must be at most .*ell_F"):
        bounds.stability_sc(C, alpha=most_alpha, gamma=most_gamma * 1.001, T=T)
    with pytest.raises(ValueError, match="samples must be at most"):
        bounds.stability_sc(C, alpha=most_alpha, gamma=0.0, T=T, samples=2500)


def test_printed_limit_on_gamma_is_wider():
    gamma = bounds.largest_gamma(C, 100) * 2
    bounds.stability_sc(C, alpha=0.01, gamma=gamma, T=100, reading="printed")
    with pytest.raises(ValueError, match="gamma"):
        bounds.stability_sc(C, alpha=0.01, gamma=gamma, T=100)


def test_a_bound_may_be_infinite_but_never_fails():
    tiny = bounds.conflict_weight(C, alpha=0.1, gamma=0.1, T=10, rho=1e-200)
    assert float(tiny) == math.inf


def test_weight_distance_needs_rho():
    with pytest.raises(ValueError, match="rho must be a finite number above 0, found 0"):
        bounds.conflict_weight(C, alpha=0.1, gamma=0.1, T=10, rho=0.0)
    with pytest.raises(ValueError, match=r"rho \* gamma must be at most 1"):
        bounds.conflict_weight(C, alpha=0.1, gamma=0.1, T=10, rho=11.0)
    with pytest.raises(ValueError, match="gamma must be a finite number above 0, found 0"):
        bounds.conflict(C, alpha=0.1, gamma=0.0, T=10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ell_f": 0.0}, "ell_f must be a finite number above 0, found 0.0"),
        ({"ell_f1": math.inf}, "ell_f1 must be a finite number above 0, found inf"),
        ({"M": 0}, "M must be a whole number of at least 1, found 0"),
        ({"n": 2.5}, "n must be a whole number of at least 1, found 2.5"),
        ({"mu": 3.0}, "mu must be at most ell_f1 = 2.3, found 3"),
        ({"c_F": -1.0}, "c_F must be a finite number of at least 0, found -1.0"),
    ],
)
def test_bad_constants(change, said):
    with pytest.raises(ValueError, match=said):
        replace(C, **change)


def test_missing_constants():
    with pytest.raises(ValueError, match="constants must have c_F"):
        bounds.optimization(replace(C, c_F=None), **STEPS)
    with pytest.raises(ValueError, match="constants must have mu"):
        bounds.stability_sc(replace(C, mu=None), **STEPS)
    with pytest.raises(ValueError, match="reading must be 'derived' or 'printed', found 'paper'"):
        bounds.stability(C, T=10, reading="paper")


def test_smg_is_tracking_with_growing_batches():
    opt = bounds.optimization_smg(C, alpha=0.1, T=100, growth=2.0)
    harmonic = sum(1 / t for t in range(1, 101))
    exact = bounds.optimization_tracked(
        C, alpha=0.1, T=100, tracking=C.M * C.ell_f**2 * harmonic / 200
    )
    assert float(exact) <= float(opt) <= 1.01 * float(exact)
    ca = bounds.conflict_smg(C, alpha=0.1, T=100, growth=2.0)
    mean = sum(math.sqrt(C.M * C.ell_f**2 / (2 * t)) for t in range(1, 101)) / 100
    assert 4 * C.ell_f * mean <= float(ca) <= 1.1 * 4 * C.ell_f * mean


def test_static_weights_may_be_far_from_conflict_avoiding_ones():
    for M in (2, 3, 10):
        below, above = bounds.conflict_weight_static(M)
        assert 0.25 <= float(below) <= float(above)
        assert below.lower
        assert not above.lower


def test_a_bound_says_what_it_is():
    bound = bounds.conflict(C, alpha=0.1, gamma=0.1, T=10)
    assert "lemma:converge_MGDA_bounded_grad" in str(bound)
    assert "≤" in str(bound)
    assert all("paper" in line for line in bound.corrections)
    assert "≥" in str(bounds.stability_lower(T=5, n=20))


def test_help_shows_every_argument():
    functions = filter(inspect.isfunction, (getattr(bounds, name) for name in bounds.__all__))
    theorems = {f: inspect.getdoc(f) for f in functions if "\n    constants: " in inspect.getdoc(f)}
    assert len(theorems) >= 15
    for function, shown in theorems.items():
        for name in inspect.signature(function).parameters:
            assert f"\n    {name}: " in shown, (function, name)
