"""The loop: any task, any method, the same number of samples a step for all.

A batch is split into as many draws as the method takes, so no method sees more data than another.
Runs with the same seed start from the same parameters and see the same samples at every step,
whatever the method: their differences are the methods' doing. (A method whose batches are to grow
says so (`methods.growth`), and is compared at equal samples instead of equal steps.)

Device and processes are what accelerate finds (``accelerate launch`` sets them). Under several
processes each computes its share of every batch, and gradients are averaged: the global batch is
that of one process.

Where a task counts the samples of each objective (`trimol.tasks.Task.counts`), an objective may be
absent from a draw. Such a step cannot tell new weights. By definition it keeps λ (and all else that
the method remembers) and moves along Σ λ_m ∇f_m of the objectives that the whole batch has, each
the mean over its samples, without rescaling; heads get their own gradients.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from trimol import methods
from trimol._attributes import attributes
from trimol._checks import one_of, whole_number
from trimol._extras import require
from trimol._failures import BadValue, Diverged
from trimol._generators import Generators, generators_kept, seed_generators
from trimol.data import IndependentDraws, split
from trimol.gradients import _reduce as reduce
from trimol.gradients._hooks import WATCH
from trimol.methods import Method
from trimol.methods import _handshake as handshake
from trimol.tasks import Batch, Data, Task
from trimol.tasks import _answers as answers
from trimol.training._optimizers import OptimizerName, named, needs_optimizer
from trimol.training._random import part_ways, random_numbers

if TYPE_CHECKING:
    from trimol.training.watch import StepWatch

Schedule = Literal["linear", "cosine"]


@dataclass
class Run:
    """A training run: all that changes from step to step, and what it works on.

    Attributes:
        task: What is trained.
        data: The task's data.
        model: The model in training.
        method: How its losses become one.
        optimizer: What moves its parameters.
        sampler: Which samples a step takes: a function of the seed and the step.
        where: Its device and its place among the processes: accelerate's ``PartialState``.
        autocast: The type that mixed precision computes in; None without.
        scaler: Scales the loss in float16; does nothing otherwise.
        random: The run's own states of the global random generators (for dropout and the like):
            Python's, NumPy's, torch's of the CPU and, on an accelerator, of its device.
        schedule: What α is multiplied with, by the number of the step; None: 1.
        rates: α of each group of the optimizer, before the schedule.
        step: The steps done: how often x has moved.
        samples: The training samples that they took.
        watch: Looks at what the steps do to each loss, if they are to be looked at.
        unrepeatable: Why a step does not repeat bit for bit, where it is known not to.
        began: The numbers and texts that the task remembered at the start.
    """

    task: Task
    data: Data
    model: nn.Module
    method: Method
    optimizer: Optimizer
    sampler: IndependentDraws
    where: Any
    autocast: torch.dtype | None
    scaler: GradScaler
    random: Generators
    schedule: Callable[[int], float] | None = None
    rates: Sequence[float] = ()
    step: int = 0
    samples: int = 0
    watch: "StepWatch | None" = None
    unrepeatable: str = ""

    def __post_init__(self) -> None:
        self.began = attributes(*self.parts)

    @property
    def parts(self) -> tuple[Task, nn.Module, Data, IndependentDraws, Optimizer]:
        """What may remember something from step to step."""
        return self.task, self.model, self.data, self.sampler, self.optimizer


def start(
    task: Task,
    method: str,
    *,
    lr: float = 0.1,
    hyperparameters: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    precision: str = "no",
    data: Data | None = None,
    schedule: Callable[[int], float] | None = None,
    optimizer: OptimizerName | None = None,
) -> Run:
    """Set up a run; nothing is trained yet.

    Args:
        task: What to train.
        method: The method's name, one of `trimol.methods.names()`.
        lr: α, the step size of the optimizer.
        hyperparameters: The method's own, such as ``{"gamma": 0.01}``.
        batch_size: Samples a step, over all the draws of the method and all processes; of each
            domain for a task with several (`trimol.tasks.MultiInput`). None: the task's own.
        seed: Decides the parameters at the start, the samples of every step and, where the task
            says so (`trimol.tasks.Task.data_for`), the split of the data.
        precision: ``"no"`` (as the model is), or ``"bf16"``, ``"fp16"`` for mixed precision.
        data: What to train and measure on instead of the task's own data.
        schedule: What α is multiplied with, by the number of the step, such as `decay` gives it.
        optimizer: What moves all parameters of the model, by its name, in place of the task's own
            optimizer: SGD, ``"momentum"`` 0.9 or ``"nesterov"`` with it, Adam and so on, with
            torch's defaults.

    Example:
        >>> from trimol.tasks import get
        >>> run = start(get("digits")(), "modo", lr=1.0, hyperparameters={"gamma": 0.1})
        >>> run.method
        MoDo(objectives=['cross-entropy', 'MSE', 'Huber'], every=1, gamma=0.1, rho=0)
    """
    weigh = methods.get(method)
    autocast = _autocast(precision)
    where = whereabouts()
    data = answers.data(task, seed) if data is None else data
    size = answers.batch_size(task, data, batch_size)
    if size < weigh.draws:
        raise BadValue(
            f"batch_size must be at least {weigh.draws}, as {method} takes so many draws a step, "
            f"found {size}"
        )
    with generators_kept(devices=[where.device]):
        seed_generators(seed)
        model = answers.model(task).to(where.device)
        part_ways(where.process_index)
        random = Generators(devices=[where.device])
        mover = (
            answers.optimizer(task, model.parameters(), lr)
            if optimizer is None
            else named(optimizer, model.parameters(), lr)
        )
        own = dict(hyperparameters or {})
        if needs_optimizer(own):
            own["optimizer"] = mover
        return Run(
            task=task,
            data=data,
            model=model,
            method=weigh(answers.shared(task, model), task.objectives, **own),
            optimizer=mover,
            sampler=answers.sampler(task, data, size, growth=methods.growth(weigh), seed=seed),
            where=where,
            autocast=autocast,
            scaler=GradScaler(where.device.type, enabled=autocast == torch.float16),
            random=random,
            schedule=schedule,
            rates=[group["lr"] for group in mover.param_groups],
        )


def decay(schedule: Schedule | None, steps: int) -> Callable[[int], float] | None:
    r"""What α is multiplied with at each of T steps; None for a step size that stays.

    .. math:: \text{linear: } 1 - t/T \qquad \text{cosine: } \tfrac12 (1 + \cos(\pi t/T))

    Example:
        >>> linear = decay("linear", steps=4)
        >>> [linear(step) for step in range(4)]
        [1.0, 0.75, 0.5, 0.25]
    """
    shapes: dict[Schedule, Callable[[float], float]] = {
        "linear": lambda share: 1 - share,
        "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    }
    if schedule is None:
        return None
    one_of("schedule", schedule, get_args(Schedule))
    shape = shapes[schedule]
    return lambda step: shape(step / steps)


def train(
    run: Run,
    steps: int,
    *,
    watch: Callable[[Run], None] | None = None,
    stop: Callable[[Run], bool] | None = None,
) -> Run:
    """Train for so many steps more, each on a fresh uniform mini-batch.

    Args:
        run: The run, which is changed in place.
        steps: How many steps to take.
        watch: Called in every step when its weights and gradients are known, and before x moves:
            it sees x_t and λ_{t+1}, the pair of the paper's E_ca(x_t, λ_{t+1}), with ``run.step``
            = t.
        stop: Asked after every step whether to stop there.

    Returns:
        The same run.

    Raises:
        Diverged: A loss is NaN or infinite. x has not moved in that step.

    Example:
        >>> from trimol.tasks import get
        >>> run = train(start(get("digits")(), "static"), steps=10)
        >>> run.step, run.samples
        (10, 640)
    """
    run.model.train()
    with random_numbers(run):
        for _ in range(whole_number("steps", steps, least=0)):
            _step(run, watch)
            if stop is not None and stop(run):
                break
    return run


def _step(run: Run, watch: Callable[[Run], None] | None) -> None:
    if run.schedule is not None:
        for group, rate in zip(run.optimizer.param_groups, run.rates, strict=True):
            group["lr"] = rate * run.schedule(run.step)
    run.scaler.scale(scalar(run)).backward()
    _join(run)
    if watch is not None:
        watch(run)
    with nullcontext() if run.watch is None else run.watch(run.step):
        run.scaler.step(run.optimizer)
    run.scaler.update()
    run.optimizer.zero_grad()
    run.samples += run.sampler.budget(run.step)
    run.step += 1


def scalar(run: Run) -> Tensor:
    """What the method makes of the losses of the next step: as many draws as it takes."""
    vectors, more = next_losses(run)
    with answers.about(run.task, "losses"):
        return run.method(*vectors, **more)  # type: ignore[no-any-return]


def next_losses(run: Run) -> tuple[list[Tensor], dict[str, Any]]:
    """Return what the method is called with in the next step: loss vectors, and keywords."""
    run.method.meet(lambda: handshake.of_model(run.model))
    WATCH.look()  # hooks of before are on no graph of this step, the first after a resume or not
    (indices,) = run.sampler.indices(run.step)
    draws = [drawn(run, part) for part in split(indices, _parts(run))]
    vectors = [draw.losses for draw in draws]
    seen = [tensor for draw in draws for tensor in draw.representation]
    more: dict[str, Any] = {"representation": seen} if seen else {}
    counts = [draw.counts for draw in draws if draw.counts is not None]
    if counts:
        more["counts"] = torch.stack(counts)
        _check_absent(run, vectors, more["counts"])
    _check_finite(run, vectors)
    return vectors, more


class Draw(NamedTuple):
    """This process's share of a draw."""

    losses: Tensor  # without counts, such that their mean over processes is F
    counts: Tensor | None  # samples of each objective; None if every sample has every objective
    representation: list[Tensor]  # what the heads see of it, for a method that asks for it


def _parts(run: Run) -> int:
    return run.method.draws if run.method.due else 1


def next_draw(run: Run) -> Batch:
    """This process's samples of the first draw of the next step."""
    (indices,) = run.sampler.indices(run.step)
    return _samples(run, split(indices, _parts(run))[0])


def _samples(run: Run, indices: Tensor) -> Batch:
    """This process's share of some samples."""
    share = split(indices, run.where.num_processes)[run.where.process_index]
    return tuple(tensor[share] for tensor in run.data.train)


def drawn(run: Run, indices: Tensor) -> Draw:
    """The losses of some samples, at the present x: this process's share of them."""
    batch = _samples(run, indices)
    counts, vector, seen = losses_on(run, batch)
    if counts is not None:
        return Draw(vector, counts.detach().double().cpu(), seen)
    scale = len(batch[0]) * run.where.num_processes / len(indices)  # 1: shares of one size
    return Draw(vector if scale == 1 else vector * scale, None, seen)


def losses_on(run: Run, batch: Batch) -> tuple[Tensor | None, Tensor, list[Tensor]]:
    """The counts of a batch, its losses, and its representation where the method asks for it."""
    counts = answers.counts(run.task, batch)
    batch = tuple(tensor.to(run.where.device) for tensor in batch)
    with (
        torch.autocast(run.where.device.type, run.autocast, enabled=run.autocast is not None),
        _represented(run) as seen,
    ):
        vector = answers.losses(run.task, run.model, batch)
    return counts, vector, seen


@contextmanager
def _represented(run: Run) -> Iterator[list[Tensor]]:
    """What the task's representation gives meanwhile, for a method that asks for it."""
    seen: list[Tensor] = []
    asks = run.method.needs == "representation"
    module = answers.representation(run.task, run.model) if asks else None
    if module is None:
        yield seen
        return
    handle = module.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    try:
        yield seen
    finally:
        handle.remove()


def _check_absent(run: Run, vectors: Sequence[Tensor], counts: Tensor) -> None:
    """An absent objective whose loss is not finite: its gradients may not be, either."""
    bad = torch.stack([~vector.detach().isfinite().cpu() for vector in vectors]) & (counts == 0)
    failed = over_processes(run, bad.double())
    for name, any_bad in zip(run.task.objectives, failed.sum(0).tolist(), strict=True):
        if any_bad:
            raise BadValue(
                f"the loss {name!r} must be 0 where a batch has no sample of it, found one that is "
                f"not finite at step {run.step}: trimol.tasks.masked_mean gives the 0"
            )


def over_processes(run: Run, numbers: Tensor) -> Tensor:
    """The mean over processes of a few numbers, on the CPU."""
    if not reduce.is_distributed():
        return numbers
    device = torch.device("cpu") if run.where.device.type == "mps" else run.where.device
    return reduce.mean_small(numbers.to(device)).cpu()


def _check_finite(run: Run, vectors: Sequence[Tensor]) -> None:
    values = reduce.mean_small(torch.stack([v.detach() for v in vectors]).double().mean(0))
    for name, value in zip(run.task.objectives, values.tolist(), strict=True):
        if not abs(value) < float("inf"):
            raise Diverged(f"the loss {name!r} is {value:g} at step {run.step}: {remedy(run.step)}")


def remedy(step: int) -> str:
    """What to do about losses that are not finite: before the first step no step size is at fault.

    >>> remedy(0)
    "look for NaN in the data, and for what the task's losses divide by or take the log of"
    """
    first = "try a smaller lr, or look for" if step else "look for NaN in the data, and for"
    return f"{first} what the task's losses divide by or take the log of"


def _join(run: Run) -> None:
    """Gradients averaged over the processes; statistics (of batch normalisation) the first's."""
    if not reduce.is_distributed():
        return
    if answers.counts(run.task, tuple(tensor[:1] for tensor in run.data.train)) is not None:
        _fill(run)
    own = [p.grad for p in run.model.parameters() if p.grad is not None]
    for gradient, mean in zip(own, reduce.mean_large(own), strict=True):
        gradient.copy_(mean)
    for buffer in run.model.buffers():
        dist.broadcast(buffer, src=0)


def _fill(run: Run) -> None:
    """A zero gradient for what other processes' samples reach, and this one's do not."""
    trained = list(run.model.parameters())
    reached = torch.tensor([float(p.grad is not None) for p in trained])
    for p, share in zip(trained, over_processes(run, reached).tolist(), strict=True):
        if share and p.grad is None:
            p.grad = torch.zeros_like(p)


def whereabouts() -> Any:
    """This process's device and place among the others: accelerate's ``PartialState``."""
    utils = require("accelerate.utils", extra="studies", purpose="the training loop")
    state = require("accelerate.state", extra="studies", purpose="the training loop")
    # What accelerate launch --cpu says; without it several CPU processes would not find together.
    cpu = utils.parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    return state.PartialState(cpu=cpu)


def _autocast(precision: str) -> torch.dtype | None:
    known = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    if precision not in known:
        raise BadValue(f"precision must be one of {', '.join(known)}, found {precision!r}")
    return known[precision]
