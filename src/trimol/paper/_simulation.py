"""Formulas as tasks, many trials and settings at once: one `trimol.training.Replicas` for all.

An `Arm` is one setting of one method; a trial is one data set and one seed of sampling. The samples
of a trial are a function of its seed and the step alone, so that every arm sees the same ones
(common random numbers), however arms are batched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimol import simplex
from trimol._failures import BadValue
from trimol.data import sizes
from trimol.maths._streams import stream
from trimol.methods import replicated
from trimol.methods._replicated import Jacobians, Replicated
from trimol.paper._studies import Watch
from trimol.runs import _storage as files
from trimol.tasks import Data
from trimol.tasks._point import Formula
from trimol.training import Replicas

KEPT = 10_000  # steps between states that are kept
BLOCK = 256  # steps whose samples are drawn at once
_TOLD = 500  # steps between two calls of watch
_WORD_BITS = 53  # of a random word, those that a float64 holds


@dataclass(frozen=True)
class Arm:
    """One setting of one method: its name, α, hyper-parameters, and samples per step.

    The samples are those of all draws, drawn with replacement; None: the whole training set in
    every draw. Those of a method with one draw can grow by ``growth`` with every step, as SMG's do.
    """

    method: str
    lr: float
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    batch: int | None = None
    growth: int = 0


@dataclass(frozen=True)
class Trace:
    """What was seen at K steps: x_t and λ_{t+1}, computed at x_t, both K × arms × trials × …."""

    steps: tuple[int, ...]
    x: Tensor
    weights: Tensor


def simulate(
    task: Formula,
    arms: Sequence[Arm],
    *,
    data: Tensor,
    start: Tensor,
    seeds: Sequence[int],
    steps: int,
    snapshots: Sequence[int] | None = None,
    decay: float = 0.0,
    watch: Watch | None = None,
    kept: Path | None = None,
) -> Trace:
    """Run every arm on every trial: x_{t+1} = x_t − α (t + 1)^-decay d_t.

    d_t is the method's direction, or what the task's optimizer makes of it.

    Args:
        task: The problem, and its optimizer.
        arms: The settings.
        data: The training sets, trials × n × d.
        start: x_0, one for all, or one a trial (trials × d).
        seeds: One a trial. Trials with the same seed and other data are twins: they see the same
            indices.
        steps: T.
        snapshots: The steps t, 0 to T, at which to record x_t and λ_{t+1}; only T by default.
        decay: How α falls with t.
        watch: Called with (steps done, T) now and then.
        kept: A file for the state every so many steps. One that exists is gone on from, bit for
            bit; it must be of the same call. One that is damaged is not: the one before it is kept
            beside it.

    Example:
        >>> from trimol.tasks.quadratic import Quadratic
        >>> task = Quadratic()
        >>> arms = [Arm("modo", lr=0.1, hyperparameters={"gamma": g}, batch=2) for g in (0.0, 0.1)]
        >>> trace = simulate(task, arms, data=task.draw(range(5)), start=task.start,
        ...                  seeds=range(5), steps=50)
        >>> trace.x.shape, trace.weights.shape
        (torch.Size([1, 2, 5, 2]), torch.Size([1, 2, 5, 3]))
    """
    _check(arms, data, seeds, steps)
    wanted = tuple(sorted(set((steps,) if snapshots is None else snapshots)))
    if not wanted or wanted[0] < 0 or wanted[-1] > steps:
        raise BadValue(f"snapshots must be steps from 0 to {steps}, found {wanted[:1]}…")
    kinds = _alike(arms)
    order = [i for kind in kinds for i in kind]
    program = _program(task, [[arms[i] for i in kind] for kind in kinds], data, start, seeds, decay)
    seen: list[tuple[Tensor, Tensor]] = []
    state = None if kept is None else files.newest(kept, lambda own: int(own["program"]["step"]))
    if kept is not None and state is not None:
        with files.understanding(kept):
            seen = state["seen"]
            program.load_state_dict(state["program"])
    for stop in _stops(program.step, steps):
        program.train(stop - program.step, watch=_see(seen, set(wanted)))
        if kept is not None and stop % KEPT == 0 and stop < steps:
            content = {"seen": seen, "program": program.state_dict()}
            files.write_tensors(kept, content, keep=files.earlier(kept))
        if watch is not None:
            watch(stop, steps)
    if wanted[-1] == steps:
        seen.append((program.params["x"].detach(), program.next_weights()))
    # From arms that are alike in a row to the order in which they were given.
    places = torch.tensor(order).argsort()
    x, weights = (
        torch.stack(each).unflatten(1, (len(arms), -1)) for each in zip(*seen, strict=True)
    )
    return Trace(wanted, x[:, places], weights[:, places])


def measure(
    task: Formula, x: Tensor, weights: Tensor, data: Tensor, population: Tensor, rho: float = 0.0
) -> dict[str, Tensor]:
    """The errors of every point: x is ... × trials × d, λ ... × trials × M, data trials × n × d.

    ``R_opt``, ``R_pop``, ``R_gen`` (with its sign), ``E_ca`` and, for ρ > 0, ``E_caw`` of each run
    have the shape ... × trials; ``direction``, ∇F_S(λ − λ*_ρ), and ``apart``, λ − λ*_ρ, one more.
    """
    # F is linear in z: ∇F_S is ∇F at the mean of the training set, that of the population at E[z].
    on_train, on_all = task.jacobian(x, data.mean(-2)), task.jacobian(x, population)
    opt, pop = _shortest(on_train), _shortest(on_all)
    apart = weights - _avoiding(on_train, rho)
    direction = (apart[..., None, :] @ on_train)[..., 0, :]
    errors = {
        "R_opt": opt,
        "R_pop": pop,
        "R_gen": pop - opt,
        "E_ca": direction.square().sum(-1),
        "direction": direction,
        # |R_gen| ≤ ‖∇F − ∇F_S‖_F, as min_λ ‖∇F λ‖ changes by no more than the gradients do.
        "gen_bound": (on_all - on_train).flatten(-2).norm(dim=-1),
    }
    return errors if rho == 0 else {**errors, "E_caw": apart.square().sum(-1), "apart": apart}


def _avoiding(jacobian: Tensor, rho: float = 0.0) -> Tensor:
    """λ*_ρ: the min-norm weights of the Gramian."""
    gramian = jacobian @ jacobian.mT
    return simplex.min_norm((gramian + gramian.mT) / 2, rho)


def _shortest(jacobian: Tensor) -> Tensor:
    """min over λ of ‖∇F λ‖."""
    shortest: Tensor = (_avoiding(jacobian)[..., None, :] @ jacobian)[..., 0, :].norm(dim=-1)
    return shortest


def sample_indices(seed: int, block: int, count: int, size: int) -> np.ndarray:
    """``count`` indices below ``size`` for each step of a block, with replacement: steps × count.

    They are a function of (seed, block) alone: a Philox generator with the seed as its key, and the
    block in its counter.
    """
    words = stream(seed, 0, block).random_raw(BLOCK * count).reshape(count, BLOCK).T
    # Index by index, so that a step's first indices do not depend on how many more it takes.
    return np.asarray((words >> (64 - _WORD_BITS)) * 2.0**-_WORD_BITS * size, dtype=np.int64)


def growing_mean(seed: int, block: int, first: int, growth: int, data: np.ndarray) -> np.ndarray:
    """The mean of every step's samples, steps × d, for ``first`` + ``growth`` · step of them.

    Drawn with replacement from ``data``, n × d, as `sample_indices` are: as indices where they are
    few, else as how often each sample comes (a multinomial law), which is the same.
    """
    random = np.random.Generator(stream(seed, 0, block, purpose=1))
    size = len(data)
    counts = first + growth * np.arange(block * BLOCK, (block + 1) * BLOCK)
    means = np.empty((BLOCK, data.shape[1]))
    few = counts < size  # the first so many steps, as counts grow
    some, many = counts[few], counts[~few]
    if len(some):
        drawn = data[random.integers(size, size=some.sum())]
        means[few] = np.add.reduceat(drawn, some.cumsum() - some) / some[:, None]
    if len(many):
        often = random.multinomial(many, np.full(size, 1 / size))
        means[~few] = often @ data / many[:, None]
    return means


Budget = tuple[int | None, int, int]  # samples of the first step (None: all), draws, growth


class Blocks:
    """The samples of all replicas, a block of steps at a time (`sample_indices`).

    F is linear in z, so that all samples of a draw are one: their mean. ``budgets`` are those of
    the arms.
    """

    def __init__(self, data: Tensor, seeds: Sequence[int], budgets: Sequence[Budget]) -> None:
        self.data, self.seeds, self.budgets = data, list(seeds), list(budgets)
        self.draws = max(draws for _, draws, _ in budgets)
        self.block = -1
        self.means: dict[Budget, Tensor] = {}

    def batch(self, step: int) -> tuple[Tensor]:
        """The mean of every draw, R × draws × d; arms with fewer draws repeat their last one."""
        block, row = divmod(step, BLOCK)
        if block != self.block:
            self.block = block
            self.means = {budget: self._means(*budget) for budget in dict.fromkeys(self.budgets)}
        return (torch.cat([self.means[budget][row] for budget in self.budgets]),)

    def budget(self, step: int) -> int:
        """Samples of a step: of the arm that takes most."""
        return max(
            draws * self.data.shape[1] if batch is None else batch + growth * step
            for batch, draws, growth in self.budgets
        )

    def _means(self, batch: int | None, draws: int, growth: int) -> Tensor:
        """Steps × trials × draws × d."""
        trials, size, _ = self.data.shape
        if batch is None:
            return self.data.mean(1)[:, None].expand(BLOCK, -1, self.draws, -1)
        if growth:
            pairs = zip(self.seeds, self.data.numpy(), strict=True)
            grown = [growing_mean(seed, self.block, batch, growth, own) for seed, own in pairs]
            return torch.from_numpy(np.stack(grown, 1))[:, :, None].expand(-1, -1, self.draws, -1)
        drawn = [sample_indices(seed, self.block, batch, size) for seed in self.seeds]
        samples = self.data[torch.arange(trials)[:, None], torch.from_numpy(np.stack(drawn, 1))]
        means = [draw.mean(2) for draw in samples.split(sizes(batch, draws), dim=2)]
        return torch.stack([*means, *means[-1:] * (self.draws - draws)], 2)


class _Several:
    """Replicas of several methods in a row, which step as one (as `Replicated` of one method)."""

    def __init__(self, parts: Sequence[Replicated]) -> None:
        self.parts, self.sizes = list(parts), [len(part.weights) for part in parts]
        self.draws = max(part.draws for part in parts)
        self.step = 0

    @property
    def weights(self) -> Tensor:
        return torch.cat([part.weights for part in self.parts])

    @property
    def due(self) -> bool:
        return any(part.due for part in self.parts)

    def direction(self, evidence: Jacobians) -> Tensor:
        # Without the losses: a part with fewer draws would get those of draws that are not its own.
        rows = zip(*(draw.split(self.sizes) for draw in evidence.rows), strict=True)
        self.step += 1
        return torch.cat(
            [part.direction(own[: part.draws]) for part, own in zip(self.parts, rows, strict=True)]
        )

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        for part, own in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(own)


def _alike(arms: Sequence[Arm]) -> list[list[int]]:
    """The places of arms that can step as replicas: of one method, budget and number of draws."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for i, arm in enumerate(arms):
        draws = arm.hyperparameters.get("draws")
        kind = (arm.method, arm.batch, arm.growth, draws, *sorted(arm.hyperparameters))
        kinds.setdefault(kind, []).append(i)
    return list(kinds.values())


def _program(
    task: Formula,
    kinds: Sequence[Sequence[Arm]],
    data: Tensor,
    start: Tensor,
    seeds: Sequence[int],
    decay: float,
) -> Replicas:
    """Arm by arm, the trials of each in a row, as replicas."""
    trials, _, dimension = data.shape
    parts = [_replicated(task, kind, trials) for kind in kinds]
    budgets = [
        (arm.batch, part.draws, arm.growth)
        for part, kind in zip(parts, kinds, strict=True)
        for arm in kind
    ]
    program = Replicas(
        task,
        _Several(parts),
        seeds=[*seeds] * len(budgets),
        lr=_spread([arm.lr for kind in kinds for arm in kind], trials),
        data=[Data(train=(z,), test=(z,)) for z in data] * len(budgets),
        sampler=Blocks(data, seeds, budgets),
        schedule=(lambda step: (step + 1) ** -decay) if decay else None,
    )
    with torch.no_grad():
        program.params["x"].copy_(start.double().expand(trials, dimension).repeat(len(budgets), 1))
    return program


def _replicated(task: Formula, arms: Sequence[Arm], trials: int) -> Replicated:
    """Arms that are alike as replicas of their method."""
    values = {
        name: _spread([arm.hyperparameters[name] for arm in arms], trials)
        for name in arms[0].hyperparameters
    }
    replicas = len(arms) * trials
    return replicated(arms[0].method, replicas=replicas, objectives=len(task.objectives), **values)


def _spread(values: Sequence[Any], trials: int) -> Any:
    """One value where all agree, else one per replica."""
    if all(value == values[0] for value in values):
        return values[0]
    return torch.tensor(values, dtype=torch.float64).repeat_interleave(trials, 0)


def _see(seen: list[tuple[Tensor, Tensor]], asked: set[int]) -> Callable[[Replicas], None]:
    """Remembers x_t and λ_{t+1} of the steps that were asked for."""

    def look(program: Replicas) -> None:
        if program.step in asked:
            seen.append((program.params["x"].detach().clone(), program.method.weights))

    return look


def _stops(done: int, steps: int) -> list[int]:
    """Where training pauses, to tell how far it is or to keep its state."""
    pauses = {*range(0, steps, _TOLD), *range(0, steps, KEPT)}
    return [*sorted(pause for pause in pauses if pause > done), steps]


def _check(arms: Sequence[Arm], data: Tensor, seeds: Sequence[int], steps: int) -> None:
    if not arms:
        raise BadValue("arms must not be empty")
    for arm in arms:
        if arm.growth < 0 or (arm.growth and arm.batch is None):
            raise BadValue(f"growth must be at least 0, and 0 without a batch, found {arm.growth}")
    if data.dim() != 3:
        raise BadValue(f"data must have shape trials × n × d, found {tuple(data.shape)}")
    if len(seeds) != len(data):
        raise BadValue(f"seeds must be {len(data)}, one a trial, found {len(seeds)}")
    if steps < 0:
        raise BadValue(f"steps must be at least 0, found {steps}")
