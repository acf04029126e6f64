"""Runs that differ only in seed or in numbers, trained together as replicas of one program.

Each still has an ordinary folder. Where to go on from is one file for all of them,
``.together/<name>.pt`` beside their folders, written after their tables, with the one before it
(``<name>.previous``); both are removed when they are done, by the next command if a kill came
between. A group that was interrupted goes on with the runs that it began with, also with those that
are finished by now: R runs together equal R runs apart to rounding, and to the last bit only the
same R runs together.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trimol import methods
from trimol._failures import BadValue
from trimol._generators import generators_kept
from trimol._warnings import hearing, warn
from trimol.errors import Errors
from trimol.errors._fulldata import NotFinite
from trimol.runs import store
from trimol.runs._entry import enter, over, same_run, within
from trimol.runs._execute import (
    Execution,
    Result,
    contained,
    started,
    stating,
    task_for,
    unmeasured,
)
from trimol.runs._journal import Journal, Watch, check_complete
from trimol.runs._storage import (
    StoreError,
    drop,
    earlier,
    make_folder,
    newest,
    read_tensors,
    understanding,
)
from trimol.runs.config import RunConfig, is_number, task_of
from trimol.tasks import Data, Task
from trimol.tasks import _answers as answers
from trimol.tasks.loading import blaming
from trimol.training import Diverged, metrics, train
from trimol.training._checkpoint import check_keys, check_shapes, check_weights
from trimol.training._kept import task_kept
from trimol.training._optimizers import needs_optimizer
from trimol.training._replicable import NotReplicable
from trimol.training.loop import decay, remedy, whereabouts
from trimol.training.records import from_errors
from trimol.training.replicas import Replicas

FOLDER = ".together"
Job = tuple[RunConfig, Path]
# How many runs at most: beyond, one more costs as much together as alone. Of models as small as
# a formula's point, which only call operators, more.
MOST, MOST_TINY, TINY = 64, 256, 2**6
# How many parameters a group may have (20 networks of the paper's for MNIST), and one run of it.
NUMBERS, NUMBERS_EACH = 2**23, 2**20
# Above so many parameters, moving each replica by a step size of its own costs more than it saves,
# unless there are fewer runs than this with one step size: groups of a few are slow.
ONE_STEP_SIZE, ENOUGH = 2**16, 8


@dataclass(frozen=True)
class Unit:
    """What is executed as one: a run, or several that train together.

    Attributes:
        jobs: Configurations and folders.
        file: The checkpoint of a group; None for a single run.
        along: The numbers of those that only go along: they are of an interrupted group, and not
            asked for now.
    """

    jobs: tuple[Job, ...]
    file: Path | None = None
    along: frozenset[int] = frozenset()

    @property
    def folders(self) -> list[Path]:
        """The folders of the runs that are asked for."""
        return [folder for place, (_, folder) in enumerate(self.jobs) if place not in self.along]

    @property
    def steps(self) -> int:
        """The steps of all its runs."""
        return self.jobs[0][0].steps * len(self.jobs)

    def apart(self) -> list["Unit"]:
        """Its runs, to be executed one by one."""
        return [Unit((job,)) for place, job in enumerate(self.jobs) if place not in self.along]


def units(runs: Sequence[Job], pending: Sequence[Job]) -> list[Unit]:
    """Which runs are executed together; in the order of the first of each."""
    alike: dict[str, list[Job]] = {}
    for config, folder in {folder: (config, folder) for config, folder in runs}.values():
        alike.setdefault(_kind(config), []).append((config, folder))
    planned, waiting = [], {folder for _, folder in pending}
    for own in alike.values():
        jobs = [job for job in own if job[1] in waiting]
        if _fits(own[0][0]):
            home = _home(own)
            going = _interrupted(jobs, home) if jobs else []
            begun = {folder for unit in going for folder in unit.folders}
            planned += going + _new([job for job in jobs if job[1] not in begun], home)
            going_on = {unit.file for unit in planned}
            _clear(home, [file for file in _checkpoints(home) if file not in going_on])
        else:
            planned += [Unit((job,)) for job in jobs]
    places = {folder: place for place, (_, folder) in enumerate(runs)}
    return sorted(planned, key=lambda unit: min(places[folder] for folder in unit.folders))


def execute_together(unit: Unit, watch: Watch | None) -> dict[Path, Diverged]:
    """Do what is left of a group. Its runs that diverged, by their folders.

    Raises:
        NotReplicable: They can only be run one by one.
    """
    assert unit.file is not None
    configs = [config for config, _ in unit.jobs]
    with ExitStack() as stack:
        journals = [
            Journal(config, None, None, along=True)
            if place in unit.along or enter(config, folder, True, stack)
            else Journal(config, folder, watch)
            for place, (config, folder) in enumerate(unit.jobs)
        ]
        _take_up(unit, journals)
        stack.enter_context(stating(journals))
        stack.enter_context(contained(configs[0]))
        program = _Together(task_for(configs[0]), unit)
        make_folder(unit.file.parent)
        advice = f"{len(configs)} runs together, saved in {{}}: run the same command again to go on"
        try:
            Execution(program, journals, unit.file, advice=advice).run()
        except NotReplicable:
            _discard(unit.file)
            raise
        except BaseException:
            _clear(unit.file.parent, [unit.file])  # a signal may come when all are finished
            raise
        _discard(unit.file)
    return {j.path: j.failed for j in journals if j.path is not None and j.failed is not None}


def _take_up(unit: Unit, journals: Sequence[Journal]) -> None:
    """Give the newest checkpoint that is whole its name: a worker may have died while it wrote."""
    assert unit.file is not None
    pairs = zip(unit.jobs, journals, strict=True)
    asked = {folder.absolute(): (c, folder) for (c, folder), own in pairs if not own.along}
    newest(unit.file, partial(_step_of, unit.file, asked))


def _discard(file: Path) -> None:
    drop(file)
    _tidy(file.parent)


def _tidy(folder: Path) -> None:
    with suppress(OSError):  # there is something in it
        folder.rmdir()


def _kind(config: RunConfig) -> str:
    """What runs that may train together have in common."""
    content = config.model_dump(mode="json", exclude={"seed", "lr", "schedule", "checkpoint_every"})
    own = content["hyperparameters"]
    free = {name for name, value in own.items() if is_number(value) or _preferred(config, name)}
    content["hyperparameters"] = {k: v for k, v in own.items() if k not in free}
    content["free"] = sorted(free)
    return json.dumps(content, sort_keys=True)


def _preferred(config: RunConfig, name: str) -> bool:
    """Whether a hyper-parameter is one number an objective, by which runs may differ."""
    value = config.hyperparameters[name]
    wanted = name == methods.get(config.method).prefers
    return wanted and isinstance(value, list | tuple) and all(map(is_number, value))


def _fits(config: RunConfig) -> bool:
    """Whether this machine and this configuration allow runs to train together."""
    where = whereabouts()
    alone = where.num_processes == 1 and where.device.type == "cpu"
    plain = config.precision == "no" and config.optimizer is None and not config.watch_every
    return alone and plain and not needs_optimizer(config.hyperparameters) and config.steps > 0


def _home(jobs: Sequence[Job]) -> Path:
    """The folder that holds the folders of all runs."""
    return Path(os.path.commonpath([folder.absolute().parent for _, folder in jobs])) / FOLDER


def _interrupted(pending: Sequence[Job], home: Path) -> list[Unit]:
    """Groups that are to go on: those with a run that is asked for and not finished."""
    asked = {folder.absolute(): (config, folder) for config, folder in pending}
    groups = []
    for file in _checkpoints(home):
        kept = newest(file, partial(_step_of, file, asked))
        if kept is not None and (unit := _unit(kept, file, asked)).folders:
            groups.append(unit)
    return groups


def _checkpoints(home: Path) -> list[Path]:
    """The checkpoints of groups, by the name that the newest of each has."""
    old = (file.with_suffix(".pt") for file in home.glob(f"*{earlier(Path('x.pt')).suffix}"))
    return sorted({*home.glob("*.pt"), *old})


def _clear(home: Path, checkpoints: Sequence[Path]) -> None:
    """Remove those of groups that are done: a kill may have come before they were gone.

    What cannot be read is left to those who want to go on from it, and are told.
    """
    for file in checkpoints:
        with suppress(StoreError), understanding(file):
            kept = read_tensors(file if file.exists() else earlier(file))
            if all(over(folder) for _, folder in _unit(kept, file, {}).jobs):
                drop(file)
    _tidy(home)


def _unit(kept: Any, file: Path, asked: Mapping[Path, Job]) -> Unit:
    """The group that a checkpoint is of."""
    check_keys("a group", kept, ("members", "replicas", "seconds"))
    jobs, along = [], set()
    for place, (content, name) in enumerate(kept["members"]):
        config, folder = RunConfig.model_validate(content), file.parent.parent / name
        if folder in asked and asked[folder][0].key == config.key:
            config, folder = asked[folder]
        else:
            along.add(place)
        jobs.append((config, folder))
    return Unit(tuple(jobs), file, frozenset(along))


def _step_of(file: Path, asked: Mapping[Path, Job], kept: Any) -> int | None:
    """The step of a group's checkpoint; None if a run that is asked for has no rows up to it."""
    unit = _unit(kept, file, asked)
    step = within(kept["replicas"]["step"], unit.jobs[0][0])
    failed, tables = kept.get("failed", {}), kept.get("tables")
    for place, (config, folder) in enumerate(unit.jobs):
        if place in unit.along:
            continue
        if not (folder / store.CONFIG).exists():
            return None
        if tables is not None and tables[place] is None:
            return None  # it went along when this was saved
        if place not in failed:
            check_complete(config, folder, step, tables and tables[place])
    return step


def _new(jobs: Sequence[Job], home: Path) -> list[Unit]:
    """New groups: as many runs in each as pays."""
    if len(jobs) < 2:
        return [Unit((job,)) for job in jobs]
    numbers = _numbers(jobs[0][0])
    many = MOST_TINY if numbers <= TINY else MOST
    most = min(many, NUMBERS // numbers) if numbers <= NUMBERS_EACH else 1
    alike = Counter(_pace(config) for config, _ in jobs)
    together: dict[Any, list[Job]] = {}
    for config, folder in jobs:
        apart = numbers > ONE_STEP_SIZE and alike[_pace(config)] >= ENOUGH
        together.setdefault(_pace(config) if apart else None, []).append((config, folder))
    chunks = [
        own[low : low + most] for own in together.values() for low in range(0, len(own), most)
    ]
    return [
        Unit(tuple(chunk), home / f"{_name(chunk)}.pt") if len(chunk) > 1 else Unit(tuple(chunk))
        for chunk in chunks
    ]


def _pace(config: RunConfig) -> tuple[float, str | None]:
    """The step sizes of a run."""
    return config.lr, config.schedule


def _name(jobs: Sequence[Job]) -> str:
    members = "".join(f"{config.key} {folder.name}" for config, folder in jobs)
    return hashlib.sha256(members.encode()).hexdigest()[:12]


def _numbers(config: RunConfig) -> int:
    """The parameters and buffers of one run."""
    task = task_of(config.task, config.task_options)
    with generators_kept(task), blaming(config.task, config.task_options):
        model = answers.model(task)
    return max(1, sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers())))


class _Together:
    """Several runs, as replicas."""

    def __init__(self, task: Task, unit: Unit) -> None:
        self.task, self.unit = task, unit
        self.configs = configs = [config for config, _ in unit.jobs]
        self.said: set[int] = set()
        self.warned: set[str] = set()
        lrs = [config.lr for config in configs]
        falls = {c.schedule: decay(c.schedule, c.steps) for c in configs}
        try:
            self.replicas = Replicas(
                task,
                configs[0].method,
                seeds=[config.seed for config in configs],
                lr=lrs[0] if len(set(lrs)) == 1 else torch.tensor(lrs, dtype=torch.float64),
                hyperparameters=_joined([config.hyperparameters for config in configs]),
                batch_size=configs[0].batch_size,
                schedule=[falls[config.schedule] for config in configs],
            )
        except (NotImplementedError, BadValue) as error:  # if it is a mistake, one run says so, too
            raise NotReplicable(str(error)) from error

    def data(self, place: int) -> Data:
        return self.replicas.data[place]

    @property
    def step(self) -> int:
        return self.replicas.step

    @property
    def samples(self) -> int:
        return self.replicas.samples

    def train(self, steps: int, look: Callable[[], None], stop: Callable[[], bool]) -> None:
        for _ in range(steps):
            with self._without_warnings_of_the_diverged():
                self.replicas.train(1, watch=lambda _: look())
            if stop():
                return

    def measure(self, places: Sequence[int], rho: float) -> Sequence[Result]:
        replicas = self.replicas
        with task_kept(self.task, None, replicas.data):
            with hearing(lambda _: None):  # of what is not finite, what is measured says more
                weights = replicas.next_weights()
            errors = replicas.measured(rho=rho, weights=weights, only=places)
            return [
                self._measured(place, own, weights[place])
                for place, own in zip(places, errors, strict=True)
            ]

    def _measured(self, place: int, errors: Errors | NotFinite, weights: Tensor) -> Result:
        """One run's record, or that its losses or gradients are not finite."""
        replicas = self.replicas
        if isinstance(errors, NotFinite):
            return unmeasured(replicas.step)
        record = from_errors(
            errors,
            self.task.objectives,
            step=replicas.step,
            samples=replicas.samples,
            kept=int(replicas.method.kept[place]),
            metrics=metrics(self.task, replicas.module(place), self.data(place).test),
            weights=weights,
        )
        return record, errors.direction

    def module(self, place: int) -> nn.Module:
        return self.replicas.module(place)

    @property
    def unrepeatable(self) -> str:
        return ""  # such runs go one by one

    def diverged(self) -> Mapping[int, Diverged]:
        places = set((self.replicas.diverged >= 0).nonzero()[:, 0].tolist()) - self.said
        self.said |= places
        return {place: self._said(place) for place in sorted(places)}

    def state(self) -> dict[str, Any]:
        assert self.unit.file is not None
        home = self.unit.file.parent.parent
        members = [
            (config.model_dump(mode="json"), os.path.relpath(folder.absolute(), home))
            for config, folder in self.unit.jobs
        ]
        return {"members": members, "replicas": self.replicas.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        for (content, _), config in zip(state["members"], self.configs, strict=True):
            same_run(RunConfig.model_validate(content), config)
        kept, own = state["replicas"], self.replicas.state_dict()
        check_keys("a group", kept, tuple(own))
        for part in ("params", "buffers"):  # a copy would take other shapes, too
            check_shapes(part, own[part], kept[part])
        self.replicas.load_state_dict(kept)
        for place, weights in enumerate(self.replicas.method.weights):
            check_weights(weights, [p[place] for p in self.replicas.params.values()])
        self.said = set(state.get("failed", {}))

    def _said(self, place: int) -> Diverged:
        """What the ordinary loop says of a step that cannot be taken."""
        run = started(self.task, self.configs[place])
        run.model.load_state_dict(self.replicas.module(place).state_dict())
        run.step = self.replicas.step
        try:
            train(run, 1)
        except Diverged as error:
            return error
        return Diverged(f"a loss is not finite at step {run.step - 1}: {remedy(run.step - 1)}")

    @contextmanager
    def _without_warnings_of_the_diverged(self) -> Iterator[None]:
        """That gradients are not finite is no news of a run whose losses are not."""
        told: list[str] = []
        with hearing(told.append):
            yield
        known = bool((self.replicas.diverged >= 0).any())
        for text in told:
            if text not in self.warned and not (known and "NaN or infinity in replicas" in text):
                self.warned.add(text)
                warn(text)


def _joined(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Hyper-parameters of all: one value where they agree, else a tensor of one for each run."""
    columns = {name: [own[name] for own in each] for name in each[0]}
    return {
        name: values[0] if all(value == values[0] for value in values) else _tensor(values)
        for name, values in columns.items()
    }


def _tensor(values: Sequence[float | Sequence[float]]) -> Tensor:
    whole = all(isinstance(value, int) for value in values)
    return torch.tensor(values, dtype=torch.int64 if whole else torch.float64)
