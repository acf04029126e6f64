"""Compiled models: every step is that of the eager model, whatever was compiled when."""

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint

import trimol
from trimol.gradients._compiled import is_compiled, keep_buffers
from trimol.gradients._graph import record
from trimol.gradients._product import directional
from trimol.gradients._transposed import _KNOWN, Compiled, Program, trial

# torch's own: its compiler warns of Python 3.13.0, and with 2.6 of a setting that it does not save.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
    # What it looks at while it traces: raised as errors, such warnings stop it.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
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
def test_what_was_compiled_for_one_backward_is_refused_and_compiled_again(settings: Any) -> None:
    pair = Pair(METHODS["mgda"])
    settings.donated_buffer = True  # as if the method had been made after the plain step
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
def test_what_was_compiled_for_one_backward_does_where_one_is_enough(settings: Any) -> None:
    pair = Pair(lambda p: trimol.Static(p, objectives=3))
    settings.donated_buffer = True
    pair.step(6)
    pair.step(6)
    graph = record(pair.compiled(torch.randn(6, 4)).mean(0), list(pair.net.parameters()))
    assert [is_compiled(node) for node in graph.compiled] == [True]


def test_nodes_that_do_not_tell_leave_the_setting_to_torch(settings: Any) -> None:
    class Unknown:
        """A compiled node of a release of torch that hides what this one shows."""

    keep_buffers([Unknown()])  # type: ignore[list-item]
    assert settings.donated_buffer
    Pair(METHODS["mgda"])
    assert not settings.donated_buffer
    keep_buffers([Unknown()])  # type: ignore[list-item]
    assert settings.donated_buffer


def test_a_method_says_that_it_may_look_twice_before_anything_is_compiled(settings: Any) -> None:
    """What plain training has left in torch's cache on disk was compiled for one backward."""
    trimol.Static([torch.ones(2, requires_grad=True)], objectives=3)
    assert not settings.donated_buffer


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


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x.view(-1, 2, 8)).mean(1)
        return result


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(x.abs().long().clamp_max(4)).mean(1).tanh()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.4)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(),
    ),
    "attention": Attending,
    "embedding": Looking,
}  # fmt: skip


def held_to_naive(
    losses: Callable[[Tensor], Tensor], params: list[Tensor], rtol: float = 1e-12
) -> None:
    """Tangents through the graph of one draw give what single backwards of that very pass give."""
    first, second = (losses(x) for x in torch.randn(2, 6, 16, dtype=params[0].dtype))
    graph, weights = record(first, params), torch.rand(len(second), dtype=second.dtype)
    vector = [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(
            params,
            torch.autograd.grad(second @ weights, params, retain_graph=True, allow_unused=True),
            strict=True,
        )
    ]
    found = directional(graph, vector)
    assert (found.route, found.reason) == ("tangents", "")
    flat = torch.cat([v.reshape(-1) for v in vector]).double()
    naive.assert_product(found.values, naive.jacobian(first, params), flat, rtol)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_tangents_pass_a_compiled_model(name: str, settings: Any) -> None:
    """In train mode: the mask and the statistics are those of the pass that was recorded."""
    settings.donated_buffer = False
    model = nn.Sequential(MODELS[name](), nn.Linear(8, 3)).double()
    compiled = torch.compile(model, backend="aot_eager")
    params = list(model.parameters())
    for _ in range(2):  # the second time, nothing is compared with backwards
        held_to_naive(lambda x: compiled(x).square().mean(0), params)
    held_to_naive(lambda x: compiled(x).square().mean(0), params[:2])  # heads: no tangents there


@pytest.mark.slow
def test_parts_and_losses_may_be_compiled(settings: Any) -> None:
    """A submodule, the losses, both; with a break in between; with eager parts around."""
    settings.donated_buffer = False
    options: Any = {"backend": "aot_eager"}
    net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    params = list(net.parameters())
    part = torch.compile(net[2], **options)

    def score(y: Tensor) -> Tensor:
        return torch.stack([y[:, 0].square().mean(), y.exp().mean(), y.logsumexp(1).mean()])

    scored = torch.compile(score, fullgraph=True, **options)

    def broken(x: Tensor) -> Tensor:
        y = net[1](net[0](x))
        torch._dynamo.graph_break()
        return score(net[2](y))

    for losses in (
        lambda x: score(part(net[1](net[0](x)))),
        lambda x: scored(net(x)),
        lambda x: scored(part(net[1](net[0](x)))),
        torch.compile(broken, **options),
    ):
        held_to_naive(losses, params)


@pytest.mark.slow
def test_random_numbers_are_those_of_the_compiled_pass(settings: Any) -> None:
    """Torch's own compiler draws them anew from a seed, in its backward too: so must tangents."""
    settings.donated_buffer = False
    net = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3))
    compiled = torch.compile(net, mode="reduce-overhead")
    for _ in range(2):
        held_to_naive(lambda x: compiled(x).square().mean(0), list(net.parameters()), 1e-5)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:  # type: ignore[override]
        return upstream.clamp(-0.01, 0.01)


class Detached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:  # type: ignore[override]
        return upstream.detach()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Clipped, Detached])
def test_a_backward_that_is_not_linear_or_has_no_derivative(
    kind: type[torch.autograd.Function], settings: Any
) -> None:
    settings.donated_buffer = False
    net = nn.Linear(16, 3)
    compiled: Any = torch.compile(lambda x: kind.apply(net(x)).square(), backend="aot_eager")
    for _ in range(2):  # as sure of it the second time
        first, second = (compiled(x).mean(0) for x in torch.randn(2, 6, 16))
        graph = record(first, list(net.parameters()))
        vector = torch.autograd.grad(second.sum(), graph.params, retain_graph=True)
        found = directional(graph, vector)
        assert found.route == "backwards"
        assert found.reason.startswith("no tangents: ")
        flat = torch.cat([v.reshape(-1) for v in vector]).double()
        naive.assert_product(found.values, naive.jacobian(first, net.parameters()), flat, 1e-5)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:  # type: ignore[override]
        return upstream.sign()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Detached, Sign])
def test_a_layer_that_starts_at_zero_hides_nothing(
    kind: type[torch.autograd.Function], settings: Any
) -> None:
    """What has no derivative is not passed in the first step: that step must not stand as proof."""
    settings.donated_buffer = False
    net, low, up = nn.Linear(16, 3), nn.Linear(16, 4), nn.Linear(4, 3, bias=False)
    nn.init.zeros_(up.weight)
    params = [*net.parameters(), *low.parameters()]
    compiled: Any = torch.compile(
        lambda x: (net(x) + up(kind.apply(low(x)))).square(), backend="aot_eager"
    )
    for _ in range(2):
        losses = compiled(torch.randn(6, 16)).mean(0)
        vector = [torch.randn_like(p) for p in params]
        found = directional(record(losses, params), vector)
        flat = torch.cat([v.reshape(-1) for v in vector]).double()
        naive.assert_product(found.values, naive.jacobian(losses, params), flat, 1e-5)
        nn.init.normal_(up.weight)


@pytest.mark.slow
def test_a_checkpoint_that_is_compiled_with_its_dropout(settings: Any) -> None:
    """Its backward computes anew with a state of the generator, which has no derivative."""
    settings.donated_buffer = False
    net = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    compiled: Any = torch.compile(
        lambda x: checkpoint(net, x, use_reentrant=False), backend="aot_eager"
    )
    losses, params = compiled(torch.randn(6, 16)).square().mean(0), list(net.parameters())
    vector = [torch.randn_like(p) for p in params]
    found = directional(record(losses, params), vector)
    assert found.reason.startswith("no tangents: ")
    flat = torch.cat([v.reshape(-1) for v in vector]).double()
    naive.assert_product(found.values, naive.jacobian(losses, params), flat, 1e-5)


@pytest.mark.slow
def test_a_resumed_run_takes_the_same_steps_to_the_bit() -> None:
    """What is compiled anew, and proven anew, gives the same numbers."""
    pair = Pair(METHODS["modo"])
    optimizer = torch.optim.SGD(pair.net.parameters(), lr=0.1)
    draws = torch.randn(4, 2, 6, 4)

    def train(parts: Tensor) -> list[Tensor]:
        for inputs in parts:
            optimizer.zero_grad()
            method = pair.methods[0]
            method(*(pair.compiled(x).square().mean(0) for x in inputs)).backward()
            assert method.info.route == "tangents"
            optimizer.step()
        return [p.detach().clone() for p in (*pair.net.parameters(), method.weights)]

    train(draws[:2])
    saved = copy.deepcopy((pair.net.state_dict(), pair.methods[0].state_dict()))
    straight = train(draws[2:])
    pair.net.load_state_dict(saved[0])
    pair.methods[0].load_state_dict(saved[1])
    torch._dynamo.reset()
    for once, again in zip(straight, train(draws[2:]), strict=True):
        assert torch.equal(once, again)


@pytest.mark.parametrize("alone", [True, False])
def test_a_program_is_refused_only_where_it_alone_can_be_wrong(alone: bool) -> None:
    class Node:
        _forward_cls = type("Made", (), {})

    program = Program(run=lambda *_: ())
    compiled = Compiled(fx.GraphModule({}, fx.Graph()), [], "aot_eager", False, {(0,): program})
    _KNOWN[Node._forward_cls] = compiled
    nodes: Any = [Node()]
    with suppress(KeyError), trial(nodes, alone=alone, telling=True) as unproven:
        assert unproven
        raise KeyError
    assert bool(program.refused) is alone
    if not alone:
        with trial(nodes, alone=True, telling=False):
            pass
        assert not program.proven
        with trial(nodes, alone=True, telling=True):
            pass
        assert program.proven
        with trial(nodes, alone=True, telling=True) as unproven:
            assert not unproven
