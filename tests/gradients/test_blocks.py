"""Gramians of gradients that are held block by block: the same numbers, in a part of the memory."""

import threading
from typing import Any

import naive
import pytest
import torch
from test_rows import computed
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from zoo import ZOO

import trimol
from trimol.gradients import _blocks, _rows, gramian
from trimol.gradients._graph import record

DEPTH = 6


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of tests are large, and every layer is a block."""
    monkeypatch.setattr(_blocks, "HELD_ENTRIES", 0)
    monkeypatch.setattr(_blocks, "BLOCK_ENTRIES", 1)


class Residual(nn.Module):
    """Blocks in a chain around which a sum leads, between an embedding and its transpose."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(11, 8, dtype=torch.float64)
        layers = [nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)]
        self.blocks = nn.ModuleList(
            nn.Sequential(*(type(each)(*_sizes(each)) for each in layers)).double()
            for _ in range(DEPTH)
        )
        self.unembedding = None if tied else nn.Linear(8, 11, bias=False, dtype=torch.float64)
        self.marks: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        for block in self.blocks:
            h = h + block(h)
            self.marks.append(h)
        weight = self.embedding.weight if self.unembedding is None else self.unembedding.weight
        return nn.functional.linear(h, weight)

    def losses(self) -> Tensor:
        out = self(torch.arange(11).view(1, 11)).log_softmax(-1)
        return torch.stack([-out[..., m].mean() + out[..., m].square().mean() for m in range(5)])


def _sizes(layer: nn.Module) -> tuple[int, ...]:
    return () if isinstance(layer, nn.Tanh) else (8,) * (1 + isinstance(layer, nn.Linear))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each backward was asked for."""
    calls: list[int] = []
    grad = torch.autograd.grad

    def spy(outputs: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        calls.append(len(inputs))
        return grad(outputs, inputs, *args, **options)

    monkeypatch.setattr(torch.autograd, "grad", spy)
    return calls


def assert_gramian(losses: Tensor, params: list[Tensor], rtol: float = 1e-12) -> None:
    rows = naive.jacobian(losses, params)
    want, norms = rows @ rows.T, rows.norm(dim=1)
    error = (gramian(losses, params) - want).abs()
    assert (error <= rtol * torch.outer(norms, norms)).all()


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_in_the_smallest_blocks(name: str) -> None:
    losses, params = computed(name)
    assert_gramian(losses, params, max(ZOO[name].rtol, 1e-12))


@pytest.mark.parametrize("tied", [True, False])
def test_a_chain_is_cut_at_every_layer(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Residual(tied=tied)
    params, losses = list(net.parameters()), net.losses()
    assert_gramian(losses, params)
    parts = _blocks.blocks(record(losses, params))
    assert len(parts) > DEPTH
    # Every parameter is in one block, and none holds two of the chain's.
    assert sorted(id(p) for part in parts for p in part.params) == sorted(map(id, params))
    for block in net.blocks:
        own = {id(p) for p in block.parameters()}
        for part in parts:
            here = {id(p) for p in part.params}
            assert not here & own or here <= own
    calls = counted(monkeypatch)
    gramian(losses, params)
    assert len(calls) == 5 * len(parts)
    assert max(calls) < len(params) / 3


def test_blocks_are_as_large_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Residual()
    params, losses = list(net.parameters()), net.losses()
    one = sum(p.numel() for p in net.blocks[0].parameters())
    monkeypatch.setattr(_blocks, "BLOCK_ENTRIES", 2 * one)
    sizes = [sum(p.numel() for p in b.params) for b in _blocks.blocks(record(losses, params))]
    assert max(sizes) == 2 * one
    assert len(sizes) <= DEPTH / 2 + 2
    assert_gramian(losses, params)


@pytest.mark.parametrize("entries", [2**17, 1])
def test_float32_is_multiplied_in_float64(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Piece by piece, of layers wider than a piece too; symmetric to the bit."""
    monkeypatch.setattr(_rows, "WIDENED_ENTRIES", entries)  # a piece has at least 1024 columns
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 30), nn.Tanh())
    losses = net(torch.randn(7, 40)).square().mean(0)[:5]
    params = list(net.parameters())
    assert len(_blocks.blocks(record(losses, params))) > 1
    wide = naive.jacobian(losses, params).double()
    want, found = wide @ wide.T, gramian(losses, params)
    assert found.dtype == torch.float64
    assert torch.equal(found, found.T)
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-15)


def test_few_gradients_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Residual()
    params, losses = list(net.parameters()), net.losses()
    monkeypatch.setattr(_blocks, "HELD_ENTRIES", 5 * sum(p.numel() for p in params))
    assert _blocks.blocks(record(losses, params)) == []


def test_a_loss_that_ends_further_up() -> None:
    """Nothing arrives below; and one that reaches nothing of the last block."""
    net = Residual(tied=False)
    net(torch.arange(11).view(1, 11))
    losses = torch.stack(
        [net.unembedding.weight.square().sum(), net.marks[2].sum(), net.losses()[0]]
    )
    assert_gramian(losses, list(net.parameters()))


def test_some_parameters_only_and_frozen_ones() -> None:
    net = Residual()
    for p in net.blocks[2].parameters():
        p.requires_grad_(False)
    assert_gramian(net.losses(), [p for p in net.blocks.parameters() if p.requires_grad])
    assert_gramian(net.losses(), list(net.blocks[4].parameters()))


def test_a_layer_that_is_used_again() -> None:
    """By operators that are no views of it: what is between is one block."""
    net = Residual(tied=False)
    shared = net.blocks[1][1].weight
    net.blocks[4][1].weight = shared
    net.blocks[5][3].weight = nn.Parameter(torch.eye(8, dtype=torch.float64))
    assert_gramian(net.losses(), list(net.parameters()))
    scale = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    net.blocks[0].register_forward_hook(lambda module, args, out: scale * out)
    net.blocks[3].register_forward_hook(lambda module, args, out: scale * out)
    assert_gramian(net.losses(), [*net.parameters(), scale])


def test_one_parameter_in_parts_of_it() -> None:
    """A node with several outputs is no view."""
    torch.manual_seed(0)
    both = nn.Parameter(torch.randn(16, 8, dtype=torch.float64))
    lower, upper = both.split(8)
    h = torch.randn(4, 8, dtype=torch.float64) @ lower
    for _ in range(3):
        h = h.tanh() @ (both.split(8)[1] + upper)
    assert_gramian(h.square().mean(0)[:4], [both])


def test_checkpointed_layers() -> None:
    net = Residual()
    h = net.embedding(torch.arange(11).view(1, 11))
    for block in net.blocks:
        h = h + checkpoint(block, h, use_reentrant=False)
    assert_gramian(h.square().mean((0, 1))[:4], list(net.parameters()))


def test_hooks_act_once() -> None:
    net = Residual()
    losses = net.losses()
    before = gramian(losses, net.parameters())
    net.marks[-4].register_hook(lambda gradient: 2 * gradient)
    params = list(net.parameters())
    assert _blocks.blocks(record(losses, params)) == []
    assert_gramian(losses, params)
    assert not torch.allclose(gramian(losses, params), before)


def test_what_another_thread_has_recorded() -> None:
    """Threads count their nodes each for themselves: such a graph is not cut in the wrong order."""
    net = Residual()
    x = torch.arange(11).view(1, 11)
    for _ in range(50):
        net(x)
    trunk: list[Tensor] = []
    worker = threading.Thread(target=lambda: trunk.append(net(x)))
    h = net.embedding(x)
    worker.start()
    worker.join()
    losses = torch.stack([(trunk[0] * m).tanh().mean() + h.mean() for m in range(1, 4)])
    assert_gramian(losses, list(net.parameters()))


def test_mgda_delivers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one more backward, which is counted; and it says so."""
    net = Residual()
    trunk = list(net.blocks.parameters())
    held = trimol.MGDA(trunk, 5, chunk=5)
    held(net.losses()).backward()
    assert "blocks" in held.info.reason
    assert held.info.extra == pytest.approx(5 / 1.5)
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    monkeypatch.setattr(_blocks, "HELD_ENTRIES", 10**9)
    plain = trimol.MGDA(trunk, 5)
    plain(net.losses()).backward()
    assert plain.info.reason == ""
    for p, want in zip(net.parameters(), found, strict=True):
        torch.testing.assert_close(p.grad, want, rtol=1e-9, atol=1e-12)
