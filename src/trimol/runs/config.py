"""What decides a run: its configuration, checked, and its name by content."""

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trimol import methods
from trimol._checks import Names, in_order
from trimol._failures import BadValue
from trimol._generators import generators_kept
from trimol.methods._registry import outline
from trimol.tasks import Settings, Task, load
from trimol.tasks import _answers as answers
from trimol.tasks.loading import blaming, source, with_path
from trimol.training._optimizers import (
    GIVEN,
    NAMES,
    OptimizerName,
    named,
    needs_optimizer,
    usual_lr,
)
from trimol.training.loop import Schedule

# Changes what is on disk while a run goes on, not what comes out.
_WITHOUT_EFFECT = {"checkpoint_every"}
# Came later than the first runs on disk: unset is how those were run, and their names stay.
_LATER = {
    *("score_every", "measure_at", "validation_only", "schedule"),
    *("optimizer", "watch_every", "watch_full_every", "hold_out"),
}
_TASKS_KEPT = 4  # with their data
_tasks: dict[tuple[str | None, ...], Task] = {}


def _keys_as_numbers(value: Any) -> Any:
    """JSON has no numbers as keys: ``{"1": 0.2}`` is objective 1 again."""
    if isinstance(value, Mapping):
        return {
            int(key) if isinstance(key, str) and key.isdecimal() else key: _keys_as_numbers(item)
            for key, item in value.items()
        }
    return value


def _none_if_constant(value: Any) -> Any:
    return None if value == "constant" else value


Plain = Annotated[dict[str, Any], BeforeValidator(_keys_as_numbers)]
Falling = Annotated[Schedule | None, BeforeValidator(_none_if_constant)]


class RunConfig(BaseModel):
    """Everything that decides a run.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``.
        task_options: Keyword arguments of the task's constructor.
        method: The method's name.
        hyperparameters: The method's own.
        lr: α, the step size of the optimizer.
        optimizer: ``"sgd"``, ``"momentum"`` (SGD with 0.9), ``"nesterov"``, ``"adam"``,
            ``"adamw"``, ``"rmsprop"`` or ``"adagrad"``, as torch has them; None: the task's own.
        schedule: How α falls to 0 over the steps: ``"linear"`` or ``"cosine"``; None or
            ``"constant"``: it stays.
        steps: How many steps to take.
        batch_size: Samples a step, over all draws (of the first step, where batches grow).
        seed: Decides the parameters at the start, the samples of every step and, where the task
            says so (`trimol.tasks.Task.data_for`), the split of the data.
        rho: ρ of the conflict-avoiding weights that λ is measured against.
        measure_every: Measure at every so many steps; with 0 at the end only.
        measure_at: Measure at these steps, too, and keep the vectors of E_ca there.
        validation_only: Nothing is measured; at the end, losses and metrics on validation data are
            taken, to choose a setting by.
        score_every: After every so many steps, the task's metrics on validation and test data;
            with 0 never.
        watch_every: Look at every so many steps whether it raised a loss (`trimol.StepWatch`); with
            0 never.
        watch_full_every: At every so many of these looks, the same on all training data; with 0
            never.
        checkpoint_every: Save a checkpoint every so many steps; with 0 when interrupted only.
        precision: ``"no"`` (as the model is), ``"bf16"`` or ``"fp16"`` (mixed).
        hold_out: Where the task has no validation data, so many samples of train become it.
        source: SHA-256 of the file of a user's own task.

    Example:
        >>> config = RunConfig(task="digits", method="modo", lr=1.0, steps=100)
        >>> config.key == config.model_copy(update={"checkpoint_every": 5}).key
        True
        >>> config.key == config.model_copy(update={"seed": 1}).key
        False
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    task_options: dict[str, Any] = Field(default_factory=dict)
    method: str
    hyperparameters: Plain = Field(default_factory=dict)
    lr: Annotated[FiniteFloat, Field(gt=0)]
    optimizer: OptimizerName | None = None
    schedule: Falling = None
    steps: NonNegativeInt
    batch_size: PositiveInt = 64
    seed: NonNegativeInt = 0
    rho: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    measure_every: NonNegativeInt = 0
    measure_at: tuple[NonNegativeInt, ...] = ()
    validation_only: bool = False
    score_every: NonNegativeInt = 0
    watch_every: NonNegativeInt = 0
    watch_full_every: NonNegativeInt = 0
    checkpoint_every: NonNegativeInt = 0
    precision: Literal["no", "bf16", "fp16"] = "no"
    hold_out: NonNegativeInt = 0
    source: str | None = None

    @field_validator("measure_at")
    @classmethod
    def _rising(cls, steps: tuple[int, ...]) -> tuple[int, ...]:
        if any(a >= b for a, b in pairwise(steps)):
            raise PydanticCustomError("rising", "must be rising numbers")
        return steps

    @model_validator(mode="after")
    def _looks(self) -> "RunConfig":
        if self.watch_full_every and not self.watch_every:
            raise PydanticCustomError(
                "looks", "watch_full_every says at which looks of watch_every: that must be above 0"
            )
        return self

    @field_serializer("task_options", "hyperparameters")
    def _plain(self, value: dict[str, Any]) -> Any:
        return json.loads(json.dumps(value))

    @cached_property
    def key(self) -> str:
        """Twelve hex digits that name all that decides the result."""
        unused = {name for name in _LATER if not getattr(self, name)}
        decisive = self.model_dump(mode="json", exclude=_WITHOUT_EFFECT | unused)
        if self.source is not None:  # the file's content counts, not the folder it lies in
            decisive["task"] = with_path(self.task, lambda file: file.name)
            decisive["task_options"] = _with_path(self.task_options, lambda file: file.name)
        text = json.dumps(decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with some fields changed; its key is its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("key", None)  # pydantic copies what has been computed, too
        return copied

    @property
    def movement(self) -> dict[str, str]:
        """Optimizer and schedule, where they are not the default."""
        own = {"optimizer": self.optimizer, "schedule": self.schedule}
        return {name: value for name, value in own.items() if value is not None}

    def differences(self, other: "RunConfig") -> list[str]:
        """The names of the fields that decide the result and differ."""
        return [
            name
            for name in type(self).model_fields
            if name not in _WITHOUT_EFFECT and getattr(self, name) != getattr(other, name)
        ]


def configure(
    task: str,
    method: str,
    *,
    lr: float | None = None,
    batch_size: int | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    **others: Any,
) -> RunConfig:
    """A run's configuration, from what a user says and, where nothing is said, the task's settings.

    Args:
        task: A task's name, or ``path/to/file.py:Class``.
        method: The method's name.
        lr: α. By default the task's setting for this method, for the task's own optimizer; for
            another ``optimizer``, torch's default (with momentum, a tenth of the task's).
        batch_size: Samples a step; by default `usual_batch_size`.
        hyperparameters: The method's own; they go before the task's settings. One number an
            objective may also be given by the objectives' names: ``{"prefer": {"a": 1, "b": 0}}``.
        task_options: Keyword arguments of the task's constructor.
        others: The other fields of `RunConfig`.

    Raises:
        ValueError: Something does not fit, said in one line.

    Example:
        >>> configure("digits", "modo", steps=100, hyperparameters={"rho": 0.1}).hyperparameters
        {'gamma': 1.0, 'rho': 0.1}
        >>> configure("digits", "static", hyperparameters={"gamma": 1})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        trimol._failures.BadValue: static has no hyper-parameter 'gamma': it has weights, every, ...
    """
    known = hyperparameters_of(method)
    made = task_of(task, task_options)
    settings = made.settings.get(method, Settings())
    chosen = {**settings.method, **(hyperparameters or {})}
    for name in chosen:
        if name not in known:
            where = "" if name in (hyperparameters or {}) else f"{task}: settings: "
            raise BadValue(
                f"{where}{method} has no hyper-parameter {name!r}: it has "
                f"{', '.join(known) or 'none'}"
            )
    own = dict(task_options or {})
    if batch_size is None:
        batch_size = usual_batch_size(task, task_options, hold_out=others.get("hold_out", 0))
    return checked(
        task=with_path(task, Path.resolve),
        task_options=_with_path(own, Path.resolve),
        method=method,
        hyperparameters=_in_order(method, chosen, made.objectives),
        lr=_usual(made, settings.lr, others.get("optimizer")) if lr is None else lr,
        source=source(task, own),
        batch_size=batch_size,
        **others,
    )


def _usual(task: Task, lr: float, optimizer: OptimizerName | None) -> float:
    """The task's step size, which is one for the task's own optimizer."""
    if optimizer not in NAMES:  # none is asked for; what is none is said elsewhere
        return lr
    with generators_kept(task):
        params = answers.model(task).parameters()
    return usual_lr(optimizer, answers.optimizer(task, params, lr))


def _in_order(method: str, values: Mapping[str, Any], objectives: Names) -> dict[str, Any]:
    """Numbers by the objectives' names as lists, but for parameters that are mappings only."""
    kinds = {p.name: " ".join(p.types) for p in outline(method).parameters}
    by_name = {n for n, kind in kinds.items() if "Mapping[" in kind and "Sequence[" not in kind}
    return {
        name: in_order(name, value, objectives)
        if isinstance(value, Mapping) and name not in by_name
        else value
        for name, value in values.items()
    }


def usual_batch_size(
    task: str, task_options: Mapping[str, Any] | None = None, *, hold_out: int = 0
) -> int:
    """Samples a step where nobody says it: the task's own, or all samples that it has if fewer.

    >>> usual_batch_size("digits"), usual_batch_size("quadratic", {"samples": 20}, hold_out=4)
    (64, 16)
    """
    made = task_of(task, task_options)
    with blaming(task, task_options):
        return answers.batch_size(made, answers.data(made), None, hold_out=hold_out)


def steps_per_epoch(
    task: str, batch_size: int | None, task_options: Mapping[str, Any] | None = None
) -> int:
    """The steps in which a task's data (of several sets, the longest) are passed through once.

    Example:
        >>> steps_per_epoch("quadratic", 5, {"samples": 20})
        4
    """
    made = task_of(task, task_options)
    with blaming(task, task_options):
        data = answers.data(made)
        size = answers.batch_size(made, data, batch_size)
        sampler = answers.sampler(made, data, size, growth=0.0, seed=0)
    return sampler.steps_per_epoch


def equal_steps(
    task: str,
    method: str,
    steps: int,
    batch_size: int | None,
    task_options: Mapping[str, Any] | None = None,
) -> int:
    """As many steps of a method, whose batches may grow, as take no more samples than these."""
    growth = methods.growth(method)
    if growth == 0:
        return steps
    made = task_of(task, task_options)
    with blaming(task, task_options):
        data = answers.data(made)
        size = answers.batch_size(made, data, batch_size)
        sampler = answers.sampler(made, data, size, growth=growth, seed=0)
    return sampler.steps_within(steps * sampler.budget(0))


def _with_path(options: Mapping[str, Any], change: Callable[[Path], object]) -> dict[str, Any]:
    """The options, with another path of the file of the task that a task is made around."""
    of = options.get("of")
    return {**options, "of": with_path(of, change)} if isinstance(of, str) else dict(options)


def task_of(name: str, options: Mapping[str, Any] | None = None) -> Task:
    """The task, made once in a process for all runs of it.

    >>> task_of("digits", {"hidden": 5}) is task_of("digits", {"hidden": 5})
    True
    """
    content = json.dumps(dict(options or {}), sort_keys=True, default=repr)
    # Another content of the file, and another place of the data, is another task.
    key = name, content, source(name, options), os.environ.get("TRIMOL_DATA")
    _tasks[key] = _tasks.pop(key) if key in _tasks else load(name, options)
    if len(_tasks) > _TASKS_KEPT:
        del _tasks[next(iter(_tasks))]  # the one that was asked for longest ago
    return _tasks[key]


def checked(**fields: Any) -> RunConfig:
    """`RunConfig` of these fields; what does not fit is said in one line.

    >>> checked(task="digits", method="modo", lr=0.1, steps=-1)
    Traceback (most recent call last):
    trimol._failures.BadValue: steps: input should be greater than or equal to 0, found -1
    """
    try:
        return RunConfig(**fields)
    except ValidationError as error:
        raise BadValue(one_line(error)) from error


def one_line(error: ValidationError) -> str:
    """The first thing that a configuration has wrong: field, complaint and value."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"])) or "configuration"
    complaint = first["msg"][0].lower() + first["msg"][1:]
    found = repr(first["input"])
    return f"{name}: {complaint}, found {found if len(found) <= 80 else found[:77] + '...'}"


def hyperparameters_of(method: str) -> tuple[str, ...]:
    """The names of a method's hyper-parameters, in the order of its constructor.

    >>> hyperparameters_of("static")
    ('weights', 'every', 'cost', 'length', 'max_norm', 'heads', 'metric', 'guard')
    """
    parameters = inspect.signature(methods.get(method).__init__).parameters.values()
    own = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    return tuple(name for name in own if name not in GIVEN)


def check_method(config: RunConfig) -> None:
    """Let a method look at its hyper-parameters before there is a model: a ValueError says why not.

    >>> check_method(configure("digits", "modo", steps=1, hyperparameters={"gamma": -1.0}))
    Traceback (most recent call last):
    trimol._failures.BadValue: gamma must be a finite number of at least 0, found -1.0
    """
    stand_in = [torch.zeros(1, requires_grad=True)]
    own = dict(config.hyperparameters)
    if needs_optimizer(own):
        own["optimizer"] = named(config.optimizer or "sgd", stand_in, config.lr)
    methods.get(config.method)(
        stand_in, task_of(config.task, config.task_options).objectives, **own
    )


def is_number(value: Any) -> bool:
    """Whether a setting is a number, by which runs may differ and still be alike.

    >>> is_number(0.5), is_number(True), is_number([0.5, 0.5])
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)
