import pytest
import torch
from gramians import weights_and_products
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.modo import modo_step
from trimol.simplex import project

ONE, TWO, THREE = batch(seed=1), batch(seed=2), batch(seed=3)


def by_hand(model, params, weights, gamma, rho):
    """Algorithm 2 from two naive Jacobians: λ, the direction, the scalar's value."""
    first, second = model.losses(ONE), model.losses(TWO)
    g1, g2 = naive_jacobian(first, params), naive_jacobian(second, params)
    moved = project(weights - gamma * (g1 @ (g2.T @ weights) + rho * weights))
    return moved, moved @ (g1 + g2) / 2, moved @ (first + second).detach() / 2


@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
def test_one_step_is_algorithm_2(gamma, rho):
    model = network()
    params = list(model.parameters())
    start = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    weights, direction, value = by_hand(model, params, start, gamma, rho)
    modo = trimol.MoDo(params, 3, gamma=gamma, rho=rho, weights=start)
    scalar = modo(model.losses(ONE), model.losses(TWO))
    scalar.backward()
    torch.testing.assert_close(modo.weights, weights)
    torch.testing.assert_close(flat_gradient(params), direction)
    assert scalar.item() == pytest.approx(value.item(), rel=1e-12)
    assert modo.info.route == "tangents"
    assert modo.info.reason == ""


def test_simultaneous_moves_x_with_the_old_weights():
    model = network()
    params = list(model.parameters())
    start = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    weights, _, _ = by_hand(model, params, start, 0.1, 0.0)
    modo = trimol.MoDo(params, 3, gamma=0.1, weights=start, simultaneous=True)
    first, second = model.losses(ONE), model.losses(TWO)
    expected = start @ (naive_jacobian(first, params) + naive_jacobian(second, params)) / 2
    scalar = modo(first, second)
    scalar.backward()
    torch.testing.assert_close(modo.weights, weights)
    torch.testing.assert_close(flat_gradient(params), expected)
    assert scalar.item() == pytest.approx((start @ (first + second) / 2).item(), rel=1e-12)


def test_third_draw_alone_moves_x():
    model = network()
    params = list(model.parameters())
    start = torch.full((3,), 1 / 3, dtype=torch.float64)
    weights, _, _ = by_hand(model, params, start, 0.1, 0.0)
    modo = trimol.MoDo(params, 3, gamma=0.1, draws=3)
    assert modo.draws == 3
    scalar = modo(model.losses(ONE), model.losses(TWO), model.losses(THREE))
    scalar.backward()
    third = model.losses(THREE)
    torch.testing.assert_close(modo.weights, weights)
    torch.testing.assert_close(flat_gradient(params), weights @ naive_jacobian(third, params))
    assert scalar.item() == pytest.approx((weights @ third).item(), rel=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_gamma_zero_is_static_to_the_bit(count):
    trajectories = []
    for make in (
        lambda p: trimol.MoDo(p, 3, gamma=0.0, weights=[0.2, 0.3, 0.5]),
        lambda p: trimol.Static(p, 3, weights=[0.2, 0.3, 0.5]),
    ):
        model = network(dtype=torch.float32)
        params = list(model.parameters())
        method, optimizer = make(params), torch.optim.SGD(params, lr=0.1)
        for step in range(5):
            draws = [batch(dtype=torch.float32, seed=10 * step + i) for i in range(count)]
            losses = [model.losses(draw) for draw in draws]
            if method.draws == 1:
                scalar = torch.stack([method(one) for one in losses]).mean()
            else:
                scalar = method(*losses)
            optimizer.zero_grad()
            scalar.backward()
            optimizer.step()
        trajectories.append(torch.cat([p.detach().reshape(-1) for p in params]))
    assert torch.equal(*trajectories)


def test_large_gamma_on_the_full_batch_comes_to_mgda():
    """With both draws the whole data set, λ converges to the min-norm weights."""
    model = network()
    params = list(model.parameters())
    jacobian = naive_jacobian(model.losses(ONE), params)
    gramian = jacobian @ jacobian.T
    best = trimol.simplex.min_norm(gramian)
    modo = trimol.MoDo(params, 3, gamma=0.5 / gramian.trace().item())
    for _ in range(3000):
        modo(model.losses(ONE), model.losses(ONE))
    found, optimum = modo.weights @ gramian @ modo.weights, best @ gramian @ best
    assert found.item() == pytest.approx(optimum.item(), rel=1e-6)


def test_gamma_may_change_between_steps():
    model = network()
    modo = trimol.MoDo(model.parameters(), 3, gamma=0.1)
    modo.gamma = 0.0
    modo(model.losses(ONE), model.losses(TWO))
    assert modo.weights.tolist() == [1 / 3] * 3
    with pytest.raises(ValueError, match="gamma must be a finite number of at least 0, found nan"):
        modo.gamma = float("nan")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": -1.0}, "gamma must be a finite number of at least 0, found -1"),
        ({"rho": float("inf")}, "rho must be a finite number of at least 0, found inf"),
        ({"draws": 4}, "draws must be 1, 2 or 3, found 4"),
        ({"weights": [0.5, 0.2, 0.2]}, r"weights must sum to 1, found a sum of 0\.9"),
        ({"draws": 3, "simultaneous": True}, "simultaneous must be False with draws=3"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.MoDo([torch.zeros(2, requires_grad=True)], 3, **arguments)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    weights_and_products,
    st.floats(0, 1e3),
    st.floats(0, 10),
)
def test_step_stays_on_the_simplex(case, gamma, rho):
    start, product = (torch.tensor(v, dtype=torch.float64) for v in case)
    moved = modo_step(start / start.sum(), product, gamma, rho)
    assert (moved >= 0).all()
    assert moved.sum().item() == pytest.approx(1, abs=1e-12)


def test_step_is_batchable():
    weights = torch.full((7, 3), 1 / 3, dtype=torch.float64)
    product = torch.randn(7, 3, dtype=torch.float64)
    together = torch.func.vmap(lambda w, p: modo_step(w, p, 0.3, 0.1))(weights, product)
    alone = torch.stack([modo_step(w, p, 0.3, 0.1) for w, p in zip(weights, product, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-15)


@pytest.mark.parametrize("tasks", [2, 9])
@pytest.mark.parametrize("simultaneous", [False, True])
def test_backwards_do_not_grow_with_the_objectives(monkeypatch, simultaneous, tasks):
    """Counted, not timed: v = G2 λ is one backward, and there is no other before the user's."""
    calls = []
    original = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *a, **k: (calls.append(1), original(*a, **k))[1]
    )
    model = network(tasks)
    modo = trimol.MoDo(model.parameters(), tasks, gamma=0.1, simultaneous=simultaneous)
    modo(model.losses(batch(tasks=tasks, seed=1)), model.losses(batch(tasks=tasks, seed=2)))
    assert len(calls) == 1


def test_simultaneously_the_second_draw_is_done_with():
    model = network()
    modo = trimol.MoDo(model.parameters(), 3, gamma=0.1, simultaneous=True)
    second = model.losses(TWO)
    modo(model.losses(ONE), second)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        second.sum().backward()


def test_a_draw_that_is_none_keeps_the_weights_and_moves_on_the_other():
    model = network()
    params = list(model.parameters())
    modo = trimol.MoDo(params, 3, gamma=0.1)
    modo(model.losses(batch(seed=1)), model.losses(batch(seed=2)))
    before, losses = modo.weights.clone(), model.losses(batch(seed=3))
    jacobian = naive_jacobian(losses, params)
    model.zero_grad()
    modo(losses, None).backward()
    assert torch.equal(modo.weights, before)
    assert (modo.info.kept, modo.info.updated, modo.info.absent) == (1, False, ())
    torch.testing.assert_close(flat_gradient(params), before @ jacobian)
    with pytest.raises(ValueError, match="must have a vector that is not None, found 2 None"):
        modo(None, None)
    with pytest.raises(ValueError, match=r"takes 2 loss vectors.* found 1"):
        modo(losses)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_one_draw_is_the_gramian_of_its_batch(simultaneous):
    model = network()
    params = list(model.parameters())
    modo = trimol.MoDo(params, 3, gamma=0.1, draws=1, simultaneous=simultaneous)
    weights = modo.weights
    for seed in range(3):
        losses = model.losses(batch(seed=seed))
        rows = naive_jacobian(losses, params)
        model.zero_grad()
        modo(losses).backward()
        moved = project(weights - 0.1 * rows @ rows.T @ weights)
        torch.testing.assert_close(modo.weights, moved)
        torch.testing.assert_close(
            flat_gradient(params), (weights if simultaneous else moved) @ rows
        )
        weights = moved


def test_one_draw_is_replicated_alike():
    rows = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    many = trimol.methods.replicated("modo", replicas=2, objectives=3, gamma=0.1, draws=1)
    many.direction([rows])
    for own, weights in zip(rows, many.weights, strict=True):
        x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        modo = trimol.MoDo([x], 3, gamma=0.1, draws=1)
        modo(own @ x + 1)
        torch.testing.assert_close(weights, modo.weights)
