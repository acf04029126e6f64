"""Every method reaches the Pareto set of problems where it is known."""

import pytest

import trimol

# The steps of these grow, or keep their length, as the gradients vanish: they settle only as
# fast as α does.
LONGER = {"nashmtl", "fairgrad"}
# Equal projections may need negative weights: three objectives in the plane have a direction of
# equal projections everywhere, and following it leads away from the Pareto set.
# FairGrad's direction grows without bound where gradients oppose each other: near this front it is
# thrown to and fro, and where it is after so many steps is decided by rounding, of another CPU too.
NO_PROMISE = {("imtlg", "quadratic"), ("fairgrad", "fonseca")}


@pytest.fixture(scope="module")
def study(load_script):
    return load_script("benchmarks/stationarity.py")


@pytest.mark.parametrize("problem", ["quadratic", "fonseca"])
@pytest.mark.parametrize("name", trimol.methods.names())
def test_reaches_the_pareto_set(study, name, problem):
    if (name, problem) in NO_PROMISE:
        return
    steps, tolerance = (500, 1e-3) if name in LONGER else (150, 1e-5)
    found = study.run(study.PROBLEMS[problem], name, steps=steps)
    assert found["R_opt"] <= tolerance
    assert found["distance"] <= 2 * tolerance
