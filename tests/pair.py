"""Several processes on one machine: as ``accelerate launch`` sets two up, or met in a folder."""

import datetime
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterable
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

# What the processes of tests would import each, in seconds: their server does so once for all.
IMPORTED = ["pytest", "scipy.optimize", "torch._dynamo", "torch.distributed.checkpoint"]
IMPORTED += ["torch.distributed.fsdp", "torch.distributed.tensor.parallel", "trimol.gradients"]


def join(rank: int, port: int) -> None:
    """Make this process one of two."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",  # accelerate warns where it is not set
    }


def meet(rank: int, world: int, folder: str | Path) -> None:
    """Make this process one of so many that find each other in a folder; none waits for ever."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting{world}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=240),
    )


def started(work: Callable[..., None], *args: Any, processes: int = 2) -> None:
    """Do some work in so many new processes, given their ranks; nothing of this one is theirs.

    As ``torch.multiprocessing.spawn``, but they are forks of a server that has torch.
    """
    server()
    start_processes(work, args, nprocs=processes, start_method="forkserver")


def server() -> BaseContext:
    """Starts processes that have torch at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def forked(work: Callable[..., None], *args: Any) -> None:
    """Do some work in two processes that have all that this one has imported."""
    start_processes(_joined, (free_port(), work, args), nprocs=2, start_method="fork")


def _joined(rank: int, port: int, work: Callable[..., None], args: Any) -> None:
    join(rank, port)
    work(*args)


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def assert_as_one(
    work: Callable[[int, int, str], None],
    outcome: Callable[[str], dict[str, Any]],
    names: Iterable[str],
    folder: Path,
) -> None:
    """Two processes, each of which writes its outcomes by name, end alike, and as one alone."""
    started(work, free_port(), str(folder))
    first, second = (torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for name in names:
        alone = outcome(name)
        assert torch.equal(first[name]["params"], second[name]["params"]), name
        torch.testing.assert_close(first[name]["params"], alone["params"], rtol=1e-9, atol=1e-11)
        assert first[name]["record"] == pytest.approx(alone["record"], rel=1e-6, abs=1e-9), name
