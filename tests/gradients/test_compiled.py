"""Compiled models: every step is that of the eager model, whatever was compiled when."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trimol
from trimol.gradients._compiled import is_compiled, keep_buffers
from trimol.gradients._graph import record

# torch's own: its compiler warns of Python 3.13.0, and with 2.6 of a setting that it does not save.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]


@pytest.fixture(autouse=True)
def settings() -> Iterator[Any]:
    """As in a new process, before and after."""
    from torch._functorch import config

    torch._dynamo.reset()
    before = config.donated_buffer
    config.donated_buffer = True
    yield config
    config.donated_buffer = before
    torch._dynamo.reset()


class Pair:
    """A model that is compiled, and one that is not, with a method for each."""

    def __init__(self, make: Callable[[list[Tensor]], trimol.methods.Method]) -> None:
        self.net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
        self.eager = copy.deepcopy(self.net)
        self.compiled = torch.compile(self.net, backend="aot_eager")
        self.methods = [make(list(model.parameters())) for model in (self.net, self.eager)]

    def step(self, size: int) -> None:
        """A step of both, which must be the same."""
        inputs = torch.randn(self.methods[0].draws, size, 4)
        for method, model, owner in zip(
            self.methods, (self.compiled, self.eager), (self.net, self.eager), strict=True
        ):
            owner.zero_grad()
            method(*(model(x).square().mean(0) for x in inputs)).backward()
        for p, q in zip(self.net.parameters(), self.eager.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


METHODS: dict[str, Callable[[list[Tensor]], trimol.methods.Method]] = {
    "modo": lambda p: trimol.MoDo(p, objectives=3, gamma=0.5),
    "modo, simultaneous": lambda p: trimol.MoDo(p, objectives=3, simultaneous=True),
    "mgda": lambda p: trimol.MGDA(p, objectives=3),
    "mgda, heads": lambda p: trimol.MGDA(p[:2], objectives=3),
    "static, heads": lambda p: trimol.Static(p[:2], objectives=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_batches_of_any_size(name: str) -> None:
    """From the second size on, torch compiles backwards ahead, by its setting."""
    pair = Pair(METHODS[name])
    for size in (6, 6, 5, 4, 6):
        pair.step(size)


@pytest.mark.slow
def test_what_was_compiled_for_one_backward_is_refused_and_compiled_again() -> None:
    pair = Pair(METHODS["mgda"])
    pair.compiled(torch.randn(6, 4)).sum().backward()
    refused = r"^losses come from a model that was compiled for backwards that run once \(donated "
    for _ in range(2):
        with pytest.raises(ValueError, match=refused):
            pair.step(6)
    pair.step(5)  # compiled since
    torch._dynamo.reset()
    for size in (6, 5):
        pair.step(size)


@pytest.mark.slow
def test_the_setting_is_left_alone_where_it_does_not_matter(settings: Any) -> None:
    pair = Pair(lambda p: trimol.Static(p, objectives=3))
    pair.step(6)
    assert settings.donated_buffer
    graph = record(pair.compiled(torch.randn(6, 4)).mean(0), list(pair.net.parameters()))
    assert [is_compiled(node) for node in graph.compiled] == [True]


def test_nodes_that_do_not_tell_leave_the_setting_to_torch(settings: Any) -> None:
    class Unknown:
        """A compiled node of a release of torch that hides what this one shows."""

    keep_buffers([Unknown()])  # type: ignore[list-item]
    assert settings.donated_buffer


@pytest.mark.slow
def test_one_eager_draw_keeps_the_fast_route() -> None:
    """The first draw through the model itself, the second through what is compiled of it."""
    pair = Pair(METHODS["modo"])
    (method, other), inputs = pair.methods, torch.randn(2, 6, 4)
    models = (pair.net, pair.compiled)
    losses = [model(x).square().mean(0) for model, x in zip(models, inputs, strict=True)]
    method(*losses).backward()
    other(*(pair.eager(x).square().mean(0) for x in inputs)).backward()
    assert method.info.route == "tangents"
    torch.testing.assert_close(method.weights, other.weights)
    for p, q in zip(pair.net.parameters(), pair.eager.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
