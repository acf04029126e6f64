"""Is it worth choosing weights for the optimizer's step? Methods × optimizers × variants, trained.

    python benchmarks/steps.py --work build/steps          # all of it: many hours on one core
    python benchmarks/steps.py --work build/steps --tasks digits --optimizers adam --seeds 5
    python benchmarks/steps.py --work build/steps --quick  # a minute, to see that it works
    python docs/measured.py  # then: docs/understand/steps-study.md

A run is appended to ``--work`` as soon as it has ended, and a run that is there is not run again:
the command can be stopped at any time, and called again for more tasks or seeds. Everything gets
its first three seeds before anything gets its fourth. ``--json`` is written anew from all runs that
are there, of up to ``--seeds`` seeds. To go on from what is in the repository, on any machine:

    python benchmarks/steps.py --work build/steps --archive results/steps-runs.jsonl.gz \\
        --join results/steps.json --json results/steps.json

The archive holds the runs of some of the tasks, `results/steps.json` the rows of all of them.

Every combination of task, method, optimizer and variant gets the same number of trials, on a seed
that is used for nothing else (`find_setting`), chosen by one number on validation data, and is then
run with fresh seeds and measured on test data. Runs of one seed start from the same parameters and
see the same samples, as many a step for every method. Step sizes fall linearly to zero.
"""

import argparse
import functools
import gzip
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from step_tables import corrected, joined, place_of, summary
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from trimol import methods, search, tasks
from trimol.data import split
from trimol.gradients._stepping import Steps
from trimol.gradients.losses import as_vector
from trimol.methods import Method
from trimol.runs._environment import environment, now
from trimol.search import BudgetStudy, FunctionProblem, GridSampler
from trimol.search._grid import collect_values
from trimol.simplex import min_norm
from trimol.tasks import Batch, Data, Task

HERE = Path(__file__).parent
Row = dict[str, Any]

METHODS: Mapping[str, Mapping[str, Any]] = {
    "sum": {},
    "static": {},
    "upgrad": {},
    "mgda": {},
    "modo": {"gamma": "auto"},
    "pcgrad": {},
    "cagrad": {},
}
FIXED = ("sum", "static")  # weights that no metric changes
SHORT = ("mgda", "modo")  # methods whose directions are shorter than the mean gradient
OPTIMIZERS: Mapping[str, Callable[[Any, float], Optimizer]] = {
    "adam": lambda params, lr: Adam(params, lr=lr),
    "momentum": lambda params, lr: SGD(params, lr=lr, momentum=0.9),
    "sgd": lambda params, lr: SGD(params, lr=lr),
    "adamw": lambda params, lr: AdamW(params, lr=lr),
    "adam, β₁ = 0": lambda params, lr: Adam(params, lr=lr, betas=(0.0, 0.999)),
}
USUAL = tuple(OPTIMIZERS)[:4]
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "published": {},
    "metric": {"metric": "step"},
    "guarded": {"metric": "gradient", "guard": True},
}
CONFLICT = -1e-3  # a cosine below this is a loss that rises
STANDING = 1e-11  # a step this short, relative to the parameters, is none
TUNING_SEED = 1000
TRIALS = 6
SPACING = math.sqrt(10)  # of the step sizes that are tried first
EMPHASIS = 5.0  # of the objective that `static` tries to weigh more
EVERY = 5  # steps from one look at the batch's gradients to the next
LOOKS = 6  # at those of all training data, in a run
WAVES = (3, 5, 10)  # seeds that everything has before anything has more


@dataclass(frozen=True)
class Problem:
    """A task and how it is trained.

    Attributes:
        task: Makes the task.
        batch: Samples a step.
        steps: Of a run.
        rates: The step size that is tried first, by optimizer.
        score: The number that settings are chosen by, the smaller the better: from losses and
            metrics.
        judged: What it is called.
        limit: How many training samples to take; None for all.
    """

    task: Callable[[], Task]
    batch: int
    steps: int
    rates: Mapping[str, float]
    score: Callable[[Sequence[float], Mapping[str, float]], float]
    judged: str
    limit: int | None = None


def _log_mean(losses: Sequence[float], _metrics: Mapping[str, float]) -> float:
    return statistics.mean(math.log(max(loss, 1e-30)) for loss in losses)


def _mean(losses: Sequence[float], _metrics: Mapping[str, float]) -> float:
    return statistics.mean(losses)


def _log_error(_losses: Sequence[float], metrics: Mapping[str, float]) -> float:
    return math.log(metrics["MSE"])


def _burgers(**options: Any) -> Task:
    return tasks.load(f"{HERE / 'burgers.py'}:Burgers", options)


def _rates(sgd: float, adam: float) -> dict[str, float]:
    return {"sgd": sgd, "momentum": sgd / 10, "adam": adam, "adamw": adam}


def _narrow(name: str) -> Task:
    return tasks.load(f"{HERE / 'narrow.py'}:{name}", {})


LOG_MEAN = "the mean of the logarithms of the losses"
PROBLEMS: Mapping[str, Problem] = {
    "burgers": Problem(
        task=lambda: _burgers(points=1000),
        batch=64,
        steps=300,
        rates=_rates(0.1, 1e-2),
        score=_log_error,
        judged="the logarithm of the mean squared distance from the exact solution",
    ),
    "digits": Problem(
        task=lambda: tasks.load("digits", {"validation": 287}),
        batch=32,
        steps=200,
        rates=_rates(1.0, 1e-2),
        score=_log_mean,
        judged=LOG_MEAN,
    ),
    "toy": Problem(
        task=lambda: tasks.load("toy"),
        batch=4,
        steps=200,
        rates=_rates(0.3, 0.1),
        score=_mean,
        judged="the mean of the losses",
    ),
    "mnist": Problem(
        task=lambda: tasks.load("mnist", {"hidden": 64, "activation": "relu", "seed": 0}),
        batch=32,
        steps=60,
        rates=_rates(0.3, 3e-3),
        score=_log_mean,
        judged=LOG_MEAN,
        limit=2000,
    ),
    "office-31": Problem(
        task=lambda: _narrow("NarrowOffice"),
        batch=16,
        steps=60,
        rates=_rates(0.1, 1e-3),
        score=_log_mean,
        judged=LOG_MEAN,
    ),
    "scenes": Problem(
        task=lambda: _narrow("NarrowScenes"),
        batch=8,
        steps=60,
        rates=_rates(0.3, 3e-3),
        score=_log_mean,
        judged=LOG_MEAN,
    ),
    # The table of a single Burgers network of usual size: no tuning, and a step size that stays.
    "burgers, long": Problem(
        task=lambda: _burgers(width=50, depth=4),
        batch=200,
        steps=1500,
        rates={"adam": 1e-3, "adam, β₁ = 0": 1e-3},
        score=_log_error,
        judged="the logarithm of the mean squared distance from the exact solution",
    ),
}
STUDIED = tuple(name for name in PROBLEMS if name != "burgers, long")


@dataclass(frozen=True)
class Combination:
    """What is tuned on its own."""

    task: str
    method: str
    optimizer: str
    variant: str


_LONG = {
    "adam": (
        "sum published",
        "sum guarded",
        *(f"{method} {variant}" for method in ("upgrad", "mgda") for variant in VARIANTS),
    ),
    "adam, β₁ = 0": ("upgrad published", "upgrad metric", "mgda published", "mgda metric"),
}
LONG = tuple(
    Combination("burgers, long", method, optimizer, variant)
    for optimizer, own in _LONG.items()
    for method, variant in map(str.split, own)
)


@dataclass(frozen=True)
class Setting:
    """What is tuned: the step size, and the weights of `static`."""

    lr: float
    weights: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Length:
    """How long a run is, and whether its step size falls."""

    steps: int
    decays: bool = True


def combinations(
    names: Iterable[str], optimizers: Iterable[str], chosen: Sequence[str]
) -> list[Combination]:
    """Those that differ: under plain SGD the metric is the identity, and fixed weights have none.

    >>> len(combinations(["toy"], ["sgd", "adam"], ["sum", "mgda"]))
    9
    """
    return [
        Combination(task, method, optimizer, variant)
        for task in names
        for optimizer in optimizers
        for method in chosen
        for variant in VARIANTS
        if variant != "metric" or not (method in FIXED or optimizer == "sgd")
    ]


# --- one run -------------------------------------------------------------------------------------


@dataclass
class Training:
    """A run: its model, method, optimizer and samples."""

    problem: Problem
    combination: Combination
    setting: Setting
    seed: int
    length: Length
    task: Task = field(init=False)
    data: Data = field(init=False)
    model: nn.Module = field(init=False)
    optimizer: Optimizer = field(init=False)
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        self.task, self.data = _task(self.combination.task), _data(self.combination.task)
        torch.manual_seed(self.seed)
        self.model = self.task.model()
        self.params = list(self.model.parameters())
        self.optimizer = OPTIMIZERS[self.combination.optimizer](self.params, self.setting.lr)
        self.method = self._method()
        weighed = {id(p) for p in self.method.params}
        self.weighed = torch.cat([torch.full((p.numel(),), id(p) in weighed) for p in self.params])
        self.sampler = self.task.sampler(self.data, self.problem.batch, growth=0.0, seed=self.seed)

    def _method(self) -> Method:
        name, variant = self.combination.method, VARIANTS[self.combination.variant]
        options = dict(METHODS[name])
        if variant:
            options |= {**variant, "optimizer": self.optimizer}
        M = len(self.task.objectives)
        if name in FIXED:
            options["weights"] = self.setting.weights or ([1.0] * M if name == "sum" else None)
        kind = methods.get("static" if name in FIXED else name)
        return kind(self.task.shared(self.model), self.task.objectives, **options)

    def vectors(self, step: int) -> list[Tensor]:
        """The losses of a step, a vector a draw: a batch is split."""
        (indices,) = self.sampler.indices(step)
        draws = self.method.draws if self.method.due else 1
        return [self.losses(_rows(self.data.train, own)) for own in split(indices, draws)]

    def losses(self, batch: Batch) -> Tensor:
        return as_vector(self.task.losses(self.model, batch), graph=False)

    def rows(self, losses: Tensor) -> Tensor:
        """Their gradients with respect to all parameters, M × d, in float64."""
        rows = [
            torch.autograd.grad(loss, self.params, retain_graph=True, materialize_grads=True)
            for loss in losses
        ]
        return torch.stack([_flat(row) for row in rows])

    def full_rows(self) -> Tensor:
        """Those of all training data, in eval mode."""
        self.model.eval()
        found = self.rows(self.losses(self.data.train))
        self.model.train()
        return found

    def pace(self, step: int) -> None:
        """The step size of a step."""
        share = 1 - step / self.length.steps if self.length.decays else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.setting.lr * share

    def move(self, vectors: Sequence[Tensor]) -> None:
        """One step."""
        self.method(*vectors).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@functools.cache
def _task(task: str) -> Task:
    return PROBLEMS[task].task()


@functools.cache
def _data(task: str) -> Data:
    """A task's data, held once."""
    data, limit = _task(task).data(), PROBLEMS[task].limit
    if limit is not None:
        parts = (data.train, data.test, data.validation)
        train, test, held_out = (_rows(part, torch.arange(limit)) for part in parts)
        data = Data(train=train, test=test, validation=held_out)
    if data.validation is None:  # the toy's test data is its population: others of it to choose on
        random = torch.Generator().manual_seed(0)
        (samples,) = data.train
        drawn = torch.randn(samples.shape, generator=random, dtype=samples.dtype)
        data = Data(train=data.train, test=data.test, validation=(drawn,))
    return data


def _rows(batch: Any, indices: Tensor) -> Batch:
    return tuple(tensor[indices] for tensor in batch)


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts]).double()


class Looks:
    """What steps do to losses, to first order: of their own batch, and of all training data."""

    def __init__(self, training: Training) -> None:
        self.training = training
        steps = training.length.steps
        self.far = {round((i + 1) * steps / LOOKS) - 1 for i in range(LOOKS)}
        self.cosines: dict[str, list[Tensor]] = {}
        self.errors: list[Row] = []
        self.outcomes: dict[str, int] = {}

    def take(self, step: int, vectors: Sequence[Tensor]) -> None:
        """A step, looked at where it is its turn."""
        training, rows = self.training, {}
        if step % EVERY == 0:
            rows["batch"] = training.rows(torch.stack([*vectors]).mean(0))
        if step in self.far:
            rows["data"] = training.full_rows()
        before = _flat(training.params) if rows else None
        state = self._metric_at(rows["data"]) if "data" in rows else None
        training.method(*vectors).backward()
        direction = _flat([_gradient(p) for p in training.params]) if rows else None
        training.optimizer.step()
        training.optimizer.zero_grad()
        self._count()
        if before is None or direction is None:
            return
        taken = before - _flat(training.params)
        if taken.norm() < STANDING * before.norm():  # stopped by the guard: the rest is rounding
            taken.zero_()
        for what, own in rows.items():
            self._note(f"{what} direction", own, direction)
            self._note(f"{what} step", own, taken)
        if state is not None:
            self.errors.append(self._errors(rows["data"], state))

    def _note(self, what: str, rows: Tensor, moved: Tensor) -> None:
        """By which cosine each loss falls."""
        sizes = rows.norm(dim=1) * moved.norm()
        found = torch.where(sizes > 0, rows @ moved / sizes, 0.0)
        self.cosines.setdefault(what, []).append(found)

    def _count(self) -> None:
        info = self.training.method.info
        if info is not None and info.guarded:
            self.outcomes[info.guarded] = self.outcomes.get(info.guarded, 0) + 1

    def _metric_at(self, rows: Tensor) -> Tensor:
        """The diagonal of S, over the step size, at the mean gradient of all training data."""
        training = self.training
        params = list(training.method.params)
        steps = Steps(training.optimizer)
        mean = rows[:, training.weighed].mean(0).to(params[0].dtype)
        return (steps.flat(params)(mean).scale / steps.unit(params)).double()

    def _errors(self, rows: Tensor, metric: Tensor) -> Row:
        """R_opt and E_ca, as they are and in the metric."""
        own = rows[:, self.training.weighed]
        info = self.training.method.info
        assert info is not None
        weights = info.weights if info.added is None else info.weights + info.added
        shares = weights.double() / weights.double().sum()
        stationarity, conflict = _distances(own, shares)
        return {
            "R_opt": stationarity,
            "E_ca": conflict,
            "E_ca in the metric": _distances(own * metric.sqrt(), shares)[1],
        }

    def found(self) -> Row:
        """The shares of steps that raise a loss, and the means of the errors."""
        row: Row = {}
        for what, cosines in self.cosines.items():
            all_of_them = torch.stack(cosines)
            rises = all_of_them < CONFLICT
            row[what] = float(rises.any(1).double().mean())
            row[f"{what}, all losses"] = float(rises.all(1).double().mean())
            worst = all_of_them.min(1).values
            row[f"{what}, worst cosine"] = float(worst.median())
            row[f"{what}, least cosine"] = float(worst.min())
        row["R_opt"] = self.errors[-1]["R_opt"]
        late = self.errors[len(self.errors) // 2 :]
        for name in ("E_ca", "E_ca in the metric"):
            row[name] = statistics.mean(errors[name] for errors in late)
        return row | {"outcomes": self.outcomes}


def _gradient(p: Tensor) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad


def _distances(rows: Tensor, weights: Tensor) -> tuple[float, float]:
    """The length of the shortest convex combination, and the squared distance of ours from it."""
    shortest = min_norm(rows @ rows.T).to(rows)
    away = (weights.to(rows) - shortest) @ rows
    return float((shortest @ rows).norm()), float(away.square().sum())


def trained(combination: Combination, setting: Setting, seed: int, length: Length) -> Row:
    """One run, from its start to its losses; ``diverged`` where a loss is not finite.

    A trial is measured on validation data alone, and nobody looks at its steps, which no look
    changes.
    """
    problem = PROBLEMS[combination.task]
    training = Training(problem, combination, setting, seed, length)
    looks = None if seed == TUNING_SEED else Looks(training)
    begun = time.process_time()
    training.model.train()
    for step in range(length.steps):
        training.pace(step)
        vectors = training.vectors(step)
        if not all(bool(vector.isfinite().all()) for vector in vectors):
            return {"diverged": True, "score": math.inf, "validation": math.inf}
        if looks is None:
            training.move(vectors)
        else:
            looks.take(step, vectors)
    if looks is None:
        found: Row = {"validation": _assessed(training, training.data.validation)["score"]}
    else:
        found = _assessed(training, training.data.test) | looks.found()
    return found | {"diverged": False, "seconds": round(time.process_time() - begun, 2)}


@torch.no_grad()
def _assessed(training: Training, batch: Batch | None) -> Row:
    """Losses, metrics and the score on test or validation data."""
    assert batch is not None
    training.model.eval()
    losses = training.losses(batch).double().tolist()
    sums = training.task.tally(training.model, batch)
    metrics = training.task.conclude(sums) if sums else {}
    finite = all(map(math.isfinite, losses))
    return {
        "losses": dict(zip(training.task.objectives, losses, strict=True)),
        "metrics": metrics,
        "score": training.problem.score(losses, metrics) if finite else math.inf,
    }


# --- all runs ------------------------------------------------------------------------------------


class NotRun(LookupError):
    """A run that is not in the file."""


class Store:
    """Runs by what they were, a line each in a file that is only appended to.

    Args:
        plan: The folder of the file, and an archive of earlier runs, if there is one.
        makes: Whether runs that are not there are run; else they are refused.
    """

    def __init__(self, plan: "Plan", *, makes: bool = True) -> None:
        plan.folder.mkdir(parents=True, exist_ok=True)
        self.makes = makes
        self.path = plan.folder / "runs.jsonl"
        self.path.touch()
        self.known: dict[str, Row] = {}
        if plan.archive is not None and plan.archive.exists():
            self._read(gzip.decompress(plan.archive.read_bytes()).decode())
        self._read(self.path.read_text(encoding="utf-8"))

    def _read(self, lines: str) -> None:
        for line in lines.splitlines():
            with suppress(json.JSONDecodeError):  # one that was stopped while it was written
                row = json.loads(line)
                self.known[row["key"]] = row["found"]

    def pack(self, path: Path) -> None:
        """Write all runs to one small file: of trials the score, of numbers seven digits."""
        lines = (
            json.dumps({"key": key, "found": _compact(key, found)}, ensure_ascii=False)
            for key, found in sorted(self.known.items())
        )
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))

    def get(self, what: Mapping[str, Any], make: Callable[[], Row]) -> Row:
        """A run's findings: from the file, or made now and appended."""
        key = json.dumps(what, sort_keys=True, ensure_ascii=False)
        if key not in self.known:
            if not self.makes:
                raise NotRun(key)
            self.known[key] = make()
            line = json.dumps({"key": key, "found": self.known[key]}, ensure_ascii=False)
            with self.path.open("ab", buffering=0) as file:
                file.write(f"\n{line}\n".encode())  # whatever a stopped write left before it
        return self.known[key]


def _compact(key: str, found: Row) -> Row:
    """What is used of a run."""
    if json.loads(key).get("seed") == TUNING_SEED:
        found = {name: found[name] for name in ("validation", "diverged")}
    return {name: _digits(value) for name, value in found.items() if name != "seconds"}


def _digits(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _digits(own) for name, own in value.items()}
    return float(f"{value:.7g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Plan:
    """How much of it to do, where runs are kept, and where those of earlier sittings are."""

    folder: Path
    seeds: int
    archive: Path | None = None
    trials: int = TRIALS
    steps: int | None = None  # of every run; None for the task's own

    def length(self, task: str) -> Length:
        return Length(self.steps or PROBLEMS[task].steps, decays=task != "burgers, long")


def run(store: Store, plan: Plan, combination: Combination, setting: Setting, seed: int) -> Row:
    """A run, if it has not been run."""
    length = plan.length(combination.task)
    what = {**asdict(combination), **asdict(setting), "seed": seed, "steps": length.steps}
    return store.get(what, lambda: trained(combination, setting, seed, length))


class HalvingSampler(GridSampler):
    """Goes on beyond the best step size while it is at an edge, then beside it.

    Inside, the next step size is halfway, by ratio, to the farther neighbour of the best.
    """

    def ask(self, count: int) -> list[search.Setting]:
        """Return the next settings, at most so many."""
        asked = super().ask(count)
        if asked:
            return asked
        lrs = collect_values("lr", [trial.setting for trial in self.trials])
        place = lrs.index(self.best.lr)
        below, best, above = lrs[place - 1 : place + 2]
        is_farther = math.log(above / best) > math.log(best / below) - 1e-6
        half = math.sqrt(best * (above if is_farther else below))
        return [self.best.with_value("lr", half)]


def find_setting(
    score: Callable[[Setting], float], first: float, count: int, trials: int
) -> Setting:
    """Return the best setting of so many trials.

    Three step sizes, √10 apart; then on in the direction of the best as long as it is the first or
    the last; then halfway between the best and its neighbours.

    Args:
        score: Of a trial, the smaller the better.
        first: The step size in the middle of the first three.
        count: How many of the trials go into weights instead: at the best step size, each weighs
            one objective more than the others.
        trials: How many there are in all.

    Example:
        >>> round(find_setting(lambda s: abs(math.log10(s.lr) - 1.3), 1.0, 0, 6).lr)
        32
    """
    rates = [first * SPACING**place for place in (0, 1, -1)][:trials]
    sampler = HalvingSampler([search.Setting("", rate) for rate in rates], extend=trials)
    problem = FunctionProblem(lambda own: {"score": score(_rounded(own))}, ["score"], lr=first)
    study = BudgetStudy(problem, {"": sampler}, trials + count)
    for _ in range(max(len(rates), trials - count)):
        study.round({"": 1})
    if trials > count:
        weights = [{"weights": _emphasised(number, count)} for number in range(count)]
        lr = sampler.best.lr
        study.try_settings({"": [search.Setting("", lr, own) for own in weights]})
    return _rounded(sampler.best)


def _emphasised(number: int, count: int) -> tuple[float, ...]:
    """Weights on the simplex with one of them larger.

    >>> _emphasised(1, 2)
    (0.1667, 0.8333)
    """
    total = count - 1 + EMPHASIS
    return tuple(round((EMPHASIS if m == number else 1.0) / total, 4) for m in range(count))


def _rounded(setting: search.Setting) -> Setting:
    return Setting(float(f"{setting.lr:.3g}"), setting.weights)


def first_rate(combination: Combination) -> float:
    """The step size that is tried first: where steps scale with the direction, by its length."""
    rate = PROBLEMS[combination.task].rates[combination.optimizer]
    short = combination.method in SHORT and combination.optimizer in ("sgd", "momentum")
    return rate * 10 if short else rate


def chosen(store: Store, plan: Plan, combination: Combination) -> Setting:
    """The setting of a combination, by its score on validation data."""
    first = first_rate(combination)
    if combination.task == "burgers, long":
        return Setting(first)
    weighs = combination.method == "static"
    count = len(_task(combination.task).objectives) if weighs else 0

    def score(setting: Setting) -> float:
        return float(run(store, plan, combination, setting, TUNING_SEED)["validation"])

    return find_setting(score, first, count, plan.trials)


def studied(plan: Plan, combination: Combination) -> None:
    """A combination, tuned and run with all seeds."""
    _alone()
    store = Store(plan)
    setting = chosen(store, plan, combination)
    for seed in range(plan.seeds):
        run(store, plan, combination, setting, seed)


def timed(plan: Plan, task: str, optimizer: str, method: str) -> None:
    """How long the steps of a method's variants take."""
    _alone()
    cost(Store(plan), task, optimizer, method)


def _alone() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=RuntimeWarning, message=".*no weights were found")


def gathered(store: Store, plan: Plan, combination: Combination) -> Row | None:
    """What there is of a combination: its setting and its runs; None if it has not been tuned."""
    found: list[Row] = []
    try:
        setting = chosen(store, plan, combination)
        for seed in range(plan.seeds):
            found.append(run(store, plan, combination, setting, seed))
    except NotRun:
        if not found:
            return None
    return {**asdict(combination), **asdict(setting), "n": len(found), "runs": found}


def cost(store: Store, task: str, optimizer: str, method: str, steps: int = 40) -> Row:
    """How long a step takes, relative to the method as published: by turns, in one process."""
    what = {"cost": task, "optimizer": optimizer, "method": method, "steps": steps}
    own = combinations([task], [optimizer], [method])
    found = store.get(what, lambda: _timed(own, steps))
    return {"task": task, "optimizer": optimizer, "method": method, **found}


def _timed(own: Sequence[Combination], steps: int) -> Row:
    problem = PROBLEMS[own[0].task]
    setting = Setting(first_rate(own[0]) / SPACING)
    length = Length(steps)
    trainings = [Training(problem, one, setting, TUNING_SEED, length) for one in own]
    times: dict[str, list[float]] = {one.variant: [] for one in own}
    for step in range(steps):
        for one, training in zip(own, trainings, strict=True):
            begun = time.process_time()
            training.move(training.vectors(step))
            times[one.variant].append(time.process_time() - begun)
    medians = {variant: statistics.median(own) for variant, own in times.items()}
    ratios = {name: round(own / medians["published"], 2) for name, own in medians.items()}
    return {"milliseconds": round(1e3 * medians["published"], 2), "ratios": ratios}


# --- what they came to ---------------------------------------------------------------------------


def study(plan: Plan, earlier: Row | None = None) -> Row:
    """What the runs in the folder come to, of whatever has been run, with rows that were published.

    Args:
        plan: Which runs.
        earlier: Results of runs that are gone.
    """
    store = Store(plan, makes=False)
    everything = [*combinations(STUDIED, USUAL, list(METHODS)), *LONG]
    found = [row for one in everything if (row := gathered(store, plan, one)) is not None]
    rows, pooled = summary(found)
    results: Row = {
        "study": "steps",
        "rows": rows,
        "pooled": [row for row in pooled if row["task"] in STUDIED],
        "costs": list(_costs(store)),
        "settings": {name: _setting(plan, name) for name in {row["task"]: None for row in found}},
        "trials": plan.trials,
        "command": "python benchmarks/steps.py",
        "created": now(),
        "environment": environment(),
    }
    if earlier is not None:
        results, changed = joined(results, earlier)
        results["costs"] = _all_costs(results, earlier)
        for task in changed:
            print(f"{task}: its earlier rows are left out, as it is set up otherwise now")
    return corrected(_in_order(results))


def _setting(plan: Plan, name: str) -> Row:
    own = PROBLEMS[name]
    return {"batch": own.batch, "steps": plan.length(name).steps, "judged by": own.judged}


def _all_costs(new: Row, earlier: Row) -> list[Row]:
    """Costs of both, new ones where both have them; earlier ones of the same batch size only."""
    batch = {name: setting["batch"] for name, setting in new["settings"].items()}
    before = {name: setting["batch"] for name, setting in earlier["settings"].items()}
    kept = [
        row
        for row in earlier["costs"]
        if before[row["task"]] == batch.get(row["task"], before[row["task"]])
    ]
    return list({place_of(row): row for row in (*kept, *new["costs"])}.values())


def _in_order(results: Row) -> Row:
    """Rows in the order of the study, wherever they are from."""
    tasks, kinds = list(PROBLEMS), list(OPTIMIZERS)

    def key(row: Row) -> tuple[int, ...]:
        ranks = [tasks.index(row["task"]), kinds.index(row["optimizer"])]
        ranks += [list(METHODS).index(row["method"])] if "method" in row else []
        return *ranks, *([list(VARIANTS).index(row["variant"])] if "variant" in row else [])

    ordered = {kind: sorted(results[kind], key=key) for kind in ("rows", "pooled", "costs")}
    return {
        **results,
        **ordered,
        "settings": {
            name: results["settings"][name] for name in tasks if name in results["settings"]
        },
    }


def _costs(store: Store) -> Iterator[Row]:
    for place in product(STUDIED, USUAL, METHODS):
        with suppress(NotRun):
            yield cost(store, *place)


def main() -> None:
    parser = argparse.ArgumentParser(description="Weights for the optimizer's step: worth it?")
    parser.add_argument("--work", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--tasks", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--optimizers", nargs="+", choices=USUAL, default=USUAL)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--costs", action="store_true", help="also measure how long steps take")
    parser.add_argument("--quick", action="store_true", help="20 steps, 2 seeds, 3 trials")
    parser.add_argument("--json", type=Path, help="write what all runs come to")
    parser.add_argument("--join", type=Path, help="results to take rows from that --json lacks")
    parser.add_argument("--archive", type=Path, help="earlier runs; all are packed into it")
    args = parser.parse_args()
    plan = Plan(args.work, args.seeds, args.archive)
    if args.quick:
        plan = replace(plan, seeds=2, trials=3, steps=20)
    names = [name for name in args.tasks if name in STUDIED]
    todo = combinations(names, args.optimizers, args.methods)
    if LONG[0].task in args.tasks:
        todo += [one for one in LONG if one.method in args.methods]
    waves = sorted({*(count for count in WAVES if count < plan.seeds), plan.seeds})
    with ProcessPoolExecutor(args.jobs) as pool:
        pending: dict[Any, Any] = {
            pool.submit(studied, replace(plan, seeds=seeds), one): (seeds, one)
            for seeds in waves
            for one in todo
        }
        for place in product(names, args.optimizers, args.methods if args.costs else []):
            pending[pool.submit(timed, plan, *place)] = place
        for count, done in enumerate(as_completed(pending), start=1):
            done.result()
            print(f"{count}/{len(pending)}", pending[done], flush=True)
    if args.json:
        found = study(plan, json.loads(args.join.read_text()) if args.join else None)
        args.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if args.archive:
        Store(plan, makes=False).pack(args.archive)


if __name__ == "__main__":
    main()
