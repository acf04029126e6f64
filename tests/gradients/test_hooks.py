"""Hooks that change gradients are noticed, wherever and whenever they were registered."""

import threading
from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn
from zoo import several

from trimol.gradients import _hooks as hooks
from trimol.gradients import product
from trimol.gradients._backward import gradient
from trimol.gradients._graph import record
from trimol.gradients._product import directional


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def losses(w: Tensor, hook: Callable[[Tensor], Any] = lambda y: None) -> Tensor:
    y = torch.randn(5, 4, dtype=torch.float64) @ w
    hook(y)
    return several(y.sin())


def possible(vector: Tensor, *params: Tensor) -> bool:
    return hooks.possible(record(vector, params))


def test_a_graph_recorded_after_the_last_hook_has_none() -> None:
    w = leaf(4, 4)
    before = losses(w)
    w.sin().register_hook(lambda g: g)  # elsewhere, but who knows
    assert possible(before, w)
    after = losses(w)
    assert not possible(after, w)
    assert possible(before, w)  # still unknown: it may have been hooked


@pytest.mark.parametrize(
    "register",
    [
        lambda y: y.register_hook(lambda g: 2 * g),
        lambda y: y.grad_fn.register_hook(lambda gi, go: None),
        lambda y: y.grad_fn.register_prehook(lambda go: None),
        lambda y: torch.autograd.graph.register_multi_grad_hook([y], lambda g: None),
    ],
)
def test_every_kind_of_hook_is_noticed(register: Callable[[Tensor], Any]) -> None:
    w = leaf(4, 4)
    possible(losses(w), w)  # has seen all that was registered before
    assert not possible(losses(w), w)
    assert possible(losses(w, register), w)


def test_a_hook_in_a_graph_made_before_another_was_looked_at() -> None:
    w = leaf(4, 4)
    hooked, plain = losses(w, lambda y: y.register_hook(lambda g: 2 * g)), losses(w)
    possible(plain, w)
    assert possible(hooked, w)


def test_hooks_on_parameters_come_and_go() -> None:
    w = leaf(4, 4)
    handle = w.register_hook(lambda g: 2 * g)
    possible(losses(w), w)
    assert possible(losses(w), w)
    handle.remove()
    assert not possible(losses(w), w)


def test_hooks_of_a_graph_without_parameters_do_not_matter() -> None:
    w, other = leaf(4, 4), leaf(4, 4)
    vector = losses(other, lambda y: y.register_hook(lambda g: 2 * g))
    assert not possible(vector, w)


def test_training_without_hooks_never_looks_suspicious() -> None:
    """Modules, optimizers and backward() register none by themselves: the fast way stays fast."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4))
    optimizer = torch.optim.Adam(model.parameters())
    params = list(model.parameters())
    found = []
    for _ in range(3):
        vector = several(model(torch.randn(5, 4))[0])
        found.append(possible(vector, *params))
        vector.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not any(found[1:])


@pytest.mark.parametrize("harmless", [True, False])
def test_product_goes_another_way_only_for_hooks_that_change_something(harmless: bool) -> None:
    w = leaf(4, 4)
    first = losses(w, lambda y: y.register_hook(lambda g: None if harmless else -g))
    second = losses(w)
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    vector = naive.jacobian(second, [w]).T @ weights
    naive.assert_product(
        product(first, second, weights, [w]), naive.jacobian(first, [w]), vector, 1e-10
    )
    if harmless:
        product(first, second, weights, [w], route="tangents")
    else:
        with pytest.raises(ValueError, match="a hook or a backward pass written in Python"):
            product(first, second, weights, [w], route="tangents")


@pytest.mark.parametrize("route", ["tangents", "double-vjp"])
def test_opposed_gradients_of_one_parameter_are_not_taken_for_a_hook(route: Any) -> None:
    """What is held against each other cancels to rounding: its size says nothing then."""
    w = torch.tensor([0.7], requires_grad=True)

    def opposed(hook: Callable[[Tensor], Any]) -> Tensor:
        y = 1.1 * w
        y.register_hook(hook)
        return torch.cat([y.square(), (y - 3).square()])

    weights = torch.tensor([0.3, 0.7])
    found = product(opposed(lambda g: None), opposed(lambda g: None), weights, [w], route=route)
    slopes = torch.tensor([2 * 1.1 * 0.77, 2 * 1.1 * (0.77 - 3)])
    torch.testing.assert_close(found, slopes * (slopes @ weights))
    if route == "tangents":
        with pytest.raises(ValueError, match="a hook or a backward pass"):
            product(opposed(lambda g: 2 * g), opposed(lambda g: 2 * g), weights, [w], route=route)


def test_a_hook_on_the_loss_vector() -> None:
    w = leaf(4, 4)
    first, second = losses(w), losses(w)
    first.register_hook(lambda g: g * torch.arange(1.0, 6))
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    vector = naive.jacobian(second, [w]).T @ weights
    rows = naive.jacobian(first, [w])
    for route in (None, "double-vjp", "backwards"):
        naive.assert_product(product(first, second, weights, [w], route=route), rows, vector, 1e-10)


def test_muted_hooks_do_not_run_and_come_back() -> None:
    x, y = leaf(3), leaf(3)
    x.register_hook(lambda g: 2 * g)
    x.register_hook(lambda g: 5 * g)
    with hooks.muted([x, y]):
        (gradient,) = torch.autograd.grad(x.sum(), x)
        assert torch.equal(gradient, torch.ones_like(x))
    (gradient,) = torch.autograd.grad(x.sum(), x)
    assert torch.equal(gradient, torch.full_like(x, 10))
    with pytest.raises(KeyError), hooks.muted([x]):
        raise KeyError
    assert hooks.on_leaves([y, x])


def test_a_watch_says_what_it_knows() -> None:
    w = leaf(4, 4)
    watch = hooks.Watch()
    assert repr(watch) == "Watch(hooks=0, node=-1)"
    w.sin().register_hook(lambda g: g)
    assert hooks.possible(record(losses(w), [w]), watch)  # recorded before the first look
    assert watch.hooks == torch.utils.hooks.RemovableHandle.next_id
    assert not hooks.possible(record(losses(w), [w]), watch)


def test_what_another_thread_saw_says_nothing_of_this_one() -> None:
    """Nodes are numbered by thread: a young one here may be older than the other's hooks."""
    w = leaf(4, 4)
    for _ in range(50):
        losses(w)  # numbers that the other thread has not reached
    hooked = losses(w, lambda y: y.register_hook(lambda g: 2 * g))
    other = threading.Thread(target=lambda: possible(losses(leaf(4, 4)), w))
    other.start()
    other.join()
    assert possible(hooked, w)


def clipped(bound: float) -> Callable[[Tensor], Tensor]:
    return lambda g: g.clamp(-bound, bound)


def shortened(bound: float) -> Callable[[Tensor], Tensor]:
    return lambda g: g / (g.norm() / bound).clamp_min(1)


def without_small(bound: float) -> Callable[[Tensor], Tensor]:
    return lambda g: g * (g.abs() > bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
@pytest.mark.parametrize("hook", [clipped, shortened, without_small])
def test_hooks_that_are_not_linear_are_noticed_at_the_gradients_own_scale(
    hook: Callable[[float], Callable[[Tensor], Tensor]], share: float, dtype: torch.dtype
) -> None:
    """Each acts on gradients of one scale only: where M differ, at that of a single loss."""
    torch.manual_seed(0)
    a, b = nn.Linear(6, 8, dtype=dtype), nn.Linear(8, 4, dtype=dtype)
    params = [*a.parameters(), *b.parameters()]
    scales = torch.tensor([1.0, 3.0, 10.0, 0.03], dtype=dtype)

    def vector(act: Callable[[Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(a(torch.randn(5, 6, dtype=dtype)))
        if act is not None:
            hidden.register_hook(act)
        return hidden, b(hidden).square().mean(0) * scales

    hidden, plain = vector(None)
    rows = torch.stack([torch.autograd.grad(x, hidden, retain_graph=True)[0] for x in plain])
    largest = rows.norm(dim=(1, 2)).max() if hook is shortened else rows.abs().max()
    _, first = vector(hook(share * largest.item()))
    _, second = vector(None)
    weights = torch.full((4,), 0.25, dtype=dtype)
    found = directional(record(first, params), gradient(second, params, weights))
    direction = naive.jacobian(second, params).T @ weights.double()
    naive.assert_product(
        found.values,
        naive.jacobian(first, params),
        direction,
        1e-10 if dtype is torch.float64 else 1e-4,
    )
    assert found.route == "backwards"
    assert "not linear" in found.reason
