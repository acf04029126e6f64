"""Every method reaches the Pareto set of problems where it is known."""

from dataclasses import replace

import pytest
import torch

import trimol
from covering import in_turn

# Steps, of which fraction of the problem's α, and the tolerance.
USUAL = 150, 1.0, 1e-5
# The steps of the first two grow, or keep their length, as the gradients vanish: they settle only
# as fast as α does. So do PBI's, which are five times as long and cross the ray to and fro. PMGDA
# goes to the ray first, the slower the nearer it is, and then to the front.
OTHERS = {
    "nashmtl": (500, 1.0, 1e-3),
    "fairgrad": (500, 1.0, 1e-3),
    "pbi": (2000, 0.2, 1e-3),
    "pmgda": (500, 1.0, 1e-5),
    "mconfig": (500, 1.0, 1e-5),
    "ntk": (150, 0.1, 1e-2),  # weights as large as a plateau is flat
}
# Equal projections may need negative weights: three objectives in the plane have a direction of
# equal projections everywhere, and following it leads away from the Pareto set.
# FairGrad's direction grows without bound where gradients oppose each other: near this front it is
# thrown to and fro, and where it is after so many steps is decided by rounding, of another CPU too.
# No point of the triangle has three equal losses: PBI's ray misses this front (see below).
# GradDrop draws signs for as long as gradients oppose each other, which they do on a front.
PROMISED = {"imtlg": "fonseca", "fairgrad": "quadratic", "pbi": "fonseca", "graddrop": "quadratic"}
ON_BOTH = [name for name in trimol.methods.names() if name not in PROMISED]


@pytest.fixture(scope="module")
def study(load_script):
    return load_script("benchmarks/stationarity.py")


@pytest.mark.parametrize(
    ("name", "problem"), [*in_turn(ON_BOTH, ["quadratic", "fonseca"]), *PROMISED.items()]
)
def test_reaches_the_pareto_set(study, name, problem):
    steps, fraction, tolerance = OTHERS.get(name, USUAL)
    given = study.PROBLEMS[problem]
    found = study.run(replace(given, alpha=fraction * given.alpha), name, steps=steps)
    assert found["R_opt"] <= tolerance
    assert found["distance"] <= 2 * tolerance


@pytest.mark.slow
def test_pbi_ends_on_its_ray_where_that_misses_the_front(study):
    """f₁ = f₂ = f₃ where x₂ = 7 − 3x₁ and 10x₁² − 58x₁ + 81 = 0: twice, below the triangle."""
    given = study.PROBLEMS["quadratic"]
    x = torch.tensor([(58 - s * 124**0.5) / 20 for s in (1, -1)], dtype=torch.float64)
    equal = torch.stack([x, 7 - 3 * x], 1)
    spread = torch.stack([given.losses(point) for point in equal]).std(1)
    assert spread.max() < 1e-12
    assert equal[:, 1].max() < 0  # the triangle has none such
    found = study.run(replace(given, alpha=0.02), "pbi", steps=2000)
    assert found["distance"] == pytest.approx(given.distance(equal[0]), abs=1e-3)
