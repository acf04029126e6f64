"""`diagnose`: what do I end up with, given so many trainings, and by which method?"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimol import methods as algorithms
from trimol._checks import positive
from trimol._failures import BadValue
from trimol._generators import generators_kept
from trimol._words import count
from trimol.compare._answer import Answer
from trimol.compare._contest import Contest
from trimol.compare._spending import Spending
from trimol.methods._registry import BASELINE, TRIED
from trimol.runs import _storage as files
from trimol.runs._costs import step_costs
from trimol.runs._diagnosis_file import FILE
from trimol.runs._execute import task_for
from trimol.runs._journal import Progress, StepCount
from trimol.runs._lock import locked
from trimol.runs._moments import Moment
from trimol.runs._sentences import advice
from trimol.runs.look import Look, examine, revised
from trimol.runs.store import StoredRun
from trimol.runs.verdict import Gain
from trimol.search._problem import Problem, TaskProblem, Training
from trimol.search._setting import Setting
from trimol.search._space import space_of
from trimol.search._study import Stage
from trimol.search._trial import mean_point
from trimol.search._tune import check_gradients, function_problem, lengths_of
from trimol.tasks import _answers as answers
from trimol.tasks.task import Better
from trimol.training.loop import Schedule

ENDS = 3  # final runs whose gradients are measured at their end


@dataclass(frozen=True)
class Diagnosis:
    """Whether a task needs a multi-objective method.

    Attributes:
        regime: What is the matter with the objectives: ``"none"``, ``"scales"``, ``"direction"``,
            ``"noise"`` or ``"stationary"`` (`trimol.runs.look`); ``"unknown"`` for a function.
        use: ``"static"``, the name of the method that is better, or ``"undecided"``.
        sentence: What to do, and why.
        evidence: All numbers behind it, ready for JSON.
        look: The gradient check, with the ends of static weights' final runs where there are some;
            None for a function.
        answer: What the final runs came to; None where there were none.
        settings: The best setting of every method that is still in.
        spent: How many trainings that took.
    """

    regime: str
    use: str
    sentence: str
    evidence: dict[str, Any]
    look: Look | None
    answer: Answer | None
    settings: dict[str, Setting]
    spent: int

    @property
    def copyable(self) -> list[str]:
        """Say how to train with the setting that is advised: as a command, and as code."""
        setting = self.settings.get(self.use, self.settings.get(BASELINE))
        if setting is None or "trial" not in self.evidence:
            return []
        trial = self.evidence["trial"]
        command = trial["contenders"][setting.method]["command"]
        code = setting.code(trial["objectives"])
        return [*([f"To train with it: {command}"] if command else []), f"In Python: {code}"]

    @property
    def summary(self) -> dict[str, Any]:
        """What ``trimol diagnose --json`` prints."""
        return {
            "regime": self.regime,
            "use": self.use,
            "sentence": self.sentence,
            "evidence": self.evidence,
        }


def diagnose(
    train: str | Callable[..., Mapping[str, float]],
    *,
    folder: Path | str | None = None,
    budget: int = 30,
    hours: float | None = None,
    methods: Sequence[str] = TRIED,
    current: Mapping[str, Any] | None = None,
    objectives: Sequence[str] | None = None,
    lr: float | None = None,
    goals: Mapping[str, Better] | None = None,
    task_options: Mapping[str, Any] | None = None,
    steps: int = 500,
    batch_size: int | None = None,
    schedule: Schedule | None = None,
    seed: int = 0,
    check_only: bool = False,
    jobs: int | None = None,
    on: str | None = None,
    watch: Progress | None = None,
    stage: Stage = lambda _: None,
    plan: Stage = lambda _: None,
) -> Diagnosis:
    """Find out whether a task needs a multi-objective method, with so many trainings in all.

    First the *gradient check*: plain training for a few per cent of the steps, with the gradients'
    angles, lengths and noise measured. Then settings of static weights and of every method are
    tried on validation data, as many of each; the best two methods go on. At last the best method
    and static weights are trained on fresh seeds and compared on test data. The answer is about
    exactly that: what the method gains over static weights *as tuned with this budget*.

    Everything is kept in the folder: a study that was stopped resumes, and a larger budget uses
    what was trained before.

    Args:
        train: A task's name, ``path/to/file.py:Class``, or a function that trains with a
            `trimol.search.Setting` (``setting.method``, ``.hyperparameters``, ``.lr``) and returns
            metrics by name. The function may take ``seed``, too; there is no gradient check then.
        folder: Where the runs are kept; needed for a task.
        budget: Trainings in all, but for the gradient check.
        hours: In place of the budget: as many trainings as fit, by the time of the first one.
        methods: The methods that are compared with static weights.
        current: What you have now, such as ``{"weights": [1, 0.1, 5], "lr": 3e-4}``: tried first.
        objectives: For a function: the names of the objectives, in the order of the weights.
        lr: The learning rate to begin with; by default the current one, or the task's.
        goals: For a function: the metrics to judge by, and whether "lower" or "higher" is better.
        task_options: Keyword arguments of the task's constructor.
        steps: Steps of every training of a task.
        batch_size: Samples per step; by default the task's.
        schedule: How the learning rate falls over a training.
        seed: Trials have this seed, the final runs those after it.
        check_only: The gradient check, and no training.
        jobs: How many runs at a time; as many as there are cores by default.
        on: A Ray cluster to run them on (`trimol.runs.execute_all`).
        watch: Called with (done, total), in steps of all runs.
        stage: Told in a few words what is being done.
        plan: Told how the budget will be spent, what that can find and how long it takes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = diagnose("digits", folder=folder, steps=40, check_only=True)
        >>> found.use, found.spent
        ('static', 0)
    """
    spending, now = checked_spending(budget, methods), dict(current or {})
    more: dict[str, Any] = {"now": now, "schedule": schedule, "seed": seed, "stage": stage}
    if not isinstance(train, str):
        if check_only or hours is not None:
            given = "check_only" if check_only else "hours"
            raise BadValue(f"{given} must be left out with a function, which is only trained")
        problem = function_problem(train, objectives, lr or now.get("lr"), goals, folder)
        plan(spending.sentence)
        contest = Contest(problem, spending, methods, **more)
        return _concluded(contest, contest.run(), None)
    if folder is None:
        raise BadValue("folder must be given for a task, found None")
    counter = StepCount(spending.budget * steps, watch)
    of_task = TaskProblem(
        train,
        folder,
        steps=steps,
        batch_size=batch_size,
        options=task_options,
        lr=lr or now.get("lr"),
        jobs=jobs,
        on=on,
        watch=counter,
    )
    stage("the gradient check")
    began = time.monotonic()
    seen = check_gradients(of_task, seed)
    seconds = (time.monotonic() - began) / seen.steps  # of a step, and of measuring gradients
    if check_only:
        return _kept(_checked_only(seen), of_task)
    files.make_folder(of_task.folder)
    with locked(of_task.folder):
        if hours is not None:
            stage("the time of a training")
            spending = Spending(_budget_of(positive("hours", hours), of_task, seed), len(methods))
            counter.total = spending.budget * steps
        plan(f"{spending.sentence} {_time_of(spending.budget * steps * seconds, of_task)}")
        lengths = lengths_of(seen, of_task.objectives)
        scaled = of_task.steps_by_gradient
        contest = Contest(of_task, spending, methods, lengths=lengths, scaled=scaled, **more)
        return _kept(_concluded(contest, contest.run(), seen), of_task)


def _time_of(seconds: float, problem: TaskProblem) -> str:
    """Say how long so many seconds of training take here, at most.

    The gradient check also measures, and runs that train together are faster.
    """
    minutes = math.ceil(seconds / problem.at_once / 60)
    return f"At most about {count(minutes, 'minute')}, {problem.at_once} at a time."


def _budget_of(hours: float, problem: TaskProblem, seed: int) -> int:
    """Return how many trainings fit, by the time of one; noted down, so that it stays.

    The training is that of equal weights, which comes first anyway.
    """
    file = problem.folder / "time.json"
    facts = {"hours": hours, "steps": problem.steps}
    if not file.exists() or files.read_json(file)["of"] != facts:
        space = space_of(BASELINE, len(problem.objectives), problem.rate(BASELINE))
        began = time.monotonic()
        problem.train([Training(space.start(), seed)])
        seconds = max(time.monotonic() - began, 1e-3)
        fits = max(1, int(3600 * hours / seconds) * problem.at_once)
        files.write_json(file, {"of": facts, "seconds": seconds, "budget": fits})
    return int(files.read_json(file)["budget"])


def checked_spending(budget: int, methods: Sequence[str]) -> Spending:
    """Return how a budget is spent on methods that can be compared."""
    if not methods or len({*methods, BASELINE}) <= len(methods):
        raise BadValue(
            f"methods must be one or more different names other than {BASELINE}, found "
            f"{', '.join(methods) or 'none'}"
        )
    for name in methods:
        if algorithms.growth(name):
            raise BadValue(
                f"methods must take the same samples at every step, found {name!r}, whose batches "
                "grow"
            )
    return Spending(budget, len(methods))


# --- what it came to ------------------------------------------------------------------------------


def _concluded(contest: Contest, answer: Answer | None, check: Look | None) -> Diagnosis:
    seen = check
    if check is not None and answer is not None:
        ends = _ends(contest)
        seen = revised(check, ends) if ends else check
    evidence = {} if seen is None else {"look": _of_look(seen)}
    return Diagnosis(
        regime="unknown" if seen is None else seen.regime,
        use=contest.use(answer),
        sentence=contest.sentence(answer),
        evidence=_plain({**evidence, "trial": _evidence(contest, answer)}),
        look=seen,
        answer=answer,
        settings=contest.settings,
        spent=contest.study.spent,
    )


def _evidence(contest: Contest, answer: Answer | None) -> dict[str, Any]:
    """Return the numbers of the study, by name, as the report reads them."""
    problem, study, settings = contest.problem, contest.study, contest.settings
    finals = contest.finals if answer is not None else {}
    costs = _costs(problem, {name: settings[name] for name in finals}, contest.seed)
    task = problem.task if isinstance(problem, TaskProblem) else ""
    return {
        "budget": contest.spending.budget,
        "spent": study.spent,
        "answer": None if answer is None else asdict(answer),
        "is_ratio": study.scorer.is_ratio,
        "metrics": dict(problem.ways),
        "objectives": len(problem.objectives),
        "contenders": {
            name: {
                "setting": {
                    "lr": setting.lr,
                    "hyperparameters": dict(setting.hyperparameters),
                    "schedule": setting.schedule,
                },
                "command": setting.command(task) if task else "",
                "trials": len(study.trials[name]),
                "cost": costs.get(name),
                "seeds": len(finals.get(name, ())),
                "kind": "baseline" if name == BASELINE else _kind(name, contest, answer),
            }
            for name, setting in settings.items()
        },
        "gains": [_of_gain(gain) for gain in (contest.metric_gains() if finals else ())],
        "points": {
            name: [mean_point(trial) for trial in trials if trial.is_complete]
            for name, trials in study.trials.items()
        },
        "held_out": getattr(problem, "hold_out", 0),
        "notes": contest.notes,
        "failed": [
            f"{name}, trial {trial.number}: {trial.note}"
            for name, trials in study.trials.items()
            for trial in trials
            if not trial.is_complete
        ],
    }


def _costs(problem: Problem, settings: Mapping[str, Setting], seed: int) -> dict[str, float]:
    """Return the cost of a step relative to the baseline's: measured once, then read."""
    if not settings or not isinstance(problem, TaskProblem):
        return {}
    file = problem.folder / "costs.json"
    configs = {name: problem.config(Training(own, seed)) for name, own in settings.items()}
    facts = {name: config.key for name, config in configs.items()}
    if not file.exists() or files.read_json(file)["runs"] != facts:
        files.write_json(file, {"seconds": step_costs(configs), "runs": facts})
    seconds = files.read_json(file)["seconds"]
    return {name: seconds[name] / seconds[BASELINE] for name in settings}


def _kind(name: str, contest: Contest, answer: Answer | None) -> str:
    if answer is None or name != contest.rival:
        return "unknown"
    return {"use": "wins", "stay": "loses" if answer.most == 0 else "alike"}.get(
        answer.kind, "unknown"
    )


def _kept(found: Diagnosis, problem: TaskProblem) -> Diagnosis:
    files.make_folder(problem.folder)
    files.write_json(problem.folder / FILE, {"task": problem.made.name, **found.summary})
    return found


def _checked_only(seen: Look) -> Diagnosis:
    return Diagnosis(
        regime=seen.regime,
        use=BASELINE,
        sentence=advice(seen.regime, seen.reason),
        evidence=_plain({"look": _of_look(seen)}),
        look=seen,
        answer=None,
        settings={},
        spent=0,
    )


def _ends(contest: Contest) -> list[Moment]:
    """Measure the gradients at the end of a few final runs of static weights."""
    assert isinstance(contest.problem, TaskProblem)
    key, seeds = contest.settings[BASELINE].key, list(contest.finals[BASELINE])[:ENDS]
    runs = [contest.problem.runs.get((key, seed)) for seed in seeds]
    return [_end(run) for run in runs if run is not None]


def _end(run: StoredRun) -> Moment:
    """Measure the model at the end of a run."""
    config = run.config
    task = task_for(config)
    with generators_kept(task):
        model = answers.model(task)
    model.load_state_dict(run.parameters)
    return examine(
        task,
        model,
        name=f"the end of seed {config.seed}",
        step=config.steps,
        data=answers.data(task, config.seed),
        weights=[run.record[f"weight/{objective}"] for objective in run.objectives],
        batch_size=config.batch_size,
        seed=config.seed,
    )


def _of_look(seen: Look) -> dict[str, Any]:
    return {
        "regime": seen.regime,
        "reason": seen.reason,
        "warnings": list(seen.warnings),
        "steps": seen.steps,
        **seen.evidence,
    }


def _of_gain(gain: Gain) -> dict[str, Any]:
    return {**asdict(gain), "share": gain.share, "better": gain.better, "worse": gain.worse}


def _plain(value: Any) -> Any:
    """What JSON can hold: no infinite numbers, no tuples."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.loads(json.dumps(value))
