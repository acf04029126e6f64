"""What must hold of G1ᵀ(G2 λ) on any graph: random compositions of operators."""

from collections.abc import Callable
from dataclasses import dataclass

import naive
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimol.gradients import gramian, jacobian, product

exact = settings(derandomize=True, deadline=None, max_examples=100)
ROUTES = ("tangents", "double-vjp", "backwards")
SIZE = 4  # every operator maps a SIZE × SIZE matrix and two such parameters to a matrix

OPERATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linear": lambda x, a, b: F.linear(x, a, b[0]),
    "mm": lambda x, a, b: x @ a,
    "addmm": lambda x, a, b: torch.addmm(b, x, a, alpha=0.5),
    "mul": lambda x, a, b: x * a.sum(0),
    "div": lambda x, a, b: x / (b.square() + 1),
    "residual": lambda x, a, b: x + (x @ a).tanh() @ b,
    "gate": lambda x, a, b: x * (x @ a).sigmoid(),
    "tanh": lambda x, a, b: x.tanh(),
    "gelu": lambda x, a, b: F.gelu(x),
    "sin": lambda x, a, b: x.sin() - 0.1 * x,
    "softmax": lambda x, a, b: x.softmax(-1),
    "log_softmax": lambda x, a, b: x.log_softmax(0),
    "layer_norm": lambda x, a, b: F.layer_norm(x, (SIZE,), a[0], b[0]),
    "batch_norm": lambda x, a, b: F.batch_norm(x, None, None, a[0], b[1], training=True),
    "transpose": lambda x, a, b: x.T,
    "slice and cat": lambda x, a, b: torch.cat([x[1:], a[:1]]),
    "unbind and stack": lambda x, a, b: torch.stack(x.unbind(1)[::-1]),
    "permute": lambda x, a, b: x.view(2, 2, SIZE).permute(1, 0, 2).reshape(SIZE, SIZE),
    "expand": lambda x, a, b: x.mean(0, keepdim=True).expand(SIZE, SIZE) + x,
    "cumsum": lambda x, a, b: x.cumsum(0),
    "index": lambda x, a, b: x[[3, 0, 0, 2]],
    "where": lambda x, a, b: torch.where(x > 0, x * a, b),
    "dropout": lambda x, a, b: F.dropout(x, 0.3),
    "conv": lambda x, a, b: F.conv1d(x[:, None], a[:1, None, :3], padding=1)[:, 0],
    "attention": lambda x, a, b: F.scaled_dot_product_attention(
        (x @ a)[None, None], x[None, None], (x @ b)[None, None]
    )[0, 0],
    "in place": lambda x, a, b: _in_place(x, a),
    "clamp": lambda x, a, b: x.clamp(-1, 1),
}


def _in_place(x: Tensor, a: Tensor) -> Tensor:
    y = x * 1
    y[0] = a[1]
    y[:, 1] += 2
    return y


@dataclass
class Problem:
    first: Tensor
    second: Tensor
    params: list[Tensor]
    fused: bool


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    names = draw(st.lists(st.sampled_from(sorted(OPERATORS)), min_size=1, max_size=6))
    objectives = draw(st.integers(1, 6))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    params = [torch.randn(SIZE, SIZE, dtype=torch.float64).requires_grad_() for _ in range(3)]
    places = st.integers(0, 2)
    chosen = [(OPERATORS[name], params[draw(places)], params[draw(places)]) for name in names]

    def losses() -> Tensor:
        x = torch.randn(SIZE, SIZE, dtype=torch.float64) @ params[0]
        for operator, a, b in chosen:
            x = operator(x, a, b)
        mixed = torch.randn(objectives, SIZE, SIZE, dtype=torch.float64) * x
        return torch.stack([m.sin().sum() for m in mixed])

    return Problem(losses(), losses(), params, "attention" in names)


def weights(count: int) -> Tensor:
    return torch.randn(count, dtype=torch.float64)


@exact
@given(problems())
def test_every_route_agrees_with_the_naive_jacobians(problem: Problem) -> None:
    first, second = (naive.jacobian(f, problem.params) for f in (problem.first, problem.second))
    w = weights(len(second))
    for route in (None, *ROUTES):
        if problem.fused and route == "double-vjp":
            continue  # the fused attention kernel has no second derivative
        got = product(problem.first, problem.second, w, problem.params, route=route)
        naive.assert_product(got, first, second.T @ w, 1e-9)


@exact
@given(problems())
def test_the_columns_are_those_of_the_product_of_the_jacobians(problem: Problem) -> None:
    first, second = (jacobian(f, problem.params) for f in (problem.first, problem.second))
    for j, unit in enumerate(torch.eye(len(second), dtype=torch.float64)):
        got = product(problem.first, problem.second, unit, problem.params)
        naive.assert_product(got, first, second[j], 1e-9)


@exact
@given(problems(), st.floats(-3, 3), st.floats(-3, 3))
def test_it_is_linear_in_the_weights(problem: Problem, a: float, b: float) -> None:
    count = len(problem.second)
    v, w = weights(count), weights(count)

    def of(u: Tensor) -> Tensor:
        return product(problem.first, problem.second, u, problem.params)

    one, other = of(v), of(w)
    scale = naive.jacobian(problem.first, problem.params).norm(dim=1) * (
        naive.jacobian(problem.second, problem.params).norm()
    )
    error = (of(a * v + b * w) - (a * one + b * other)).abs()
    assert (error <= 1e-9 * scale * (abs(a) * v.norm() + abs(b) * w.norm() + 1)).all()


@exact
@given(problems(), st.integers(-12, 12), st.integers(-12, 12))
def test_it_scales_with_the_losses(problem: Problem, one: int, other: int) -> None:
    """Powers of two: to the bit. Losses of any unit have evidence of the same quality."""
    w = weights(len(problem.second))
    want = product(problem.first, problem.second, w, problem.params) * 2.0 ** (one + other)
    got = product(problem.first * 2.0**one, problem.second * 2.0**other, w, problem.params)
    assert torch.equal(got, want)


@exact
@given(problems())
def test_swapping_the_draws_transposes_the_matrix(problem: Problem) -> None:
    """uᵀ G1ᵀG2 w = wᵀ G2ᵀG1 u."""
    u, w = weights(len(problem.first)), weights(len(problem.second))
    one = u @ product(problem.first, problem.second, w, problem.params)
    other = w @ product(problem.second, problem.first, u, problem.params)
    scale = (naive.jacobian(problem.first, problem.params).T @ u).norm() * (
        naive.jacobian(problem.second, problem.params).T @ w
    ).norm()
    assert (one - other).abs() <= 1e-9 * (scale + u.norm() * w.norm())


@exact
@given(problems(), st.integers(1, 7))
def test_the_gramian_is_the_product_of_the_rows_in_any_chunks(problem: Problem, chunk: int) -> None:
    want = naive.jacobian(problem.first, problem.params)
    norms = want.norm(dim=1)
    got = gramian(problem.first, problem.params, chunk=chunk)
    assert torch.equal(got, got.T)
    assert ((got - want @ want.T).abs() <= 1e-9 * torch.outer(norms, norms)).all()
