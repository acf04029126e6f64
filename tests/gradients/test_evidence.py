"""What the losses of one step tell a method, and the scalar that it becomes."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn
from zoo import ZOO

from trimol.gradients import Evidence, NonFinite, _rows, gramian, observed, product
from trimol.gradients import evidence as _evidence
from trimol.gradients._graph import Graph, record
from trimol.gradients.losses import as_vector

WEIGHTS = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)


class MultiTask(nn.Module):
    """A trunk that a method weighs, and a head for each of three tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(6, 2) for _ in range(3)])
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        shared = self.trunk(x)
        return torch.stack(
            [(head(shared) - i).square().mean() for i, head in enumerate(self.heads)]
        )


def batches(count: int) -> Tensor:
    return torch.randn(count, 7, 4, dtype=torch.float64)


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def gradients(scalar: Tensor, params: Any) -> Tensor:
    params = list(params)
    return flat(torch.autograd.grad(scalar, params, retain_graph=True, materialize_grads=True))


# -- what it finds -------------------------------------------------------------------------------


def test_losses_are_the_mean_over_the_draws_in_float64() -> None:
    model = MultiTask().float()
    draws = [model(x.float()) for x in batches(3)]
    evidence = Evidence(draws, list(model.parameters()), 3)
    assert evidence.losses.dtype == torch.float64
    assert not evidence.losses.requires_grad
    torch.testing.assert_close(evidence.losses, torch.stack(draws).detach().double().mean(0))


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 4])
def test_gramian(chunk: int | None) -> None:
    model = MultiTask()
    params = list(model.trunk.parameters())
    losses = model(batches(1)[0])
    evidence = Evidence([losses], params, 3)
    assert (evidence.route, evidence.reason, evidence.findings) == ("", "", {})
    got = evidence.gramian(chunk=chunk)
    rows = naive.jacobian(losses, params)
    torch.testing.assert_close(got, rows @ rows.T)
    torch.testing.assert_close(got, gramian(losses, params))
    assert evidence.route == "rows"
    assert evidence.findings["gramian"] is got


def test_gramian_of_a_representation() -> None:
    """With respect to tensors inside the graph; the scalar is of the parameters all the same."""
    model = MultiTask()
    params = list(model.trunk.parameters())
    shared = model.trunk(batches(1)[0])
    losses = torch.stack([head(shared).square().mean() for head in model.heads])
    evidence = Evidence([losses], params, 3)
    rows = naive.jacobian(losses, [shared])
    torch.testing.assert_close(evidence.gramian(of=[shared]), rows @ rows.T)
    rows = naive.jacobian(losses, params[:1])
    torch.testing.assert_close(evidence.gramian(of=params[:1], chunk=2), rows @ rows.T)
    with pytest.raises(ValueError, match="objective 0 reaches none of the given tensors"):
        evidence.gramian(of=[shared * 1])
    want = gradients(losses @ WEIGHTS, params)
    torch.testing.assert_close(gradients(evidence.scalar(WEIGHTS), params), want)


def test_jacobian() -> None:
    model = MultiTask()
    params = list(model.trunk.parameters())
    losses = model(batches(1)[0])
    evidence = Evidence([losses], params, 3)
    torch.testing.assert_close(evidence.jacobian(), naive.jacobian(losses, params))
    assert evidence.route == "rows"
    want = gradients(losses @ WEIGHTS, params)
    torch.testing.assert_close(gradients(evidence.scalar(WEIGHTS), params), want)


def test_a_jacobian_in_float16_may_have_a_large_sum() -> None:
    x = torch.ones(40_000, dtype=torch.float16, requires_grad=True)
    losses = torch.stack([x.float().sum() * 4, x.float().sum() * 5])
    rows = Evidence([losses], [x], 2).jacobian()
    assert torch.equal(rows[0], torch.full_like(x, 4.0))
    assert rows.sum(1)[0].isinf()


@pytest.mark.parametrize("keep", [True, False])
def test_product(keep: bool) -> None:
    model = MultiTask()
    params = list(model.trunk.parameters())
    draws = [model(x) for x in batches(3)]  # a third draw plays no part in the product
    first, second, _ = (naive.jacobian(d, params) for d in draws)
    evidence = Evidence(draws, params, 3)
    got = evidence.product(WEIGHTS, keep_gradient=keep)
    naive.assert_product(got, first, second.T @ WEIGHTS, 1e-12)
    assert (evidence.route, evidence.reason) == ("tangents", "")
    assert evidence.findings["product"] is got


@pytest.mark.parametrize("name", ["hooked tensor", "Cubed through", "CubedOnce through"])
def test_the_route_and_its_reason_are_said(name: str) -> None:
    model, (x, y) = ZOO[name].build()
    draws = [as_vector(model(z)) for z in (x, y)]
    evidence = Evidence(draws, list(model.parameters()), len(draws[0]))
    evidence.product(torch.full((len(draws[0]),), 0.2, dtype=torch.float64))
    assert evidence.route == ZOO[name].route
    assert evidence.reason.startswith("no tangents: ")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_evidence_that_is_not_finite_is_recorded_and_raises(bad: float) -> None:
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    draws = [x.sin() * torch.tensor([1.0, bad, 1.0]), x.cos()]
    evidence = Evidence(draws, [x], 3)
    with pytest.raises(NonFinite):
        evidence.product(WEIGHTS)
    assert not evidence.findings["product"].isfinite().all()
    single = Evidence(draws[:1], [x], 3)
    with pytest.raises(NonFinite):
        single.gramian()
    torch.testing.assert_close(single.scalar(WEIGHTS), WEIGHTS @ draws[0], equal_nan=True)
    with pytest.raises(NonFinite):
        single.jacobian()
    with pytest.raises(NonFinite):
        single.values()


# -- the scalar ----------------------------------------------------------------------------------


def ways() -> dict[str, Callable[[Evidence], Any]]:
    """The ways to a scalar: nothing known, the rows known, the direction known."""
    return {
        "plain": lambda evidence: None,
        "rows": lambda evidence: evidence.gramian(),
        "rows in chunks": lambda evidence: evidence.gramian(chunk=2),
        "product": lambda evidence: evidence.product(WEIGHTS),
        "direction": lambda evidence: evidence.product(WEIGHTS, keep_gradient=True),
    }


@pytest.mark.parametrize("weighed", ["all", "trunk"])
@pytest.mark.parametrize("way", ways())
def test_the_scalar_is_worth_the_weighted_loss_and_has_its_gradient(way: str, weighed: str) -> None:
    """Gλ on the parameters, the plain sum of the losses' gradients on the heads."""
    model = MultiTask()
    params = list((model if weighed == "all" else model.trunk).parameters())
    heads = [] if weighed == "all" else list(model.heads.parameters())
    draws = [model(x) for x in batches(1 if "rows" in way else 2)]
    value = sum(draws) @ WEIGHTS / len(draws)
    mean = sum(draws) / len(draws)
    want = gradients(mean @ WEIGHTS, params)
    plain = gradients(mean.sum(), heads) if heads else torch.empty(0)

    evidence = Evidence(draws, params, 3)
    ways()[way](evidence)
    scalar = evidence.scalar(WEIGHTS)
    scalar.backward()
    torch.testing.assert_close(scalar.detach(), value.detach())
    torch.testing.assert_close(flat(p.grad for p in params), want)
    if heads:
        torch.testing.assert_close(flat(p.grad for p in heads), plain)


def test_the_scalar_of_chosen_draws() -> None:
    model = MultiTask()
    params = list(model.trunk.parameters())
    draws = [model(x) for x in batches(3)]
    evidence = Evidence(draws, params, 3)
    evidence.product(WEIGHTS)
    scalar = evidence.scalar(WEIGHTS, slice(2, 3))
    torch.testing.assert_close(scalar, draws[2] @ WEIGHTS)
    torch.testing.assert_close(gradients(scalar, params), gradients(draws[2] @ WEIGHTS, params))
    heads = list(model.heads.parameters())
    torch.testing.assert_close(gradients(scalar, heads), gradients(draws[2].sum(), heads))


def test_the_scalar_along_a_direction() -> None:
    """Its value is the weighted loss, its gradient the direction; the heads' stays plain."""
    model = MultiTask()
    params, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    losses = model(batches(1)[0])
    plain = gradients(losses.sum(), heads)
    direction = torch.randn(sum(p.numel() for p in params), dtype=torch.float64)
    scalar = Evidence([losses], params, 3).scalar_along(WEIGHTS, direction)
    scalar.backward()
    torch.testing.assert_close(scalar.detach(), (losses @ WEIGHTS).detach())
    torch.testing.assert_close(flat(p.grad for p in params), direction)
    torch.testing.assert_close(flat(p.grad for p in heads), plain)


def test_values_are_the_losses() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(Evidence([x.sin()], [x], 3).values(), x.sin().detach())


def test_the_heads_are_the_leaves_that_the_losses_reach_and_the_method_was_not_given() -> None:
    model = MultiTask()
    evidence = Evidence([model(x) for x in batches(2)], list(model.trunk.parameters()), 3)
    assert {id(p) for p in evidence.others} == {id(p) for p in model.heads.parameters()}


@pytest.mark.parametrize("way", ["plain", "rows", "product", "direction"])
def test_gradients_accumulate_as_with_any_loss(way: str) -> None:
    model = MultiTask()
    params = list(model.trunk.parameters())
    single = way == "rows"
    total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for _ in range(2):
        draws = [model(x) for x in batches(1 if single else 2)]
        mean = sum(draws) / len(draws)
        total[: len(flat(params))] += gradients(mean @ WEIGHTS, params)
        total[len(flat(params)) :] += gradients(mean.sum(), model.heads.parameters())
        evidence = Evidence(draws, params, 3)
        ways()[way](evidence)
        evidence.scalar(WEIGHTS).backward()
    torch.testing.assert_close(flat(p.grad for p in model.parameters()), total)


# -- the direction that is kept ------------------------------------------------------------------


def _sum_of_parameters(a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    """All get the very same gradient tensor from autograd."""
    total = a + b + c
    return torch.stack([total.sin() @ x, total @ x, total.square() @ x])


def _expanded(a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    """Gradients whose entries are all at one place in memory."""
    return torch.stack([a.sum(), b.sum() * x[0], c.sum() * x[1]])


def _unused(a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    return torch.stack([a @ x, a.sin() @ x, c.square() @ x])


@pytest.mark.parametrize("losses", [_sum_of_parameters, _expanded, _unused])
def test_gradients_that_share_their_memory(losses: Callable[..., Tensor]) -> None:
    params = [torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    draws = [losses(*params, x) for x in torch.randn(2, 4, dtype=torch.float64)]
    want = gradients(sum(draws) @ WEIGHTS / 2, params)
    evidence = Evidence(draws, params, 3)
    evidence.product(WEIGHTS, keep_gradient=True)
    torch.testing.assert_close(gradients(evidence.scalar(WEIGHTS), params), want)


@pytest.mark.parametrize("weighed", ["all", "trunk"])
@pytest.mark.parametrize("rows", [True, False])
def test_draws_that_share_a_forward_pass(weighed: str, rows: bool) -> None:
    """One forward pass for both draws: the graph of the one is part of the other's."""
    model = MultiTask()
    params = list((model if weighed == "all" else model.trunk).parameters())

    def losses() -> list[Tensor]:
        shared = model.trunk(batches(1)[0])
        outputs = [head(shared) - i for i, head in enumerate(model.heads)]
        each = torch.stack([y.square().mean(1) for y in outputs], 1)
        if rows:
            return list(torch.stack([each[:3].mean(0), each[3:].mean(0)]))
        return [each[:3].mean(0), each[3:].mean(0)]

    draws = losses()
    first, second = (naive.jacobian(d, params) for d in draws)
    evidence = Evidence(draws, params, 3)
    got = evidence.product(WEIGHTS, keep_gradient=True)
    naive.assert_product(got, first, second.T @ WEIGHTS, 1e-12)
    want = (first + second).T @ WEIGHTS / 2
    torch.testing.assert_close(gradients(evidence.scalar(WEIGHTS), params), want)


# -- hooks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["plain", "rows", "product", "direction"])
def test_hooks_on_parameters_and_heads_run_once(way: str) -> None:
    """A hook that scales what a leaf receives scales it once, however the scalar was made."""
    hooked, plain = MultiTask(), MultiTask()
    plain.load_state_dict(copy.deepcopy(hooked.state_dict()))
    for p in hooked.parameters():
        p.register_hook(lambda g: 3 * g)
    inputs = batches(1 if way == "rows" else 2)
    for model in (hooked, plain):
        evidence = Evidence([model(x) for x in inputs], list(model.trunk.parameters()), 3)
        ways()[way](evidence)
        evidence.scalar(WEIGHTS).backward()
    torch.testing.assert_close(
        flat(p.grad for p in hooked.parameters()), 3 * flat(p.grad for p in plain.parameters())
    )


def test_hooks_run_once_on_a_direction_made_of_the_rows() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    x.register_hook(lambda g: 3 * g)
    evidence = Evidence([x.square()], [x], 3)
    evidence.scalar_along(WEIGHTS, WEIGHTS @ evidence.jacobian()).backward()
    torch.testing.assert_close(x.grad, 3 * WEIGHTS * 2 * x.detach())


# -- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["plain", "rows", "product", "direction"])
def test_bfloat16_parameters_beside_float32(way: str) -> None:
    model = MultiTask().float()
    model.trunk.to(torch.bfloat16)
    params = list(model.trunk.parameters())

    def losses(x: Tensor) -> Tensor:
        shared = model.trunk(x.bfloat16()).float()
        return torch.stack([head(shared).square().mean() for head in model.heads])

    draws = [losses(x) for x in batches(1 if way == "rows" else 2)]
    want = gradients(sum(draws) @ WEIGHTS.float() / len(draws), params)
    evidence = Evidence(draws, [*params, *model.heads.parameters()], 3)
    ways()[way](evidence)
    scalar = evidence.scalar(WEIGHTS)
    assert scalar.dtype == torch.float32
    scalar.backward()
    assert all(p.grad.dtype == torch.bfloat16 for p in params)
    torch.testing.assert_close(flat(p.grad for p in params), want, rtol=5e-2, atol=1e-2)


# -- errors --------------------------------------------------------------------------------------


def test_a_wrong_number_of_objectives() -> None:
    x = torch.ones(3, requires_grad=True)
    message = r"^losses \(draw 2\) must have 3 entries, one per objective, found 2$"
    with pytest.raises(ValueError, match=message):
        Evidence([x * 1, x[:2] * 1], [x], 3)


SAME: dict[str, Callable[[Tensor], Any]] = {
    "the same tensor": lambda losses: losses,
    "a view": lambda losses: losses.view(-1),
    "its entries": list,
    "its entries, stacked": lambda losses: torch.stack(list(losses)),
    "its entries, in another order": lambda losses: list(losses)[::-1],
}


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("again", SAME)
def test_the_same_losses_twice_are_no_two_draws(again: str, stacked: bool) -> None:
    x = torch.randn(3, requires_grad=True)
    losses = torch.stack([x.sum(), x.prod(), x.sin().sum()]) if stacked else x.sin()
    message = (
        r"^losses \(draw 1\) and losses \(draw 3\) are the same losses: each draw must be computed "
        r"from a batch of its own$"
    )
    with pytest.raises(ValueError, match=message):
        Evidence([losses, x.cos(), SAME[again](losses)], [x], 3)


def test_rows_of_one_tensor_are_different_draws() -> None:
    x = torch.randn(3, requires_grad=True)
    both = torch.stack([x.sin(), x.cos()]) * 2
    Evidence(list(both), [x], 3).product(WEIGHTS)
    Evidence([both[0], both[1]], [x], 3).product(WEIGHTS)


def test_an_objective_that_reaches_no_parameter() -> None:
    x, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    message = (
        r"^objective 1 reaches none of the given parameters: its loss does not depend on them "
        r"\(detached\? computed by another model, or in another forward pass\?\)$"
    )
    with pytest.raises(ValueError, match=message):
        Evidence([[x.sum(), other.sum()]], [x], 2)
    with pytest.raises(ValueError, match=message):
        Evidence([[x.sum(), torch.tensor(1.0)]], [x], 2)
    with pytest.raises(ValueError, match=r"^objective 0 reaches none"):
        Evidence([other.sin()], [x], 3)


def test_frozen_parameters() -> None:
    x, frozen = torch.ones(3, requires_grad=True), torch.ones(3)
    evidence = Evidence([x * frozen], [frozen, x], 3)
    assert [id(p) for p in evidence.params] == [id(x)]
    with pytest.raises(ValueError, match=r"^params must hold a tensor that requires grad, found 1"):
        Evidence([x * 1], [frozen], 3)


def test_losses_are_named_by_their_draw() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match=r"^losses \(draw 2\) must require grad: "):
        Evidence([x * 1, x.detach()], [x], 3)


def test_evidence_agrees_with_the_functions() -> None:
    model = MultiTask()
    params = list(model.trunk.parameters())
    draws = [model(x) for x in batches(2)]
    evidence = Evidence(draws, params, 3)
    assert torch.equal(evidence.product(WEIGHTS), product(*draws, WEIGHTS, params))


def test_observed_losses_need_no_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    for losses in (x * 2, (x * 2).detach(), [torch.tensor(2.0)] * 3):
        found = observed(losses, 3)
        assert found.dtype == torch.float64
        assert not found.requires_grad
        assert found.tolist() == [2.0] * 3
    with pytest.raises(ValueError, match="must have 2 entries, one per objective, found 3"):
        observed(x, 2)
    with pytest.raises(TypeError, match="losses must be floating point"):
        observed(torch.ones(2, dtype=torch.int64), 2)


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("objectives", [3, 6])
def test_a_gramian_and_its_scalar_read_the_graph_once(
    monkeypatch: pytest.MonkeyPatch, chunk: int | None, objectives: int
) -> None:
    read = []

    def spy(losses: Tensor, params: Sequence[Tensor]) -> Graph:
        read.append(losses)
        return record(losses, params)

    for module in (_evidence, _rows):
        monkeypatch.setattr(module, "record", spy)
    x = torch.randn(objectives, requires_grad=True)
    evidence = Evidence([x.sin() * x.sum()], [x], objectives)
    evidence.gramian(chunk=chunk)
    evidence.scalar(torch.full((objectives,), 1 / objectives)).backward()
    assert len(read) == 1
