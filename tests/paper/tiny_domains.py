"""Two small domains to tell classes apart in: a multi-task study in milliseconds."""

import torch
from torch import nn

from trimol.tasks import Data
from trimol.tasks.multitask import MultiInput, MultiTask
from trimol.tasks.task import Batch


class Tiny(MultiInput):
    """Points in the plane, three classes by angle; the second domain is turned and noisier."""

    name = "tiny"
    objectives = ("near", "far")

    def __init__(
        self, *, regime: str = "frozen", weight_decay: float = 0.0, only: str | None = None
    ):
        self.regime, self.weight_decay = regime, weight_decay
        super().__init__(only=only)

    def model(self) -> MultiTask:
        heads = {name: nn.Linear(8, 3) for name in self.objectives}
        return MultiTask(nn.Sequential(nn.Linear(2, 8), nn.ReLU()), heads)

    def data(self) -> Data:
        return Data(train=self._part(0, 24), test=self._part(1, 30), validation=self._part(2, 20))

    def optimizer(self, params, lr: float) -> torch.optim.Optimizer:  # type: ignore[no-untyped-def]
        return torch.optim.Adam(params, lr=lr, weight_decay=self.weight_decay)

    def _part(self, seed: int, size: int) -> Batch:
        parts = []
        for name, turn, noise, share in (("near", 0.0, 0.2, 1), ("far", 0.5, 0.6, 2)):
            drawn = torch.Generator().manual_seed(seed)
            y = torch.arange(size // share) % 3
            angle = turn + 2 * torch.pi * y / 3
            x = torch.stack([angle.cos(), angle.sin()], dim=1)
            if name in self.objectives:
                parts.append((x + noise * torch.randn(x.shape, generator=drawn), y))
        return self.concatenated(parts)
