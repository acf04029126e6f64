"""Every method's weights meet the conditions that define them, also with many objectives."""

import pytest

import trimol


@pytest.fixture(scope="module")
def study(load_script):
    return load_script("benchmarks/many_objectives.py")


@pytest.mark.parametrize("kind", range(5))
def test_residuals_are_rounding(study, kind):
    """M = 40: beyond what is solved one by one, or by enumeration."""
    name, jacobian = list(study.gradients(40))[kind]
    for method in study.CONDITIONS:
        _, residual = study.solved(method, jacobian)
        # The singular values of nearly parallel gradients lose digits in any Gramian.
        rough = method == "alignedmtl" and name == "nearly parallel"
        assert residual <= (1e-7 if rough else 1e-12), method


def test_every_method_is_in_the_table(study):
    assert set(study.CONDITIONS) < set(trimol.methods.names())
    _, jacobian = next(study.gradients(20))
    for name in trimol.methods.names():
        if trimol.methods.get(name).needs != "nothing":
            study.solved(name, jacobian)


def test_a_wrong_solution_has_a_residual(study):
    _, jacobian = next(study.gradients(20))
    weights = trimol.simplex.min_norm(jacobian @ jacobian.T)
    assert study.shortest(jacobian, weights) < 1e-15
    assert study.shortest(jacobian, 0.99 * weights + 0.01 / 20) > 1e-4
