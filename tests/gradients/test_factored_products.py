"""G1ᵀ(G2 λ) without the gradients of linear layers' weights: the same numbers, less work."""

from typing import Any

import naive
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_blocks import Residual
from test_factors import LARGE, Transposed, asked_for, large, losses_of
from test_product import computed, expected, simplex
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import ZOO

import trimol
from python_functions import Doubled
from trimol.gradients import _factors, product
from trimol.gradients._factors import common
from trimol.gradients._graph import record


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every linear layer of a test, however small, no gradient is made."""
    for name, value in {"SMALLEST": 0, "FEWEST": 0, "TOUCHED": LARGE}.items():
        monkeypatch.setattr(_factors, name, value)


def skipped(first: Tensor, second: Tensor, params: list[Tensor]) -> set[int]:
    pairs = common(record(first, params), record(second, params))
    return {id(one.weight) for one, _ in pairs}


def assert_exact(first: Tensor, second: Tensor, params: list[Tensor], rtol: float = 1e-12) -> None:
    got = product(first, second, simplex(second), params)
    naive.assert_product(got, *expected(first, second, params), rtol)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", ZOO)
def test_the_zoo(name: str) -> None:
    assert_exact(*computed(name), rtol=max(ZOO[name].rtol, 1e-12))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["with bias", "without", "transposed"])
@pytest.mark.parametrize("sizes", [((4,), (3,)), ((2, 3), (1, 5)), ((1,), (6,))])
def test_a_layer_of_every_kind_and_batches_of_different_sizes(
    kind: str, sizes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    lower = nn.Linear(7, 6, dtype=torch.float64)
    plain = nn.Linear(6, 5, bias=kind == "with bias", dtype=torch.float64)
    layer = Transposed() if kind == "transposed" else plain

    def losses(size: tuple[int, ...]) -> Tensor:
        out = layer(lower(torch.randn(*size, 7, dtype=torch.float64)).tanh())
        return out.square().flatten(0, -2).mean(0)[:4]

    first, second = map(losses, sizes)
    params = [*lower.parameters(), *layer.parameters()]
    assert skipped(first, second, params) == {id(lower.weight), id(layer.weight)}
    assert_exact(first, second, params)
    assert_exact(first, first, params)  # the only draw, twice


@pytest.mark.usefixtures("always")
def test_both_batches_in_one_forward_pass() -> None:
    net = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    each = net(torch.randn(9, 7, dtype=torch.float64)).square()
    first, second, params = each[:5].mean(0), each[5:].mean(0), list(net.parameters())
    assert skipped(first, second, params) == {id(net[0].weight), id(net[2].weight)}
    assert_exact(first, second, params)


@pytest.mark.usefixtures("always")
def test_no_gradient_of_a_weight_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Residual(tied=False)
    first, second, params = net.losses(), net.losses(), list(net.parameters())
    weights = {id(p) for p in params if p.dim() == 2 and p is not net.embedding.weight}
    assert skipped(first, second, params) == weights
    asked = asked_for(monkeypatch)
    product(first, second, simplex(second), params)
    assert not weights & {id(each) for each in asked}


@pytest.mark.usefixtures("always")
def test_what_a_weight_is_used_for_besides_on_either_batch() -> None:
    """Twice, in a penalty, scaled, not at all: its gradient is not that of a layer."""
    net, other = (nn.Linear(6, 6, dtype=torch.float64) for _ in range(2))
    x, params = torch.randn(4, 6, dtype=torch.float64), [*net.parameters(), *other.parameters()]
    usual = net(x).square().mean(0)[:3]
    others = {
        "twice": net(net(x).tanh()).square().mean(0)[:3],
        "penalised": usual + net.weight.square().sum(),
        "scaled": torch.addmm(net.bias, x, net.weight, alpha=0.5).square().mean(0)[:3],
        "copied": (x @ (2 * net.weight).T).square().mean(0)[:3],
        "not used": other(x).square().mean(0)[:3],
        "written in Python": Doubled.apply(net(x)).square().mean(0)[:3],  # type: ignore[no-untyped-call]
    }
    assert skipped(usual, usual, params) == {id(net.weight)}
    for name, losses in others.items():
        assert name == "written in Python" or skipped(usual, losses, params) == set(), name
        assert skipped(losses, usual, params) == set(), name
        assert_exact(usual, losses, params)
        assert_exact(losses, usual, params)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("place", ["weight", "output"])
def test_hooks_on_either_batch_are_part_of_the_gradient(place: str) -> None:
    net = nn.Linear(6, 5, dtype=torch.float64)
    params = list(net.parameters())
    made = [net(torch.randn(4, 6, dtype=torch.float64)) for _ in range(2)]
    hooked: Any = net.weight if place == "weight" else made[1]
    hooked.register_hook(lambda gradient: 2 * gradient)
    first, second = (y.square().mean(0)[:3] for y in made)
    assert skipped(first, second, params) == set()
    assert_exact(first, second, params)


@pytest.mark.usefixtures("always")
def test_checkpoints_and_other_types_go_the_usual_way() -> None:
    net = nn.Linear(6, 5, dtype=torch.float64)
    x, params = torch.randn(4, 6, dtype=torch.float64, requires_grad=True), list(net.parameters())
    again = checkpoint(net, x, use_reentrant=False).square().mean(0)[:3]
    assert skipped(again, again, params) == set()
    assert_exact(again, again, params)
    half = nn.Linear(6, 5, dtype=torch.bfloat16)
    coarse = half(torch.randn(4, 6, dtype=torch.bfloat16)).square().mean(0)[:3]
    assert skipped(coarse, coarse, list(half.parameters())) == set()


@given(
    exponents=st.tuples(st.integers(-12, 12), st.integers(-12, 12)),
    rows=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    zero=st.booleans(),
)
def test_nasty_gradients(exponents: tuple[int, int], rows: tuple[int, int], zero: bool) -> None:
    """Lengths from 1e-12 to 1e12 and zeros, against the gradient itself."""
    random = torch.Generator().manual_seed(sum(exponents) + sum(rows))
    one, two = (torch.randn(n, 6, generator=random, dtype=torch.float64) for n in rows)
    one, two = one * 10.0 ** exponents[0], two * 10.0 ** exponents[1]
    given = torch.randn(rows[1], 4, generator=random, dtype=torch.float64) * (not zero)
    weight = nn.Parameter(torch.zeros(4, 6, dtype=torch.float64))
    edge = torch.autograd.graph.get_gradient_edge(weight)
    layers = [_factors.Layer(weight, edge, x) for x in (one, two)]
    found = layers[0].moved(layers[1], given)
    error = (found - one @ (given.T @ two).T).norm()
    assert error <= 1e-13 * one.norm() * two.norm() * given.norm()


def test_it_is_done_where_it_pays() -> None:
    """By sizes alone: fewer samples than a layer has inputs, in layers that are not small."""
    for batch, width, pays in ((16, 1024, True), (256, 1024, True), (4096, 512, False)):
        net, x = large(batch, width)
        params, losses = list(net.parameters()), losses_of(net, x, 4)
        layers = {id(net[0].weight), id(net[2].weight)} if pays else set()
        assert skipped(losses, losses, params) == layers, (batch, width)
    net, x = large(16, 64)
    losses = losses_of(net, x, 4)
    assert skipped(losses, losses, list(net.parameters())) == set()


@pytest.mark.parametrize("kind", [trimol.MoDo, trimol.SDMGrad])
def test_methods_deliver_the_same(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = large(18, 512)
    params, found = list(net.parameters()), []
    for smallest in (0, LARGE):
        monkeypatch.setattr(_factors, "SMALLEST", smallest)
        torch.manual_seed(0)
        method = kind(params, objectives=4)
        for _ in range(2):
            net.zero_grad()
            batches = trimol.data.split(x, method.draws)
            method(*(losses_of(net, batch, 4) for batch in batches)).backward()
        assert (method.info.route, method.info.reason) == ("tangents", "")
        # Half of the backward and half of the tangents, each of half of the batch.
        if kind is trimol.MoDo:
            assert method.info.extra == pytest.approx(2 / 3 if smallest else 0.34, rel=0.02)
        found.append((method.weights, torch.cat([p.grad.flatten() for p in params])))
    for ours, usual in zip(*found, strict=True):
        torch.testing.assert_close(ours, usual, rtol=1e-5, atol=1e-7)
    assert not torch.equal(found[0][0], torch.full_like(found[0][0], 0.25))
