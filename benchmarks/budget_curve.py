"""What do B trainings come to, tuning included? The picture and table of docs/howto/diagnose.md.

    python benchmarks/budget_curve.py --work DIR                       # all tasks, about an hour
    python benchmarks/budget_curve.py --work DIR --tasks --json results/budget_curve.json

A *campaign* is one seed: every training of it has that seed, as a user's would. A strategy proposes
settings, chooses one by its score on validation data, and delivers that training's model; what
counts is its score on test data. The regret is how far that is from the best setting known (the
best mean test score over all campaigns, of all settings that any strategy chose), in per cent.

Each strategy begins with the learning rate that is best for equal weights (start "right"), or with
one that is wrong by √10, up or down in turn (start "wrong").

- ``equal``, ``1/loss``, ``1/gradient``: static weights by a rule; the learning rate is searched, by
  steps of √10 around the best so far. So it is for each method, with its default hyper-parameters.
- ``tpe``: Optuna's TPE with its defaults over weights and learning rate; equal weights come first.
- ``tune``: `trimol.tune` with the budget. ``diagnose``: what `trimol.diagnose` says to use.

All campaigns of a strategy go in step, so that their trainings run as replicas, and each training
is kept in DIR: a stopped script resumes.
"""

import argparse
import copy
import json
import math
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import nn

from trimol._failures import BadValue
from trimol.compare import Spending
from trimol.compare._contest import Contest
from trimol.data._files.datasets import MissingData
from trimol.methods._registry import BASELINE, TRIED
from trimol.runs._environment import environment, now
from trimol.runs._hold_out import count_held_out
from trimol.runs.config import task_of
from trimol.runs.statistics import interval
from trimol.search import Setting, Training
from trimol.search._problem import Failure, Outcome, checked_point
from trimol.search._sampler import quiet
from trimol.search._score import Scorer
from trimol.search._setting import rounded
from trimol.search._space import SearchSpace, space_of
from trimol.search._trial import Point
from trimol.search._tune import tune_problem
from trimol.tasks import Data
from trimol.tasks import _answers as answers
from trimol.tasks.task import Better, Settings
from trimol.training import Diverged
from trimol.training import start as start_run
from trimol.training import train as train_run
from trimol.training._replicable import NotReplicable
from trimol.training.assessment import scored, scored_in_parts
from trimol.training.replicas import Replicas

BUDGETS = (1, 2, 5, 10, 20, 50)
TPE_TRIALS = 60
METHODS = ("modo", "mgda", "upgrad", "nashmtl", "fairgrad", "imtlg", "uw", "famo")
DECIDED = (20, 50)  # the budgets at which `diagnose` can decide
NEXT = 10**0.5
CLIMB = 4  # steps of a learning rate to either side
PARTS = 10
CANDIDATES = 20  # what is chosen with at least this budget may be the best setting known
WORST = 500.0  # a regret is at most this, in per cent
SAMPLES = 4096  # of train, for the losses and gradients at the start


@dataclass(frozen=True)
class Plan:
    """How a task is trained, and how many campaigns there are."""

    steps: int
    batch_size: int
    campaigns: int = 16
    options: Mapping[str, Any] = field(default_factory=dict)
    at_once: int = 64


PLANS = {
    "digits": Plan(100, 64, options={"validation": 287, "hidden": 16}),
    "poisson": Plan(60, 50, options={"width": 20, "depth": 3, "points": 100, "conditions": 25}),
    "compas": Plan(60, 128, options={"hidden": 16}),
    "german": Plan(60, 128, options={"hidden": 16}),
    "funnel": Plan(40, 256, options={"rows": 8000, "sparse": False}, at_once=16),
    "quadratic": Plan(60, 16, options={"samples": 100, "dimension": 10}),
    "toy": Plan(200, 16),
    "qm9": Plan(40, 16, 6, {"molecules": 300, "width": 8, "blocks": 1}, 8),
}


# --- trainings ------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """What a training came to: metrics on both kinds of data, and without parts of the former."""

    validation: Point
    test: Point
    parts: list[Point]


class Bank:
    """All trainings of a task: each is made once, with others as replicas."""

    def __init__(self, name: str, work: Path) -> None:
        self.plan, self.file = PLANS[name], work / f"{name}.pickle"
        made = task_of(name, dict(self.plan.options))
        self.task = copy.copy(made)
        self.task.hold_out = count_held_out(made)
        goals = {m: way for metrics in made.goals.values() for m, way in metrics.items()}
        self.ways: dict[str, Better] = goals or dict.fromkeys(made.objectives, "lower")
        self.spread = bool(goals)
        self.known: dict[tuple[str, int], Trained | None] = {}
        if self.file.exists():
            stored = pickle.loads(self.file.read_bytes())
            self.known = {
                key: None if own is None else Trained(*own) for key, own in stored.items()
            }

    def train(self, asked: Sequence[tuple[Setting, int]]) -> None:
        """Train what is not known yet."""
        new = {(s.key, seed): (s, seed) for s, seed in asked if (s.key, seed) not in self.known}
        groups: dict[str, list[tuple[Setting, int]]] = {}
        for setting, seed in new.values():
            groups.setdefault(_kind(setting), []).append((setting, seed))
        for own in groups.values():
            for low in range(0, len(own), self.plan.at_once):
                self._train_group(own[low : low + self.plan.at_once])

    def save(self) -> None:
        """Write what is known."""
        part = self.file.with_suffix(".part")
        stored = {key: None if own is None else tuple(own) for key, own in self.known.items()}
        part.write_bytes(pickle.dumps(stored))
        part.replace(self.file)

    def _train_group(self, group: Sequence[tuple[Setting, int]]) -> None:
        try:
            replicas = Replicas(
                self.task,
                group[0][0].method,
                seeds=[seed for _, seed in group],
                lr=torch.tensor([setting.lr for setting, _ in group], dtype=torch.float64),
                hyperparameters=_joined([setting.hyperparameters for setting, _ in group]),
                batch_size=self.plan.batch_size,
            )
            replicas.train(self.plan.steps)
        except (NotReplicable, NotImplementedError, BadValue):
            for setting, seed in group:
                self.known[setting.key, seed] = self._trained_alone(setting, seed)
            return
        for place, (setting, seed) in enumerate(group):
            lost = int(replicas.diverged[place]) >= 0
            model, data = replicas.module(place), replicas.data[place]
            self.known[setting.key, seed] = None if lost else self._measured(model, data)

    def _trained_alone(self, setting: Setting, seed: int) -> Trained | None:
        """Train one; None where it diverges, or where the method refuses the task."""
        try:
            run = start_run(
                self.task,
                setting.method,
                lr=setting.lr,
                batch_size=self.plan.batch_size,
                seed=seed,
                hyperparameters=dict(setting.hyperparameters),
            )
            train_run(run, self.plan.steps)
        except (Diverged, BadValue):
            return None
        return self._measured(run.model, run.data)

    def _measured(self, model: nn.Module, data: Data) -> Trained | None:
        assert data.validation is not None
        validation, test = (
            _point(scored(self.task, model, part), self.ways)
            for part in (data.validation, data.test)
        )
        if not all(map(math.isfinite, [*validation.values(), *test.values()])):
            return None
        parts = scored_in_parts(self.task, model, data.validation, PARTS)
        return Trained(validation, test, [{name: own[name] for name in self.ways} for own in parts])


def _point(
    found: tuple[Mapping[str, float], Mapping[str, float]], ways: Mapping[str, Any]
) -> Point:
    losses, own = found
    return {name: own[name] if name in own else losses[name] for name in ways}


def _kind(setting: Setting) -> str:
    """Say what settings that may train together have in common."""
    own = setting.hyperparameters
    fixed = {name: value for name, value in own.items() if not _is_free(value)}
    return json.dumps([setting.method, sorted(own), fixed])


def _is_free(value: object) -> bool:
    return isinstance(value, float | list | tuple)


def _joined(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join hyper-parameters: a tensor of one value for each replica where they may differ."""
    return {
        name: torch.tensor([own[name] for own in each], dtype=torch.float64)
        if _is_free(value)
        else value
        for name, value in each[0].items()
    }


class Lockstep:
    """Lets several campaigns, each in a thread, ask for trainings that are then made together."""

    def __init__(self, bank: Bank, campaigns: int) -> None:
        self.bank, self.running = bank, campaigns
        self.waiting: list[tuple[Setting, int]] = []
        self.asleep, self.round = 0, 0
        self.condition = threading.Condition()
        self.error: BaseException | None = None

    def train(self, asked: Sequence[tuple[Setting, int]]) -> None:
        """Ask, and wait until all campaigns that still run have asked."""
        with self.condition:
            self.waiting += asked
            self.asleep += 1
            mine = self.round
            self._go()
            self.condition.wait_for(lambda: self.round > mine)
            if self.error is not None:
                raise self.error

    def leave(self) -> None:
        """End a campaign."""
        with self.condition:
            self.running -= 1
            self._go()

    def _go(self) -> None:
        if self.asleep == self.running and self.asleep:
            try:
                self.bank.train(self.waiting)
            except Exception as error:  # noqa: BLE001  # all campaigns raise it
                self.error = error
            finally:
                self.waiting, self.asleep = [], 0
                self.round += 1
                self.condition.notify_all()


class CampaignProblem:
    """A task as one campaign sees it."""

    def __init__(self, bank: Bank, lockstep: Lockstep, lr: float) -> None:
        self.bank, self.lockstep, self.lr = bank, lockstep, lr
        self.objectives: Sequence[str] = bank.task.objectives
        self.ways: Mapping[str, Better] = bank.ways
        self.spread = bank.spread

    def rate(self, method: str) -> float:
        """Return the learning rate to begin with."""
        return self.lr

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Train together with the other campaigns."""
        self.lockstep.train([(t.setting, t.seed) for t in trainings])
        return [self._outcome(t) for t in trainings]

    def points_without_parts(self, setting: Setting, seed: int) -> list[Point]:
        """Return the metrics without parts of the validation data."""
        found = self.bank.known[setting.key, seed]
        return [] if found is None else found.parts

    def _outcome(self, training: Training) -> Outcome:
        found = self.bank.known[training.setting.key, training.seed]
        if found is None:
            return Failure("it diverged")
        return checked_point(found.test if training.final else found.validation, self.ways)


# --- strategies -----------------------------------------------------------------------------------

Chosen = dict[int, Setting]  # by budget
Strategy = Callable[[CampaignProblem, int], Chosen]


def scored_trials(problem: CampaignProblem, settings: Sequence[Setting], seed: int) -> list[float]:
    """Score settings on validation data, relative to the first that came to an end."""
    found = [problem.bank.known[setting.key, seed] for setting in settings]
    points = [own.validation for own in found if own is not None]
    scorer = Scorer(problem.ways, spread=problem.spread)
    scorer.fit(points)
    return [-math.inf if own is None else scorer.score(own.validation) for own in found]


def chosen_by_budget(problem: CampaignProblem, settings: Sequence[Setting], seed: int) -> Chosen:
    """Choose the best on validation data of as many settings as each budget has."""
    found = {}
    for budget in BUDGETS:
        scores = scored_trials(problem, settings[:budget], seed)
        found[budget] = settings[scores.index(max(scores))]
    return found


def climb(space: SearchSpace, weights: Sequence[float] | None = None) -> Strategy:
    """Search the learning rate of a method, or of given weights, by steps around the best."""

    def strategy(problem: CampaignProblem, seed: int) -> Chosen:
        start = replace(space, lr=problem.lr).start(None, weights)
        tried = {0: start}
        problem.train([Training(start, seed)])
        while len(tried) < max(BUDGETS):
            scores = scored_trials(problem, list(tried.values()), seed)
            best = list(tried)[scores.index(max(scores))]
            near = [at for at in (best + 1, best - 1) if at not in tried and abs(at) <= CLIMB]
            if not near:
                break
            tried[near[0]] = replace(start, lr=rounded(start.lr * NEXT ** near[0]))
            problem.train([Training(tried[near[0]], seed)])
        return chosen_by_budget(problem, list(tried.values()), seed)

    return strategy


def tpe(space: SearchSpace) -> Strategy:
    """Let Optuna's TPE propose weights and learning rates."""

    def strategy(problem: CampaignProblem, seed: int) -> Chosen:
        own = replace(space, lr=problem.lr)
        settings: list[Setting] = []
        with quiet() as optuna:
            sampler = optuna.samplers.TPESampler(seed=seed)
            study = optuna.create_study(direction="maximize", sampler=sampler)
            study.enqueue_trial(own.place(own.start()))
            box = {
                name: optuna.distributions.FloatDistribution(low, high)
                for name, (low, high) in own.dimensions.items()
            }
            for _ in range(TPE_TRIALS):
                trial = study.ask(box)
                setting = own.setting(trial.params)
                settings.append(setting)
                problem.train([Training(setting, seed)])
                score = scored_trials(problem, settings, seed)[-1]
                if math.isfinite(score):
                    study.tell(trial, score)
                else:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
        scores = scored_trials(problem, settings, seed)
        return {
            **chosen_by_budget(problem, settings, seed),
            TPE_TRIALS: settings[scores.index(max(scores))],
        }

    return strategy


def tune(lengths: Sequence[float], scaled: bool) -> Strategy:
    """Let `trimol.tune` spend each budget."""

    def strategy(problem: CampaignProblem, seed: int) -> Chosen:
        return {
            budget: tune_problem(problem, budget, lengths=lengths, scaled=scaled, seed=seed).setting
            for budget in BUDGETS
        }

    return strategy


def diagnose(lengths: Sequence[float], scaled: bool) -> Strategy:
    """Use what `trimol.diagnose` says, and its static setting where that is undecided."""

    def strategy(problem: CampaignProblem, seed: int) -> Chosen:
        found = {}
        for budget in DECIDED:
            spending = Spending(budget, len(TRIED))
            contest = Contest(
                problem, spending, TRIED, now={}, lengths=lengths, scaled=scaled, seed=seed
            )
            use = contest.use(contest.run())
            found[budget] = contest.settings[use if use in contest.settings else BASELINE]
        return found

    return strategy


def at_start(bank: Bank) -> tuple[list[float], list[float]]:
    """Return each objective's loss and gradient length at the start, on train."""
    torch.manual_seed(0)
    model = answers.model(bank.task)
    data = answers.data(bank.task, 0)
    batch = tuple(tensor[:SAMPLES] for tensor in data.train)
    losses = answers.losses(bank.task, model, batch)
    params = [p for p in model.parameters() if p.requires_grad]
    lengths = []
    for loss in losses:
        own = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
        lengths.append(
            math.sqrt(sum(float(g.double().square().sum()) for g in own if g is not None))
        )
    return [abs(float(loss.detach())) for loss in losses], lengths


def strategies(bank: Bank) -> dict[str, Strategy]:
    """Return all strategies of a task, by name."""
    count = len(bank.task.objectives)
    losses, lengths = at_start(bank)
    model = answers.model(bank.task)
    optimizer = answers.optimizer(bank.task, model.parameters(), 1.0)
    scaled = isinstance(optimizer, torch.optim.SGD)
    static = space_of(BASELINE, count, 1.0, lengths=lengths if scaled else None)
    spaces = {name: space_of(name, count, 1.0) for name in METHODS}
    return {
        "equal": climb(static),
        "1/loss": climb(static, [1 / max(loss, 1e-9) for loss in losses]),
        "1/gradient": climb(static, [1 / max(length, 1e-9) for length in lengths]),
        "tpe": tpe(static),
        "tune": tune(lengths, scaled),
        "diagnose": diagnose(lengths, scaled),
        **{name: climb(space) for name, space in spaces.items()},
    }


# --- all of it ------------------------------------------------------------------------------------


def campaigns(bank: Bank, strategy: Strategy, rates: Mapping[int, float]) -> dict[int, Chosen]:
    """Run a strategy once per seed, all in step."""
    lockstep = Lockstep(bank, len(rates))

    def one(seed: int) -> Chosen:
        try:
            return strategy(CampaignProblem(bank, lockstep, rates[seed]), seed)
        finally:
            lockstep.leave()

    with ThreadPoolExecutor(len(rates)) as pool:
        return dict(zip(rates, pool.map(one, rates), strict=True))


def best_rate(bank: Bank, seeds: Sequence[int]) -> float:
    """Return the learning rate that is best for equal weights on validation data, of all seeds."""
    middle = bank.task.settings.get(BASELINE, Settings()).lr
    space = space_of(BASELINE, len(bank.task.objectives), middle)
    settings = [space.start(rounded(middle * NEXT**power)) for power in range(-4, 5)]
    bank.train([(setting, seed) for setting in settings for seed in seeds])
    reached = []
    for setting in settings:
        found = [bank.known[setting.key, seed] for seed in seeds]
        reached.append([own.validation for own in found if own is not None])
    scorer = Scorer(bank.ways, spread=bank.spread)
    ended = [own for own in reached if len(own) == len(seeds)]
    means = [{m: fmean(point[m] for point in own) for m in bank.ways} for own in ended]
    scorer.fit(means, [point for own in ended for point in own])
    levels = [
        fmean(map(scorer.score, own)) if len(own) == len(seeds) else -math.inf for own in reached
    ]
    return settings[levels.index(max(levels))].lr


def curve(name: str, work: Path) -> list[dict[str, Any]]:
    """Return the regret of every strategy, start and budget of a task."""
    bank = Bank(name, work)
    seeds = range(bank.plan.campaigns)
    right = best_rate(bank, seeds)
    rates = {
        "right": dict.fromkeys(seeds, right),
        "wrong": {seed: rounded(right * NEXT ** (1 if seed % 2 else -1)) for seed in seeds},
    }
    chosen: dict[tuple[str, str], dict[int, Chosen]] = {}
    for label, strategy in strategies(bank).items():
        for start, own in rates.items():
            chosen[label, start] = campaigns(bank, strategy, own)
            bank.save()
        print(name, label, len(bank.known), "trainings so far", flush=True)
    every = {
        setting.key: setting
        for own in chosen.values()
        for each in own.values()
        for budget, setting in each.items()
        if budget >= CANDIDATES
    }
    bank.train([(setting, seed) for setting in every.values() for seed in seeds])
    bank.save()
    return regrets(bank, chosen, every, seeds)


def regrets(
    bank: Bank,
    chosen: Mapping[tuple[str, str], Mapping[int, Chosen]],
    every: Mapping[str, Setting],
    seeds: Sequence[int],
) -> list[dict[str, Any]]:
    """Return how far from the best setting known each strategy is."""
    tests = {key: [bank.known[key, seed] for seed in seeds] for key in every}
    points = {
        key: [own.test for own in found if own is not None]
        for key, found in tests.items()
        if all(own is not None for own in found)
    }
    scorer = Scorer(bank.ways, spread=bank.spread)
    means = [{m: fmean(p[m] for p in own) for m in bank.ways} for own in points.values()]
    static = [m for m, key in zip(means, points, strict=True) if every[key].method == BASELINE]
    scorer.fit(static, [point for own in points.values() for point in own])
    levels = {key: fmean(map(scorer.score, own)) for key, own in points.items()}
    best = max(levels, key=lambda key: levels[key])
    rows = []
    for (label, start), own in chosen.items():
        for budget in dict.fromkeys(budget for each in own.values() for budget in each):
            behind = []
            for seed, each in own.items():
                found = bank.known[each[budget].key, seed]
                lost = WORST if found is None else 100 * (levels[best] - scorer.score(found.test))
                behind.append(min(lost, WORST))
            rows.append(
                {
                    "task": bank.file.stem,
                    "strategy": label,
                    "start": start,
                    "budget": budget,
                    "regret": fmean(behind),
                    "ci": interval(behind),
                    "each": [round(lost, 3) for lost in behind],
                    "best": str(every[best]),
                }
            )
    return rows


def table(work: Path) -> dict[str, Any]:
    """Return the rows of all tasks that are finished."""
    files = (work / f"{name}.json" for name in PLANS)
    rows = [row for file in files if file.exists() for row in json.loads(file.read_text())]
    return {
        "study": "budget_curve",
        "rows": rows,
        "campaigns": {name: PLANS[name].campaigns for name in {row["task"]: 0 for row in rows}},
        "command": "python benchmarks/budget_curve.py --work DIR",
        "created": now(),
        "environment": environment(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What do B trainings come to, tuning included?")
    parser.add_argument("--work", type=Path, required=True, help="where trainings are kept")
    parser.add_argument("--tasks", nargs="*", choices=list(PLANS), default=list(PLANS))
    parser.add_argument("--json", type=Path, help="write the table of all that is in --work")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for name in args.tasks:
        try:
            rows = curve(name, args.work)
        except MissingData as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        (args.work / f"{name}.json").write_text(json.dumps(rows))
    if args.json:
        args.json.write_text(json.dumps(table(args.work), ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
