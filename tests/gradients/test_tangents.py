"""Tangents carried along the recorded graph: graphs that are awkward to walk."""

import weakref
from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
from torch import Tensor
from zoo import several

from trimol.gradients._graph import record
from trimol.gradients._rules import Unsupported
from trimol.gradients._tangents import push


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def assert_exact(losses: Tensor, moving: list[Tensor], rtol: float = 1e-12) -> None:
    direction = [torch.randn_like(x) for x in moving]
    got = push(record(losses, moving), direction)
    assert got.dtype == losses.dtype
    flat = torch.cat([d.reshape(-1) for d in direction])
    naive.assert_product(got, naive.jacobian(losses, moving), flat, rtol)


def _views(w: Tensor) -> Tensor:
    rows, flat = w.view(2, 8), w.reshape(-1)
    return (
        rows @ w.repeat(2, 1)[:, ::2]
        + w.T[2:, :2]
        + (flat[3:11].view(4, 2) * w[::2].reshape(4, 2))[::2]
    )


def _expanded(w: Tensor) -> Tensor:
    return w[:1].expand(5, 4) * w[:, :1].T.expand(3, 5, 4).sum(0)


def _same_node_twice(w: Tensor) -> Tensor:
    y = w.sin()
    return y * y + torch.mm(y, y) + torch.cat([y, y, y])[:4]


def _outputs_of_one_node(w: Tensor) -> Tensor:
    a, b, c, _ = (w * 2).unbind()
    return torch.stack([a * b, c * a, a + a])


def _diamond(w: Tensor) -> Tensor:
    y = w.exp()
    for _ in range(20):  # 2**20 paths through 40 nodes
        y = y.sin() + y.cos()
    return y


def _chunked_and_joined(w: Tensor) -> Tensor:
    a, b = w.chunk(2, 1)
    return torch.cat([b, a.tanh(), b * a], 1)


def _written_over(w: Tensor) -> Tensor:
    y = w * 1
    y[0] = w[1] * w[2]
    y[:, 1].mul_(3)
    y.diagonal().zero_()
    return y + w


def _view_of_an_output_written_over(w: Tensor) -> Tensor:
    y = w.sin()
    z = y[1:]
    z.add_(w[0])
    return y.square() + z.sum()


AWKWARD: list[Callable[[Tensor], Tensor]] = [
    _views,
    _expanded,
    _same_node_twice,
    _outputs_of_one_node,
    _diamond,
    _chunked_and_joined,
    _written_over,
    _view_of_an_output_written_over,
]


@pytest.mark.parametrize("function", AWKWARD)
def test_awkward_graphs(function: Callable[[Tensor], Tensor]) -> None:
    w = leaf(4, 4)
    assert_exact(several(function(w)), [w])


def test_a_deep_graph_does_not_recurse() -> None:
    x = leaf(3)
    y = x
    for _ in range(5000):
        y = y + 1e-4 * y
    assert_exact(y, [x], 1e-10)


def test_the_losses_may_be_a_parameter() -> None:
    x, y = leaf(4), leaf(4)
    direction = [torch.randn_like(x), torch.randn_like(y)]
    assert torch.equal(push(record(x, [x, y]), direction), direction[0])


def test_a_loss_may_be_an_entry_of_a_parameter_or_a_parameter_without_dimensions() -> None:
    w, number = leaf(4, 4), leaf()
    assert_exact(torch.stack([w[1, 2], number, number * w[0, 0], w.sum()]), [w, number])


def test_losses_without_any_path_to_the_parameters_do_not_move() -> None:
    x, other = leaf(4), leaf(4)
    losses = other.sin()
    got = push(record(losses, [x]), [torch.ones_like(x)])
    assert torch.equal(got, torch.zeros_like(losses))


def test_some_losses_without_a_path_to_the_parameters() -> None:
    x, other = leaf(4), leaf(4)
    assert_exact(torch.stack([other.sum(), x.sum(), other.prod(), x.prod()]), [x])
    assert_exact(torch.stack([torch.tensor(2.0, dtype=x.dtype), x.sum()]), [x])


@pytest.mark.parametrize("given", [("h",), ("w",), ("h", "w"), ("w", "h")])
def test_parameters_that_are_no_leaves(given: tuple[str, ...]) -> None:
    """As for ``torch.autograd.grad``: w's gradient includes the way through h."""
    tensors: dict[str, Tensor] = {"w": leaf(4, 4)}
    tensors["h"] = tensors["w"] @ tensors["w"]
    losses = several(tensors["h"].sin() @ tensors["w"] + tensors["h"].sum())
    assert_exact(losses, [tensors[name] for name in given])


def test_a_parameter_that_is_one_of_several_outputs_of_a_node() -> None:
    a, b, _ = (leaf(3, 4) * 2).unbind()
    losses = several(torch.outer(a, b) + a)
    for moving in ([a], [b], [a, b]):
        assert_exact(losses, moving)


def test_the_losses_may_be_one_of_several_outputs_of_a_node() -> None:
    w = leaf(4, 4)
    assert_exact((w @ w).unbind()[2], [w])


def test_parameters_of_different_types() -> None:
    single, double = torch.randn(4, 4, requires_grad=True), leaf(4, 4)
    losses = several((single + torch.ones(4, 4, dtype=torch.float64)) @ double)
    moving = [single, double]
    direction = [torch.randn_like(x) for x in moving]
    got = push(record(losses, moving), direction)
    flat = torch.cat([d.reshape(-1).double() for d in direction])
    naive.assert_product(got, naive.jacobian(losses, moving), flat, 1e-6)


def test_the_directions_are_not_changed() -> None:
    """Tangents are added to; the direction that came in must not be."""
    w = leaf(4, 4)
    losses = several(w @ w + w)
    direction = torch.randn_like(w)
    copy = direction.clone()
    push(record(losses, [w]), [direction])
    assert torch.equal(direction, copy)


def test_a_tangent_is_released_once_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along a chain, two tangents are alive at most (one being read, one being made)."""
    from trimol.gradients import _tangents as tangents

    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def watched(node: Any, incoming: Any) -> Any:
        nonlocal most
        outgoing = carry(node, incoming)
        alive.extend(weakref.ref(t) for t in outgoing if t is not None)
        most = max(most, sum(ref() is not None for ref in alive))
        return outgoing

    carry = tangents.carry
    monkeypatch.setattr(tangents, "carry", watched)
    y = x = leaf(4)
    for _ in range(50):
        y = y.sin()
    push(record(y, [x]), [torch.ones_like(x)])
    assert len(alive) == 50
    assert most <= 2


def test_a_python_node_raises() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g

    x = leaf(4)
    losses = Same.apply(x)
    with pytest.raises(Unsupported, match="SameBackward"):
        push(record(losses, [x]), [torch.ones_like(x)])
    # but not where it does not lie between the losses and the parameters
    other = leaf(4)
    assert_exact(Same.apply(other) * x, [x])


def test_no_graph_is_recorded_and_autocast_does_not_round() -> None:
    w = torch.randn(4, 4, requires_grad=True)
    losses = several(w @ w)
    outside = push(record(losses, [w]), [torch.ones_like(w)])
    with torch.autocast("cpu", torch.bfloat16):
        inside = push(record(losses, [w]), [torch.ones_like(w)])
    assert not outside.requires_grad
    assert torch.equal(outside, inside)
