"""Losses with graphs of their own: a backward of each is one of all, and tells everything."""

import copy
from collections.abc import Callable, Sequence

import naive
import pytest
import torch
from torch import Tensor, nn

import trimol
from trimol.gradients import _rows, evidence
from trimol.gradients._graph import record

OBJECTIVES = 5


def net(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, OBJECTIVES)).to(dtype)


def points(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(OBJECTIVES, 6, 2, generator=torch.Generator().manual_seed(seed)).to(dtype)


def apart(model: nn.Module, at: Tensor) -> Tensor:
    """Each loss has points, and a forward pass, of its own."""
    return torch.stack(each(model, at))


def each(model: nn.Module, at: Tensor) -> list[Tensor]:
    return [(model(own)[:, m] - m).square().mean() for m, own in enumerate(at)]


def together(model: nn.Module, at: Tensor) -> Tensor:
    """One forward pass for all losses."""
    out = model(at[0])
    return torch.stack([(out[:, m] - m).square().mean() for m in range(OBJECTIVES)])


def derived(model: nn.Module, at: Tensor) -> Tensor:
    """As `apart`, with an equation: a loss of derivatives in the points."""
    x = at[0].clone().requires_grad_()
    u = model(x)[:, 0]
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return torch.stack([(slope.sum(1) + u).square().mean(), *each(model, at)[1:]])


def flat_gradient(params: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in params if p.grad is not None])


def assert_step(
    losses: Callable[[nn.Module, Tensor], Tensor], draws: int, *, simultaneous: bool, route: str
) -> None:
    """One step of MoDo, against Jacobians by single backwards."""
    model = net()
    params, batches = list(model.parameters()), [points(seed) for seed in range(draws)]
    rows = [naive.jacobian(losses(model, at), params) for at in batches]
    start = torch.tensor([0.3, 0.1, 0.2, 0.15, 0.25], dtype=torch.float64)
    weights = trimol.simplex.project(start - 0.1 * rows[0] @ (rows[-1].T @ start))
    method = trimol.MoDo(
        params, OBJECTIVES, gamma=0.1, weights=start, draws=draws, simultaneous=simultaneous
    )
    method(*(losses(model, at) for at in batches)).backward()
    assert method.info.route == route
    torch.testing.assert_close(method.weights, weights)
    direction = (start if simultaneous else weights) @ torch.stack(rows).mean(0)
    torch.testing.assert_close(flat_gradient(params), direction)


@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("losses", [apart, derived])
def test_separate_losses_go_by_rows(losses, draws, simultaneous):
    assert_step(losses, draws, simultaneous=simultaneous, route="rows")


@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("draws", [1, 2])
def test_a_shared_trunk_goes_by_tangents(draws, simultaneous):
    assert_step(together, draws, simultaneous=simultaneous, route="tangents")


def test_each_graph_is_passed_once(monkeypatch):
    """Of five losses with a draw of their own: five backwards, and none by ``backward()``."""
    model, calls, grad = net(), [], torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **o: calls.append(1) or grad(*a, **o))
    method = trimol.MoDo(model.parameters(), OBJECTIVES, draws=1)
    method(apart(model, points(0))).backward()
    assert len(calls) == OBJECTIVES
    assert method.info.extra == 0


def test_several_products_of_one_step(monkeypatch):
    model = net()
    params, first, second = list(model.parameters()), points(0), points(1)
    found = evidence.Evidence([apart(model, at) for at in (first, second)], params, OBJECTIVES)
    want = (
        naive.jacobian(apart(model, first), params) @ naive.jacobian(apart(model, second), params).T
    )
    monkeypatch.setattr(
        evidence, "all_rows", lambda g, seen=[]: seen.append(g) or _rows.all_rows(g)
    )
    torch.testing.assert_close(found.cross(torch.ones(OBJECTIVES).double()), want)
    assert found.passes == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_resume_is_equal_to_the_bit(dtype):
    model = net(dtype=dtype)
    method = trimol.MoDo(model.parameters(), OBJECTIVES, gamma="auto")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(model: nn.Module, method: trimol.MoDo, optimizer, seeds: Sequence[int]) -> None:
        for seed in seeds:
            optimizer.zero_grad()
            method(*(apart(model, points(2 * seed + i, dtype)) for i in range(2))).backward()
            optimizer.step()

    train(model, method, optimizer, range(3))
    again = copy.deepcopy(model)
    other = trimol.MoDo(again.parameters(), OBJECTIVES, gamma="auto")
    other.load_state_dict(method.state_dict())
    train(model, method, optimizer, range(3, 6))
    train(again, other, torch.optim.SGD(again.parameters(), lr=0.1), range(3, 6))
    assert method.info.route == other.info.route == "rows"
    assert torch.equal(method.weights, other.weights)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_a_step_in_an_optimizers_metric():
    model, plain = net(), net()
    params = list(model.parameters())
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.Adam(params, lr=0.1)
    optimizer.step()
    plain.load_state_dict(model.state_dict())
    found = {}
    for route, losses in (("rows", apart), ("tangents", lambda *a: apart(*a) * torch.ones(()))):
        method = trimol.MoDo(params, OBJECTIVES, gamma=0.1, optimizer=optimizer)
        method(losses(model, points(0)), losses(model, points(1)))
        assert method.info.route == route
        found[route] = method.weights
    torch.testing.assert_close(found["rows"], found["tangents"])


@pytest.mark.parametrize("why", ["hook", "size", "vector", "third draw"])
def test_where_rows_are_not_taken(monkeypatch, why):
    model, draws = net(), 3 if why == "third draw" else 2
    params = list(model.parameters())
    if why == "size":
        monkeypatch.setattr(evidence, "SEPARATE_ENTRIES", 1)
    if why == "hook":
        params[0].register_hook(lambda g: 2 * g)
    losses = [apart(model, points(seed)) for seed in range(draws)]
    if why == "vector":
        losses = [vector * 1.0 for vector in losses]
    method = trimol.MoDo(params, OBJECTIVES, draws=draws)
    method(*losses).backward()
    assert method.info.route != "rows"


def test_a_large_node_that_many_small_ones_follow_is_shared():
    """Counted by nodes alone, these losses have hardly anything in common."""
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    big = torch.randn(3000, 200, dtype=torch.float64) @ x

    def tail(value: Tensor) -> Tensor:
        for _ in range(60):
            value = value.sin()
        return value

    graph = record(torch.stack([tail(big.sum()), tail(big.mean()), tail(big[0])]), [x])
    nodes = sum(often for _, often in graph.plan.shared) / len(graph.plan.inner)
    assert nodes < 0.1 < graph.overlap
    assert not graph.is_separate


def test_a_small_node_that_large_ones_follow_may_be_shared():
    x = torch.randn(2, 1, dtype=torch.float64, requires_grad=True)
    scale = x.exp()
    losses = []
    for m in range(3):
        value = scale @ torch.randn(1, 500, dtype=torch.float64)
        for _ in range(20):
            value = value.sin()
        losses.append(value.mean() * m)
    graph = record(torch.stack(losses), [x])
    assert 0 < graph.overlap < 0.1
    assert graph.is_separate


def test_gramians_of_separate_losses_are_not_batched(monkeypatch):
    """A batch would send every loss through the graphs of all."""
    model = net()
    monkeypatch.setattr(_rows, "_batches", lambda *_: pytest.fail("batched"))
    method = trimol.MGDA(model.parameters(), OBJECTIVES)
    method(apart(model, points(0))).backward()
    rows = naive.jacobian(apart(model, points(0)), model.parameters())
    torch.testing.assert_close(method.info.gramian, rows @ rows.T)
    assert method.info.extra == 0


def test_products_do_not_pay_for_separate_losses():
    model = net()
    method = trimol.MGDA(model.parameters(), OBJECTIVES, solver="products")
    method(apart(model, points(0))).backward()
    assert method.info.reason == "products cost no less than 1 backwards"
