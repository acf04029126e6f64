"""Gramians of linear layers without the gradients of their weights: the same numbers, less work."""

from collections.abc import Callable

import naive
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_blocks import Residual, assert_gramian
from test_rows import computed
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import ZOO

import trimol
from trimol.gradients import _blocks, _factors, gramian
from trimol.gradients._graph import record
from trimol.gradients._rows import parts_of

LARGE = 10**12


@pytest.fixture(params=["whole", "in blocks"])
def always(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every linear layer of a test, however small, no gradient is made."""
    monkeypatch.setattr(_factors, "SMALLEST", 0)
    monkeypatch.setattr(_factors, "MOST", 0)
    monkeypatch.setattr(_factors, "TOUCHED", LARGE)
    monkeypatch.setattr(_factors.Layer, "once", 1.0)
    if request.param == "in blocks":
        monkeypatch.setattr(_blocks, "HELD_ENTRIES", 0)
        monkeypatch.setattr(_blocks, "BLOCK_ENTRIES", 1)


def skipped(losses: Tensor, params: list[Tensor]) -> set[int]:
    parts = parts_of(record(losses, params))
    return set() if parts is None else set(parts.layers)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", ZOO)
def test_the_zoo(name: str) -> None:
    losses, params = computed(name)
    assert_gramian(losses, params, max(ZOO[name].rtol, 1e-12))


class Transposed(nn.Module):
    """y = x W, as GPT-2 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(5, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight)


def linear(bias: bool) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(6, 5, bias=bias, dtype=torch.float64)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("make", [linear(True), linear(False), Transposed])
@pytest.mark.parametrize("sizes", [(4,), (2, 3), (1,)])
def test_a_layer_of_every_kind(make: Callable[[], nn.Module], sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    lower, layer = nn.Linear(7, 6, dtype=torch.float64), make()
    x = torch.randn(*sizes, 7, dtype=torch.float64)
    hidden = lower(x).tanh()
    out = layer(hidden)
    losses = out.square().flatten(0, -2).mean(0)[:4]
    params = [*lower.parameters(), *layer.parameters()]
    assert {id(lower.weight), id(layer.weight)} == skipped(losses, params)
    assert_gramian(losses, params)


def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What gradients are asked of, from now on."""
    asked: list[object] = []
    grad = torch.autograd.grad

    def spy(outputs: object, inputs: list[object], *args: object, **options: object) -> object:
        asked.extend(inputs)
        return grad(outputs, inputs, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.autograd, "grad", spy)
    return asked


@pytest.mark.usefixtures("always")
def test_no_gradient_of_a_weight_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Residual(tied=False)
    losses, params = net.losses(), list(net.parameters())
    weights = [p for p in params if p.dim() == 2 and p is not net.embedding.weight]
    assert skipped(losses, params) == {id(p) for p in weights}
    asked = asked_for(monkeypatch)
    gramian(losses, params)
    assert not {id(p) for p in weights} & {id(each) for each in asked}


@pytest.mark.usefixtures("always")
def test_what_a_weight_is_used_for_besides() -> None:
    """Twice, tied to an embedding, in a penalty, scaled: its gradient is not that of a layer."""
    tied = Residual()
    assert id(tied.embedding.weight) not in skipped(tied.losses(), list(tied.parameters()))
    assert_gramian(tied.losses(), list(tied.parameters()))
    net = nn.Linear(6, 6, dtype=torch.float64)
    x, params = torch.randn(4, 6, dtype=torch.float64), list(net.parameters())
    twice = net(net(x).tanh()).square().mean(0)[:3]
    penalised = net(x).square().mean(0)[:3] + net.weight.square().sum()
    scaled = torch.addmm(net.bias, x, net.weight, alpha=0.5).square().mean(0)[:3]
    copied = (x @ (2 * net.weight).T).square().mean(0)[:3]
    for losses in (twice, penalised, scaled, copied):
        assert skipped(losses, params) == set()
        assert_gramian(losses, params)


@pytest.mark.usefixtures("always")
def test_losses_that_do_not_reach_a_layer() -> None:
    one, other = (nn.Linear(6, 5, dtype=torch.float64) for _ in range(2))
    x = torch.randn(4, 6, dtype=torch.float64)
    both = one(x).square().mean(0), other(x).square().mean(0)
    losses = torch.stack([both[0][0], both[1][0], both[0][1] + both[1][1], 0 * both[0][2]])
    assert_gramian(losses, [*one.parameters(), *other.parameters()])


@pytest.mark.usefixtures("always")
def test_a_loss_that_is_the_output_of_a_layer() -> None:
    net = nn.Linear(6, 3, dtype=torch.float64)
    losses = net(torch.randn(1, 6, dtype=torch.float64))[0]
    assert_gramian(losses, list(net.parameters()))
    flat = torch.addmm(net.bias, torch.ones(1, 6, dtype=torch.float64), net.weight.T).view(3)
    assert_gramian(flat, list(net.parameters()))


@pytest.mark.usefixtures("always")
def test_where_it_is_not_done() -> None:
    net = Residual(tied=False)
    params = list(net.parameters())
    losses = net.losses()
    net.marks[-2].register_hook(lambda gradient: 2 * gradient)
    assert skipped(losses, params) == set()
    assert_gramian(losses, params)
    hidden = net.embedding(torch.arange(11).view(1, 11))
    for block in net.blocks:
        hidden = hidden + checkpoint(block, hidden, use_reentrant=False)
    again = hidden.square().mean((0, 1))[:4]
    assert skipped(again, params) == set()
    assert_gramian(again, params)
    half = nn.Linear(6, 5, dtype=torch.bfloat16)
    coarse = half(torch.randn(4, 6, dtype=torch.bfloat16)).square().mean(0)[:3]
    assert skipped(coarse, list(half.parameters())) == set()
    spectral = nn.Linear(5, 4, dtype=torch.complex128)
    lengths = spectral(torch.randn(3, 5, dtype=torch.complex128)).abs().mean(0)[:3]
    assert skipped(lengths, list(spectral.parameters())) == set()


def test_float32_is_multiplied_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of few columns: closer to the truth than gradients that are rounded to float32."""
    for name, value in (("SMALLEST", 0), ("TOUCHED", LARGE), ("WIDENED_ENTRIES", 64)):
        monkeypatch.setattr(_factors, name, value)
    monkeypatch.setattr(_factors.Layer, "once", 1.0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(50, 40), nn.Tanh(), nn.Linear(40, 30))
    x = torch.randn(7, 50)
    losses, params = net(x).square().mean(0)[:5], list(net.parameters())
    found = gramian(losses, params)
    assert found.dtype == torch.float64
    assert torch.equal(found, found.T)
    net.double()
    rows = naive.jacobian(net(x.double()).square().mean(0)[:5], list(net.parameters()))
    torch.testing.assert_close(found, rows @ rows.T, rtol=2e-6, atol=1e-9)


@given(
    exponents=st.tuples(*[st.integers(-12, 12)] * 3),
    rows=st.integers(1, 5),
    zero=st.booleans(),
    same=st.booleans(),
)
def test_nasty_gradients(exponents: tuple[int, ...], rows: int, zero: bool, same: bool) -> None:
    """Lengths from 1e-12 to 1e12, zeros and duplicates, against the gradients themselves."""
    random = torch.Generator().manual_seed(sum(exponents) + rows)
    x = torch.randn(rows, 6, generator=random, dtype=torch.float64)
    given = torch.randn(3, rows, 4, generator=random, dtype=torch.float64)
    given *= torch.tensor([10.0**e for e in exponents], dtype=torch.float64)[:, None, None]
    given[1] = given[0] if same else given[1]
    given[2] *= not zero
    weight = nn.Parameter(torch.zeros(4, 6, dtype=torch.float64))
    edge = torch.autograd.graph.get_gradient_edge(weight)
    found = _factors.Layer(weight, edge, x, turned=True).gramian(list(given))
    want = (given.mT @ x).flatten(1)
    lengths = given.flatten(1).norm(dim=1) * x.norm()
    error = (found - want @ want.T).abs()
    assert (error <= 1e-14 * torch.outer(lengths, lengths)).all()


def large(batch: int, width: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
    return net, torch.randn(batch, width)


def losses_of(net: nn.Module, x: Tensor, count: int) -> Tensor:
    return net(x).square().view(len(x), count, -1).mean((0, 2))


def test_it_is_done_where_it_pays() -> None:
    """By sizes alone: few samples and wide layers, and as many losses as pay another backward."""
    net, x = large(16, 1024)
    params = list(net.parameters())
    assert skipped(losses_of(net, x, 4), params) == {id(net[0].weight), id(net[2].weight)}
    assert skipped(losses_of(net, x, 1), params) == set()
    for batch, width in ((2048, 1024), (16, 64)):
        net, x = large(batch, width)
        assert skipped(losses_of(net, x, 4), list(net.parameters())) == set(), (batch, width)


def test_mgda_delivers_the_same_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = large(16, 1024)
    params, found = list(net.parameters()), {}
    for route, smallest in (("factors", 0), ("rows", LARGE)):
        monkeypatch.setattr(_factors, "SMALLEST", smallest)
        method = trimol.MGDA(params, objectives=4)
        method(losses_of(net, x, 4)).backward()
        assert (method.info.route, method.info.reason) == (route, "")
        found[route] = method.weights, torch.cat([p.grad.flatten() for p in params])
        net.zero_grad()
        # M backwards that skip the weights, and the products; or M, of which one is delivered.
        extra = method.info.extra
        assert 4 / 3 < extra < 4 / 1.5 if route == "factors" else extra == pytest.approx(3 / 1.5)
    torch.testing.assert_close(found["factors"][0], found["rows"][0], rtol=1e-5, atol=1e-6)
    apart = found["factors"][1] - found["rows"][1]
    assert apart.norm() <= 1e-5 * found["rows"][1].norm()


def test_products_are_weighed_against_it() -> None:
    """They must cost less than the Gramian does, which is less than M backwards here."""
    net, x = large(16, 1024)
    method = trimol.MGDA(net.parameters(), objectives=8, solver="products", gap=0.1)
    for _ in range(2):
        method(losses_of(net, x, 8)).backward()
    cost = _factors.passes(
        _factors._linear(record(losses_of(net, x, 8), list(net.parameters()))), 8
    )
    assert method.info.extra <= cost / 1.5 + 1e-9
    assert 4 < cost < 7
