"""Jacobians and Gramians: equal to the naive ones, in any blocks, in bounded memory."""

import copy
from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from zoo import ZOO, draw, several

from trimol.gradients import _rows as rows
from trimol.gradients import gramian, jacobian
from trimol.gradients._graph import record
from trimol.gradients.losses import as_vector


@pytest.fixture(params=["loop", "batch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Force one of the two ways to compute a block of rows."""
    monkeypatch.setattr(rows, "SMALLEST_BATCH", 2)
    monkeypatch.setattr(rows, "_batch_width", lambda *_: 1 if request.param == "loop" else 4)
    return request.param


def computed(name: str) -> tuple[Tensor, list[Tensor]]:
    model, (x, _) = ZOO[name].build()
    return as_vector(model(x)), list(model.parameters())


# -- the zoo -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZOO)
def test_jacobian_of_the_zoo(name: str, way: str) -> None:
    losses, params = computed(name)
    naive.assert_rows(jacobian(losses, params), naive.jacobian(losses, params), ZOO[name].rtol)


@pytest.mark.parametrize("name", ZOO)
def test_gramian_of_the_zoo_as_it_comes(name: str) -> None:
    losses, params = computed(name)
    want = naive.jacobian(losses, params)
    got = gramian(losses, params)
    norms = want.norm(dim=1)
    error = (got.double() - want @ want.T).abs()
    assert (error <= ZOO[name].rtol * torch.outer(norms, norms)).all()
    assert torch.equal(got, got.T)


@pytest.mark.parametrize("name", ["mlp", "conv 2d", "losses as one vector", "losses as a sequence"])
@pytest.mark.parametrize("chunk", [None, *range(1, 7)])
def test_every_chunk_gives_the_same(name: str, chunk: int | None, way: str) -> None:
    losses, params = computed(name)
    want = naive.jacobian(losses, params)
    naive.assert_rows(jacobian(losses, params, chunk=chunk), want, 1e-12)
    got = gramian(losses, params, chunk=chunk)
    torch.testing.assert_close(got, want @ want.T, rtol=1e-12, atol=1e-14)
    assert torch.equal(got, got.T)


def test_the_two_ways_are_really_two(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses, params = computed("mlp")
    batched = []
    grad = torch.autograd.grad

    def spy(*args: Any, is_grads_batched: bool = False, **kwargs: Any) -> Any:
        batched.append(is_grads_batched)
        return grad(*args, is_grads_batched=is_grads_batched, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", spy)
    jacobian(losses, params)
    assert batched == ([False] * 5 if way == "loop" else [True, True])


def test_jagged_tensors_go_one_by_one() -> None:
    layer = torch.nn.Linear(4, 3)
    parts = [torch.randn(2, 4), torch.randn(5, 4)]

    def losses() -> Tensor:
        jagged = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
        return torch.cat([layer(jagged).values().square().mean(0)] * 2)

    want = torch.cat([layer(torch.cat(parts)).square().mean(0)] * 2)
    params = list(layer.parameters())
    torch.testing.assert_close(gramian(losses(), params), gramian(want, params))


# -- which way -----------------------------------------------------------------------------------


def _width(losses: Tensor, params: list[Tensor]) -> int:
    return rows._batch_width(record(losses, params))


def test_a_batch_is_for_many_losses_of_a_small_network() -> None:
    x = torch.randn(6, requires_grad=True)
    assert _width(x[:3] * 1, [x]) == 1
    assert _width(x * 1, [x]) == rows.LARGEST_BATCH
    big = torch.randn(rows.CACHED_ENTRIES // 8, requires_grad=True)
    assert _width(big[:10] * 1, [big]) == 8
    bigger = torch.randn(rows.CACHED_ENTRIES, requires_grad=True)
    assert _width(bigger[:10] * 1, [bigger]) == 1


@pytest.mark.parametrize("name", ["LSTM, float32", "Cubed through"])
def test_a_loop_is_for_fused_cells_and_python(name: str) -> None:
    assert _width(*computed(name)) == 1


def test_large_intermediate_gradients_count_as_much_as_parameters() -> None:
    x = torch.randn(6, requires_grad=True)
    wide = x.repeat(rows.CACHED_ENTRIES // 6 // 8 + 1)
    assert _width(x * wide.sum(), [x]) == 7


def test_a_few_large_nodes_among_many_small_ones_do_not_count() -> None:
    """A GRU is recorded operator by operator; its inputs are multiplied for all times at once."""
    layer = torch.nn.GRU(8, 16, batch_first=True)
    losses = layer(torch.randn(64, 100, 8))[0].mean((0, 1))
    params = list(layer.parameters())
    assert max(64 * 100 * 48, sum(map(torch.numel, params))) > rows.CACHED_ENTRIES
    assert rows._batch_width(record(losses, params)) >= rows.SMALLEST_BATCH


def test_what_cannot_be_batched_goes_by_a_loop(way: str) -> None:
    """A checkpoint that draws random numbers again; vmap refuses these."""
    block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).double()
    losses = several(checkpoint(block, torch.randn(5, 4).double(), use_reentrant=False))
    params = list(block.parameters())
    naive.assert_rows(jacobian(losses, params), naive.jacobian(losses, params), 1e-12)


def test_a_hook_that_cannot_be_batched_goes_by_a_loop(way: str) -> None:
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    y = x.sin()
    y.register_hook(lambda g: g * g.abs().max().item())
    losses = y * y.sum()
    naive.assert_rows(jacobian(losses, [x]), naive.jacobian(losses, [x]), 1e-12)


# -- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 5])
def test_frozen_and_unused_parameters_have_columns_of_zeros(count: int, way: str) -> None:
    frozen = torch.randn(2, 2, dtype=torch.float64)
    unused = torch.randn(3, dtype=torch.float64, requires_grad=True)
    used = torch.randn(5, dtype=torch.float64, requires_grad=True)
    losses = (used * frozen.sum()).sin()[:count]
    got = jacobian(losses, [frozen, used, unused])
    assert got.shape == (count, 12)
    assert torch.equal(got[:, :4], torch.zeros(count, 4, dtype=torch.float64))
    assert torch.equal(got[:, 9:], torch.zeros(count, 3, dtype=torch.float64))
    naive.assert_rows(got[:, 4:9], naive.jacobian(losses, [used]), 1e-12)


def test_the_way_that_is_chosen_by_itself_may_meet_frozen_parameters() -> None:
    frozen, used = torch.ones(2), torch.ones(5, requires_grad=True)
    got = jacobian(used.sin(), [frozen, used])
    assert torch.equal(got[:, :2], torch.zeros(5, 2))


@pytest.mark.parametrize("some", [True, False])
def test_losses_that_reach_nothing_have_rows_of_zeros(some: bool, way: str) -> None:
    x, other = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    losses = [other.sum(), (x if some else other).prod(), torch.tensor(1.0, dtype=x.dtype)]
    want = naive.jacobian(losses, [x])
    torch.testing.assert_close(jacobian(losses, [x]), want)
    assert torch.equal(want[0], torch.zeros(5, dtype=torch.float64))


def test_parameters_of_different_types(way: str) -> None:
    """The rows are as wide as the widest parameter; a Gramian is in float64."""
    half = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    single = torch.randn(3, requires_grad=True)
    double = torch.randn(3, dtype=torch.float64, requires_grad=True)
    for params, wide in (
        ([half], torch.bfloat16),
        ([half, single], torch.float32),
        ([double, half, single], torch.float64),
    ):
        losses = sum(p * (i + 1) for i, p in enumerate(params)).sin()
        want = naive.jacobian(losses, params)
        got = jacobian(losses, params)
        assert got.dtype == wide
        naive.assert_rows(got, want, 1e-2)
        for chunk in (None, 2):
            found = gramian(losses, params, chunk=chunk)
            assert found.dtype == torch.float64
            torch.testing.assert_close(found, want @ want.T, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("chunk", [None, 1])
def test_long_float32_gradients_are_summed_in_float64(chunk: int | None) -> None:
    """A float32 sum of four million squares is off by 1e-4, and always to the same side."""
    torch.manual_seed(0)
    slopes = torch.rand(2, 2**22)
    x = torch.zeros(2**22, requires_grad=True)
    want = torch.stack([slopes.double() @ row.double() for row in slopes])
    found = gramian([(row * x).sum() for row in slopes], [x], chunk=chunk)
    torch.testing.assert_close(found, want, rtol=1e-11, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gramian_has_the_rank_of_its_gradients(dtype: torch.dtype, way: str) -> None:
    """Products of float32 numbers are exact in float64: ten columns leave rank ten of twenty."""
    torch.manual_seed(0)
    slopes = torch.randn(20, 10, dtype=dtype)
    x = torch.zeros(10, dtype=dtype, requires_grad=True)
    found = gramian((slopes * x).sum(1), [x])
    torch.testing.assert_close(found, slopes.double() @ slopes.double().T, rtol=1e-14, atol=1e-14)
    assert torch.linalg.matrix_rank(found, hermitian=True) == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_cancel_are_combined_in_float64(dtype: torch.dtype) -> None:
    """1e6 (g + e) − 1e6 g, which float32 would round by a tenth, is 1e6 e to its last digit."""
    torch.manual_seed(0)
    first = torch.randn(1000).to(dtype)
    jacobian = torch.stack([first, first * (1 + 2.0**-6)])
    weights = torch.tensor([-1e6, 1e6], dtype=torch.float64)
    want = weights @ jacobian.double()
    found = rows.combined(weights, jacobian, rows.gram(jacobian))
    assert torch.equal(found, want.to(dtype))
    mean = torch.tensor([0.5, 0.5], dtype=torch.float64)  # nothing cancels: the rows' own dtype
    plain = rows.combined(mean, jacobian, rows.gram(jacobian))
    assert torch.equal(plain, mean.to(dtype) @ jacobian)


def test_products_are_widened_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the width of a block, with leading dimensions and with none to sum over."""
    torch.manual_seed(0)
    monkeypatch.setattr(rows, "WIDENED_ENTRIES", 1)
    first, second = torch.randn(4, 3, 2500), torch.randn(4, 2, 2500)
    want = first.double() @ second.double().mT
    torch.testing.assert_close(rows.products(first, second), want, rtol=1e-12, atol=1e-12)
    assert torch.equal(rows.gram(first), rows.gram(first).mT)
    assert torch.equal(rows.gram(torch.zeros(3, 0)), torch.zeros(3, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    "name", ["mlp", "batch norm 2d, after conv, train", "encoder, eval, float32"]
)
def test_bfloat16_parameters_are_close_to_a_float64_copy(name: str, way: str) -> None:
    model, (x, _) = ZOO[name].build()
    model = model.to(torch.bfloat16)
    exact = copy.deepcopy(model).double()
    x = x.to(torch.bfloat16)
    got = jacobian(model(x), model.parameters())
    assert got.dtype == torch.bfloat16
    naive.assert_rows(got, naive.jacobian(exact(x.double()), exact.parameters()), 0.1)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_and_huge_gradients(scale: float, dtype: torch.dtype, way: str) -> None:
    x = torch.randn(6, dtype=dtype, requires_grad=True)
    losses = torch.stack([x.sum(), x.square().sum(), x.sin().sum()]) * scale
    want = naive.jacobian(losses, [x])
    for chunk in (None, 1):
        got = gramian(losses, [x], chunk=chunk).double()
        torch.testing.assert_close(got, want @ want.T, rtol=1e-5, atol=0)


def test_rows_follow_the_order_of_the_parameters_and_ties_count_once(way: str) -> None:
    a, b = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    losses = torch.stack([(a * b).sum(), a.prod(), b.sum(), a.sin().sum()])
    got = jacobian(losses, iter([b, a, b]))
    torch.testing.assert_close(got, naive.jacobian(losses, [b, a]))


def test_parameters_that_are_no_leaves(way: str) -> None:
    w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    h = w @ w
    losses = several(h.sin() @ w)
    naive.assert_rows(jacobian(losses, [h, w]), naive.jacobian(losses, [h, w]), 1e-12)


def test_nothing_is_left_behind(way: str) -> None:
    losses, params = computed("mlp")
    once = jacobian(losses, params)
    assert torch.equal(jacobian(losses, params), once)
    assert not once.requires_grad
    assert all(p.grad is None for p in params)
    losses.sum().backward()


# -- memory --------------------------------------------------------------------------------------


class Alive(TorchDispatchMode):
    """Counts the bytes that operators allocate, and the most that were alive at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in args if isinstance(t, Tensor)}
        for t in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(t, Tensor) and t.untyped_storage()._cdata not in given:
                storage = t.untyped_storage()
                self.storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.storages = {k: v for k, v in self.storages.items() if not v[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.storages.values()))
        return result


WIDTH = 2**20  # so that what is widened to float64 at a time, 1 MB of each side, is half a gradient
WIDENED = 0.51


def _most_rows(function: Callable[..., Tensor], objectives: int, chunk: int | None) -> float:
    """The most gradients' worth of memory that was alive."""
    x = torch.randn(WIDTH, requires_grad=True)
    losses = torch.stack([(x * (i + 1)).sum() for i in range(objectives)])
    with Alive() as alive:
        function(losses, [x], chunk=chunk)
    return alive.most / (4 * WIDTH)


def _passing(chunk: int, way: str) -> float:
    """What a backward pass through the graph above holds on its way, in gradients."""
    return 3.2 * chunk if way == "batch" and chunk > 1 else 2.2


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_the_memory_of_a_gramian_is_bounded_by_chunk(chunk: int, way: str) -> None:
    for objectives in (8, 16):
        most = _most_rows(gramian, objectives, chunk)
        assert 2 * chunk <= most <= 2 * chunk + _passing(chunk, way) + WIDENED


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_the_memory_of_a_jacobian_beyond_the_result_is_bounded_by_chunk(
    chunk: int, way: str
) -> None:
    for objectives in (8, 16):
        most = _most_rows(jacobian, objectives, chunk)
        assert objectives <= most <= objectives + chunk + _passing(chunk, way)


def test_without_chunk_a_loop_needs_one_gradient_beyond_the_result() -> None:
    assert _most_rows(jacobian, 3, None) <= 3 + _passing(1, "loop")


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [jacobian, gramian])
def test_errors_name_the_argument_and_the_value(function: Callable[..., Tensor]) -> None:
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(ValueError, match=r"^chunk must be at least 1, found 0$"):
        function(x * 1, [x], chunk=0)
    with pytest.raises(ValueError, match=r"^chunk must be at least 1, found -2$"):
        function(x * 1, [x], chunk=-2)
    with pytest.raises(
        ValueError, match=r"^losses must be a 1-D tensor .* found shape \(\): write \[a, b\]$"
    ):
        function(x.sum(), [x])
    with pytest.raises(
        ValueError,
        match=r"^params must hold at least one tensor, found none \(an empty generator\?\)$",
    ):
        function(x * 1, [])
    with pytest.raises(
        ValueError, match=r"^params must hold a tensor that requires grad, found 2 frozen$"
    ):
        function(x * 1, [torch.ones(2), torch.ones(3)])


def test_a_reentrant_checkpoint_is_an_error() -> None:
    block = nn.Linear(4, 4)
    x = draw(5, 4)[0].requires_grad_()
    y = checkpoint(block, x, use_reentrant=True)
    for count in (2, 5):
        with pytest.raises(ValueError, match=r"use_reentrant=True"):
            jacobian(several(y)[:count], block.parameters())


@pytest.mark.parametrize("count", [3, 6])
def test_outputs_whose_batched_backward_is_wrong(count: int) -> None:
    """That of torch's group norm: where its mean and its deviation are used, too."""
    x = torch.randn(5, 5, 5, dtype=torch.float64, requires_grad=True)
    w, b = torch.randn(2, 5, dtype=torch.float64)
    made = torch.native_group_norm(x * 1, w, b, 5, 5, 5, 1, 0.5)
    flat = torch.cat([each.flatten() for each in made])
    losses = torch.randn(count, len(flat), dtype=torch.float64) @ flat
    naive.assert_rows(jacobian(losses, [x]), naive.jacobian(losses, [x]), 1e-12)
    usual = torch.randn(count, made[0].numel(), dtype=torch.float64) @ made[0].flatten()
    naive.assert_rows(jacobian(usual, [x]), naive.jacobian(usual, [x]), 1e-12)
    assert rows._batch_width(record(losses, [x])) == 1
    assert (rows._batch_width(record(usual, [x])) > 1) == (count > 3)
