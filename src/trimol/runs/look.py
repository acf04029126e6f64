"""`look`: plain training for a while, and what it shows of the objectives' conflict."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from trimol._checks import positive, whole_number
from trimol._failures import BadValue
from trimol.errors._inputs import checked_weights
from trimol.methods._registry import BASELINE
from trimol.runs._moments import Moment, Setting, seen
from trimol.runs._regimes import Regime, Shares, judge, warned
from trimol.runs.config import task_of
from trimol.tasks import Data, Settings, Task
from trimol.tasks import _answers as answers
from trimol.training import Run, StepSummary, start, train
from trimol.training._optimizers import OptimizerName
from trimol.training._run_watch import watched

# So many steps are looked at for their effect on each loss: on their batch, and on the data.
_WATCHED, _WATCHED_FULL = 40, 20


@dataclass(frozen=True)
class Look:
    """What a look at a training shows.

    Attributes:
        regime: ``"none"``, ``"scales"``, ``"direction"``, ``"noise"`` or ``"stationary"``, by
            `trimol.runs._regimes.judge`.
        reason: Why, in one sentence with the numbers that decide.
        evidence: All the numbers, ready for JSON.
        warnings: What else a user should know, a sentence each.
        moments: The states that were looked at, in order.
        raised: How many of the steps raised some loss.
        steps: The steps of training really done.
        seconds: The time it took.
    """

    regime: Regime
    reason: str
    evidence: dict[str, Any]
    warnings: tuple[str, ...]
    moments: tuple[Moment, ...]
    raised: Shares
    steps: int
    seconds: float

    @property
    def cost(self) -> dict[str, float]:
        """Steps and seconds."""
        return {"steps": self.steps, "seconds": self.seconds}


def look(
    task: str | Task,
    *,
    task_options: Mapping[str, Any] | None = None,
    steps: int,
    batch_size: int | None = None,
    lr: float | None = None,
    optimizer: OptimizerName | None = None,
    seed: int = 0,
    looks: int = 6,
    batches: int = 64,
    seconds: float | None = None,
    watch: Callable[[Moment], None] | None = None,
) -> Look:
    """Train with equal weights for so many steps, and measure at a few of them.

    Cosines, lengths and noise of the full-data gradients of the shared parameters, R_opt, E_ca and
    λ*, each with bounds, plain and in the optimizer's metric; and the share of the steps that raise
    some loss. `trimol.runs._regimes` says what follows from them.

    A look at the beginning of a training cannot see what comes later: give `revised` the moments
    that `examine` finds at the end of a run.

    Args:
        task: A task, its name, or ``path/to/file.py:Class``.
        task_options: Keyword arguments of the task's constructor, where a name is given.
        steps: How many steps to train.
        batch_size: Samples a step; None: the task's own.
        lr: α; by default the task's setting for static weights.
        optimizer: By its name, in place of the task's own.
        seed: Decides the parameters at the start and all samples.
        looks: At how many places to measure: the start, the end, and evenly in the logarithm of
            the step between them.
        batches: Each measurement goes over as many samples as so many steps take, at most.
        seconds: Stop after this time, at the next step. The result then depends on the machine;
            ``steps`` says how far it came.
        watch: Called with each moment as it is known.

    Raises:
        Diverged: A loss is NaN or infinite.

    Example:
        >>> found = look("digits", steps=20, looks=3)
        >>> [moment.step for moment in found.moments], found.steps
        ([0, 1, 20], 20)
    """
    clock = time.monotonic
    began = clock()
    made, count = _task(task, task_options), whole_number("steps", steps, least=1)
    places = _places(count, whole_number("looks", looks, least=2))
    limit = None if seconds is None else positive("seconds", seconds)
    run = start(
        made, BASELINE, lr=_rate(made, lr), batch_size=batch_size, seed=seed, optimizer=optimizer
    )
    setting = _setting(made, run.data, None, batch_size, batches, seed)
    run.watch = watched(
        run,
        max(1, count // _WATCHED),
        parts=_whole(setting),
        full_every=max(1, min(count, _WATCHED) // _WATCHED_FULL),
    )
    moments: list[Moment] = []

    def late(_run: Run) -> bool:
        return limit is not None and clock() - began > limit

    for place in places:
        train(run, place - run.step, stop=late)
        moments.append(
            seen(setting, run.model, run.optimizer, name=f"step {run.step}", step=run.step)
        )
        if watch is not None:
            watch(moments[-1])
        if late(run) and run.step:
            break
    return _concluded(moments, _shares(run.watch.summary), run.step, clock() - began)


def examine(
    task: str | Task,
    model: nn.Module,
    *,
    name: str = "the end",
    step: int | None = None,
    task_options: Mapping[str, Any] | None = None,
    data: Data | None = None,
    weights: Sequence[float] | None = None,
    optimizer: Optimizer | None = None,
    batch_size: int | None = None,
    batches: int = 64,
    seed: int = 0,
) -> Moment:
    """Measure one state of a model, such as that at the end of a run.

    Args:
        task: A task, its name, or ``path/to/file.py:Class``.
        model: The task's model.
        name: What to call this moment in the reason.
        step: The steps done.
        task_options: Keyword arguments of the task's constructor, where a name is given.
        data: The data, where it is not the task's own.
        weights: λ that the model was trained with, for E_ca; equal by default.
        optimizer: That of the training, for its metric.
        batch_size: Samples of a training step, for the noise; None: the task's own.
        batches: Go over as many samples as so many steps take, at most.
        seed: Decides which samples.

    Example:
        >>> from trimol.tasks import get
        >>> task = get("digits")()
        >>> moment = examine(task, task.model())
        >>> list(moment.losses)
        ['cross-entropy', 'MSE', 'Huber']
    """
    made = _task(task, task_options)
    held = answers.data(made, seed) if data is None else data
    setting = _setting(made, held, weights, batch_size, batches, seed)
    return seen(setting, model, optimizer, name=name, step=step)


def revised(first: Look, later: Sequence[Moment]) -> Look:
    """The look with later moments added, and the regime judged anew.

    The reason says if the regime is another one than that of the look alone.

    Args:
        first: What `look` found.
        later: What `examine` found, at the ends of runs.
    """
    found = _concluded([*first.moments, *later], first.raised, first.steps, first.seconds)
    if found.regime == first.regime or not later:
        return found
    told = f"{found.reason} (the first {first.steps} steps alone: {first.regime})"
    return replace(found, reason=told)


def _concluded(moments: Sequence[Moment], raised: Shares, steps: int, seconds: float) -> Look:
    regime, reason = judge(moments, raised)
    return Look(
        regime=regime,
        reason=reason,
        evidence={
            "moments": [moment.record for moment in moments],
            "steps_that_raise_some_loss": raised.record,
        },
        warnings=warned(moments),
        moments=tuple(moments),
        raised=raised,
        steps=steps,
        seconds=seconds,
    )


def _task(task: str | Task, options: Mapping[str, Any] | None) -> Task:
    if isinstance(task, Task) and options:
        raise BadValue(f"task_options go with a task's name, found them with a task: {options!r}")
    made = task if isinstance(task, Task) else task_of(task, options)
    if len(made.objectives) < 2:
        raise BadValue(f"task must have at least 2 objectives, found {len(made.objectives)}")
    return made


def _rate(task: Task, lr: float | None) -> float:
    return task.settings.get(BASELINE, Settings()).lr if lr is None else lr


def _setting(
    task: Task,
    data: Data,
    weights: Sequence[float] | None,
    batch_size: int | None,
    batches: int,
    seed: int,
) -> Setting:
    given = checked_weights([1.0] * len(task.objectives) if weights is None else weights)
    assert given is not None
    count = whole_number("batches", batches, least=1)
    return Setting(task, data, given, answers.batch_size(task, data, batch_size), count, seed)


def _places(steps: int, looks: int) -> list[int]:
    """The start, the end, and steps between them that grow by a factor.

    >>> _places(1000, 5)
    [0, 10, 46, 215, 1000]
    """
    between = np.geomspace(max(steps / 100, 1), steps, looks - 1)
    return sorted({0, steps, *between.round().astype(int).tolist()})


def _whole(setting: Setting) -> list[Tensor] | None:
    """The parts of the data on which the effects of steps are looked at."""
    return None if setting.few else setting.parts(0)


def _shares(summary: StepSummary) -> Shares:
    full = summary.full
    return Shares(
        looked=summary.looked,
        batch=summary.some,
        full_looked=0 if full is None else full.looked,
        full=float("nan") if full is None else full.some,
        full_all=0.0 if full is None else full.all,
        undecided=0.0 if full is None else full.undecided,
    )
