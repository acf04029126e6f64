"""Complex parameters: as the same model with pairs of real ones."""

from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn
from zoo import several

import trimol
from covering import one_of_each_kind
from trimol.gradients import gramian, jacobian, product
from trimol.gradients._graph import record
from trimol.gradients._product import directional

ROUTES = ("tangents", "double-vjp", "backwards")


def spectral(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """A layer of a Fourier neural operator, and a real one."""
    z = torch.fft.rfft(x @ v) * w
    return torch.fft.irfft(z, n=4)


def mixed(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    z = torch.complex(x @ v, x) @ torch.outer(w, w.conj())[:, :2].repeat(2, 1)[:4]
    return torch.cat([z.abs(), z.real.sin(), (z / (z + 2j)).imag, z.angle()], 1)


def products_and_sums(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    a = torch.stack([w * 2, w.conj() + 1j, -w, w.exp()])
    y = torch.cat([a.mT @ a, a[:3] * w[1]]).sum(0) - w.mean()
    return torch.cat([torch.view_as_real(y).flatten(), (x @ v).tanh().flatten()])


def from_real(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Operators with a real input whose output is complex all the same."""
    y = (x @ v).sigmoid() + 0.5
    made = [
        y ** (1.5 + 2j),
        y ** w[0],
        (1 + 2j) ** y,
        2j * y,
        y + 1j,
        1j - y,
        y / (1 + 1j),
        w[1] / y,
    ]
    made += [y.to(w.dtype), torch.complex(y, y.sin()), y.neg() * w[0]]
    return torch.view_as_real(torch.stack(made)).flatten(0, -2)


FUNCTIONS = (spectral, mixed, products_and_sums, from_real)


def built(function: Callable[..., Tensor], dtype: torch.dtype) -> tuple[Any, list[Tensor], Tensor]:
    """Losses of an input, their parameters, and the complex one as pairs of real numbers."""
    w = torch.randn(3, dtype=dtype.to_complex(), requires_grad=True)
    v = torch.randn(4, 4, dtype=dtype, requires_grad=True)
    pairs = torch.view_as_real(w.detach()).clone().requires_grad_()
    return (lambda x, w=w: several(function(x, w, v))), [w, v], pairs


@pytest.mark.parametrize("route", [None, *ROUTES])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_product_is_that_of_pairs(function: Callable[..., Tensor], route: Any) -> None:
    losses, (w, v), pairs = built(function, torch.float64)
    x, y = torch.randn(2, 5, 4, dtype=torch.float64)
    weights = torch.linspace(1, 2, 5, dtype=torch.float64).softmax(0)
    got = product(losses(x), losses(y), weights, [w, v], route=route)
    as_complex = torch.view_as_complex(pairs)
    one, two = losses(x, w=as_complex), losses(y, w=as_complex)
    want = jacobian(one, [pairs, v]) @ (jacobian(two, [pairs, v]).T @ weights)
    assert not got.is_complex()
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_fastest_route_is_taken(function: Callable[..., Tensor]) -> None:
    losses, params, _ = built(function, torch.float64)
    graph = record(losses(torch.randn(5, 4, dtype=torch.float64)), params)
    assert directional(graph, [torch.randn_like(p) for p in params]).route == "tangents"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_are_those_of_pairs(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    losses, params, pairs = built(function, dtype)
    x = torch.randn(5, 4, dtype=dtype)
    moved = [pairs, params[1]]
    want = jacobian(losses(x, w=torch.view_as_complex(pairs)), moved)
    assert want.dtype == dtype
    naive.assert_rows(jacobian(losses(x), params), want, 1e3 * torch.finfo(dtype).eps)
    got, rows = gramian(losses(x), params, chunk=2), want.double()
    torch.testing.assert_close(got, rows @ rows.T, rtol=1e4 * torch.finfo(dtype).eps, atol=1e-5)


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 3, dtype=torch.complex128))
        self.v = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))

    def forward(self, x: Tensor, pairs: Tensor | None = None) -> Tensor:
        w = self.w if pairs is None else torch.view_as_complex(pairs)
        z = torch.fft.irfft(torch.fft.rfft(x).unsqueeze(1) * w, n=4).sum(1)
        return (z @ self.v).square().mean(0)


@pytest.mark.parametrize("name", one_of_each_kind(n for n in trimol.methods.names() if n != "rgw"))
def test_every_method_moves_a_complex_parameter_as_pairs(name: str) -> None:
    """Two steps: states, too, are those of the pairs."""
    model = Spectral()
    pairs = torch.view_as_real(model.w.detach()).clone().requires_grad_()
    kind = trimol.methods.get(name)
    one = kind([model.w, model.v], objectives=4)
    two = kind([pairs, model.v], objectives=4)
    for _ in range(2):
        inputs = torch.randn(one.draws, 5, 4, dtype=torch.float64)
        torch.manual_seed(1)
        one(*(model(x) for x in inputs)).backward()
        torch.manual_seed(1)
        two(*(model(x, pairs) for x in inputs)).backward()
        torch.testing.assert_close(torch.view_as_real(model.w.grad), pairs.grad)
        torch.testing.assert_close(one.weights, two.weights)


def test_what_knows_no_complex_numbers_says_so() -> None:
    w = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    with pytest.raises(
        TypeError,
        match=r"^optimizer must be None for complex parameters, found torch.complex64$",
    ):
        trimol.MGDA([w], objectives=2, optimizer=torch.optim.Adam([w]))
