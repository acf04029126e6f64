"""Two processes that do not run the same: all are told what differs, and none hangs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trimol
from pair import meet, started
from trimol._failures import BadValue
from trimol.tasks import Batch, Data, Task
from trimol.training import start, train

pytest.importorskip("accelerate", reason="the training loop is an extra")

WORLD = 2
Case = Callable[[int], Any]


def network(width: int = 3, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(2, width).to(dtype)


def step(
    net: nn.Module, method: trimol.methods.Method, *, draws: int = 1, losses: int = 2, **how: bool
) -> None:
    """One step on a batch of this process's own."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    dtype = next(net.parameters()).dtype
    batches = [torch.randn(4, 2, generator=generator).to(dtype) for _ in range(draws)]
    outputs = [net(batch).sum(1) for batch in batches]
    vectors = [torch.stack([(y - m).square().mean() for m in range(losses)]) for y in outputs]
    method(*vectors, **how).backward()


def run(kind: Callable[..., Any], *, objectives: int = 2, how: Any = None, **options: Any) -> None:
    net = network()
    step(net, kind(net.parameters(), objectives, **options), losses=objectives, **(how or {}))


def on(net: nn.Module) -> None:
    step(net, trimol.MGDA(net.parameters(), 2))


def resumed(steps: int) -> None:
    net = network()
    method = trimol.MGDA(net.parameters(), 2)
    method.load_state_dict({**method.state_dict(), "step": torch.tensor(steps)})
    step(net, method)


def frozen(net: nn.Linear) -> nn.Linear:
    net.bias.requires_grad_(False)
    return net


class Heads(Task):
    """A trunk, and a head whose start is the process's own business."""

    name = "heads"

    def __init__(self, *, head: float = 1.0, objectives: int = 2, seed: int = 0) -> None:
        self.head, self.seed = head, seed
        self.objectives = tuple(f"loss {m}" for m in range(objectives))

    def model(self) -> nn.Module:
        net = nn.Sequential(network(seed=self.seed), nn.Linear(3, 1))
        nn.init.constant_(net[1].weight, self.head)
        return net

    def shared(self, model: nn.Module) -> Any:
        return model[0].parameters()  # type: ignore[index]

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        return [(model(batch[0]) - m).square().mean() for m in range(len(self.objectives))]

    def data(self) -> Data:
        x = torch.ones(20, 2)
        return Data((x,), (x,))


def loop(**options: Any) -> None:
    train(start(Heads(**options), "mgda", batch_size=4), steps=1)


# What the two processes do, and what both are told.
CASES: dict[str, tuple[Case, Case, str]] = {
    "method": (
        lambda _: run(trimol.MGDA),
        lambda _: run(trimol.PCGrad),
        "method, found MGDA on rank 0 and PCGrad on rank 1",
    ),
    "another number of draws": (
        lambda _: run(trimol.MGDA),
        lambda _: run(trimol.MoDo, how={"draws": 2}),
        "method, found MGDA on rank 0 and MoDo on rank 1",
    ),
    "objectives": (
        lambda _: run(trimol.MGDA, objectives=2),
        lambda _: run(trimol.MGDA, objectives=3),
        "objectives, found 2 on rank 0 and 3 on rank 1",
    ),
    "a hyper-parameter": (
        lambda _: run(trimol.CAGrad, c=0.4),
        lambda _: run(trimol.CAGrad, c=0.5),
        "c, found 0.4 on rank 0 and 0.5 on rank 1",
    ),
    "every": (
        lambda _: run(trimol.MGDA, every=1),
        lambda _: run(trimol.MGDA, every=2),
        "every, found 1 on rank 0 and 2 on rank 1",
    ),
    "length": (
        lambda _: run(trimol.MGDA),
        lambda _: run(trimol.MGDA, length="mean gradient"),
        "length, found own on rank 0 and mean gradient on rank 1",
    ),
    "max_norm": (
        lambda _: run(trimol.FAMO),
        lambda _: run(trimol.FAMO, max_norm=1.0),
        "max_norm, found nothing on rank 0 and 1.0 on rank 1",
    ),
    "heads": (
        lambda _: run(trimol.Static, heads="weighted"),
        lambda _: run(trimol.Static),
        "heads, found weighted on rank 0 and plain on rank 1",
    ),
    "chunk": (
        lambda _: run(trimol.MGDA, chunk=1),
        lambda _: run(trimol.MGDA),
        "chunk, found 1 on rank 0 and nothing on rank 1",
    ),
    "weights": (
        lambda _: run(trimol.Static, weights=[0.5, 0.5]),
        lambda _: run(trimol.Static, weights=[0.25, 0.75]),
        "weights λ, found [0.5, 0.5] on rank 0 and [0.25, 0.75] on rank 1",
    ),
    "number of parameters": (
        lambda _: on(nn.Linear(2, 3)),
        lambda _: on(nn.Linear(2, 3, bias=False)),
        "number of parameters, found 2 on rank 0 and 1 on rank 1",
    ),
    "sizes": (
        lambda _: on(network(3)),
        lambda _: on(network(4)),
        "entries of parameters, found 9 on rank 0 and 12 on rank 1",
    ),
    "types": (
        lambda _: on(network()),
        lambda _: on(network(dtype=torch.float64)),
        "shapes and types of parameters, found ",
    ),
    "frozen": (
        lambda _: on(network()),
        lambda _: on(frozen(network())),
        "shapes and types of parameters, found ",
    ),
    "seeds": (
        lambda _: on(network(seed=0)),
        lambda _: on(network(seed=1)),
        "values of parameters (seeded alike, or loaded from one file?), found ",
    ),
    "steps": (
        lambda _: resumed(3),
        lambda _: resumed(4),
        "steps done, found 3 on rank 0 and 4 on rank 1",
    ),
    "keep": (
        lambda _: run(trimol.MGDA, how={"keep": True}),
        lambda _: run(trimol.MGDA),
        "keep, found True on rank 0 and False on rank 1",
    ),
    "loss vectors": (
        lambda _: run(trimol.MoDo, how={"draws": 2}),
        lambda _: run(trimol.MoDo, how={"draws": 1}),
        "loss vectors, found 2 on rank 0 and 1 on rank 1",
    ),
    "shapes of losses": (
        lambda _: step(net := network(), trimol.MGDA(net.parameters(), 2), losses=2),
        lambda _: step(net := network(), trimol.MGDA(net.parameters(), 2), losses=3),
        "shapes of losses, found [(2,)] on rank 0 and [(3,)] on rank 1",
    ),
    "objectives of a task": (
        lambda _: loop(objectives=2),
        lambda _: loop(objectives=3),
        "objectives, found 2 on rank 0 and 3 on rank 1",
    ),
    "a head": (
        lambda _: loop(head=1.0),
        lambda _: loop(head=2.0),
        "values of parameters of the model (seeded alike",
    ),
}


def outcome(work: Case, rank: int) -> str:
    try:
        work(rank)
    except BadValue as error:
        return str(error)
    return ""


def alike(rank: int) -> dict[str, Any]:
    """Processes that agree: NaN in their parameters, DDP around them, one exchange in all."""
    broken = network()
    with torch.no_grad():
        broken.weight[0, 0] = float("nan")
    method = trimol.MGDA(broken.parameters(), 2)
    with pytest.warns(RuntimeWarning, match="NaN"):
        step(broken, method)
    net = network(seed=rank)  # which DistributedDataParallel makes the first's
    wrapped = DistributedDataParallel(net)
    method, gathered, real = trimol.MGDA(net.parameters(), 2), [], dist.all_gather

    def counted(parts: list[Tensor], own: Tensor) -> Any:
        gathered.append(own.dtype)
        return real(parts, own)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather", counted)
        for _ in range(3):
            step(wrapped, method)
    whole = [dtype for dtype in gathered if not dtype.is_floating_point]
    return {"exchanged": len(whole), "step": int(method.step)}


def work(rank: int, folder: str) -> None:
    meet(rank, WORLD, folder)
    told = {name: outcome(case[rank], rank) for name, case in CASES.items()}
    torch.save({"told": told, "alike": alike(rank)}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("processes")
    started(work, str(folder), processes=WORLD)
    return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.parametrize("name", CASES)
def test_both_are_told_what_differs(ranks: list[dict[str, Any]], name: str) -> None:
    one, two = (rank["told"][name] for rank in ranks)
    assert one == two
    assert one.startswith(f"processes must have the same {CASES[name][2]}")
    assert "\n" not in one


def test_those_that_agree_exchange_it_once(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["alike"] == {"exchanged": 2, "step": 3}  # lengths, then what is said


def test_alone_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimol.methods._handshake.meet", partial(pytest.fail, "compared"))
    net = network()
    method = trimol.MGDA(net.parameters(), 2)
    losses = torch.stack([net(torch.ones(1, 2)).sum(), net(torch.zeros(1, 2)).square().sum()])
    method(losses).backward()
