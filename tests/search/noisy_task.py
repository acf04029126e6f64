"""Two noisy regressions on one line: which weights are best depends on the validation samples."""

import torch
from torch import Tensor, nn

from trimol.tasks import Data, Task


class Noisy(Task):
    """Both losses are best at the same slope; with many samples, all weights are alike."""

    name = "noisy"
    objectives = ("a", "b")

    def __init__(self, *, validation: int = 40, seed: int = 0) -> None:
        self.size, self.seed = validation, seed

    def model(self) -> nn.Module:
        return nn.Linear(1, 1, bias=False)

    def losses(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        x, y, z = batch
        out = model(x)
        return torch.stack([(out - y).square().mean(), 0.3 * (out - z).square().mean()])

    def data(self) -> Data:
        fixed = torch.Generator().manual_seed(0)
        own = torch.Generator().manual_seed(1000 + self.seed)

        def draw(count: int, generator: torch.Generator, gap: float) -> tuple[Tensor, ...]:
            x = torch.randn(count, 1, generator=generator)
            noise = torch.randn(2, count, 1, generator=generator)
            return x, x + gap + noise[0], x - gap + noise[1]

        return Data(
            train=draw(200, fixed, 0.1),
            test=draw(100, fixed, 0.1),
            validation=draw(self.size, own, 0),
        )
