"""Problems and slow references for weights that are chosen for an optimizer's step."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import scipy
import torch
from torch import Tensor, optim

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.1),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adam, no momentum": lambda p: optim.Adam(p, lr=0.01, betas=(0.0, 0.99)),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.5),
    "amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1),
}


class Problem:
    """M random least-squares losses of two parameters, and an optimizer that has some history.

    Args:
        optimizer: One of `OPTIMIZERS`.
        objectives: M.
        seed: Of all random numbers.
        history: How many steps the optimizer has taken.
        size: How many entries the parameters have together.
    """

    def __init__(
        self,
        optimizer: str,
        objectives: int = 3,
        *,
        seed: int = 0,
        history: int = 4,
        size: int = 9,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.objectives, self.size = objectives, size
        first = size // 3
        self.params = [self.normal(first).to(dtype), self.normal(size - first).to(dtype)]
        self.params = [p.requires_grad_() for p in self.params]
        self.optimizer = OPTIMIZERS[optimizer](self.params[:1])
        rate = self.optimizer.param_groups[0]["lr"] / 3
        self.optimizer.add_param_group({"params": self.params[1:], "lr": rate})
        for _ in range(history):
            for p in self.params:
                p.grad = self.normal(*p.shape).to(dtype)
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.batches = [self.batch(dtype) for _ in range(2)]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def batch(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        # One direction in common, with either sign: gradients conflict.
        common = self.normal(self.size) * torch.sign(self.normal(self.objectives, 1))
        A = self.normal(self.objectives, 4, self.size) + common[:, None]
        return A.to(dtype), 3 * self.normal(self.objectives, 4).to(dtype)

    def losses(self, batch: int = 0) -> Tensor:
        A, b = self.batches[batch]
        return (A @ torch.cat(self.params) - b).square().mean(1)

    def rows(self, batch: int = 0) -> Tensor:
        """Gᵀ, one backward a loss."""
        each = [
            torch.autograd.grad(self.losses(batch)[m], self.params) for m in range(self.objectives)
        ]
        return torch.stack([torch.cat([g.flatten() for g in gradients]) for gradients in each])

    def taken(self, gradient: Tensor) -> Tensor:
        """What the optimizer itself subtracts with this gradient: a copy of it takes the step."""
        twin, optimizer = copy.deepcopy((self.params, self.optimizer))
        place = 0
        for p in twin:
            p.grad = gradient[place : place + p.numel()].view_as(p).to(p.dtype)
            place += p.numel()
        optimizer.step()
        return torch.cat([(a - b).detach() for a, b in zip(self.params, twin, strict=True)])

    @property
    def rates(self) -> Tensor:
        """The learning rate of every entry."""
        groups = zip(self.params, self.optimizer.param_groups, strict=True)
        return torch.cat([torch.full_like(p.detach(), float(group["lr"])) for p, group in groups])

    def state(self, name: str) -> Tensor:
        return torch.cat([self.optimizer.state[p][name] for p in self.params])


def shortest(candidates: Tensor, scale: Tensor) -> Tensor:
    """The weights of the shortest convex combination of steps, ‖·‖ in S⁻¹, by SLSQP."""
    rows = (candidates / scale.sqrt()).numpy()
    size = len(rows)
    found = scipy.optimize.minimize(
        lambda w: ((w @ rows) ** 2).sum(),
        np.full(size, 1 / size),
        jac=lambda w: 2 * rows @ (w @ rows),
        bounds=[(0, 1)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return torch.from_numpy(found.x)


def nearest(step: Tensor, rows: Tensor, scale: Tensor, level: float = 0.0) -> Tensor:
    """The step s′ nearest to s in S⁻¹ with ⟨∇f_m, s′⟩ ≥ level for all m: in step space, by SLSQP.

    In the variables S^{-1/2} s′, of which there are few.
    """
    root = scale.sqrt().numpy()
    wanted, G = step.numpy() / root, rows.numpy() * root
    unit = float(np.abs(wanted).max()) or 1.0
    lengths = np.linalg.norm(G, axis=1)
    found = scipy.optimize.minimize(
        lambda y: ((y - wanted / unit) ** 2).sum(),
        wanted / unit,
        jac=lambda y: 2 * (y - wanted / unit),
        constraints={
            "type": "ineq",
            "fun": lambda y: G @ y / lengths - level / lengths / unit,
            "jac": lambda y: G / lengths[:, None],
        },
        method="SLSQP",
        options={"ftol": 1e-18, "maxiter": 1000},
    )
    return torch.from_numpy(found.x * unit * root)


def worst_cosine(rows: Tensor, step: Tensor) -> float:
    """The least cosine of a gradient and the step: below zero, the step raises that loss."""
    lengths = rows.norm(dim=1) * step.norm()
    return float((rows @ step / lengths)[lengths > 0].min())


def train(
    problem: Problem, method: Callable[..., Tensor], steps: int, losses: Sequence[int] = (0,)
) -> None:
    """Steps on the same batch."""
    for _ in range(steps):
        problem.optimizer.zero_grad()
        method(*(problem.losses(batch) for batch in losses)).backward()
        problem.optimizer.step()
