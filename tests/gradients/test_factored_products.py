"""G1ᵀ(G2 λ) without the gradients of linear layers' weights: the same numbers, less work."""

from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from test_blocks import Residual
from test_factors import LARGE, Transposed, asked_for, large, losses_of
from test_product import computed, expected, simplex
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint
from zoo import ZOO

import trimol
from python_functions import Doubled, Stopped
from trimol.gradients import _factors, gramian, product
from trimol.gradients._factors import common
from trimol.gradients._graph import record

ALWAYS = {"SMALLEST": 0, "FEWEST": 0, "TOUCHED": LARGE}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every linear layer of a test, however small, no gradient is made."""
    for name, value in ALWAYS.items():
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
    layers = [_factors.Layer(weight, edge, x, turned=True) for x in (one, two)]
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


# -- pairs of uses ---------------------------------------------------------------------------------


class Turned(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.T


class Scaled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 3 * weight


def parametrised(how: nn.Module, w: nn.Parameter) -> nn.Module:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight = w
    return parametrize.register_parametrization(layer, "weight", how, unsafe=True)


# For each, which of the inputs below it takes.
PARAMETRISED = {"identity": (nn.Identity(), 0), "turning": (Turned(), 1), "scaling": (Scaled(), 0)}
# What is made of rows x, as long as W has columns, and y, as long as it has rows.
USES: dict[str, Callable[[Tensor, Tensor, nn.Parameter], Tensor]] = {
    "linear": lambda x, y, w: F.linear(x, w),
    "turned": lambda x, y, w: y @ w,
    "turned by T": lambda x, y, w: x @ w.T,
    "turned twice": lambda x, y, w: y @ w.t().t(),
    "on the left": lambda x, y, w: w @ x.T,
    "turned on the left": lambda x, y, w: w.t() @ y.T,
    "with a bias": lambda x, y, w: torch.addmm(w.detach()[0], y, w),
    "bias alone": lambda x, y, w: torch.addmm(w[0], y, w.detach()),
    "scaled by alpha": lambda x, y, w: torch.addmm(w.detach()[0], y, w, alpha=0.5, beta=2),
    "scaled": lambda x, y, w: F.linear(x, 2 * w),
    "scaled afterwards": lambda x, y, w: 2 * F.linear(x, w),
    "sliced": lambda x, y, w: F.linear(x, w[:2]),
    "sliced inputs": lambda x, y, w: y[:, :2] @ w[:2],
    "one row": lambda x, y, w: x @ w[0],
    "reused": lambda x, y, w: F.linear(x, w) * F.linear(x.flip(0), w),
    "both ways": lambda x, y, w: F.linear(x, w).sum() * (y @ w),
    "layer on layer": lambda x, y, w: F.linear(x, w).tanh() @ w,
    "penalised": lambda x, y, w: F.linear(x, w) + w.square().sum(),
    "sequences": lambda x, y, w: F.linear(x[None].expand(2, -1, -1), w),
    "one sample": lambda x, y, w: w @ x[0],
    "one repeated": lambda x, y, w: F.linear(x[:1].expand(4, -1), w),
    "repeated": lambda x, y, w: torch.bmm(x[None], w.t().expand(1, -1, -1)),
    "looked up": lambda x, y, w: F.embedding(torch.tensor([0, 1, 0]), w),
    "no rows": lambda x, y, w: F.linear(x[:0], w).sum() + F.linear(x, w.detach()),
    "stopped": lambda x, y, w: Stopped.apply(F.linear(x, w)) + 1,  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("shape", [(5, 4), (4, 4)], ids=str)
@given(
    uses=st.tuples(*[st.sampled_from([*USES, *PARAMETRISED])] * 2),
    rows=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    below=st.booleans(),
)
@example(uses=("linear", "turned"), rows=(3, 2), below=False)
@example(uses=("turned", "linear"), rows=(3, 2), below=True)
@example(uses=("linear", "no rows"), rows=(3, 2), below=False)
@example(uses=("linear", "stopped"), rows=(3, 2), below=False)
def test_every_pair_of_uses_of_one_weight(
    shape: tuple[int, int], uses: tuple[str, str], rows: tuple[int, int], below: bool
) -> None:
    """A product of two uses, and the Gramian of either, are those of a backward of each loss."""
    random = torch.Generator().manual_seed(0)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=random, dtype=torch.float64)

    w, lower = nn.Parameter(drawn(*shape)), nn.Parameter(drawn(3, sum(shape)))

    layers = {use: parametrised(how, w) for use, (how, _) in PARAMETRISED.items()}

    def losses(use: str, count: int) -> Tensor:
        given = (drawn(count, 3) @ lower).tanh().split([shape[1], shape[0]], 1)
        x = given if below else [each.detach() for each in given]
        made = USES[use](*x, w) if use in USES else layers[use](x[PARAMETRISED[use][1]])
        return drawn(3, made.numel()) @ made.flatten().sin() + lower.square().sum()

    params = [w, lower]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ALWAYS, "MOST": 0}.items():
            patch.setattr(_factors, name, value)
        patch.setattr(_factors.Layer, "once", 1.0)
        first, second = (losses(use, count) for use, count in zip(uses, rows, strict=True))
        assert_exact(first, second, params)
        rows_of = naive.jacobian(first, params)
        torch.testing.assert_close(
            gramian(first, params), rows_of @ rows_of.T, rtol=1e-12, atol=1e-12
        )
