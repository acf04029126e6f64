"""Small problems that the tests of methods share."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


class TwoHeads(nn.Module):
    """A shared trunk and one head per task: the multi-task network of the tests."""

    def __init__(self, tasks: int = 3) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(tasks))

    def losses(self, batch: Batch) -> Tensor:
        x, y = batch
        shared = self.trunk(x)
        outputs = [head(shared).squeeze(-1) for head in self.heads]
        return torch.stack([F.mse_loss(o, y[:, m]) for m, o in enumerate(outputs)])


def network(tasks: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0) -> TwoHeads:
    torch.manual_seed(seed)
    return TwoHeads(tasks).to(dtype)


def batch(
    size: int = 6, tasks: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    y = torch.randn(size, tasks, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def naive_jacobian(losses: Tensor, params: Sequence[Tensor]) -> Tensor:
    """One backward per loss, flattened: M × d."""
    rows = [
        torch.autograd.grad(loss, params, retain_graph=True, materialize_grads=True)
        for loss in losses
    ]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])


def flat_gradient(params: Sequence[Tensor]) -> Tensor:
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params]
    )


def clear(params: Sequence[Tensor]) -> None:
    for p in params:
        p.grad = None


LossFunction = Callable[[Batch], Tensor]
