"""A loop of one's own in one or several processes, by accelerate.

    pip install -c constraints.txt '.[integrations]'
    python examples/accelerate_loop.py
    torchrun --nproc-per-node 2 examples/accelerate_loop.py  # `accelerate launch` starts one on CPU

Each process has its share of every batch and splits it, and a method sees all of it: two processes
do what one does with the halves of both joined. What trimol adds to a loop that you already have is
marked with  # <- trimol.
"""

import sys

import torch
import torch.nn.functional as F
from accelerate import Accelerator, DataLoaderConfiguration
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trimol  # <- trimol

STEPS, BATCH, ACCUMULATE = 8, 16, 2


class TwoHeads(nn.Module):
    """A trunk with two heads: a class of three, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.kind, self.size = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logits, and the number."""
        z = self.trunk(x)
        return self.kind(z), self.size(z)[:, 0]


def data(size: int = STEPS * BATCH) -> TensorDataset:
    """Made up: both labels depend on the same numbers."""
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x[:, :3].argmax(1), x[:, :4].sum(1))


def main(checkpoint: str | None = None) -> dict[str, Tensor]:
    """Train, and give (and save) what there is in the end."""
    torch.manual_seed(0)
    whole_batches = DataLoaderConfiguration(split_batches=True)  # BATCH is that of all processes
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=ACCUMULATE, dataloader_config=whole_batches
    )
    model = TwoHeads()
    modo = trimol.MoDo(model.trunk.parameters(), objectives=2, gamma=0.1)  # <- trimol
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data(), batch_size=BATCH)
    wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(modo)  # <- trimol: λ is in `save_state`

    def losses(batch: tuple[Tensor, ...]) -> list[Tensor]:
        x, kind, size = batch
        logits, number = wrapped(x)
        return [F.cross_entropy(logits, kind), F.mse_loss(number, size)]

    for batch in loader:
        with accelerator.accumulate(wrapped):
            loss = modo(*map(losses, trimol.data.dealt(batch, 2)))  # <- trimol
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(wrapped.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
    if checkpoint is not None:
        accelerator.save_state(checkpoint)
    weights = ", ".join(f"{weight:.6f}" for weight in modo.weights.tolist())
    accelerator.print(f"{accelerator.num_processes} processes  weights {weights}")
    return {**model.state_dict(), **modo.state_dict(prefix="modo.")}


if __name__ == "__main__":
    main(*sys.argv[1:])
