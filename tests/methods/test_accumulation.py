"""One step on micro-batches is the step on their whole, for every method."""

import copy
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from problems import batch, flat_gradient, network
from table import TABLE
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import trimol
from covering import in_turn, one_of_each_kind
from pair import meet, started
from trimol._generators import Generators
from trimol.methods._registry import get

METHODS = [name for name in TABLE if get(name).needs != "representation"]
SIZE, MICRO = 4, 3


def whole(step, draws):
    """A batch for each draw, and the same samples as micro-batches."""
    parts = [batch(size=SIZE * MICRO, seed=10 * step + draw) for draw in range(draws)]
    cut = [list(zip(*(t.split(SIZE) for t in part), strict=True)) for part in parts]
    return parts, list(zip(*cut, strict=True))


@pytest.mark.parametrize(("name", "trunk_only"), in_turn(METHODS, [False, True]))
def test_micro_batches_do_what_their_whole_does(name, trunk_only):
    one, two = network(), network()
    weighed = [net.trunk if trunk_only else net for net in (one, two)]
    methods = [TABLE[name].new(module.parameters()) for module in weighed]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.05) for net in (one, two)]
    for step in range(4):
        parts, micro = whole(step, methods[0].draws)
        at_once = methods[0](*[one.losses(part) for part in parts])
        accumulated = methods[1].accumulate(two.losses, micro)
        torch.testing.assert_close(accumulated.detach(), at_once.detach(), rtol=1e-9, atol=1e-12)
        for scalar, optimizer in zip((at_once, accumulated), optimizers, strict=True):
            optimizer.zero_grad()
            scalar.backward()
        wanted, found = (flat_gradient(net.parameters()) for net in (one, two))
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)
        for optimizer in optimizers:
            optimizer.step()
    states = [method.state_dict() for method in methods]
    for key, value in states[0].items():
        if torch.is_tensor(value):
            torch.testing.assert_close(states[1][key], value, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(methods[1].info.losses, methods[0].info.losses)


@pytest.mark.parametrize(
    "options",
    [
        {"max_norm": 1e-2},
        {"length": "mean gradient"},
        {"heads": "weighted"},
        {"simultaneous": True},
        {"draws": 3},
        {"draws": 1},
    ],
    ids=str,
)
def test_modo_with_any_option(options):
    one, two = network(), network()
    methods = [trimol.MoDo(net.trunk.parameters(), 3, gamma=0.1, **options) for net in (one, two)]
    for step in range(2):
        parts, micro = whole(step, methods[0].draws)
        for net in (one, two):
            net.zero_grad()
        methods[0](*[one.losses(part) for part in parts]).backward()
        methods[1].accumulate(two.losses, micro).backward()
        wanted, found = (flat_gradient(net.parameters()) for net in (one, two))
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(methods[1].weights, methods[0].weights, rtol=1e-9, atol=1e-12)
        assert methods[1].info.scale == pytest.approx(methods[0].info.scale, rel=1e-6)


def test_micro_batches_of_different_sizes():
    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)

    def losses(z):
        return torch.stack([(x - z).square().mean(), (x + z).square().mean()])

    data = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts, methods = data.split([7, 3]), [trimol.MGDA([x], 2) for _ in range(2)]
    (wanted,) = torch.autograd.grad(methods[0](losses(data)), x)
    accumulated = methods[1].accumulate(losses, [(part,) for part in parts], sizes=[7, 3])
    (found,) = torch.autograd.grad(accumulated, x)
    torch.testing.assert_close(found, wanted)


def test_dropout_draws_the_same_numbers_again_and_none_more():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    seen, own = {}, np.random.default_rng(0)

    def losses(part):
        scale = random.random() + np.random.rand() + own.random()
        vector = (net(part[0]) - part[1]).square().mean(0) * scale
        assert torch.equal(seen.setdefault(id(part), vector.detach()), vector.detach())
        return vector

    _, micro = whole(0, 2)
    before = Generators(own)
    trimol.MoDo(net.parameters(), 3).accumulate(losses, micro).backward()
    after = before.now().state_dict()
    before.put_back()
    for draw in (1, 0):  # as the product goes over them
        for parts in micro:
            losses(parts[draw])
    assert before.now().state_dict() == after


@pytest.mark.parametrize("name", one_of_each_kind(METHODS))
def test_autocast_rounds_what_the_losses_compute_and_nothing_else(name):
    """These losses are sums of elements, which autocast leaves in float32."""

    def step(enabled, micro):
        x = torch.linspace(1, 2, 40).requires_grad_()
        method = TABLE[name].new([x])
        scale = torch.tensor([1.0, 2.0, 3.0])[:, None]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            function = lambda z: ((x * scale - z) ** 2 / 7).sum(1)  # noqa: E731
            draws = torch.linspace(0.1, 0.3, method.draws).tolist()
            if micro:
                scalar = method.accumulate(function, [draws, draws])
            else:
                scalar = method(*map(function, draws))
        scalar.backward()
        return x.grad, method.weights

    for micro in (False, True):
        (wanted, weights), (found, own) = step(False, micro), step(True, micro)
        assert torch.equal(found, wanted)
        assert torch.equal(own, weights)


def test_one_graph_is_held_at_a_time():
    alive, most = [0], [0]

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.token = Token()
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    class Token:
        def __init__(self):
            alive[0] += 1
            most[0] = max(most[0], alive[0])

        def __del__(self):
            alive[0] -= 1

    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    trimol.MoDo([x], 3).accumulate(
        lambda z: (Counted.apply(x) - z).square(), [(torch.tensor(1.0), torch.tensor(2.0))] * 5
    ).backward()
    assert most[0] <= 2  # the one that is made, while the last one is let go
    assert alive[0] == 0


SHARED = {"static": {}, "modo": {"gamma": 0.1}, "famo": {}, "mgda": {"max_norm": 0.01}}


def trained(name, rank=None):
    """A few steps; two processes take half of each sample's micro-batch."""
    net = network()
    method = get(name)(net.trunk.parameters(), 3, **SHARED[name])
    model = net if rank is None else DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(3):
        parts, micro = whole(step, method.draws)
        optimizer.zero_grad()
        if rank is None:
            scalar = method(*[net.losses(part) for part in parts])
        else:
            own = [[tuple(t.chunk(2)[rank] for t in part) for part in draws] for draws in micro]
            scalar = method.accumulate(lambda part: model(*part)[0], own)
        scalar.backward()
        optimizer.step()
    params = torch.cat([p.detach().flatten() for p in net.parameters()])
    return {"params": params, "weights": method.weights}


def work(rank, folder):
    meet(rank, 2, folder)
    torch.save({name: trained(name, rank) for name in SHARED}, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_micro_batches_on_two_processes_do_what_their_whole_does(tmp_path):
    started(work, str(tmp_path))
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for name in SHARED:
        for key, value in trained(name).items():
            assert torch.equal(one[name][key], two[name][key])
            torch.testing.assert_close(one[name][key], value, rtol=1e-9, atol=1e-12)


def test_evaluation():
    net = network()
    method = trimol.FAMO(net.parameters(), 3)
    parts, micro = whole(0, 1)
    before = copy.deepcopy(method.state_dict())
    with torch.no_grad():
        value = method.accumulate(net.losses, micro)
        torch.testing.assert_close(value, method(net.losses(parts[0])))
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda net: DistributedDataParallel(net, static_graph=True),
        lambda net: DistributedDataParallel(net, find_unused_parameters=True),
        pytest.param(
            lambda net: fully_shard(net, mesh=init_device_mesh("cpu", (1,))),
            marks=pytest.mark.skipif(
                not hasattr(torch.cpu.Stream, "record_event"), reason="no FSDP2 on a CPU"
            ),
        ),
    ],
    ids=["static graph", "unused parameters", "sharded"],
)
def test_wrappers_that_count_backwards(wrap, tmp_path):
    """Several processes: tests/gradients/test_ddp.py and test_fsdp.py."""
    parts, micro = whole(0, 1)
    plain = network()
    trimol.MGDA(plain.trunk.parameters(), 3)(plain.losses(parts[0])).backward()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/m", rank=0, world_size=1)
    try:
        net = network()
        model = wrap(net)
        method = trimol.MGDA(net.trunk.parameters(), 3)
        method.accumulate(lambda part: model(*part)[0], micro).backward()
        for p, q in zip(net.parameters(), plain.parameters(), strict=True):
            own = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
            torch.testing.assert_close(own, q.grad, rtol=1e-11, atol=1e-13)
    finally:
        dist.destroy_process_group()


def test_a_parameter_that_is_not_used_gets_no_gradient():
    net = network()
    unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    modo = trimol.MoDo([*net.parameters(), unused], 3)
    modo.accumulate(net.losses, whole(0, 2)[1]).backward()
    assert unused.grad is None
    assert all(p.grad is not None for p in net.parameters())


class TestErrors:
    def test_what_is_no_micro_batch(self):
        x = torch.ones(2, requires_grad=True)
        modo = trimol.MoDo([x], 2)
        with pytest.raises(ValueError, match="batches must hold a micro-batch, found none"):
            modo.accumulate(lambda z: x * z, [])
        with pytest.raises(ValueError, match=r"MoDo takes 2 loss vectors.* found 1"):
            modo.accumulate(lambda z: x * z, [(1.0,)])
        for short in ([(1.0, None)], trimol.pairs([torch.ones(1)])):
            with pytest.raises(ValueError, match="long enough to be split, found one that is not"):
                modo.accumulate(lambda z: x * z, short)
        for whole in (torch.ones(2, 1), {"x": 1.0}):
            with pytest.raises(TypeError, match=rf"sequences, .* found {type(whole).__name__}: "):
                modo.accumulate(lambda z: x * z, [whole])
        with pytest.raises(ValueError, match=r"sizes must be 1 numbers above 0, found \[1, 2\]"):
            modo.accumulate(lambda z: x * z, [(1.0, 2.0)], sizes=[1, 2])
        with pytest.raises(ValueError, match=r"sizes must be 1 numbers above 0, found \[inf\]"):
            modo.accumulate(lambda z: x * z, [(1.0, 2.0)], sizes=[float("inf")])

    def test_a_zero_without_a_gradient_is_refused(self):
        """MGDA stood still on it, without a word."""
        x = torch.ones(2, requires_grad=True)
        with pytest.raises(ValueError, match="found 0 without a gradient for 'cvr'"):
            trimol.MGDA([x], ["ctr", "cvr"]).accumulate(
                lambda z: torch.stack([(x * z).square().sum(), (x * 0 * z).sum()]), [[1.0], [2.0]]
            )

    def test_absent_objectives_are_refused(self):
        x = torch.ones(2, requires_grad=True)
        with pytest.raises(ValueError, match="must be there for every objective, found None for 1"):
            trimol.Static([x], 2).accumulate(lambda z: [x[0] * z, None], [(1.0,)])
