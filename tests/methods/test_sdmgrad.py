import pytest
import torch
from gramians import weights_and_products
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.sdmgrad import sdmgrad_mix, sdmgrad_normalised, sdmgrad_step
from trimol.simplex import project

START = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
TARGET = torch.tensor([0.1, 0.1, 0.8], dtype=torch.float64)


def draws(model, step=0):
    return [model.losses(batch(seed=10 * step + i)) for i in range(3)]


@pytest.mark.parametrize("S", [1, 4])
@pytest.mark.parametrize("lam", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("gamma", [0.01, 1.0])
def test_steps_are_algorithm_1(gamma, lam, S):
    model = network()
    params = list(model.parameters())
    method = trimol.SDMGrad(params, 3, gamma=gamma, lam=lam, inner=S, prefer=TARGET, weights=START)
    w = START
    for step in range(3):
        g1, g2, g3 = (naive_jacobian(one, params) for one in draws(model, step))
        for _ in range(S):
            w = project(w - gamma * g1 @ (g2.T @ w + lam * g2.T @ TARGET))
        weights = (w + lam * TARGET) / (1 + lam)
        losses = draws(model, step)
        scalar = method(*losses)
        model.zero_grad()
        scalar.backward()
        torch.testing.assert_close(method.w, w)
        torch.testing.assert_close(method.weights, weights)
        torch.testing.assert_close(flat_gradient(params), weights @ g3)
        assert scalar.item() == pytest.approx((weights @ losses[2]).item(), rel=1e-12)
        with torch.no_grad():
            for p in params:
                p -= 0.1 * p.grad


AUTHORS = {"gamma": 10.0, "inner": 20, "momentum": 0.5, "normalize": True}


def as_the_authors_run_it(cross, w, lam=0.3):
    """20 steps of torch's SGD on w, of step 10 and momentum ½, on the normalised product."""
    cross = cross / cross.diagonal().sqrt().mean() ** 2
    w = w.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=10, momentum=0.5)
    for _ in range(20):
        w.grad = cross @ (w.detach() + lam * torch.full_like(w, 1 / len(w)))
        optimizer.step()
        w.data.copy_(project(w.detach()))
    return w.detach()


def test_the_authors_inner_loop():
    """One batch for all draws, as in their full-data runs, so that no product is negative."""
    model = network()
    params = list(model.parameters())
    method = trimol.SDMGrad(params, 3, **AUTHORS)
    w = torch.full((3,), 1 / 3, dtype=torch.float64)
    for step in range(3):
        same = batch(seed=step)
        rows = naive_jacobian(model.losses(same), params)
        w = as_the_authors_run_it(rows @ rows.T, w)
        model.zero_grad()
        method(*[model.losses(same) * 1.0 for _ in range(3)]).backward()
        torch.testing.assert_close(method.w, w)
        torch.testing.assert_close(flat_gradient(params), (w + 0.1) / 1.3 @ rows)
        with torch.no_grad():
            for p in params:
                p -= 0.1 * p.grad
    assert (w - 1 / 3).abs().max() > 0.1


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 0.1, 1e12])
def test_normalised_steps_do_not_depend_on_the_losses_scale(scale):
    weights = []
    for factor in (1.0, scale):
        model = network()
        method = trimol.SDMGrad(model.parameters(), 3, **AUTHORS)
        method(*[factor * losses for losses in draws(model)])
        weights.append(method.w)
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-9)
    assert (weights[0] - 1 / 3).abs().max() > 0.1


@pytest.mark.parametrize(("inner", "momentum"), [(4, 0.0), (4, 0.9), (3, 0.9)])
def test_products_one_by_one_or_all_at_once(inner, momentum):
    """More steps than objectives: by G1ᵀG2. The reference asks for every product by itself."""
    model = network()
    params = list(model.parameters())
    g1, g2, _ = (naive_jacobian(one, params) for one in draws(model))
    w, velocity = START, torch.zeros(3, dtype=torch.float64)
    for _ in range(inner):
        velocity = momentum * velocity + g1 @ (g2.T @ (w + 0.3 * TARGET))
        w = project(w - 0.05 * velocity)
    options = {"gamma": 0.05, "inner": inner, "momentum": momentum}
    method = trimol.SDMGrad(params, 3, **options, prefer=TARGET, weights=START)
    method(*draws(model))
    torch.testing.assert_close(method.w, w)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.floats(-1e100, 1e100), min_size=9, max_size=9))
def test_a_normalised_product_is_finite_and_its_gradients_have_length_one(entries):
    cross = torch.tensor(entries, dtype=torch.float64).view(3, 3)
    normal = sdmgrad_normalised(cross)
    lengths = normal.diagonal().abs().sqrt()
    if cross.diagonal().any():
        assert lengths.mean().item() == pytest.approx(1, rel=1e-9)
    else:
        assert torch.equal(normal, cross)


def test_lam_zero_is_modo_on_three_draws():
    weights = []
    for make in (
        lambda p: trimol.SDMGrad(p, 3, gamma=0.1, lam=0.0),
        lambda p: trimol.MoDo(p, 3, gamma=0.1, draws=3),
    ):
        model = network()
        method = make(model.parameters())
        method(*draws(model)).backward()
        weights.append((method.weights, flat_gradient(list(model.parameters()))))
    assert torch.equal(weights[0][0], weights[1][0])
    assert torch.equal(weights[0][1], weights[1][1])


def test_on_full_data_it_comes_to_the_direction_oriented_optimum():
    """w → argmin over Δ of ‖J^T(w + λw̃)‖²: certified by its optimality conditions."""
    model = network()
    params = list(model.parameters())
    jacobian = naive_jacobian(model.losses(batch()), params)
    gramian = jacobian @ jacobian.T
    method = trimol.SDMGrad(params, 3, gamma=0.5 / gramian.trace().item(), lam=0.3, prefer=TARGET)
    for _ in range(300):
        method(*[model.losses(batch()) for _ in range(3)])
    slope = gramian @ (method.w + 0.3 * TARGET)
    assert (slope - slope.min()) @ method.w <= 1e-9 * slope.abs().max()


def test_torchjd_agrees_without_its_normalisation_and_momentum():
    aggregation = pytest.importorskip("torchjd.aggregation")
    generator = torch.Generator().manual_seed(0)
    for size in (2, 3, 8):
        matrix = torch.randn(size, size, generator=generator, dtype=torch.float64)
        scale = matrix.diagonal().clamp(min=0).sqrt().mean() ** 2 + 1e-8
        theirs = aggregation.SDMGradWeighting(lr=0.2, momentum=0.0, n_iter=1)(matrix)
        uniform = torch.full((size,), 1 / size, dtype=torch.float64)
        w = sdmgrad_step(uniform, matrix @ (uniform + 0.3 * uniform), 0.2 / scale.item())
        torch.testing.assert_close(sdmgrad_mix(w, uniform, 0.3), theirs)


def test_state_of_a_fresh_instance_continues():
    model = network()
    whole = trimol.SDMGrad(model.parameters(), 3, gamma=0.1, inner=2)
    whole(*draws(model))
    half = trimol.SDMGrad(model.parameters(), 3, gamma=0.1, inner=2)
    half.load_state_dict(whole.state_dict())
    for method in (whole, half):
        method(*draws(model, 1))
    assert torch.equal(whole.w, half.w)
    assert torch.equal(whole.weights, half.weights)
    fresh = trimol.SDMGrad(model.parameters(), 3, gamma=0.1, inner=2)
    assert torch.equal(whole.reset().w, fresh.w)


def test_what_is_not_finite_never_enters_the_state():
    model = network()
    method = trimol.SDMGrad(model.parameters(), 3, gamma=0.1, weights=START)
    one, two, three = draws(model)
    with pytest.warns(RuntimeWarning, match="SDMGrad: losses with NaN"):
        method(one, two * float("inf"), three)
    assert torch.equal(method.w, START)


@pytest.mark.parametrize("tasks", [2, 9])
def test_backwards_do_not_grow_with_the_objectives(monkeypatch, tasks):
    calls = []
    original = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *a, **k: (calls.append(1), original(*a, **k))[1]
    )
    model = network(tasks)
    method = trimol.SDMGrad(model.parameters(), tasks)
    method(*[model.losses(batch(tasks=tasks, seed=i)) for i in range(3)])
    assert len(calls) == 1


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    weights_and_products,
    st.floats(0, 1e3),
    st.floats(0, 1e8),
)
def test_weights_stay_on_the_simplex(case, gamma, lam):
    start, product = (torch.tensor(v, dtype=torch.float64) for v in case)
    start = start / start.sum()
    mixed = sdmgrad_mix(sdmgrad_step(start, product, gamma), start, lam)
    assert (mixed >= 0).all()
    assert mixed.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": -1.0}, "gamma must be a finite number of at least 0, found -1"),
        ({"lam": float("nan")}, "lam must be a finite number of at least 0, found nan"),
        ({"inner": 0}, "inner must be a whole number of at least 1, found 0"),
        ({"momentum": 1.5}, r"momentum must be a number from 0 to 1, found 1\.5"),
        ({"normalize": "yes"}, "normalize must be True or False, found 'yes'"),
        ({"prefer": [1.0, 1.0, 1.0]}, "prefer must sum to 1, found a sum of 3"),
        ({"prefer": [1.0]}, "prefer must have 3 entries, one per objective"),
        ({"weights": [0.5, 0.2, 0.2]}, r"weights must sum to 1, found a sum of 0\.9"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.SDMGrad([torch.zeros(2, requires_grad=True)], 3, **arguments)
