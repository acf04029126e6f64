"""Activation checkpointing: how often a block is computed again, and what is refused."""

import functools
from collections.abc import Callable
from typing import Any

import naive
import pytest
import torch
from test_rules import CASES, Case, projected
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import trimol
from trimol.gradients._checkpoints import within_a_backward
from trimol.gradients._graph import record
from trimol.gradients._tangents import push


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *inputs: Tensor) -> Tensor:
        self.calls += 1
        return self.function(*inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_checkpointed_node_is_computed_again_once(case: Case) -> None:
    """A rule that read a tensor twice, or called its node as well, would be refused by torch."""
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in case.shapes]
    function = Counted(case.function)
    losses = projected(checkpoint(function, *inputs, use_reentrant=False))
    direction = [torch.randn_like(x) for x in inputs]
    got = push(record(losses, inputs), direction)
    assert function.calls <= 2
    flat = torch.cat([d.reshape(-1) for d in direction])
    rtol = 1e-5 if "wider" in case.title or "ToCopy" in case.node else 1e-12
    naive.assert_product(got, naive.jacobian(losses, inputs), flat, rtol)


class Blocks(nn.Module):
    """A transformer whose blocks are checkpointed, and counted."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.2) for _ in range(3)
        )
        self.head = nn.Linear(8, 4)
        self.options, self.calls = options, 0
        for block in self.blocks:
            block.register_forward_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.calls += 1

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, **self.options)
        return self.head(x.mean(1)).square().mean(0)


def settled(model: nn.Module, method: trimol.methods.Method) -> None:
    """The first step looks for hooks, of which the model has one a block."""
    method(*(model(torch.randn(2, 5, 8)) for _ in range(method.draws))).backward()


def test_a_step_of_modo_computes_each_block_six_times() -> None:
    """Of half the samples: forward twice, for G2 λ, for tangents, for the step twice."""
    model = Blocks()
    method = trimol.MoDo(model.parameters(), objectives=4)
    settled(model, method)
    model.calls = 0
    method(model(torch.randn(2, 5, 8)), model(torch.randn(2, 5, 8))).backward()
    assert method.info.route == "tangents"
    assert model.calls == 6 * len(model.blocks)


def test_the_gradients_are_those_without_checkpoints() -> None:
    model = Blocks()
    x, y = torch.randn(2, 2, 5, 8)
    found = []
    for active in (True, False):
        model.zero_grad()
        method = trimol.MoDo(model.parameters(), objectives=4, gamma=0.5)
        torch.manual_seed(3)
        method(*(_losses(model, z, active) for z in (x, y))).backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for with_them, without in zip(*found, strict=True):
        torch.testing.assert_close(with_them, without)


def _losses(model: Blocks, x: Tensor, active: bool) -> Tensor:
    if active:
        return model(x)
    for block in model.blocks:
        x = block(x)
    return model.head(x.mean(1)).square().mean(0)


SELECTIVE = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
REFUSED = r"^losses pass through a selective checkpoint \(context_fn=…\), which allows one backward"


def test_methods_of_one_backward_pass_a_selective_checkpoint() -> None:
    model = Blocks(context_fn=SELECTIVE)
    trimol.Static(model.parameters(), objectives=4)(model(torch.randn(2, 5, 8))).backward()
    assert all(p.grad is not None for p in model.parameters())


# Where torch does not tell what a saved tensor is computed by, the user's own backward raises.
TELLS = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"),
    reason="this release of torch does not tell",
)


@pytest.mark.parametrize("kind", [pytest.param(trimol.MoDo, marks=TELLS), trimol.MGDA])
def test_methods_of_more_refuse_a_selective_checkpoint_in_one_line(kind: type) -> None:
    model = Blocks(context_fn=SELECTIVE)
    method = kind(model.parameters(), objectives=4)
    draws = [torch.randn(2, 5, 8) for _ in range(method.draws)]
    with pytest.raises(ValueError, match=REFUSED) as refused:
        method(*(model(x) for x in draws)).backward()
    assert "\n" not in str(refused.value)


def test_within_a_backward() -> None:
    assert torch._C._current_graph_task_id() == -1
    assert within_a_backward(torch._C._current_graph_task_id) != -1
    assert not within_a_backward(torch.is_grad_enabled)
    with pytest.raises(KeyError, match="mine"):
        within_a_backward(lambda: {}["mine"])
