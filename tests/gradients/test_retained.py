"""``h.retain_grad()``: a user finds there what his own backward leaves, and nothing of ours."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trimol
from trimol.gradients import _retained, gramian, jacobian, product

METHODS: dict[str, Callable[..., Any]] = {
    "static": trimol.Static,
    "mgda": trimol.MGDA,
    "upgrad": trimol.UPGrad,
    "pcgrad": trimol.PCGrad,
    "modo": trimol.MoDo,
    "modo, at once": lambda *given: trimol.MoDo(*given, simultaneous=True),
    "modo, one draw": lambda *given: trimol.MoDo(*given, draws=1, simultaneous=True),
    "gradnorm": trimol.GradNorm,
}


class Net(nn.Module):
    def __init__(self, objectives: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(6, n, dtype=torch.float64) for n in (6, objectives))
        self.between: list[Tensor] = []

    def losses(self) -> Tensor:
        h = self.a(torch.randn(5, 6, dtype=torch.float64))
        h.retain_grad()
        self.between.append(h)
        return self.b(h.tanh()).square().mean(0)


@pytest.mark.parametrize("objectives", [3, 6])  # a loop of backwards, and a batch of them
@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_gradient_of_the_scalar(name: str, objectives: int) -> None:
    net = Net(objectives)
    method = METHODS[name](net.parameters(), objectives)
    for _ in range(2):
        net.between.clear()
        draws = [net.losses() for _ in range(method.draws)]
        before = method.weights.clone()
        scalar = method(*draws)
        weights = before if getattr(method, "simultaneous", False) else method.weights
        share = weights.to(draws[0]) / len(draws)
        want = torch.autograd.grad(
            torch.stack(draws).sum(0) @ share, net.between, retain_graph=True
        )
        for h in net.between:
            h.grad = None  # what the line above has left
        scalar.backward()
        for h, gradient in zip(net.between, want, strict=True):
            torch.testing.assert_close(h.grad, gradient)


def test_a_direction_that_is_no_sum_of_gradients_leaves_nothing() -> None:
    net = Net(3)
    trimol.GradDrop(net.parameters(), 3)(net.losses()).backward()
    assert net.between[0].grad is None


@pytest.mark.parametrize("objectives", [3, 6])
def test_evidence_alone_leaves_what_was_there(objectives: int) -> None:
    net = Net(objectives)
    first, second = net.losses(), net.losses()
    params = list(net.parameters())
    kept = net.between[0].grad = torch.randn_like(net.between[0])
    copy = kept.clone()
    jacobian(first, params)
    gramian(first, params)
    product(first, second, torch.ones(objectives), params, route="double-vjp")
    assert net.between[0].grad is kept
    assert torch.equal(kept, copy)
    assert net.between[1].grad is None


def test_tensors_are_not_kept_alive() -> None:
    net = Net(3)
    net.losses()
    number = id(net.between[0])
    assert number in _retained._NOTED
    net.between.clear()
    gc.collect()
    assert number not in _retained._NOTED
    x = torch.ones(2, requires_grad=True)
    x.retain_grad()  # of a leaf it means nothing
    assert not any(tensor is x for tensor in _retained.retaining())
