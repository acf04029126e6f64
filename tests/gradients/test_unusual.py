"""Models that a plain backward trains without a word: methods give the same gradients."""

from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn

import trimol
from python_functions import Stopped
from trimol.gradients import _factors

M = 3
METHODS: dict[str, Callable[..., Any]] = {
    "mgda": trimol.MGDA,
    "modo": trimol.MoDo,
    "modo, at once": lambda *given: trimol.MoDo(*given, simultaneous=True),
    "pcgrad": trimol.PCGrad,
    "static": trimol.Static,
}


def assert_step(name: str, losses: Callable[[], Any], params: list[Tensor]) -> None:
    """The gradients of one step are those of plain backwards with its weights."""
    method = METHODS[name](params, M)
    draws = [losses() for _ in range(method.draws)]
    rows = torch.stack([naive.jacobian(draw, params) for draw in draws]).mean(0)
    before = method.weights
    method(*draws).backward()
    got = torch.cat([torch.zeros_like(p) if p.grad is None else p.grad for p in map(_flat, params)])
    if name != "pcgrad":
        want = (before if name == "modo, at once" else method.weights) @ rows
        torch.testing.assert_close(got.double(), want, rtol=1e-9, atol=1e-12)
    assert method.info.updated == (name != "static")


def _flat(p: Tensor) -> Tensor:
    flat = p.detach().reshape(-1)
    flat.grad = None if p.grad is None else p.grad.reshape(-1)
    return flat


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, dtype=torch.float64)


def rows(count: int, width: int) -> Tensor:
    return torch.randn(count, width, dtype=torch.float64)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_a_number_as_a_parameter_that_a_loss_does_not_reach(
    name: str, shared: bool, used: bool
) -> None:
    net, scale = linear(4, M), nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def losses() -> list[Tensor]:
        y = net(rows(6, 4))
        outputs = [y if shared else net(rows(6, 4)) for _ in range(M)]
        each = [out[:, m].square().mean() for m, out in enumerate(outputs)]
        return [each[0] * scale, *each[1:]] if used else each

    assert_step(name, losses, [*net.parameters(), scale])


@pytest.fixture
def factored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_factors, "SMALLEST", 0)
    monkeypatch.setattr(_factors, "FEWEST", 0)


@pytest.mark.usefixtures("factored")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("busy", [(0, 0), (0, 1), (1, 0)])
def test_an_expert_that_gets_no_rows(name: str, busy: tuple[int, int]) -> None:
    experts, head = nn.ModuleList(linear(16, 16) for _ in range(2)), linear(16, M)
    turn = iter(busy)

    def losses() -> Tensor:
        x, who = rows(4, 16), torch.full((4,), next(turn))
        y = torch.zeros_like(x)
        for i, expert in enumerate(experts):
            y = y.index_add(0, (who == i).nonzero()[:, 0], expert(x[who == i]))
        return head(y).square().mean(0)

    assert_step(name, losses, [*experts.parameters(), *head.parameters()])


@pytest.mark.usefixtures("factored")
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", METHODS)
def test_a_layer_without_inputs_or_outputs(name: str) -> None:
    net, extra, none, head = linear(16, 16), linear(0, 16), linear(16, 0), linear(16, M)

    def losses() -> Tensor:
        x = rows(4, 16)
        y = net(x) + extra(rows(4, 0)) + none(x).sum(1, keepdim=True)
        return head(y.tanh()).square().mean(0)

    assert_step(name, losses, [p for each in (net, extra, none, head) for p in each.parameters()])


@pytest.mark.usefixtures("factored")
@pytest.mark.parametrize("name", METHODS)
def test_a_backward_that_gives_no_gradient_in_one_of_the_draws(name: str) -> None:
    layer, head = linear(16, 16), linear(16, M)
    stops = iter([False, True])

    def losses() -> Tensor:
        x = rows(4, 16)
        y = layer(x)
        y = Stopped.apply(y) if next(stops) else y  # type: ignore[no-untyped-call]
        return head(x + y).square().mean(0)

    assert_step(name, losses, [*layer.parameters(), *head.parameters()])
