"""Parameters that FSDP2 shards: several processes do what one does with the joined batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from table import ROWS, TABLE
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

import trimol
from covering import one_of_each_kind
from pair import meet, started
from trimol._failures import BadValue
from trimol.gradients import gramian, jacobian, product
from trimol.testing import Row, Step

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10),
    reason="FSDP2 over gloo: torch 2.6 has none, 2.8 adds gradients where it is to average them",
)
STEPS, M = 2, 3
Trained = dict[str, Any]


class Net(nn.Module):
    """Two blocks of odd sizes, a norm, a head for each objective."""

    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(5, 7), nn.Sequential(nn.Linear(7, 6), nn.Tanh())])
        self.norm = nn.LayerNorm(6)
        self.heads = nn.Linear(6, M)
        self.again = again  # blocks are computed again in backwards

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shared = x
        for block in self.blocks:
            shared = checkpoint(block, shared, use_reentrant=False) if self.again else block(shared)
        shared = self.norm(shared)
        return self.heads(shared), shared

    def trunk(self) -> list[nn.Parameter]:
        return [*self.blocks.parameters(), *self.norm.parameters()]


def sharded(net: Net, setting: str) -> Net:
    """The net, given to ``fully_shard`` as a setting says."""
    world = dist.get_world_size()
    shape, names = (
        ((2, world // 2), ("copies", "parts")) if setting == "copies" else ((world,), None)
    )
    options: dict[str, Any] = {
        "mesh": init_device_mesh("cpu", shape, mesh_dim_names=names),
        "reshard_after_forward": setting != "kept gathered",
    }
    if setting == "half":
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in net.blocks:
        fully_shard(block, **options)
    if setting == "ignored":  # of what is weighed and of what is not
        options["ignored_params"] = {net.norm.weight, net.heads.bias}
    if setting != "blocks":
        fully_shard(net, **options)
    return net


def in_half(net: Net) -> Callable[..., Any]:
    """What a mixed precision policy does in one process at one step: all draws share the copies."""
    half = {name: p.bfloat16() for name, p in net.named_parameters()}
    return lambda x: functional_call(net, half, (x.bfloat16(),))


def whole(tensor: Tensor) -> Tensor:
    found = tensor.detach()
    return found.full_tensor() if isinstance(found, DTensor) else found.clone()


def train(row: Row, setting: str, rank: int | None, world: int) -> Trained:
    """Train a little; ``rank`` None is one process on the joined batch."""
    torch.manual_seed(0)
    dtype = torch.float32 if setting == "half" else torch.float64
    net = Net(again=setting == "checkpoint").to(dtype)
    if rank is not None:
        sharded(net, setting)
    method = row.new(net.parameters() if setting == "all" else net.trunk(), M)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    found: Trained = {"weights": [], "grads": [], "norms": [], "losses": [], "routes": []}

    def step(number: int) -> Step:
        mimicked = setting == "half" and rank is None
        models = [in_half(net) if mimicked else net for _ in range(world)]
        draws = []
        for i in range(method.draws):
            data = torch.Generator().manual_seed(10 * number + i)
            x = torch.randn(8, 5, generator=data, dtype=torch.float64).to(dtype)
            y = torch.randn(8, M, generator=data, dtype=torch.float64).to(dtype)
            parts = list(zip(models, x.chunk(world), y.chunk(world), strict=True))
            losses, shared = [], []
            for model, own, labels in parts if rank is None else [parts[rank]]:
                out, between = model(own)
                errors = (out.to(labels) - labels).square().mean(0)
                losses.append(errors * torch.arange(1, M + 1))
                shared.append(between)
            draws.append((torch.stack(losses).mean(0), shared))
        return Step.of(draws)

    for number in range(STEPS):
        optimizer.zero_grad()
        row.call(method, step(number)).backward()
        assert method.info is not None
        found["routes"].append(method.info.route)
        found["weights"].append(method.weights)
        found["losses"].append(method.info.losses)
        found["grads"].append([whole(p.grad) for p in net.parameters() if p.grad is not None])
        if setting not in (
            "blocks",
            "ignored",
        ):  # torch does not clip sharded and other gradients together
            found["norms"].append(whole(nn.utils.clip_grad_norm_(net.parameters(), 1.0)))
        optimizer.step()
        if row.after is not None:
            row.after(method, step(number))
    found["params"] = [whole(p) for p in net.parameters()]
    return found


def accumulated(name: str, rank: int | None, world: int) -> Trained:
    """Two halves of a step, FSDP2 told to wait with the first; a term that no method knows."""
    torch.manual_seed(0)
    net = Net().double()
    if rank is not None:
        sharded(net, "")
    method = ROWS[name].new(net.trunk(), M)
    found: Trained = {"grads": []}
    for number in range(2):
        net.zero_grad()
        for half in range(2):
            if rank is not None:
                net.set_requires_gradient_sync(half == 1)  # type: ignore[operator]
            data = torch.Generator().manual_seed(10 * number + half)
            x = torch.randn(method.draws, 8, 5, generator=data, dtype=torch.float64)
            own = x if rank is None else x.chunk(world, 1)[rank]
            outs = [net(part)[0] for part in own]
            draws = [(out - 1).square().mean(0) * torch.arange(1, M + 1) for out in outs]
            (method(*draws) + 0.1 * outs[0].mean()).backward()
        found["grads"].append([whole(p.grad) for p in net.parameters()])
    return found


def summed(name: str, rank: int | None, world: int) -> Trained:
    """Gradients that are not divided by the number of processes, at the user's wish."""
    torch.manual_seed(0)
    net = Net().double()
    if rank is not None:
        for module in (sharded(net, ""), *net.blocks):
            module.set_gradient_divide_factor(1.0)  # type: ignore[operator]
    method = ROWS[name].new(net.trunk(), M)
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out, _ = net(x if rank is None else x.chunk(world)[rank])
    method((out - 1).square().mean(0) * torch.arange(1, M + 1)).backward()
    return {"grads": [whole(p.grad) * (world if rank is None else 1) for p in net.parameters()]}


def micro_batches(name: str, rank: int | None, world: int) -> Trained:
    """Two micro-batches in one step, twice; the first layer of the trunk is not given."""
    torch.manual_seed(0)
    net = Net().double()
    if rank is not None:
        sharded(net, "")
    method = ROWS[name].new(net.trunk()[2:], M)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    found: Trained = {"grads": [], "weights": []}

    def losses(x: Tensor) -> Tensor:
        out, _ = net(x if rank is None else x.chunk(world)[rank])
        return (out - 1).square().mean(0) * torch.arange(1, M + 1)

    for number in range(2):
        data = torch.Generator().manual_seed(number)
        x = torch.randn(2, method.draws, 8, 5, generator=data, dtype=torch.float64)
        batches = [list(micro) for micro in x]
        optimizer.zero_grad()
        method.accumulate(losses, batches).backward()
        found["grads"].append([whole(p.grad) for p in net.parameters()])
        found["weights"].append(method.weights)
        optimizer.step()
    return found


def public(name: str, rank: int | None, world: int) -> Trained:
    """What :mod:`trimol.gradients` gives for sharded parameters; a part of them no loss reaches."""
    torch.manual_seed(0)
    net = Net().double()
    net.spare = nn.Linear(6, 2).double()
    if rank is not None:
        sharded(net, "")
    params = list(net.parameters())
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    x = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = x if rank is None else x.chunk(world, 1)[rank]
    first, second = ((net(part)[0] - 1).square().mean(0) for part in own)
    found = {
        route: product(first, second, weights, params, route=route)  # type: ignore[arg-type]
        for route in ("tangents", "double-vjp", "backwards")
    }
    found |= {f"gramian {chunk}": gramian(first, params, chunk=chunk) for chunk in (None, 2)}
    found |= {f"jacobian {chunk}": jacobian(first, params, chunk=chunk) for chunk in (None, 2)}
    ROWS[name].new(params, M)(first).backward()
    reached = [i for i, p in enumerate(params) if p.grad is not None]
    return {
        **found,
        "reached": torch.tensor(reached),
        "grads": [whole(params[i].grad) for i in reached],
    }


# -- what is refused -------------------------------------------------------------------------------


def step(method: Any, net: Callable[..., Any], penalty: Any = 0) -> None:
    out = net(torch.ones(4, 5, dtype=torch.float64))
    out = out[0] if isinstance(out, tuple) else out
    method(out.square().mean(0) + penalty).backward()


def tensor_parallel() -> None:
    plan = {"blocks.0": ColwiseParallel()}
    net = parallelize_module(Net().double(), init_device_mesh("cpu", (2,)), plan)
    trimol.MGDA(net.parameters(), M)


def tensor_parallel_head() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, M)).double()
    own = list(net[0].parameters())
    plan = {"1": ColwiseParallel(output_layouts=Replicate())}
    step(
        trimol.MGDA(own, M),
        parallelize_module(net, init_device_mesh("cpu", (2,)), plan),
    )


def fsdp1(use_orig_params: bool) -> None:
    net = Net().double()
    wrapped = FullyShardedDataParallel(
        net, use_orig_params=use_orig_params, device_id=torch.device("cpu")
    )
    trimol.Static(wrapped.parameters(), M)


def fsdp1_later() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, M)).double()
    method = trimol.Static(net[0].parameters(), M)
    net[1] = FullyShardedDataParallel(net[1], device_id=torch.device("cpu"))
    step(method, net)


def given_before() -> None:
    net = Net().double()
    method = trimol.Static(net.parameters(), M)
    step(method, sharded(net, "blocks"))


def all_given_before() -> None:
    net = Net().double()
    method = trimol.Static(net.parameters(), M)
    step(method, sharded(net, ""))


def penalised() -> None:
    net = sharded(Net().double(), "")
    method = trimol.MGDA(net.trunk(), M)
    step(method, net, sum(p.square().sum() for p in net.blocks.parameters()).full_tensor())


def part_of_the_processes(*, tensor_parallel: bool = False, heads: bool = False) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    net = Net().double()
    if tensor_parallel:
        parallelize_module(net, mesh["model"], {"blocks.0": ColwiseParallel()})
    method = trimol.Static(net.blocks[1].parameters(), M) if heads else None
    fully_shard(net.heads if heads else net, mesh=mesh["data"])
    step(method or trimol.Static(net.parameters(), M), net)


REFUSED_OF_FOUR: dict[str, tuple[Callable[[], None], str]] = {
    "half of the processes": (
        part_of_the_processes,
        "params must be sharded over all 4 processes, found one over 2 at place 0",
    ),
    "heads on half of the processes": (
        lambda: part_of_the_processes(heads=True),
        "parameters that losses reach must be sharded over all 4 processes, found one over 2 at",
    ),
    "two dimensions": (
        lambda: part_of_the_processes(tensor_parallel=True),
        "params must not be DTensors but those of fully_shard alone (no tensor parallelism), found",
    ),
}
REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "tensor parallel": (
        tensor_parallel,
        "params must not be DTensors but those of fully_shard alone (no tensor parallelism), found "
        "one placed (Shard(dim=0),) at place 0",
    ),
    "tensor parallel head": (
        tensor_parallel_head,
        "parameters that losses reach must not be DTensors but those of fully_shard alone",
    ),
    "FSDP1": (
        lambda: fsdp1(True),
        "params must not be those of FullyShardedDataParallel (FSDP1), found one of shape",
    ),
    "FSDP1, flat": (
        lambda: fsdp1(False),
        "params must not be those of FullyShardedDataParallel (FSDP1), found one of shape",
    ),
    "FSDP1 later": (
        fsdp1_later,
        "parameters that losses reach must not be those of FullyShardedDataParallel (FSDP1)",
    ),
    "given before": (
        given_before,
        "params must be taken from the model after fully_shard, found one of shape (7, 5) at place",
    ),
    "all given before": (
        all_given_before,
        "params must be taken from the model after fully_shard, found one of shape (7, 5) at place",
    ),
    "penalty on shards": (
        penalised,
        "parameters that losses reach must be those that fully_shard gathers in a forward pass, "
        "found a shard itself, of ",
    ),
}


def told(work: Callable[[], None]) -> str:
    try:
        work()
    except BadValue as error:
        return str(error)
    return ""


# -- state ----------------------------------------------------------------------------------------


def resumed(name: str, rank: int | None, world: int, steps: range, folder: Path | None) -> Trained:
    """Train for some steps, from a checkpoint where they do not start at 0; save where they end."""
    torch.manual_seed(0)
    net = Net().double()
    if rank is not None:
        sharded(net, "")
    method = ROWS[name].new(net.trunk(), M)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def run(numbers: range) -> None:
        for number in numbers:
            data = torch.Generator().manual_seed(number)
            x = torch.randn(method.draws, 8, 5, generator=data, dtype=torch.float64)
            own = x if rank is None else x.chunk(world, 1)[rank]
            optimizer.zero_grad()
            method(*[(net(part)[0] - 1).square().mean(0) for part in own]).backward()
            optimizer.step()

    def state() -> dict[str, Any]:
        model, optim = get_state_dict(net, optimizer)
        return {"model": model, "optimizer": optim, "method": method.state_dict()}

    if folder is not None and steps.start:
        held = state()
        dcp.load(held, checkpoint_id=folder)
        set_state_dict(
            net, optimizer, model_state_dict=held["model"], optim_state_dict=held["optimizer"]
        )
        method.load_state_dict(held["method"])
    run(steps)
    if folder is not None and not steps.start:
        dcp.save(state(), checkpoint_id=folder)
    return {"weights": method.weights, "params": [whole(p) for p in net.parameters()]}


# -- the processes --------------------------------------------------------------------------------

SETTINGS = ("kept gathered", "blocks", "ignored", "checkpoint", "half")
VARIANTS = ("mgda-chunk", "modo-simultaneous-length", "moco-length", "famo-length", "gradnorm")
CASES = [
    *[(name, "trunk") for name in one_of_each_kind(TABLE)],
    *[(name, "all") for name in (*VARIANTS, "fairgrad-clipped")],
    *[(name, setting) for name in ("modo", "mgda") for setting in SETTINGS],
    *[(name, setting) for name in ("static", "upgrad") for setting in ("blocks", "ignored")],
]
FOUR = [("modo", "copies"), ("mgda", "trunk"), ("mgda", "copies")]
OTHER = [
    *[(way, name) for way in (accumulated, summed, public) for name in ("static", "mgda")],
    *[(micro_batches, name) for name in ("famo-length", "modo", "mgda")],
]
SAVED = ("modo", "moco")


def work(rank: int, world: int, folder: str) -> None:
    meet(rank, world, folder)
    found: dict[Any, Any] = {}
    for case in CASES if world == 2 else FOUR:
        found[case] = train(ROWS[case[0]], case[1], rank, world)
    if world == 2:
        found |= {f"{w.__name__} {name}": w(name, rank, world) for w, name in OTHER}
    refused = REFUSED if world == 2 else REFUSED_OF_FOUR
    found |= {name: told(refuses) for name, (refuses, _) in refused.items()}
    for name in SAVED:
        steps = range(2) if world == 2 else range(2, 4)
        found[f"resumed {name}"] = resumed(name, rank, world, steps, Path(folder) / name)
    torch.save(found, f"{folder}/{world}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[Any, Any]]]:
    folder = tmp_path_factory.mktemp("fsdp")
    for world in (2, 4):  # the second goes on with what the first saved
        started(work, world, str(folder), processes=world)
    return {w: [torch.load(folder / f"{w}-{rank}.pt") for rank in range(w)] for w in (2, 4)}


def assert_as_one(ranks: list[Trained], alone: Trained, rtol: float = 1e-9) -> None:
    for key, want in alone.items():
        for got in ranks:
            if key == "routes":
                assert got[key] == want
            else:
                torch.testing.assert_close(got[key], want, rtol=rtol, atol=rtol / 100)


@pytest.mark.parametrize("case", CASES, ids=" · ".join)
def test_two_processes_equal_one(found: Any, case: tuple[str, str]) -> None:
    """In half precision one process that rounds where FSDP2 does, share by share, is as good."""
    alone = train(ROWS[case[0]], case[1], None, 2)
    assert_as_one([rank[case] for rank in found[2]], alone, 1e-5 if case[1] == "half" else 1e-9)


@pytest.mark.parametrize("case", FOUR, ids=" · ".join)
def test_four_processes_equal_one(found: Any, case: tuple[str, str]) -> None:
    alone = train(ROWS[case[0]], case[1], None, 4)
    assert_as_one([rank[case] for rank in found[4]], alone)


@pytest.mark.parametrize(("way", "name"), OTHER)
def test_accumulation_sums_and_evidence_alone(found: Any, way: Any, name: str) -> None:
    ranks = [rank[f"{way.__name__} {name}"] for rank in found[2]]
    assert_as_one(ranks, way(name, None, 2))


@pytest.mark.parametrize("name", SAVED)
def test_a_checkpoint_of_two_processes_goes_on_in_four(found: Any, name: str) -> None:
    alone = resumed(name, None, 1, range(4), None)
    assert_as_one([rank[f"resumed {name}"] for rank in found[4]], alone)


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_OF_FOUR])
def test_other_ways_to_spread_parameters_are_refused(found: Any, name: str) -> None:
    for rank in found[2 if name in REFUSED else 4]:
        assert rank[name].startswith((REFUSED | REFUSED_OF_FOUR)[name][1])
        assert "\n" not in rank[name]
