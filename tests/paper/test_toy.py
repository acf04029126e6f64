"""The non-convex toy: closed forms against autograd, the answer against scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from trimol import simplex
from trimol.data._files.datasets import MissingData
from trimol.paper.tasks.toy import STARTS, Toy

AUTHORS = torch.tensor([0.450714, -0.145632], dtype=torch.float64)  # the mean of their data
POPULATION = torch.zeros(2, dtype=torch.float64)
coordinate = st.floats(-11, 11, allow_nan=False)


def written_out(x, z, variant):
    """The paper's formula, objective by objective, in plain NumPy."""
    x1, x2 = x
    k, sign = (0.5, 1) if variant == "corrected" else (0.1, -1)
    h1 = np.log(max(abs(0.5 * (-x1 - 7) - np.tanh(-x2)), 0.000005)) + 6
    h2 = np.log(max(abs(0.5 * (-x1 + 3) + sign * np.tanh(-x2) + 2), 0.000005)) + 6
    g1 = ((-x1 + 3.5) ** 2 + k * (-x2 - 1) ** 2) / 10 - 20 - 2 * z[0] * x1 - 5.5 * z[1] * x2
    g2 = ((-x1 - 3.5) ** 2 + k * (-x2 - 1) ** 2) / 10 - 20 + 2 * z[0] * x1 - 5.5 * z[1] * x2
    c1, c2 = max(np.tanh(0.5 * x2), 0), max(np.tanh(-0.5 * x2), 0)
    return np.array([c1 * h1 + c2 * g1, c1 * h2 + c2 * g2])


@given(x=st.tuples(coordinate, coordinate), z=st.tuples(coordinate, coordinate))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("variant", ["corrected", "printed"])
def test_values_are_the_formula(variant, x, z):
    found = Toy(variant=variant, data="drawn").values(
        torch.tensor(x, dtype=torch.float64), torch.tensor(z, dtype=torch.float64)
    )
    assert found.numpy() == pytest.approx(written_out(x, z, variant), rel=1e-12, abs=1e-12)


@given(x=st.tuples(coordinate, coordinate.filter(lambda v: abs(v) > 1e-9)))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("variant", ["corrected", "printed"])
def test_the_jacobian_is_autograds(variant, x):
    toy = Toy(variant=variant, data="drawn")
    point = torch.tensor(x, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(lambda p: toy.values(p, AUTHORS), point)
    assert toy.jacobian(point, AUTHORS) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_closed_forms_take_batches():
    toy = Toy(data="drawn")
    x, z = torch.randn(4, 3, 2).double() * 5, torch.randn(3, 2).double()
    for function in (toy.values, toy.jacobian):
        one = torch.stack(
            [torch.stack([function(x[i, j], z[j]) for j in range(3)]) for i in range(4)]
        )
        assert torch.allclose(function(x, z), one, rtol=1e-13)


def test_the_jacobian_is_finite_where_the_logarithm_is_cut_off():
    # On h1's singularity: argument 0 at x1 = 2 tanh(x2) − 7.
    x = torch.tensor([2 * np.tanh(3.0) - 7, 3.0], dtype=torch.float64)
    assert Toy(data="drawn").jacobian(x, POPULATION).isfinite().all()


@pytest.mark.parametrize("variant", ["corrected", "printed"])
@pytest.mark.parametrize("z", [AUTHORS, POPULATION], ids=["empirical", "population"])
def test_the_answer_is_what_a_numerical_optimiser_finds(variant, z):
    toy = Toy(variant=variant, data="drawn")
    answer = toy.answer(z)
    wanted = {(1.0, 0.0): answer.minimisers[0], (0.0, 1.0): answer.minimisers[1]}
    wanted[0.5, 0.5] = answer.of_mean
    for weights, claimed in wanted.items():
        found = minimize(
            lambda x, w=weights: np.dot(w, written_out(x, z.numpy(), variant)),
            claimed.numpy() + np.array([0.3, -0.3]),
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
        )
        assert claimed.numpy() == pytest.approx(found.x, abs=1e-6)


def test_the_minimisers_are_where_the_paper_puts_them():
    empirical = Toy(data="drawn").answer(AUTHORS)
    assert empirical.minimisers[:, 0].tolist() == pytest.approx([8.007, -8.007], abs=1e-3)
    assert (empirical.pareto.abs() < 11).all()  # inside the figures' window
    printed = Toy(variant="printed", data="drawn").answer(AUTHORS)
    assert printed.of_mean[1] == pytest.approx(-41, abs=0.5)  # outside


@pytest.mark.parametrize("z", [AUTHORS, POPULATION], ids=["empirical", "population"])
def test_the_front_is_pareto_stationary_and_not_dominated(z):
    toy = Toy(data="drawn")
    answer = toy.answer(z, points=41)
    gradients = toy.jacobian(answer.pareto, z)
    weights = simplex.min_norm(gradients @ gradients.mT)
    assert ((weights[:, None] @ gradients).norm(dim=-1) < 1e-9).all()
    assert (answer.front[1:, 0] > answer.front[:-1, 0]).all()
    assert (answer.front[1:, 1] < answer.front[:-1, 1]).all()
    axis = torch.linspace(-15, 15, 301, dtype=torch.float64)
    others = toy.values(torch.cartesian_prod(axis, axis), z)
    better = (others[:, None] < answer.front - 1e-9).all(-1)
    assert not better.any()


@pytest.mark.parametrize("z", [AUTHORS, POPULATION], ids=["empirical", "population"])
def test_the_segment_of_the_figures_is_close_to_the_front(z):
    answer = Toy(data="drawn").answer(z)
    assert answer.minimisers[0, 1] == pytest.approx(answer.minimisers[1, 1])
    assert (answer.pareto[:, 1] - answer.minimisers[0, 1]).abs().max() < 0.06


def test_as_a_task(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    task = Toy(start=2)
    (z,) = task.data().train
    assert "drawn with seed 0" in task.source
    assert z.shape == (20, 2)
    model = task.model()
    assert model().tolist() == list(STARTS[2])
    each = torch.stack([task.values(model(), sample) for sample in z])
    assert torch.allclose(task.losses(model, (z,)), each.mean(0))
    assert torch.equal(task.losses(model, task.data().test), task.values(model(), POPULATION))
    assert isinstance(task.optimizer(model.parameters(), 0.1), torch.optim.Adam)


def test_the_authors_data_comes_from_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=r"toy/z\.csv is not in"):
        _ = Toy(data="authors").source
    (tmp_path / "toy").mkdir()
    file = tmp_path / "toy" / "z.csv"
    file.write_text("z1,z2\n" + "".join(f"{i},{-i}\n" for i in range(20)))
    task = Toy()
    assert task.source == "the authors' 20 samples"
    assert task.data().train[0][3].tolist() == [3.0, -3.0]
    file.write_text("z1,z2\n1,2\n")
    with pytest.raises(ValueError, match="must have 20 samples, found 1"):
        _ = Toy().source


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "x"}, "variant must be one of corrected, printed, found 'x'"),
        ({"start": 3}, "start must be 0, 1, 2 or two numbers, found 3"),
        ({"start": (1.0,)}, "start must be 0, 1, 2 or two numbers"),
        ({"data": "mine"}, "data must be auto, authors or drawn, found 'mine'"),
    ],
)
def test_bad_options_are_one_clear_line(options, message):
    with pytest.raises(ValueError, match=message):
        Toy(**options)
