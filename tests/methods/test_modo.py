import warnings

import pytest
import torch
from gramians import weights_and_products
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.gradients import _product
from trimol.gradients._hooks import WATCH
from trimol.methods import _restart
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
    for _ in range(300):
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


def test_the_first_step_of_a_process_looks_for_no_hook_of_ours(monkeypatch):
    """It begins to listen to optimizers while its graph is there already."""
    _restart._listen()  # stays, whatever this test does
    handles, register = [], _restart.register_optimizer_step_pre_hook
    monkeypatch.setattr(
        _restart,
        "register_optimizer_step_pre_hook",
        lambda hook: (handles.append(register(hook)), handles[-1])[1],
    )
    monkeypatch.setattr(_product, "_verify", lambda *_: pytest.fail("looked for hooks"))
    WATCH.look()
    _restart._listen.cache_clear()
    model = network()
    modo = trimol.MoDo(model.parameters(), 3, gamma=0.1)
    modo(model.losses(ONE), model.losses(TWO))
    (handle,) = handles
    handle.remove()


@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("simultaneous", [False, True])
def test_terms_of_the_users_own_on_either_draw(simultaneous, draws):
    model = network()
    params = list(model.parameters())
    modo = trimol.MoDo(params, 3, gamma=0.1, draws=draws, simultaneous=simultaneous)
    each = [model.losses(batch(seed=seed)) for seed in range(draws)]
    penalty = sum(losses.square().sum() for losses in each)
    own = torch.autograd.grad(penalty, params, retain_graph=True)
    want = torch.cat([g.reshape(-1) for g in own])
    rows = torch.stack([naive_jacobian(losses, params) for losses in each]).mean(0)
    before = modo.weights
    (modo(*each) + penalty).backward()
    weights = before if simultaneous else modo.weights
    torch.testing.assert_close(flat_gradient(params), want + weights @ rows)


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


# -- gamma="auto" ---------------------------------------------------------------------------------

RUNS = 40


def noisy(scale=1.0, steps=RUNS, **options):
    """λ at every step on three noisy quadratics times ``scale``, and the method."""
    generator = torch.Generator().manual_seed(1)
    rows, ends, noise = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((3, 5), (3,), (steps, 2, 3))
    )
    x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    modo = trimol.MoDo([x], 3, gamma="auto", **options)
    optimizer = torch.optim.SGD([x], lr=0.05 / scale)
    path = []
    for pair in noise:
        modo(*(scale * (rows @ x - ends + 0.3 * each).square() for each in pair)).backward()
        optimizer.step()
        optimizer.zero_grad()
        path.append(modo.weights)
    return torch.stack(path), modo


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 7.0, 1e6, 1e40])
def test_auto_takes_the_same_path_whatever_all_losses_are_multiplied_by(scale):
    plain, scaled = noisy()[0], noisy(scale)[0]
    torch.testing.assert_close(scaled, plain, rtol=0, atol=1e-12)
    assert (plain - 1 / 3).abs().max() > 0.1  # and it goes somewhere


def test_auto_steps_by_a_running_mean_of_what_the_steps_before_saw():
    """γ_t = 0.3 / (√t ŝ_t), ŝ with a memory of 0.99, from steps before t alone."""
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    modo = trimol.MoDo([x], 2, gamma="auto", weights=[0.6, 0.4])
    weights, total, share = torch.tensor([0.6, 0.4], dtype=torch.float64), 0.0, 0.0
    for step, sizes in enumerate([(1.0, 2.0), (2.0, 5.0), (1.0, 1.5), (0.5, 3.0)]):
        slopes = torch.tensor(sizes, dtype=torch.float64)
        expected = 0.0 if step == 0 else 0.3 / (step**0.5 * total / share)
        assert float(modo.rate) == pytest.approx(expected, rel=1e-12)
        modo(slopes * x, slopes * x).backward()
        product = slopes.square() * weights  # orthogonal gradients
        weights = project(weights - expected * product)
        torch.testing.assert_close(modo.weights, weights, rtol=1e-12, atol=0)
        total, share = 0.99 * total + 0.01 * product.norm().item(), 0.99 * share + 0.01


def test_auto_does_not_explode_where_gradients_vanish():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    modo = trimol.MoDo([x], 2, gamma="auto")
    for _ in range(10):
        modo(torch.tensor([1.0, 2.0]) * x, torch.tensor([1.0, 2.0]) * x)
    largest = modo.largest.item()
    for _ in range(500):
        modo(1e-9 * x, 1e-9 * x)
    assert modo.largest.item() == largest
    assert float(modo.rate) == pytest.approx(0.3 / (510**0.5 * 1e-3 * largest), rel=1e-12)


def test_auto_where_no_objective_differs_from_another():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    one = trimol.MoDo([x], 1, gamma="auto")
    same = trimol.MoDo([x], 2, gamma="auto")
    for _ in range(3):
        one(x.sum()[None], x.sum()[None])
        same(x.sum().expand(2), x.sum().expand(2))
    assert one.weights.tolist() == [1.0]
    assert same.weights.tolist() == [0.5, 0.5]


def test_auto_keeps_what_it_remembers_through_a_step_that_is_not_finite():
    _, modo = noisy(steps=3)
    before = {name: value.clone() for name, value in modo.state_dict().items()}
    x = modo.params[0]
    with pytest.warns(RuntimeWarning, match="losses with NaN or infinity; λ is kept as it is"):
        modo(x[:3] * float("nan"), x[:3].square())
    after = modo.state_dict()
    for name in ("weights", "scale", "largest", "updates"):
        assert torch.equal(after[name], before[name])


def test_auto_resumes_to_the_bit():
    whole, _ = noisy()
    x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    _, half = noisy(steps=RUNS)
    again = trimol.MoDo([x], 3, gamma="auto")
    again.load_state_dict(half.state_dict())
    assert torch.equal(again.weights, whole[-1])
    assert torch.equal(again.rate, half.rate)
    assert again.reset().updates == 0


def test_auto_in_many_runs_at_once_is_auto_in_each():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 2, 4, 3, 5, generator=generator, dtype=torch.float64)
    rows *= torch.tensor([1.0, 10.0, 1e-3, 1e6], dtype=torch.float64)[:, None, None]
    many = trimol.methods.replicated("modo", replicas=4, objectives=3, gamma="auto")
    alone = [
        trimol.methods.replicated("modo", replicas=1, objectives=3, gamma="auto") for _ in range(4)
    ]
    for first, second in rows:
        many.direction([first, second])
        for number, run in enumerate(alone):
            run.direction([first[number : number + 1], second[number : number + 1]])
    torch.testing.assert_close(many.weights, torch.cat([run.weights for run in alone]))
    assert (many.weights - 1 / 3).abs().max() > 0.05


def test_auto_is_chosen_at_the_start():
    assert trimol.MoDo([torch.zeros(1, requires_grad=True)], 2).gamma == "auto"
    modo = trimol.MoDo([torch.zeros(1, requires_grad=True)], 2, gamma=0.01)
    with pytest.raises(ValueError, match="gamma must be 'auto' from the start, found it set after"):
        modo.gamma = "auto"
    with pytest.raises(ValueError, match="gamma must be 'auto' or a number, found 'fast'"):
        modo.gamma = "fast"
    assert modo.gamma == 0.01
    auto = trimol.MoDo([torch.zeros(1, requires_grad=True)], 2, gamma="auto")
    auto.gamma = 0.5
    assert auto.rate == 0.5
    assert "gamma=0.5" in repr(auto)


# -- λ that does not move, and weights of 0 -------------------------------------------------------


def stepped(steps, scale, **options):
    """What MoDo says in so many steps on two parallel losses of these sizes."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    modo, sizes = trimol.MoDo([x], ["a", "b"], **options), torch.tensor(scale)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(steps):
            modo(sizes * x.sum(), sizes * 1.5 * x.sum())
    return [str(each.message) for each in told]


def test_weights_that_hardly_move_are_said_once():
    (said,) = stepped(450, (1e-3, 2e-3), gamma=0.01)
    assert said.startswith("MoDo: the weights are within 1 % of their start after 100 steps: this")
    assert "unless gamma is made larger" in said
    assert stepped(99, (1e-3, 2e-3), gamma=0.01) == []
    assert not any("within 1 %" in each for each in stepped(450, (1e-3, 2e-3)))  # "auto"
    assert stepped(450, (1.0, 1.0), gamma=0.0) == []  # static on purpose


def test_a_weight_that_stays_0_is_said_once():
    (said,) = stepped(450, (1.0, 100.0), gamma=0.01)
    assert said.startswith("MoDo: the weight of 'b' was 0 in each of the last 100 steps: not train")
    assert stepped(99, (1.0, 100.0), gamma=0.01) == []
