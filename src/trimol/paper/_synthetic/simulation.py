"""Synthetic problems, many trials and settings at once: one tensor program, no autograd.

An `Arm` is one setting of one method; a trial is one data set and one seed of sampling. `simulate`
runs all arms × trials together. The samples of a trial are a function of its seed and the step
alone, so that every arm sees the same ones (common random numbers), however arms are batched.

The problems are linear in z: a batch is its mean z, so that gradients cost the same for any batch
size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from trimol import simplex
from trimol._failures import BadValue
from trimol.data import sizes
from trimol.maths._streams import stream
from trimol.methods import replicated
from trimol.methods._replicated import Replicated
from trimol.runs import _storage as files

Watch = Callable[[int, int], None]
KEPT = 10_000  # steps between states that are kept
_BLOCK = 256  # steps whose samples are drawn at once
_WORD_BITS = 53  # of a random word, those that a float64 holds


class Problem(Protocol):
    """Objectives with closed-form gradients, linear in z."""

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x) at a mean z: (..., M, d)."""


@dataclass(frozen=True)
class Arm:
    """One setting of one method.

    Attributes:
        method: The method's name.
        lr: α.
        hyperparameters: The method's own, by name.
        batch: Samples per step, over all draws, drawn with replacement; None: the whole training
            set in every draw.
    """

    method: str
    lr: float
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    batch: int | None = None


@dataclass(frozen=True)
class Trace:
    """What was seen on the way.

    Attributes:
        steps: The K steps t that were asked for.
        x: x_t, K × arms × trials × d.
        weights: λ_{t+1}, which is computed at x_t: K × arms × trials × M.
    """

    steps: tuple[int, ...]
    x: Tensor
    weights: Tensor


def simulate(
    problem: Problem,
    arms: Sequence[Arm],
    *,
    data: Tensor,
    start: Tensor,
    seeds: Sequence[int],
    steps: int,
    objectives: int,
    snapshots: Sequence[int] | None = None,
    optimizer: Literal["sgd", "adam"] = "sgd",
    decay: float = 0.0,
    watch: Watch | None = None,
    kept: Path | None = None,
) -> Trace:
    r"""Run every arm on every trial, all together.

    .. math:: x_{t+1} = x_t - \frac{\alpha}{(t+1)^{decay}}\, d_t

    with d_t the method's direction, or Adam's of it.

    Args:
        problem: The closed forms.
        arms: The settings.
        data: The training sets, trials × n × d.
        start: x_0, one for all, one a trial (trials × d), in float64.
        seeds: One a trial: it names the trial's samples. Trials with the same seed and other data
            are twins, which see the same indices.
        steps: T.
        objectives: M.
        snapshots: The steps t, 0 to T, at which to record x_t and λ_{t+1}; only T by default.
        optimizer: Plain SGD, or Adam (0.9, 0.999, 1e-8).
        decay: How α falls with t.
        watch: Called with (steps done, T) now and then.
        kept: A file for the state every so many steps. One that exists is gone on from, bit for
            bit; it must be of the same call.

    Example:
        >>> from trimol.tasks.quadratic import Quadratic
        >>> task = Quadratic()
        >>> arms = [Arm("modo", lr=0.1, hyperparameters={"gamma": g}, batch=2) for g in (0.0, 0.1)]
        >>> trace = simulate(task, arms, data=task.draw(range(5)), start=task.start,
        ...                  seeds=range(5), steps=50, objectives=3)
        >>> trace.x.shape, trace.weights.shape
        (torch.Size([1, 2, 5, 2]), torch.Size([1, 2, 5, 3]))
    """
    _check(arms, data, seeds, steps)
    wanted = tuple(sorted(set((steps,) if snapshots is None else snapshots)))
    if not wanted or wanted[0] < 0 or wanted[-1] > steps:
        raise BadValue(f"snapshots must be steps from 0 to {steps}, found {wanted[:1]}…")
    with torch.no_grad():
        program = _Program(problem, arms, data, start, seeds, objectives, optimizer, decay)
        return program.run(steps, wanted, watch, kept)


def measure(
    problem: Problem, x: Tensor, weights: Tensor, data: Tensor, population: Tensor, rho: float = 0.0
) -> dict[str, Tensor]:
    """The errors of every point: R_opt, R_pop, R_gen, the conflict and its vector.

    Args:
        problem: The closed forms.
        x: Points, ... × trials × d.
        weights: λ, ... × trials × M.
        data: The training sets, trials × n × d.
        population: E[z].
        rho: ρ of the conflict-avoiding weights.

    Returns:
        ``R_opt``, ``R_pop``, ``R_gen`` (with its sign), ``E_ca`` and ``E_caw`` of each run (the
        latter for ρ > 0), of shape ... × trials, and ``direction``, ∇F_S(λ − λ*_ρ), with d more.
    """
    mean = data.mean(-2)
    on_train, on_all = problem.jacobian(x, mean), problem.jacobian(x, population)
    opt, pop = _shortest(on_train), _shortest(on_all)
    avoiding = _avoiding(on_train, rho)
    direction = ((weights - avoiding)[..., None, :] @ on_train)[..., 0, :]
    found = {
        "R_opt": opt,
        "R_pop": pop,
        "R_gen": pop - opt,
        "E_ca": direction.square().sum(-1),
        "direction": direction,
        "gen_bound": (on_all - on_train).flatten(-2).norm(dim=-1),
    }
    if rho > 0:
        found["E_caw"] = (weights - avoiding).square().sum(-1)
        found["apart"] = weights - avoiding
    return found


def conflict(direction: Tensor) -> tuple[Tensor, Tensor]:
    r"""E_ca over runs on one data set, by its definition ‖E_A[v]‖², and the mean of ‖v‖².

    The square of a mean of R runs is too large by the variance of that mean. The mean over pairs of
    *different* runs, :math:`\frac{\|\sum_i v_i\|^2 - \sum_i \|v_i\|^2}{R(R-1)}`, is not; it may be
    negative where the truth is zero.

    Args:
        direction: ∇F_S(λ − λ*_ρ) of every run, ... × runs × d (or λ − λ*_ρ, for E_caw).

    Example:
        >>> runs = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        >>> conflict(runs)
        (tensor(0.), tensor(2.))
    """
    runs = direction.shape[-2]
    if runs < 2:
        raise BadValue(f"direction must be of at least 2 runs, found {runs}")
    squares = direction.square().sum(-1)
    of_sum = direction.sum(-2).square().sum(-1)
    return (of_sum - squares.sum(-1)) / (runs * (runs - 1)), squares.mean(-1)


# --- samples --------------------------------------------------------------------------------------


def sample_indices(seed: int, block: int, count: int, size: int) -> np.ndarray:
    """The indices of a block of steps, steps × count, with replacement: of (seed, block) alone.

    Args:
        seed: Names the trial's samples.
        block: Which block of steps.
        count: Indices per step.
        size: n.
    """
    words = stream(seed, 0, block).random_raw(_BLOCK * count).reshape(count, _BLOCK).T
    # Index by index, so that a step's first indices do not depend on how many more it takes.
    return np.asarray((words >> (64 - _WORD_BITS)) * 2.0**-_WORD_BITS * size, dtype=np.int64)


class _Samples:
    """The mean z of every draw of a step, trials × d, for one split of the budget."""

    def __init__(self, data: Tensor, seeds: Sequence[int]) -> None:
        self.data, self.seeds = data, list(seeds)
        self.trials = torch.arange(len(self.seeds))[:, None, None]
        self.whole = data.mean(1)
        self.block = -1
        self.means: dict[tuple[int, int], list[Tensor]] = {}

    def draw(self, step: int, batch: int | None, draws: int) -> list[Tensor]:
        if batch is None:
            return [self.whole] * draws
        block, row = divmod(step, _BLOCK)
        if block != self.block:
            self.block, self.means = block, {}
        if (batch, draws) not in self.means:
            self.means[batch, draws] = self._fill(batch, draws)
        return [mean[:, row] for mean in self.means[batch, draws]]

    def _fill(self, batch: int, draws: int) -> list[Tensor]:
        size = self.data.shape[1]
        drawn = [sample_indices(seed, self.block, batch, size) for seed in self.seeds]
        taken = self.data[self.trials, torch.from_numpy(np.stack(drawn))]  # trials, steps, batch, d
        ends = [0, *accumulate(sizes(batch, draws))]
        return [taken[:, :, first:last].mean(2) for first, last in pairwise(ends)]


# --- the program ----------------------------------------------------------------------------------


@dataclass
class _Group:
    """Arms that step as one replicated method."""

    runs: Replicated
    batch: int | None
    arms: int


class _Program:
    def __init__(
        self,
        problem: Problem,
        arms: Sequence[Arm],
        data: Tensor,
        start: Tensor,
        seeds: Sequence[int],
        objectives: int,
        optimizer: str,
        decay: float,
    ) -> None:
        self.problem, self.decay = problem, decay
        self.samples = _Samples(data, seeds)
        self.trials, dimension = data.shape[0], data.shape[-1]
        self.groups, self.order = _grouped(arms, self.trials, objectives)
        ordered = [arms[i] for i in self.order]
        self.lr = torch.tensor([arm.lr for arm in ordered], dtype=torch.float64)
        self.lr = self.lr.repeat_interleave(self.trials)[:, None]
        self.x = start.double().expand(len(arms), self.trials, dimension).reshape(-1, dimension)
        self.x = self.x.clone()
        # Which arms' gradients a step takes, in turn: as often as their method draws.
        ends = [0, *accumulate(group.arms for group in self.groups)]
        self.evaluated = torch.cat(
            [
                torch.arange(*span).repeat(group.runs.draws)
                for group, span in zip(self.groups, pairwise(ends), strict=True)
            ]
        )
        self.adam = self._adam() if optimizer == "adam" else None

    def _adam(self) -> torch.optim.Adam:
        if not (self.lr == self.lr[0]).all():
            raise BadValue("lr must be the same for all arms with optimizer='adam'")
        self.x.requires_grad_()
        return torch.optim.Adam([self.x], lr=float(self.lr[0]), foreach=False)

    def run(
        self, steps: int, wanted: Sequence[int], watch: Watch | None, kept: Path | None
    ) -> Trace:
        asked = set(wanted)
        seen: list[tuple[Tensor, Tensor]] = []
        first = 0
        if kept is not None and kept.exists():
            first, seen = self._go_on(files.read_tensors(kept))
        for step in range(first, steps + 1):
            if kept is not None and step > first and step % KEPT == 0:
                files.write_tensors(kept, self._state(step, seen))
            directions = self._directions(step)
            if step in asked:
                weights = torch.cat([group.runs.weights for group in self.groups])
                seen.append((self.x.detach().clone(), weights))
            if step < steps:
                self._move(directions, step)
            if watch is not None and (step % 500 == 0 or step == steps):
                watch(step, steps)
        points, weights = (torch.stack(each) for each in zip(*seen, strict=True))
        return Trace(tuple(wanted), self._by_arm(points), self._by_arm(weights))

    def _state(self, step: int, seen: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """All that the steps from this one on depend on, and what was seen before."""
        return {
            "step": step,
            "seen": seen,
            "x": self.x.detach(),
            "adam": None if self.adam is None else self.adam.state_dict(),
            "groups": [group.runs.state_dict() for group in self.groups],
        }

    def _go_on(self, state: dict[str, Any]) -> tuple[int, list[tuple[Tensor, Tensor]]]:
        if self.adam is None:
            self.x = state["x"]
        else:
            self.x.copy_(state["x"])
            self.adam.load_state_dict(state["adam"])
        for group, own in zip(self.groups, state["groups"], strict=True):
            group.runs.load_state_dict(own)
        return state["step"], state["seen"]

    def _directions(self, step: int) -> Tensor:
        """Each method's direction, from one evaluation of all gradients."""
        x = self.x.detach().view(-1, self.trials, self.x.shape[-1])
        means = [
            mean.expand(group.arms, -1, -1)
            for group in self.groups
            for mean in self.samples.draw(step, group.batch, group.runs.draws)
        ]
        rows = self.problem.jacobian(x[self.evaluated], torch.cat(means)).flatten(0, 1)
        parts = iter(rows.split([self.trials * len(mean) for mean in means]))
        return torch.cat(
            [
                group.runs.direction([next(parts) for _ in range(group.runs.draws)])
                for group in self.groups
            ]
        )

    def _move(self, directions: Tensor, step: int) -> None:
        fallen = (step + 1) ** -self.decay
        if self.adam is None:
            self.x = self.x - fallen * self.lr * directions
            return
        self.adam.param_groups[0]["lr"] = float(self.lr[0]) * fallen
        self.x.grad = directions
        self.adam.step()

    def _by_arm(self, rows: Tensor) -> Tensor:
        """From snapshots × (groups' order × trials) × ... to the order in which arms were given."""
        shaped: Tensor = rows.unflatten(1, (len(self.order), self.trials))
        return shaped[:, torch.tensor(self.order).argsort()]


def _grouped(arms: Sequence[Arm], trials: int, objectives: int) -> tuple[list[_Group], list[int]]:
    """Arms of one method and budget step together; also says in which order they then come."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for i, arm in enumerate(arms):
        draws = arm.hyperparameters.get("draws")
        kinds.setdefault((arm.method, arm.batch, draws, *sorted(arm.hyperparameters)), []).append(i)
    groups = []
    for members in kinds.values():
        one = arms[members[0]]
        values = {
            name: _spread([arms[i].hyperparameters[name] for i in members], trials)
            for name in one.hyperparameters
        }
        count = len(members) * trials
        runs = replicated(one.method, replicas=count, objectives=objectives, **values)
        groups.append(_Group(runs, one.batch, len(members)))
    return groups, [i for members in kinds.values() for i in members]


def _spread(values: Sequence[float], trials: int) -> Any:
    """One value where all agree, else one per replica."""
    if all(value == values[0] for value in values):
        return values[0]
    return torch.tensor(values, dtype=torch.float64).repeat_interleave(trials)


def _check(arms: Sequence[Arm], data: Tensor, seeds: Sequence[int], steps: int) -> None:
    if not arms:
        raise BadValue("arms must not be empty")
    if data.dim() != 3:
        raise BadValue(f"data must have shape trials × n × d, found {tuple(data.shape)}")
    if len(seeds) != len(data):
        raise BadValue(f"seeds must be {len(data)}, one a trial, found {len(seeds)}")
    if steps < 0:
        raise BadValue(f"steps must be at least 0, found {steps}")


def _avoiding(jacobian: Tensor, rho: float = 0.0) -> Tensor:
    gramian = jacobian @ jacobian.mT
    return simplex.min_norm((gramian + gramian.mT) / 2, rho)


def _shortest(jacobian: Tensor) -> Tensor:
    """min over λ of ‖∇F λ‖."""
    found: Tensor = (_avoiding(jacobian)[..., None, :] @ jacobian)[..., 0, :].norm(dim=-1)
    return found
