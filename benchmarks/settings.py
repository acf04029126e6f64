"""Method × setting: exact, slow or refused? The table of docs/howto/integrations.md, measured.

    python benchmarks/settings.py                                # prints the cells, some minutes
    python benchmarks/settings.py --json results/settings.json   # then: python docs/measured.py

A network with a trunk, which the method weighs, and a head for each of three losses takes three
steps in the setting. Each is compared with the same method on a *linear* problem, whose Jacobian is
the network's by one backward a loss, without the setting's wrapper, on the joined batch: λ, the
trunk's gradient and the heads' must all agree. A step's CPU time is taken beside that of the plain
sum of the losses in the same setting; slow is what costs more beside it than in plain training.
Settings of several processes run in two, by gloo. Nothing here is run on a GPU.
"""

import argparse
import copy
import importlib.util
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from trimol._failures import UserError
from trimol.methods import Method
from trimol.runs._environment import environment, now
from trimol.simplex import min_norm
from trimol.testing import Row, Step

ROOT = Path(__file__).parents[1]
WIDTH, BATCH, OBJECTIVES, STEPS, REPEATS, WORLD = 256, 64, 3, 3, 9, 2
SLOW, OTHERWISE = 1.5, 1.2  # times; the second where the method says that it went another way
DENSE = "the table gets a dense gradient, which SparseAdam refuses: use another, or do not weigh it"
# What rounding may do, relative to the length of what is compared.
EXACT = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}

Cell = dict[str, Any]


class Words(nn.Embedding):
    """Each sample a few words: the mean of their vectors."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector a sample."""
        return super().forward(x).mean(1)


class Net(nn.Module):
    """A trunk and a head for each loss, of numbers or of words."""

    def __init__(self, *, words: bool = False, spare: bool = False) -> None:
        super().__init__()
        first: nn.Module = Words(200, WIDTH, sparse=True) if words else nn.Linear(16, WIDTH)
        self.trunk = nn.Sequential(first, nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(OBJECTIVES))
        self.spare = nn.Linear(WIDTH, 1) if spare else None
        self.recompute: bool | None = None  # None: keep the activations; else `use_reentrant`

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses, and the representation that the heads share."""
        if self.recompute is None:
            shared = self.trunk(x)
        else:
            # Its older form gives no gradients where no input asks for one.
            shared = checkpoint(self.trunk, x.requires_grad_(), use_reentrant=self.recompute)
        outputs = [head(shared).squeeze(-1).float() for head in self.heads]
        losses = [(m + 1) * F.mse_loss(out, y[:, m]) for m, out in enumerate(outputs)]
        return torch.stack(losses), shared


@dataclass
class Setting:
    """How a network is trained: what is done with it before, and around a step."""

    build: Callable[[], Net] = Net
    wrap: Callable[[Net], Callable[..., Any]] = lambda net: net
    processes: int = 1
    cast: torch.dtype = torch.float32
    compiled: bool = False  # once for all methods
    pieces: int = 1  # micro-batches that a step accumulates
    weighed: Callable[[Net], list[Tensor]] = field(
        default=lambda net: [p for p in net.trunk.parameters() if p.requires_grad]
    )

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        return nullcontext() if self.cast == torch.float32 else torch.autocast("cpu", self.cast)


def _recomputing(net: Net, *, reentrant: bool) -> Net:
    net.recompute = reentrant
    return net


def _sharded(net: Net) -> Net:
    """FSDP2, as its tutorial has it: blocks, then the root."""
    for layer in (net.trunk[0], net.trunk[2], *net.heads):
        fully_shard(layer)
    fully_shard(net)
    return net


def _adapted() -> Net:
    """The trunk frozen, with LoRA adapters that are no longer zero."""
    peft: Any = importlib.import_module("peft")
    net = Net()
    peft.inject_adapter_in_model(peft.LoraConfig(r=4, target_modules=["0", "2"]), net.trunk)
    with torch.no_grad():
        for param in net.trunk.parameters():
            if param.requires_grad:
                param.add_(0.1 * torch.randn_like(param))
    return net


def _ddp(**options: Any) -> Callable[[Net], Callable[..., Any]]:
    return lambda net: DistributedDataParallel(net, **options)


SETTINGS = {
    "plain": Setting(),
    "DDP": Setting(wrap=_ddp(), processes=WORLD),
    "DDP static": Setting(wrap=_ddp(static_graph=True), processes=WORLD),
    "DDP unused": Setting(
        build=lambda: Net(spare=True), wrap=_ddp(find_unused_parameters=True), processes=WORLD
    ),
    "FSDP2": Setting(wrap=_sharded, processes=WORLD),
    "bf16": Setting(cast=torch.bfloat16),
    "fp16, GradScaler": Setting(cast=torch.float16),
    "compile": Setting(wrap=lambda net: torch.compile(net), compiled=True),
    "checkpoint": Setting(wrap=lambda net: _recomputing(net, reentrant=False)),
    "checkpoint, reentrant": Setting(wrap=lambda net: _recomputing(net, reentrant=True)),
    "accumulation": Setting(pieces=2),
    "LoRA": Setting(build=_adapted),
    "sparse": Setting(build=lambda: Net(words=True)),
}


def methods() -> dict[str, Row]:
    """Every method with settings that move its weights: the table that the tests have."""
    spec = importlib.util.spec_from_file_location("table", ROOT / "tests" / "methods" / "table.py")
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    found: dict[str, Row] = table.TABLE
    return found


class Training:
    """A network in a setting and, beside it, a plain copy for gradients by hand."""

    def __init__(self, setting: Setting, rank: int = 0) -> None:
        torch.manual_seed(0)
        self.setting, self.rank = setting, rank
        self.net = setting.build()
        self.plain = copy.deepcopy(self.net)
        self.start = copy.deepcopy(self.net.state_dict())
        self.model = setting.wrap(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=1024.0, enabled=setting.cast == torch.float16
        )

    def reset(self) -> None:
        """Back to the start, whatever was trained; the copy follows."""
        with torch.no_grad():
            for name, param in self.net.named_parameters():
                value = self.start[name]
                if isinstance(param, DTensor):
                    full = torch.distributed.tensor.distribute_tensor(value, param.device_mesh)
                    param.copy_(full.redistribute(placements=param.placements))
                else:
                    param.copy_(value)
        self.optimizer.zero_grad()

    def batches(self, draws: int, seed: int) -> list[tuple[Tensor, Tensor]]:
        """The batches of a step, of all processes together."""
        random = torch.Generator().manual_seed(seed)
        words = isinstance(self.net.trunk[0], Words)
        size = (BATCH * self.setting.processes * self.setting.pieces, 16)
        return [
            (
                torch.randint(200, size, generator=random)
                if words
                else torch.randn(size, generator=random),
                torch.randn(size[0], OBJECTIVES, generator=random),
            )
            for _ in range(draws)
        ]

    def shares(self, draws: int, seed: int) -> list[tuple[Tensor, ...]]:
        """This process's share of them."""
        return [
            tuple(part.chunk(self.setting.processes)[self.rank] for part in batch)
            for batch in self.batches(draws, seed)
        ]

    def own(self, draws: int, seed: int) -> Step:
        """The losses of this process's share."""
        with self.setting.autocast():
            return Step.of(self.model(*share) for share in self.shares(draws, seed))

    def called(self, row: Row, method: Method, seed: int) -> Tensor:
        """The method's scalar, as one trains with it in this setting."""
        if self.setting.pieces == 1:
            return row.call(method, self.own(method.draws, seed))
        micro = self.micro(method.draws, seed)
        return method.accumulate(lambda batch: self.model(*batch)[0], micro)

    def micro(self, draws: int, seed: int) -> list[tuple[Any, ...]]:
        """The micro-batches of this process's share, each with all draws."""
        cut = [
            zip(*(part.chunk(self.setting.pieces) for part in share), strict=True)
            for share in self.shares(draws, seed)
        ]
        return [*zip(*cut, strict=True)]

    def summed(self, draws: int) -> Tensor:
        """The plain sum of the losses; of micro-batches the last one's, the others backward."""
        *others, last = self.micro(draws, 0)
        for batches in others:
            self.backward(self._sum(batches))
        return self._sum(last)

    def _sum(self, batches: Sequence[Any]) -> Tensor:
        with self.setting.autocast():
            losses = torch.stack([self.model(*batch)[0] for batch in batches])
        return losses.mean(0).sum() / self.setting.pieces

    def by_hand(self, draws: int, seed: int) -> Step:
        """The same of all processes, by the plain copy."""
        full = {n: _whole(p).detach() for n, p in self.net.named_parameters()}
        self.plain.load_state_dict({**self.plain.state_dict(), **full})
        with self.setting.autocast():
            return Step.of(self.plain(*batch) for batch in self.batches(draws, seed))

    def backward(self, loss: Tensor) -> None:
        """As one trains: scaled where there is a scaler."""
        self.scaler.scale(loss).backward()

    def finish(self) -> None:
        """The optimizer's step, on gradients that were unscaled."""
        self.scaler.step(self.optimizer)
        if self.scaler.is_enabled():
            self.scaler.update()
        self.optimizer.zero_grad()


def _whole(tensor: Tensor) -> Tensor:
    """All of a tensor: that of all shards, with its zeros."""
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return tensor.to_dense() if tensor.is_sparse else tensor


def _flat(tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """One vector in float64, zeros where there is nothing."""
    pairs = zip(tensors, like, strict=True)
    parts = [torch.zeros_like(_whole(p)) if t is None else _whole(t) for t, p in pairs]
    return torch.cat([part.detach().double().flatten() for part in parts])


class ByHand:
    """The method on a linear problem whose Jacobians are those of the plain copy, by hand."""

    def __init__(self, row: Row, training: Training) -> None:
        self.row, self.training = row, training
        self.trunk = training.setting.weighed(training.plain)
        self.heads = list(training.plain.heads.parameters())
        size = sum(p.numel() for p in self.trunk), sum(p.numel() for p in self.heads)
        self.x, self.y = (torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in size)
        self.method = row.new([self.x], OBJECTIVES)

    def step(self, draws: int, seed: int) -> Tensor:
        """The method's scalar of the linear problem."""
        given = self.training.by_hand(draws, seed)
        rows = [
            (self._rows(one, self.trunk) @ self.x, self._rows(one, self.heads) @ self.y)
            for one in given.losses
        ]
        # The min-norm weights of other gradients; of one representation, not of many.
        if self.method.needs == "representation" and self.training.setting.pieces == 1:
            shared = self._rows(given.losses[0], given.shared[:1])
            self.method.commit(min_norm(shared @ shared.T))
            return self.method.weights @ rows[0][0] + rows[0][1].sum()
        values = [one.detach().double() for one in given.losses]
        scalar: Tensor = self.method(*(f + a + b for f, (a, b) in zip(values, rows, strict=True)))
        return scalar

    def _rows(self, losses: Tensor, of: Sequence[Tensor]) -> Tensor:
        """One backward a loss."""
        found = []
        for loss in losses:
            grads = torch.autograd.grad(loss, of, retain_graph=True, allow_unused=True)
            found.append(_flat(grads, of))
        return torch.stack(found)


def _compared(row: Row, training: Training) -> tuple[float, Method, bool]:
    """The largest relative difference in three steps, the method, and if it makes tables dense."""
    training.reset()
    method = row.new(training.setting.weighed(training.net), OBJECTIVES)
    hand, worst, densified = ByHand(row, training), 0.0, False
    trunk, heads = training.setting.weighed(training.net), list(training.net.heads.parameters())
    for step in range(STEPS):
        hand.x.grad = hand.y.grad = None
        training.backward(training.called(row, method, step))
        hand.step(method.draws, step).backward()
        if training.scaler.is_enabled():
            training.scaler.unscale_(training.optimizer)
        found = [_flat([p.grad for p in some], some) for some in (trunk, heads)]
        assert hand.x.grad is not None
        assert hand.y.grad is not None
        pairs = [*zip(found, (hand.x.grad, hand.y.grad), strict=True)]
        pairs.append((method.weights, hand.method.weights))
        worst = max([worst, *(((a - b).norm() / b.norm()).item() for a, b in pairs)])
        densified = _densified(training.net)
        training.finish()
    return worst, method, densified


def _densified(net: Net) -> bool:
    """Whether a parameter that has sparse gradients got a dense one."""
    tables = [m for m in net.modules() if isinstance(m, nn.Embedding) and m.sparse]
    return any(m.weight.grad is not None and not m.weight.grad.is_sparse for m in tables)


def _seconds(step: Callable[[], Tensor], training: Training) -> float:
    """The CPU time of a step: losses, scalar, backward."""
    begun = time.process_time()
    training.backward(step())
    taken = time.process_time() - begun
    training.optimizer.zero_grad()
    return taken


def _overhead(row: Row, method: Method, training: Training) -> float:
    """How much longer a step takes than with the plain sum of the losses: the least of each."""
    steps = (lambda: training.called(row, method, 0), lambda: training.summed(method.draws))
    times = [[_seconds(step, training) for step in steps] for _ in range(REPEATS)]
    ours, plain = map(min, zip(*times, strict=True))
    return float(ours / plain)


def cell(row: Row, training: Training) -> Cell:
    """What a method does in a setting."""
    try:
        error, method, densified = _compared(row, training)
    except UserError as refusal:
        return {"verdict": "refused", "line": str(refusal)}
    assert method.info is not None
    exact = error <= EXACT[training.setting.cast]
    return {
        "verdict": "exact" if exact else "wrong",
        "error": float(f"{error:.1e}"),
        "overhead": round(_overhead(row, method, training), 2),
        "route": method.info.route,
        "line": "; ".join(filter(None, [method.info.reason, DENSE if densified else ""])),
    }


def measured(name: str, rows: dict[str, Row], rank: int = 0) -> Iterator[Cell]:
    """One column of the table."""
    training = Training(SETTINGS[name], rank)
    for method, row in rows.items():
        yield {"method": method, "setting": name, **cell(row, training)}
        if not SETTINGS[name].compiled:  # wrappers do at their first step what they do never again
            training = Training(SETTINGS[name], rank)


def _work(rank: int, names: list[str], chosen: list[str], folder: str) -> None:
    """One of two processes; the first writes what it found."""
    torch.set_num_threads(1)
    meeting, limit = f"file://{folder}/meeting", timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD, timeout=limit)
    rows = {name: row for name, row in methods().items() if name in chosen}
    found = [one for name in names for one in measured(name, rows, rank)]
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def table(settings: Sequence[str], chosen: Sequence[str]) -> list[Cell]:
    """All cells, with how much slower each is than plain."""
    warnings.filterwarnings("ignore", module="torch")
    rows = {name: row for name, row in methods().items() if name in chosen}
    alone = [name for name in settings if SETTINGS[name].processes == 1]
    together = [name for name in settings if name not in alone]
    found = [one for name in alone for one in measured(name, rows)]
    if together:
        with tempfile.TemporaryDirectory() as folder:
            spawn(_work, args=(together, list(chosen), folder), nprocs=WORLD)
            found += json.loads(Path(folder, "found.json").read_text())
    plain = {one["method"]: one.get("overhead") for one in found if one["setting"] == "plain"}
    for one in found:
        if "overhead" in one:
            one["ratio"] = round(one["overhead"] / plain[one["method"]], 1)
            if one["verdict"] == "exact" and one["ratio"] >= (OTHERWISE if one["line"] else SLOW):
                one["verdict"] = "slow"
    return sorted(found, key=lambda one: list(SETTINGS).index(one["setting"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Method × setting: exact, slow, refused?")
    parser.add_argument("--json", type=Path, help="write the cells to this file")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--methods", nargs="+", default=list(methods()))
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "study": "settings",
        "rows": table(list(dict.fromkeys(["plain", *args.settings])), args.methods),
        "command": "python benchmarks/settings.py",
        "created": now(),
        "environment": environment() | {"peft": version("peft")},
    }
    for row in found["rows"]:
        print(*(str(value) for value in row.values()), sep=" | ")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
