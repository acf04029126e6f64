"""The strongly convex toy: closed forms against autograd and scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from trimol import simplex
from trimol.methods import replicated
from trimol.tasks.quadratic import Quadratic

CURVED = [[2.0, 0.5], [0.5, 1.0]]


def task(**options):
    return Quadratic(**{"eigenvalues": CURVED, **options})


def test_values_are_the_formula():
    problem = task()
    x, z = torch.tensor([0.3, -2.0]).double(), torch.tensor([1.5, 0.7]).double()
    by_hand = [
        0.5 * b1 * x.numpy() @ np.array(CURVED) @ x.numpy() - b2 * z.numpy() @ x.numpy()
        for b1, b2 in zip((1, 2, 1), (1, 3, 2), strict=True)
    ]
    assert problem.values(x, z).tolist() == pytest.approx(by_hand)


@given(st.lists(st.floats(-100, 100), min_size=4, max_size=4))
@settings(deadline=None, max_examples=40)
def test_the_jacobian_is_autograds(numbers):
    problem = task()
    x, z = torch.tensor(numbers, dtype=torch.float64).split(2)
    expected = torch.autograd.functional.jacobian(lambda p: problem.values(p, z), x)
    assert torch.allclose(problem.jacobian(x, z), expected, rtol=1e-12, atol=1e-12)


def test_closed_forms_take_batches():
    problem = task()
    x, z = torch.randn(5, 2).double(), torch.randn(5, 2).double()
    for function in (problem.values, problem.jacobian, problem.avoiding):
        one = torch.stack([function(a, b) for a, b in zip(x, z, strict=True)])
        assert torch.allclose(function(x, z), one, rtol=1e-9)


def test_the_gradient_of_the_samples_is_that_of_their_mean():
    problem = task(samples=7)
    (z,) = problem.data().train
    x = torch.tensor([1.0, 2.0]).double()
    assert torch.allclose(problem.jacobian(x, z).mean(0), problem.jacobian(x, z.mean(0)))


def test_mu_and_smoothness_are_the_extreme_curvatures():
    eigenvalues = np.linalg.eigvalsh(CURVED)
    assert task().mu == pytest.approx(eigenvalues[0])
    assert task().smoothness == pytest.approx(2 * eigenvalues[1])


@pytest.mark.parametrize("weights", [(1.0, 0, 0), (0, 1.0, 0), (0.2, 0.3, 0.5)])
def test_minimisers_are_what_a_numerical_optimiser_finds(weights):
    problem, z = task(), torch.tensor([1.5, -0.7]).double()
    weights = torch.tensor(weights, dtype=torch.float64)
    found = minimize(
        lambda x: float(problem.values(torch.from_numpy(x), z) @ weights), np.zeros(2), tol=1e-12
    )
    assert problem.minimiser(weights, z).numpy() == pytest.approx(found.x, abs=1e-5)


def test_pareto_points_are_stationary_and_their_neighbours_are_not():
    problem, z = task(), torch.tensor([1.5, -0.7]).double()

    def stationarity(x):
        gradients = problem.jacobian(x, z)
        return (problem.avoiding(x, z)[:, None] @ gradients).norm(dim=-1)

    points = problem.pareto(z, points=11)
    assert (stationarity(points) < 1e-8).all()
    assert (stationarity(points + torch.tensor([0.01, 0.02])) > 1e-3).all()
    assert (stationarity(1.05 * points[[-1]]) > 1e-3).all()  # beyond the end


def test_avoiding_weights_are_those_of_the_simplex_with_rho():
    problem, x, z = task(), torch.tensor([3.0, 1.0]).double(), torch.tensor([1.5, -0.7]).double()
    rows = problem.jacobian(x, z)
    found = minimize(
        lambda w: float(np.sum((w @ rows.numpy()) ** 2) + 0.3 * np.sum(w**2)),
        np.full(3, 1 / 3),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        tol=1e-12,
    )
    assert problem.avoiding(x, z, 0.3).numpy() == pytest.approx(found.x, abs=1e-4)


@pytest.mark.parametrize("method", ["static", "mgda", "modo"])
@pytest.mark.parametrize("start", [0.0, 30.0])
def test_no_run_leaves_the_ball_nor_exceeds_the_lipschitz_constant(method, start):
    problem = task(law="uniform", samples=5, start=start, seed=3)
    (z,) = problem.data().train
    radius, bound = problem.radius(z), problem.lipschitz(z)
    runs = replicated(method, replicas=50, objectives=3)
    x = problem.start.expand(50, -1)
    random = torch.Generator().manual_seed(0)
    furthest = float(x.norm(dim=-1).max())
    for _ in range(60):
        drawn = [z[torch.randint(5, (50,), generator=random)] for _ in range(runs.draws)]
        rows = [problem.jacobian(x, each) for each in drawn]
        assert max(float(each.norm(dim=-1).max()) for each in rows) <= bound
        x = x - runs.direction(rows) / problem.smoothness
        furthest = max(furthest, float(x.norm(dim=-1).max()))
    assert 0.1 * radius < furthest <= radius * (1 + 1e-12)  # a bound, and one of use


def test_data_depends_on_its_own_seed_only():
    problem = task(samples=6)
    both = problem.draw([4, 9])
    assert torch.equal(both[1], problem.draw([9])[0])
    assert torch.equal(task(samples=6, seed=9).data().train[0], both[1])


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_laws_have_the_mean_and_deviation_they_are_given(law):
    z = task(samples=20_000, mean=2.0, std=0.5, law=law).data().train[0]
    assert z.mean(0).tolist() == pytest.approx([2, 2], abs=0.02)
    assert z.std(0).tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    if law == "uniform":
        assert float((z - 2).abs().max()) <= 0.5 * 3**0.5


def test_any_number_of_objectives():
    problem = Quadratic(dimension=3, b1=(1.0, 2.0), b2=(1.0, -1.0))
    assert problem.objectives == ("f1", "f2")
    assert Quadratic.objectives == ("f1", "f2", "f3")
    loss = problem.losses(problem.model(), problem.data().test)
    assert loss.shape == (2,)
    gradients = problem.jacobian(problem.start, problem.population)
    assert simplex.min_norm(gradients @ gradients.T).shape == (2,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"b1": (1.0, 0.0, 1.0)}, r"b1 must be positive, found \[1.0, 0.0, 1.0\]"),
        ({"b2": (1.0,)}, "b2 must have 3 entries, found 1"),
        ({"b2": (1.0, float("nan"), 1.0)}, "b2 must be finite numbers"),
        ({"std": -1.0}, "std must be a finite number of at least 0, found -1.0"),
        ({"law": "cauchy"}, "law must be normal or uniform, found 'cauchy'"),
        ({"eigenvalues": (1.0,)}, r"eigenvalues must be 2 numbers or a 2 × 2 matrix"),
        ({"eigenvalues": (1.0, -1.0)}, "symmetric positive definite"),
        ({"dimension": 0}, "dimension must be a whole number of at least 1, found 0"),
    ],
)
def test_bad_options_are_one_clear_line(options, message):
    with pytest.raises(ValueError, match=message):
        task(**options)
