"""Two losses under FSDP2: parameters, gradients and the optimizer's state are shared out.

    torchrun --nproc-per-node 2 examples/fsdp2.py

Each process holds its shards and has its share of every batch; the method sees the gradients of
all. What trimol adds to a loop that you already have is marked with  # <- trimol. On GPUs, give
`fully_shard` a mesh of them and move the batches there; this has been run on CPU, by gloo.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

import trimol  # <- trimol

STEPS, BATCH = 6, 16


class TwoHeads(nn.Module):
    """Blocks, and two heads: a class of three, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
        self.kind, self.size = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logits, and the number."""
        for block in self.blocks:
            x = x + block(x)
        return self.kind(x), self.size(x)


def data(step: int) -> tuple[Tensor, Tensor]:
    """Made up, two batches of all processes together: the two draws of a step."""
    random = torch.Generator().manual_seed(step)
    first, second = torch.randn(2, BATCH, 8, generator=random)
    return first, second


def main(folder: str | None = None) -> dict[str, Tensor]:
    """Train; what there is in the end, whole. With a folder, it is saved there."""
    torch.manual_seed(0)
    model = TwoHeads()
    rank, processes = 0, 1
    if dist.is_initialized():
        rank, processes = dist.get_rank(), dist.get_world_size()
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    # After sharding: these are the parameters that the optimizer has, too.
    modo = trimol.MoDo(model.blocks.parameters(), objectives=2, gamma=0.1)  # <- trimol
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def losses(batch: Tensor) -> list[Tensor]:
        x = batch.chunk(processes)[rank]
        logits, number = model(x)
        return [
            F.cross_entropy(logits, x[:, :3].argmax(1)),
            F.mse_loss(number[:, 0], x[:, :4].sum(1)),
        ]

    for step in range(STEPS):
        modo(*map(losses, data(step))).backward()  # <- trimol
        optimizer.step()
        optimizer.zero_grad()
    if folder is not None:
        state = {"model": get_model_state_dict(model), "modo": modo.state_dict()}  # <- trimol
        dcp.save(state, checkpoint_id=folder)  # type: ignore[attr-defined]
    if rank == 0:
        weights = ", ".join(f"{weight:.6f}" for weight in modo.weights.tolist())
        print(f"{processes} processes  weights {weights}")
    whole = {n: p.full_tensor() if processes > 1 else p for n, p in model.state_dict().items()}
    return {**whole, **modo.state_dict(prefix="modo.")}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(*sys.argv[1:])
    dist.destroy_process_group()
