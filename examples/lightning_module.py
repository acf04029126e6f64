"""Two losses in Lightning, by automatic optimization.

    pip install -c constraints.txt '.[integrations]'
    python examples/lightning_module.py

What trimol adds to a module that you already have is marked with  # <- trimol. The method is an
attribute of the module: λ is in its checkpoints, moves to its device, and resumes.
"""

import warnings
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trimol  # <- trimol


class TwoTasks(L.LightningModule):
    """A trunk with two heads: a class of three, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.kind, self.size = nn.Linear(32, 3), nn.Linear(32, 1)
        self.modo = trimol.MoDo(self.trunk.parameters(), objectives=2, gamma=0.1)  # <- trimol

    def losses(self, batch: list[Tensor]) -> list[Tensor]:
        """One loss per objective, each the mean over the batch."""
        x, kind, size = batch
        z = self.trunk(x)
        return [F.cross_entropy(self.kind(z), kind), F.mse_loss(self.size(z)[:, 0], size)]

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """The method's scalar, from two halves of the batch."""
        loss: Tensor = self.modo(*map(self.losses, trimol.data.dealt(batch, 2)))  # <- trimol
        self.log("weight/kind", self.modo.weights[0])
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        """Without gradients the method gives λᵀF, and touches nothing."""
        self.log("val_loss", self.modo(self.losses(batch)))  # <- trimol

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The method has no parameters of its own."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def data(size: int = 128, seed: int = 0) -> TensorDataset:
    """Made up: both labels depend on the same numbers."""
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :3].argmax(1), x[:, :4].sum(1))


def main(**options: Any) -> tuple[L.Trainer, TwoTasks]:
    """Train; options are those of Lightning's Trainer."""
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    L.seed_everything(0, verbose=False)
    resume = options.pop("resume", None)
    usual: dict[str, Any] = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    usual |= {"accelerator": "cpu", "devices": 1, "max_epochs": 3, "gradient_clip_val": 1.0}
    trainer, module = L.Trainer(**usual | options), TwoTasks()
    train = DataLoader(data(), batch_size=16, shuffle=True)
    trainer.fit(module, train, DataLoader(data(64, seed=1), batch_size=64), ckpt_path=resume)
    return trainer, module


if __name__ == "__main__":
    trainer, module = main(enable_checkpointing=False)
    weights = ", ".join(f"{weight:.3f}" for weight in module.modo.weights.tolist())
    print(f"loss {trainer.callback_metrics['val_loss']:.3f}  weights {weights}")
