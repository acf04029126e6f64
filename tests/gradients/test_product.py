"""G1ᵀ(G2 λ) by every route, against naive Jacobians."""

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import naive
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from zoo import ZOO, Attention, Net, draw, several

from trimol.gradients import product
from trimol.gradients._backward import gradient
from trimol.gradients._graph import record
from trimol.gradients._product import Directional, directional
from trimol.gradients.losses import as_vector

ROUTES = ("tangents", "double-vjp", "backwards")
POSSIBLE = [(n, r) for n, c in ZOO.items() for r in ROUTES if r not in c.impossible]
IMPOSSIBLE = [(n, r) for n, c in ZOO.items() for r in c.impossible]


def simplex(losses: Tensor) -> Tensor:
    """Some weights, all different."""
    return torch.linspace(1, 2, len(losses), dtype=torch.float64).softmax(0).to(losses.dtype)


def computed(name: str) -> tuple[Tensor, Tensor, list[Tensor]]:
    model, (first, second) = ZOO[name].build()
    return as_vector(model(first)), as_vector(model(second)), list(model.parameters())


def by_itself(first: Tensor, second: Tensor, params: list[Tensor]) -> Directional:
    live = [p for p in params if p.requires_grad]
    vector = gradient(second, live, simplex(second))
    return directional(record(first, live), vector)


def expected(first: Tensor, second: Tensor, params: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The naive Jacobian of ``first`` and the weighted gradient of ``second``."""
    vector = naive.jacobian(second, params).T @ simplex(second).double()
    return naive.jacobian(first, params), vector


# -- the zoo -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "route"), POSSIBLE)
def test_every_route_is_exact(name: str, route: Any) -> None:
    first, second, params = computed(name)
    got = product(first, second, simplex(second), params, route=route)
    naive.assert_product(got, *expected(first, second, params), ZOO[name].rtol)


@pytest.mark.parametrize(("name", "route"), IMPOSSIBLE)
def test_a_route_that_the_graph_does_not_allow_is_refused(name: str, route: Any) -> None:
    first, second, params = computed(name)
    with pytest.raises(ValueError, match=f"^route '{route}' is not possible on this graph: "):
        product(first, second, simplex(second), params, route=route)


@pytest.mark.parametrize("name", ZOO)
def test_the_fastest_possible_route_is_taken_and_said(name: str) -> None:
    first, second, params = computed(name)
    found = by_itself(first, second, params)
    assert found.route == ZOO[name].route
    assert bool(found.reason) == (found.route != "tangents")
    naive.assert_product(found.values, *expected(first, second, params), ZOO[name].rtol)


SINGLE = [n for n, c in ZOO.items() if c.dtype == torch.float32 and "dropout" not in n]


@pytest.mark.parametrize("name", SINGLE)
def test_float32_is_close_to_a_float64_copy(name: str) -> None:
    _assert_close_to_copy(name, torch.float32, 1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "batch norm 2d, after conv, train",
        "layer norm",
        "gru",
        "attention, causal, float32",
        "encoder, eval, float32",
        "losses as one vector",
    ],
)
def test_bfloat16_parameters_are_close_to_a_float64_copy(name: str) -> None:
    _assert_close_to_copy(name, torch.bfloat16, 5e-2)


def _assert_close_to_copy(name: str, dtype: torch.dtype, rtol: float) -> None:
    (model, inputs), (exact, exact_inputs) = replace(ZOO[name], dtype=dtype).build_with_copy()
    first, second = (as_vector(model(x)) for x in inputs)
    found = by_itself(first, second, list(model.parameters()))
    assert found.route == "tangents"
    assert found.values.dtype == dtype
    one, two = (as_vector(exact(x)) for x in exact_inputs)
    naive.assert_product(found.values, *expected(one, two, list(exact.parameters())), rtol)


@pytest.mark.parametrize(
    "name",
    ["mlp", "batch norm 2d, after conv, train", "lstm", "attention, causal, float64", "physics"],
)
def test_finite_differences(name: str) -> None:
    model, (x, _) = ZOO[name].build()
    params = list(model.parameters())
    direction = [torch.randn_like(p) for p in params]
    first = model(x)
    values = directional(record(first, params), direction).values

    def moved(step: float) -> Tensor:
        with torch.no_grad():
            for p, d in zip(params, direction, strict=True):
                p.add_(d, alpha=step)
        return model(x).detach()

    step = 1e-5
    ahead = moved(step)
    behind = moved(-2 * step)
    torch.testing.assert_close(values, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-8)


# -- dropout, attention --------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_dropout_keeps_the_mask_of_the_forward_pass(route: Any) -> None:
    """The entries that the forward pass dropped, and no others, have no slope."""
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    first = F.dropout(x, 0.5)
    state = torch.get_rng_state()
    got = product(first, (x * 1), torch.ones(200, dtype=torch.float64), [x], route=route)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(got, first.detach() / x.detach())


def test_the_mathematical_kernel_allows_double_vjp() -> None:
    model = Net(nn.Linear(4, 4), Attention()).double()
    with sdpa_kernel(SDPBackend.MATH):
        first, second = (model(x.double()) for x in draw(3, 4, 7, 4))
    params = list(model.parameters())
    got = product(first, second, simplex(second), params, route="double-vjp")
    naive.assert_product(got, *expected(first, second, params), 1e-10)


@pytest.mark.parametrize("moving", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": -1.5}, {"scale": 0.0}])
def test_attention_where_only_some_inputs_move(moving: tuple[int, ...], options: Any) -> None:
    maps = [torch.randn(4, 4, dtype=torch.float64, requires_grad=i in moving) for i in range(3)]

    def losses(x: Tensor) -> Tensor:
        q, k, v = (x @ w for w in maps)
        return several(F.scaled_dot_product_attention(q, k, v, **options))

    first, second = (losses(x.double()) for x in draw(2, 2, 5, 4))
    names = {node.name() for node in record(first, [maps[i] for i in moving]).nodes}
    assert "ScaledDotProductFlashAttentionForCpuBackward0" in names
    got = product(first, second, simplex(second), maps, route="tangents")
    naive.assert_product(got, *expected(first, second, maps), 1e-10)


@pytest.mark.parametrize("learned", [True, False])
def test_attention_with_a_mask_that_is_learned(learned: bool) -> None:
    mask = torch.randn(5, 5, dtype=torch.float64, requires_grad=learned)
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    first, second = (
        several(F.scaled_dot_product_attention(x @ weight, x, x, attn_mask=mask))
        for x in torch.randn(2, 3, 2, 5, 4, dtype=torch.float64)
    )
    got = product(first, second, simplex(second), [mask, weight])
    naive.assert_product(got, *expected(first, second, [mask, weight]), 1e-10)


# -- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("route", [None, *ROUTES])
def test_frozen_and_unused_parameters_count_as_zero(route: Any) -> None:
    model, (x, y) = ZOO["mlp"].build()
    unused = torch.randn(3, dtype=torch.float64, requires_grad=True)
    params = [*model.parameters(), unused]
    params[0].requires_grad_(False)
    params[3].requires_grad_(False)
    first, second = model(x), model(y)
    got = product(first, second, simplex(second), params, route=route)
    naive.assert_product(got, *expected(first, second, params), 1e-10)
    live = [p for p in params if p.requires_grad]
    assert torch.equal(got, product(first, second, simplex(second), live, route=route))


@pytest.mark.parametrize("route", [None, "tangents", "backwards"])
@pytest.mark.parametrize("reached", ["first", "second", "neither"])
def test_losses_that_reach_no_parameter_give_zeros(route: Any, reached: str) -> None:
    given, other = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    first = (given if reached == "first" else other).sin()
    second = (given if reached == "second" else other).cos()
    got = product(first, second, simplex(second), [given], route=route)
    assert torch.equal(got, torch.zeros(4, dtype=torch.float64))


def test_the_two_draws_may_have_different_numbers_of_objectives() -> None:
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    first, second = x.sin(), torch.stack([x.sum(), x.prod()])
    got = product(first, second, simplex(second), [x])
    naive.assert_product(got, *expected(first, second, [x]), 1e-12)


def test_parameters_are_an_iterable_and_tied_ones_count_once() -> None:
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    first, second = x.sin(), x.cos()
    got = product(first, second, simplex(second), (p for p in (x, x)))
    naive.assert_product(got, *expected(first, second, [x]), 1e-12)


@pytest.mark.parametrize("route", [None, *ROUTES])
def test_mixed_dtypes(route: Any) -> None:
    """float32 and float64 parameters, results that PyTorch promotes, and a sum in a wider type."""
    single = torch.randn(4, 4, requires_grad=True)
    double = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)

    def losses(x: Tensor) -> Tensor:
        y = x.float() @ single
        y = (y + x) @ double + (y * x - x / (y.cos() + 3)) @ double
        return several(
            y * y.float().sum(0, dtype=torch.float64) + y.float().mean(1, True, dtype=x.dtype)
        )

    first, second = (losses(x.double()) for x in draw(5, 4))
    params = [single, double]
    got = product(first, second, simplex(second), params, route=route)
    naive.assert_product(got, *expected(first, second, params), 1e-5)


@pytest.mark.parametrize("route", [None, *ROUTES])
def test_hooks_on_parameters_are_part_of_their_gradient(route: Any) -> None:
    """As in autograd: a hook may mask or scale what a parameter receives."""
    model, (x, y) = ZOO["mlp"].build()
    params = list(model.parameters())
    params[0].register_hook(lambda g: 3 * g)
    first, second = model(x), model(y)
    if route in ("tangents", "double-vjp"):
        with pytest.raises(ValueError, match="a hook"):
            product(first, second, simplex(second), params, route=route)
        return
    got = product(first, second, simplex(second), params, route=route)
    naive.assert_product(got, *expected(first, second, params), 1e-10)


# -- precision -----------------------------------------------------------------------------------


class Positioned(nn.Module):
    """Adds a float32 constant to what may be bfloat16: the result is promoted to float32."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("place", torch.randn(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.place


@pytest.mark.parametrize("route", [None, *ROUTES])
def test_a_forward_pass_under_autocast(route: Any) -> None:
    model = Net(nn.Linear(4, 4), Positioned(), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        first, second = (model(x) for x in draw(6, 4))
    params = list(model.parameters())
    assert any(
        node._input_metadata[0].dtype == torch.bfloat16 for node in record(first, params).nodes
    )
    got = product(first, second, simplex(second), params, route=route)
    naive.assert_product(got, *expected(first, second, params), 2e-2)


# -- states of the graph -------------------------------------------------------------------------


@pytest.mark.parametrize("route", [None, *ROUTES])
@pytest.mark.parametrize("name", ["mlp", "losses as one vector", "losses as a sequence"])
def test_nothing_is_left_behind(name: str, route: Any) -> None:
    """No ``.grad``, no freed graph: the losses can be used again, by us and by backward()."""
    first, second, params = computed(name)
    once = product(first, second, simplex(second), params, route=route)
    again = product(first, second, simplex(second), params, route=route)
    assert torch.equal(once, again)
    assert all(p.grad is None for p in params)
    (first.sum() + second.sum()).backward()
    assert any(p.grad is not None for p in params)


@pytest.mark.parametrize("route", [None, *ROUTES])
@pytest.mark.parametrize(
    "name", ["mlp", "losses as one vector", "losses of a matrix-vector product"]
)
def test_under_no_grad(name: str, route: Any) -> None:
    first, second, params = computed(name)
    with torch.no_grad():
        got = product(first, second, simplex(second), params, route=route)
    naive.assert_product(got, *expected(first, second, params), 1e-10)


def test_a_freed_graph_is_an_error() -> None:
    first, second, params = computed("mlp")
    first.sum().backward()
    for one, two in ((first, second), (second, first)):
        with pytest.raises(ValueError, match=r"^losses must have their graph, found one that a ba"):
            product(one, two, simplex(two), params)


@pytest.mark.parametrize("route", [None, "backwards"])
def test_a_saved_tensor_changed_in_place_is_an_error(route: Any) -> None:
    w = torch.randn(4, 4, requires_grad=True)
    first = several((torch.randn(5, 4) @ w).tanh() @ w)
    with torch.no_grad():
        w.add_(1)
    second = several(torch.randn(5, 4) @ w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product(first, second, simplex(second), [w], route=route)


def test_reentrant_checkpoints_hide_their_parameters_and_are_refused() -> None:
    block, head = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.randn(5, 4, requires_grad=True)
    losses = several(head(checkpoint(block, x, use_reentrant=True)))
    params = [*block.parameters(), *head.parameters()]
    with pytest.raises(
        ValueError, match=r"use_reentrant=True, which hides .* use_reentrant=False$"
    ):
        product(losses, losses * 2, simplex(losses), params)


def test_python_code_is_called_with_the_gradient_of_one_loss_at_a_time() -> None:
    seen: list[Tensor] = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            seen.append(g)
            return g * 1

    x = torch.randn(7, dtype=torch.float64, requires_grad=True)
    first, second = Noted.apply(x).sin(), x.cos()
    found = by_itself(first, second, [x])
    assert (found.route, found.reason) == (
        "backwards",
        "no tangents: NotedBackward is written in Python",
    )
    assert [int(g.count_nonzero()) for g in seen] == [1] * 7


def test_an_infinite_slope_that_no_gradient_passes() -> None:
    """A backward has 0 there, where a tangent has 0 · ∞."""
    x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)

    def losses() -> Tensor:
        return torch.stack([x.std(1).sum(), x.square().sum()])

    first, second = losses(), losses()
    found = by_itself(first, second, [x])
    naive.assert_product(found.values, *expected(first, second, [x]), 1e-12)
    diverged = first * torch.inf
    assert by_itself(diverged, second, [x]).route == "tangents"  # there is nothing to find out


# -- losses --------------------------------------------------------------------------------------

LABELS = torch.tensor([0, 2, 1, 3, 2, 2])
LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross entropy": lambda y, z, **kw: F.cross_entropy(y, LABELS, **kw),
    "cross entropy, weights": lambda y, z, **kw: F.cross_entropy(
        y, LABELS, weight=torch.arange(1.0, 5, dtype=y.dtype), **kw
    ),
    "cross entropy, ignored": lambda y, z, **kw: F.cross_entropy(y, LABELS, ignore_index=2, **kw),
    "cross entropy, smoothed": lambda y, z, **kw: F.cross_entropy(
        y, LABELS, label_smoothing=0.2, **kw
    ),
    "cross entropy, probabilities": lambda y, z, **kw: F.cross_entropy(y, z.softmax(1), **kw),
    "nll": lambda y, z, **kw: F.nll_loss(y.log_softmax(1), LABELS, **kw),
    "mse": lambda y, z, **kw: F.mse_loss(y, z, **kw),
    "mse between outputs": lambda y, z, **kw: F.mse_loss(y, y.flip(0) * z, **kw),
    "l1": lambda y, z, **kw: F.l1_loss(y, z, **kw),
    "huber": lambda y, z, **kw: F.huber_loss(y, z, delta=0.1, **kw),
    "smooth l1": lambda y, z, **kw: F.smooth_l1_loss(y, z, beta=0.5, **kw),
    "bce": lambda y, z, **kw: F.binary_cross_entropy(y.sigmoid(), z.sigmoid(), **kw),
    "bce with logits": lambda y, z, **kw: F.binary_cross_entropy_with_logits(
        y, z.sigmoid(), pos_weight=torch.arange(1.0, 5, dtype=y.dtype), **kw
    ),
    "kl": lambda y, z, **kw: F.kl_div(y.log_softmax(1), z.softmax(1), **kw),
    "kl, log target": lambda y, z, **kw: F.kl_div(
        y.log_softmax(1), z.log_softmax(1), log_target=True, **kw
    ),
    "cosine embedding": lambda y, z, **kw: F.cosine_embedding_loss(
        y, z, torch.tensor([1, -1, 1, -1, 1, 1]), **kw
    ),
    "poisson nll": lambda y, z, **kw: F.poisson_nll_loss(y, z.abs(), **kw),
    "gaussian nll": lambda y, z, **kw: F.gaussian_nll_loss(y, z, y.square() + 0.1, **kw),
    "margin ranking": lambda y, z, **kw: F.margin_ranking_loss(y, z, z.sign(), 0.2, **kw),
    "triplet": lambda y, z, **kw: F.triplet_margin_loss(y, z, y.flip(0), **kw),
    "hinge embedding": lambda y, z, **kw: F.hinge_embedding_loss(y, z.sign(), **kw),
    "soft margin": lambda y, z, **kw: F.soft_margin_loss(y, z.sign(), **kw),
    "multi margin": lambda y, z, **kw: F.multi_margin_loss(y, LABELS, **kw),
    "multi label": lambda y, z, **kw: F.multilabel_soft_margin_loss(y, z.sign().relu(), **kw),
    "ctc": lambda y, z, **kw: F.ctc_loss(
        torch.stack([y, y * 2]).transpose(0, 1).log_softmax(2),
        torch.tensor([[1, 2], [3, 3]]),
        torch.tensor([6, 6]),
        torch.tensor([2, 2]),
        **kw,
    ),
}
# Without a derivative of their backward in PyTorch, and with more than one number as output.
FIRST_ORDER = {("multi margin", "none")}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_common_losses(name: str, reduction: str) -> None:
    w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)

    def losses(x: Tensor, target: Tensor) -> Tensor:
        loss = LOSSES[name](x @ w, target, reduction=reduction)
        one = loss.reshape(-1)[:8]  # without reduction: an objective for each sample
        return torch.cat([one, (x @ w).sin().mean(0)])

    first, second = (losses(x.double(), x.double() * 2 + 1) for x in draw(6, 4))
    found = by_itself(first, second, [w])
    naive.assert_product(found.values, *expected(first, second, [w]), 1e-10)
    assert found.route == ("backwards" if (name, reduction) in FIRST_ORDER else "tangents")


# -- torch.compile -------------------------------------------------------------------------------


# torch's own: its compiler warns of Python 3.13.0, and with 2.6 of a setting that it does not save.
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
        ),
    ],
)
def test_a_compiled_model_takes_tangents(backend: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    plain = copy.deepcopy(model).double()
    compiled = torch.compile(model, backend=backend)
    inputs = draw(6, 4)
    first, second = (several(compiled(x)) for x in inputs)
    params = list(model.parameters())
    found = by_itself(first, second, params)
    assert (found.route, found.reason) == ("tangents", "")
    naive.assert_product(found.values, *expected(first, second, params), 1e-5)
    one, two = (several(plain(x.double())) for x in inputs)
    naive.assert_product(found.values, *expected(one, two, list(plain.parameters())), 1e-4)


# -- errors --------------------------------------------------------------------------------------


def test_errors_name_the_argument_and_the_value() -> None:
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(ValueError, match=r"^first must be a 1-D tensor .* found shape \(3, 3\)$"):
        product(torch.outer(x, x), x * 1, torch.ones(3), [x])
    with pytest.raises(ValueError, match=r"^second must require grad: "):
        product(x * 1, x.detach(), torch.ones(3), [x])
    with pytest.raises(
        ValueError, match=r"^weights must have one entry per objective, 3, found shape \(2,\)$"
    ):
        product(x * 1, x * 2, torch.ones(2), [x])
    with pytest.raises(TypeError, match=r"^weights must be a tensor, found list$"):
        product(x * 1, x * 2, [0.2, 0.3, 0.5], [x])  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"^route must be one of tangents, double-vjp, backwards, found 'forward'$"
    ):
        product(x * 1, x * 2, torch.ones(3), [x], route="forward")  # type: ignore[arg-type]
