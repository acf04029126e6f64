"""Small problems whose gradients are known without the engine that the methods use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Step:
    """What the model gave for one step of a method: one entry per draw.

    Attributes:
        losses: The loss vectors.
        shared: The shared representations that they were computed from.
    """

    losses: list[Tensor]
    shared: list[Tensor]

    @classmethod
    def of(cls, draws: Iterable[tuple[Tensor, Tensor]]) -> "Step":
        """From losses and representation of each draw, as the networks here give them."""
        losses, shared = zip(*draws, strict=True)
        return cls(list(losses), list(shared))

    def jacobian(self, params: Sequence[Tensor]) -> Tensor:
        """The mean over the draws of their Jacobians, M × d."""
        return torch.stack([naive_jacobian(one, params) for one in self.losses]).mean(0)

    def values(self) -> Tensor:
        """The mean over the draws of their losses."""
        return torch.stack([one.detach() for one in self.losses]).mean(0)

    def __getitem__(self, draws: slice) -> "Step":
        return Step(self.losses[draws], self.shared[draws])


class TwoHeads(nn.Module):
    """A shared trunk and one head per task: the smallest multi-task network."""

    def __init__(self, tasks: int = 3) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(tasks))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses, and the representation that the heads share."""
        shared = self.trunk(x)
        outputs = [head(shared).squeeze(-1) for head in self.heads]
        return torch.stack([F.mse_loss(o, y[:, m]) for m, o in enumerate(outputs)]), shared

    def losses(self, batch: Batch) -> Tensor:
        """The losses alone."""
        losses: Tensor = self(*batch)[0]
        return losses

    def step(self, draws: int, seed: int = 0) -> Step:
        """One step's losses on batches that the seed names."""
        dtype = next(self.parameters()).dtype
        names = (100 * seed + i for i in range(draws))
        return Step.of(self(*batch(tasks=len(self.heads), dtype=dtype, seed=n)) for n in names)


class Linear(nn.Module):
    """F(x) = Jx + c at x = 0: the Jacobian is ``jacobian``, the losses are ``offset``."""

    def __init__(self, jacobian: Tensor, offset: Tensor | None = None) -> None:
        super().__init__()
        objectives, size = jacobian.shape
        self.jacobian = jacobian
        self.offset = 1 + torch.arange(objectives).to(jacobian) if offset is None else offset
        self.x = nn.Parameter(torch.zeros(size, dtype=jacobian.dtype))

    def forward(self) -> tuple[Tensor, Tensor]:
        """The losses, and a representation: x itself."""
        shared = self.x.clone()
        return self.jacobian @ shared + self.offset, shared

    def step(self, draws: int, seed: int = 0) -> Step:
        """One step's losses: every draw is the whole problem, so that there is no noise."""
        return Step.of(self() for _ in range(draws))


Problem = TwoHeads | Linear


def network(tasks: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0) -> TwoHeads:
    """The multi-task network, the same for the same seed."""
    torch.manual_seed(seed)
    return TwoHeads(tasks).to(dtype)


def batch(
    size: int = 6, tasks: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Batch:
    """A batch of noise, the same for the same seed, whatever the type."""
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


def flat_gradient(params: Iterable[Tensor]) -> Tensor:
    """The ``.grad`` of the parameters in one vector, with zeros where there is none."""
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params]
    )


def clear(params: Iterable[Tensor]) -> None:
    """Forget the gradients."""
    for p in params:
        p.grad = None
