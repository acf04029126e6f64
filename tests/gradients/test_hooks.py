"""Hooks that change gradients are noticed, wherever and whenever they were registered."""

import operator
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import several

from trimol.gradients import _hooks as hooks
from trimol.gradients import jacobian, product
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
        with pytest.raises(ValueError, match="a hook reads gradients on their way, or"):
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
    with pytest.raises(ValueError, match="a hook reads"):
        product(opposed(lambda g: 2 * g), opposed(lambda g: 2 * g), weights, [w], route=route)


def test_a_hook_on_the_loss_vector() -> None:
    w = leaf(4, 4)
    first, second = losses(w), losses(w)
    first.register_hook(lambda g: g * torch.arange(1.0, 6))
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    vector = naive.jacobian(second, [w]).T @ weights
    rows = naive.jacobian(first, [w])
    for route in (None, "backwards"):
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


def test_a_hook_on_no_graph_is_passed_over_and_no_other() -> None:
    w, watch = leaf(4, 4), hooks.Watch()
    watch.look()
    graph = record(losses(w), [w])
    watch.pass_over(torch.nn.Identity().register_forward_hook(lambda *_: None))
    assert not hooks.possible(graph, watch)
    hooked = record(losses(w, lambda y: y.register_hook(lambda g: 2 * g)), [w])
    watch.pass_over(torch.nn.Identity().register_forward_hook(lambda *_: None))
    assert hooks.possible(hooked, watch)


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


def in_a_thread(work: Callable[[], Tensor]) -> Tensor:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(work()))
    thread.start()
    thread.join()
    return made[0]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_graph_with_a_hook_that_another_thread_recorded(
    ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two threads has numbered more nodes."""
    monkeypatch.setattr(hooks.WATCH, "mixed", False)  # and so it is again for other tests
    w, watch = leaf(4, 4), hooks.Watch()
    least = losses(w).grad_fn._sequence_nr() + 50 if ahead else 0  # type: ignore[union-attr]

    def work() -> Tensor:
        while w.sin().grad_fn._sequence_nr() < least:  # type: ignore[union-attr]
            pass
        return losses(w, lambda y: y.register_hook(lambda g: -g))

    hooked = in_a_thread(work)
    assert hooks.possible(record(hooked, [w]), watch)
    assert hooks.possible(record(losses(w), [w]), watch) == watch.mixed == ahead
    second, weights = losses(w), torch.full((5,), 0.2, dtype=torch.float64)
    got = product(hooked, second, weights, [w])
    vector = naive.jacobian(second, [w]).T @ weights
    naive.assert_product(got, naive.jacobian(hooked, [w]), vector, 1e-10)


def test_graphs_of_another_thread_without_hooks_take_tangents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = leaf(4, 4)
    monkeypatch.setattr(hooks.WATCH, "mixed", True)
    first, second = in_a_thread(lambda: losses(w)), losses(w)
    assert possible(first, w)
    product(first, second, torch.full((5,), 0.2, dtype=torch.float64), [w], route="tangents")


CONSTANT = torch.ones(5, 4, dtype=torch.float64)
KEPT: list[Tensor] = []
# Whether it touches gradients, or puts others in their place.
HOOKS: dict[str, tuple[Callable[[Tensor], Any], bool]] = {
    "nothing": (lambda g: None, False),
    "kept": (KEPT.append, False),
    "the same": (lambda g: g, False),
    "norm": (lambda g: KEPT.append(g.norm()), True),
    "scaled": (lambda g: 2 * g, True),
    "in place": (lambda g: g.mul_(2), True),
    "data": (lambda g: g.data, True),
    "NumPy": (lambda g: torch.from_numpy(g.numpy().clip(-1, 1)), True),
    "constant": (lambda g: CONSTANT, True),
    "operator": (operator.neg, True),
    "function of torch": (torch.sign, True),
    "partial": (partial(torch.clamp, min=-1, max=1), True),
    "asked": (lambda g: g if g.norm() > 1 else None, True),
}


@pytest.mark.parametrize("name", HOOKS)
def test_what_hooks_do_is_heard(name: str) -> None:
    hook, acts = HOOKS[name]
    w = leaf(4, 4)
    first, second = losses(w, lambda y: y.register_hook(hook)), losses(w)
    found = directional(record(first, [w]), gradient(second, [w], torch.ones(5)))
    assert found.route == ("backwards" if acts else "tangents")
    vector = naive.jacobian(second, [w]).sum(0)
    naive.assert_product(found.values, naive.jacobian(first, [w]), vector, 1e-10)


def test_recomputation_is_not_taken_for_a_hook() -> None:
    w, other = leaf(4, 4), leaf(4, 4)
    x = torch.randn(5, 4, dtype=torch.float64)
    first = several(checkpoint(lambda x: (x @ w).sin() @ w, x, use_reentrant=False))
    other.sin().register_hook(lambda g: 2 * g)
    assert possible(first, w)
    second, weights = losses(w), torch.full((5,), 0.2, dtype=torch.float64)
    got = product(first, second, weights, [w], route="tangents")
    vector = naive.jacobian(second, [w]).T @ weights
    naive.assert_product(got, naive.jacobian(first, [w]), vector, 1e-10)


def test_hooks_are_given_the_gradient_of_one_loss_at_a_time() -> None:
    """Not a batch of all of them, in whose place they could not put anything."""
    w = leaf(4, 4)
    seen: list[Tensor] = []
    vector = losses(w, lambda y: y.register_hook(lambda g: seen.append(2 * g)))
    rows = jacobian(vector, [w])
    assert [g.shape for g in seen] == [(5, 4)] * 5
    naive.assert_rows(rows, naive.jacobian(vector, [w]), 1e-12)


@pytest.mark.parametrize("bound", [0.3, 0.5, 0.7, 0.9, 1.1])
@pytest.mark.parametrize("place", ["hook", "function"])
def test_clipped_gradients_of_opposed_losses(place: str, bound: float) -> None:
    """Each is clipped, and no sum of them that weighs them alike is."""
    net = nn.Linear(6, 6, dtype=torch.float64)
    params = list(net.parameters())

    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g.clamp(-bound, bound)

    def opposed() -> Tensor:
        h = net(torch.randn(5, 6, dtype=torch.float64))
        if place == "function":
            h = Clipped.apply(h)  # type: ignore[no-untyped-call]
        else:
            h.register_hook(lambda g: g.clamp(-bound, bound))
        return torch.stack([h.sum(), -h.sum()])

    first, second, weights = opposed(), opposed(), torch.tensor([0.9, 0.1], dtype=torch.float64)
    vector = naive.jacobian([weights @ second], params)[0]
    got = product(first, second, weights, params)
    naive.assert_product(got, naive.jacobian(first, params), vector, 1e-12)


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
    assert "a hook reads" in found.reason
