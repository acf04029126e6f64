"""Two processes execute one run: one writes, both stop and go on together."""

import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pair import free_port, join, started
from trimol.runs import Interrupted, StoreError, configure, execute
from trimol.tasks import Batch
from trimol.tasks.digits import Digits

CONFIG = configure("digits", "modo", steps=9, measure_every=4, checkpoint_every=4)


def interrupted(rank: int, folder: Path) -> bool:
    """Signal the second process alone in its fifth step; whether this one was stopped by it."""
    losses, calls = Digits.losses, []

    def signalling(task: Digits, model: nn.Module, batch: Batch) -> Tensor:
        calls.append(model.training)
        if rank == 1 and sum(calls) == 8 + 3 + 1:  # two draws a step; steps 2 and 4 are repeated
            os.kill(os.getpid(), signal.SIGTERM)
        return losses(task, model, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "losses", signalling)
        try:
            execute(CONFIG, folder)
        except Interrupted as error:
            return "interrupted at step 5 of 9" in str(error)
    return False


def work(rank: int, port: int, folder: str) -> None:
    join(rank, port)
    path = Path(folder)
    execute(CONFIG, path / "whole")
    assert dist.get_world_size() == 2
    stopped = interrupted(rank, path / "broken")
    refused = ""
    try:
        execute(CONFIG, path / "broken")
    except StoreError as error:
        refused = str(error)
    steps = execute(CONFIG, path / "broken", resume=True).metrics["step"].to_list()
    found = {"stopped": stopped, "refused": refused, "steps": steps}
    torch.save(found, path / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_write_one_run(tmp_path: Path) -> None:
    started(work, free_port(), str(tmp_path))
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert found["stopped"]
        assert "holds this run unfinished" in found["refused"]
        assert found["steps"] == [0, 4, 8, 9]
    for name in ("metrics.parquet", "model.pt", "direction.pt"):
        whole, broken = (tmp_path / folder / name for folder in ("whole", "broken"))
        assert whole.read_bytes() == broken.read_bytes(), name
    alone = execute(CONFIG, tmp_path / "alone")
    state = torch.load(tmp_path / "whole" / "model.pt", weights_only=True)
    for name, value in alone.parameters.items():
        torch.testing.assert_close(state[name], value, rtol=1e-3, atol=1e-5)
