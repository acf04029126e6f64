"""Plans are shared by graphs of one structure, and by no others: all answers stay exact."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint
from zoo import several

import trimol
from python_functions import Doubled, Tripled
from trimol.gradients import _graph, product
from trimol.gradients import _structure as structure
from trimol.gradients._graph import record
from trimol.gradients._structure import plan_of, walk
from trimol.gradients._tangents import push


@pytest.fixture(autouse=True)
def _forget() -> None:
    plan_of.cache_clear()


def double(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def assert_exact(losses: Tensor, params: Sequence[Tensor]) -> None:
    """Tangents of the losses, against a naive Jacobian."""
    direction = [torch.randn_like(p) for p in params]
    got = push(record(losses, params), direction)
    flat = torch.cat([d.reshape(-1).double() for d in direction])
    naive.assert_product(got, naive.jacobian(losses, params), flat, 1e-10)


def net(width: int = 4) -> nn.Sequential:
    layers = [nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 3)]
    return nn.Sequential(*layers).double()


def at_random(choice: random.Random, params: Sequence[Tensor]) -> Tensor:
    """Losses that some functions of some of the results before them make."""
    unary: list[Callable[[Tensor], Tensor]] = [torch.sin, torch.tanh, lambda a: a.flip(0), abs]
    binary: list[Callable[[Tensor, Tensor], Tensor]] = [torch.add, torch.mul, torch.sub]
    made = [*params]
    for _ in range(choice.randint(1, 6)):
        if choice.random() < 0.5:
            made.append(choice.choice(unary)(choice.choice(made)))
        else:
            made.append(choice.choice(binary)(choice.choice(made), choice.choice(made)))
    return several(made[-1] * choice.choice(params))


@pytest.mark.parametrize("seed", range(4))
def test_graphs_that_change_from_step_to_step(seed: int) -> None:
    choice = random.Random(seed)
    params = [double(4) for _ in range(3)]
    for _ in range(60):
        some = choice.sample(params, choice.randint(1, 3))
        assert_exact(at_random(choice, params), some)
    assert plan_of.cache_info().hits > 0  # some structures came again


def test_layers_skipped_at_random() -> None:
    choice, x = random.Random(0), torch.randn(5, 3, dtype=torch.float64)
    layers = nn.ModuleList(nn.Linear(3, 3).double() for _ in range(4))
    params = list(layers.parameters())
    for _ in range(30):
        y = x
        for layer in layers:
            if choice.random() < 0.5:
                y = y + layer(y).tanh()
        assert_exact(several(layers[0](y)), params)


def test_other_shapes_and_types_of_one_structure_share_a_plan() -> None:
    for width, batch in ((4, 5), (7, 2), (4, 1)):
        model = net(width)
        assert_exact(several(model(torch.randn(batch, 3).double())), list(model.parameters()))
    small = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    direction = [torch.ones_like(p) for p in small.parameters()]
    got = push(record(several(small(torch.randn(5, 3))), list(small.parameters())), direction)
    assert got.dtype == torch.float32
    assert plan_of.cache_info().currsize == 1


def test_two_models_by_turns() -> None:
    """Of one structure, and of two."""
    models = [net(), net(), nn.Sequential(nn.Linear(3, 3), nn.Sigmoid()).double()]
    for _ in range(3):
        for model in models:
            assert_exact(several(model(torch.randn(5, 3).double())), list(model.parameters()))
    assert plan_of.cache_info().currsize == 2


def test_one_structure_with_other_parameters() -> None:
    """Frozen, left out, in another order, twice the same weight."""
    model = net()
    x, params = torch.randn(5, 3).double(), list(model.parameters())
    for some in (params, params[::-1], params[1:], params[:1], params[2:], params):
        assert_exact(several(model(x)), some)
    params[0].requires_grad_(False)
    assert_exact(several(model(x)), params[1:])
    params[0].requires_grad_(True)
    assert_exact(several(model(x)), params)
    a, b = double(3, 3), double(3, 3)
    assert_exact(several(x @ a @ b), [a, b])
    assert_exact(several(x @ a @ a), [a, b])


def test_the_same_nodes_read_otherwise() -> None:
    """Kinds and numbers alike: only who reads which output of whom tells these apart."""
    a, b = double(4), double(4)
    for losses in (a.sin() - b.cos(), b.sin() - a.cos(), a.sin() - a.cos()):
        assert_exact(losses, [a, b])
    x = double(2, 4)
    for i, j in ((0, 1), (1, 0), (0, 0), (1, 1)):
        parts = x.unbind()
        assert_exact(parts[i].sin() * parts[j], [x])
    for h in (a.sin(), a.cos()):  # inside of the graph, or outside of it
        assert_exact(several(h * b), [h, b])
        assert_exact(several(a.sin() * b), [b])


def test_an_only_output_of_many() -> None:
    x = double(3, 4)
    for i in (0, 2, 1):
        assert_exact(x.sin().unbind()[i], [x])


def test_a_graph_that_is_passed_again_and_one_that_was_freed() -> None:
    model = net()
    params, x = list(model.parameters()), torch.randn(5, 3).double()
    losses = several(model(x))
    assert_exact(losses, params)
    losses.sum().backward(retain_graph=True)
    assert_exact(losses, params)
    losses.sum().backward()
    with pytest.raises(ValueError, match=r"a backward\(\) has freed"):
        product(losses, several(model(x)), torch.full((5,), 0.2).double(), params)
    assert_exact(several(model(x)), params)


def test_hooks_that_are_added_later_are_seen() -> None:
    """A plan says nothing of hooks: they are looked for in every step."""
    model = net()
    params, x = list(model.parameters()), torch.randn(5, 3).double()
    weights = torch.full((5,), 0.2).double()
    for factor in (1.0, 3.0, 1.0):
        hidden = model[0](x)
        if factor != 1:
            hidden.register_hook(lambda g: g * 3.0)
        first = several(model[2](model[1](hidden)))
        second = several(model(x))
        got = product(first, second, weights, params)
        rows = naive.jacobian(first, params)
        vector = weights @ naive.jacobian(second, params)
        naive.assert_product(got, rows, vector, 1e-10)
    handle = params[0].register_hook(lambda g: g * 2.0)
    first, second = several(model(x)), several(model(x))
    got = product(first, second, weights, params)
    vector = weights @ naive.jacobian(second, params)
    naive.assert_product(got, naive.jacobian(first, params), vector, 1e-10)
    handle.remove()


def test_checkpoints_that_come_and_go() -> None:
    """The structure is the same: what saved tensors are computed by is looked at in every step."""
    model, calls = net(), 0
    params, x = list(model.parameters()), torch.randn(5, 3).double()

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        result: Tensor = model(x)
        return result

    for again in (False, True, False, True):
        calls = 0
        y = checkpoint(counted, x, use_reentrant=False) if again else counted(x)
        push(record(several(y), params), [torch.ones_like(p) for p in params])
        assert calls == 1 + again
        assert_exact(several(y), params)


def test_functions_in_python_share_a_plan_and_are_told_apart() -> None:
    x = double(4)
    weights = torch.full((4,), 0.25).double()
    for function in (Doubled, Tripled, Doubled):
        first, second = function.apply(x.sin()), x.cos()
        got = product(first, second, weights, [x])
        vector = weights @ naive.jacobian(second, [x])
        naive.assert_product(got, naive.jacobian(first, [x]), vector, 1e-12)
    kept = [key for key in _kinds() if isinstance(key, type) and issubclass(key, Doubled)]
    assert not kept


def _kinds() -> list[Any]:
    return [*structure._KINDS]


def test_a_method_whose_parameters_freeze_and_whose_model_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit what it does where every plan is made anew."""
    found = []
    for remembers in (True, False):
        if not remembers:
            monkeypatch.setattr(_graph, "plan_of", plan_of.__wrapped__)
        torch.manual_seed(0)
        model, choice = net(), random.Random(1)
        params = list(model.parameters())
        method = trimol.MoDo(params, objectives=5, gamma=0.5)
        for step in range(12):
            params[1].requires_grad_(step % 3 != 1)
            x, y = torch.randn(2, choice.choice([2, 5]), 3).double()
            once = choice.random() < 0.5
            draws = [several(model(z) if once else model(z) + model(z.flip(0))) for z in (x, y)]
            model.zero_grad()
            method(*draws).backward()
            found += [method.weights, *(p.grad for p in params)]
    assert plan_of.cache_info().hits > 12
    middle = len(found) // 2
    for one, other in zip(found[:middle], found[middle:], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def test_a_key_is_the_structure() -> None:
    """Equal for equal structures, different for any other kind, edge, output, place or count."""
    a, b = double(2, 4), double(2, 4)

    def key(losses: Tensor, *params: Tensor) -> Any:
        nodes, found = walk(get_gradient_edge(losses).node, params)
        return len(nodes), found

    assert key(a.sin() * b, a, b) == key(b.sin() * a, b, a)
    h = a.sin()
    variants = [
        key(a.sin() * b, a, b),
        key(a.cos() * b, a, b),
        key(a.sin() * b, b, a),
        key(a.sin() * b, a),
        key(a.sin() * b, b),
        key(a.sin() * a, a, b),
        key(b * a.sin(), a, b),
        key(a.sin() * b.detach(), a, b),
        key(a.sin().sin() * b, a, b),
        key(h * b, h, b),
        key(a.unbind()[0] * b, a, b),
        key(a.unbind()[1] * b, a, b),
    ]
    assert len(set(variants)) == len(variants)


def test_plans_are_forgotten() -> None:
    x = double(2)
    for length in range(structure.REMEMBERED + 10):
        y = x
        for _ in range(length):
            y = y * 1
        record(y + 0, [x])
    assert plan_of.cache_info().currsize == structure.REMEMBERED
