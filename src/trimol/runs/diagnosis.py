"""`diagnose`: does this task need a multi-objective method, and which? A sentence, and why."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from trimol.methods._registry import BASELINE, TRIED
from trimol.runs import _storage as files
from trimol.runs._diagnosis_file import FILE
from trimol.runs._execute import task_for
from trimol.runs._journal import Progress
from trimol.runs._moments import Moment
from trimol.runs._sentences import advice, sentence
from trimol.runs.look import Look, examine, look, revised
from trimol.runs.store import StoredRun
from trimol.runs.trial import Trial, TrialPlan, trial
from trimol.runs.verdict import Gain
from trimol.tasks import _answers as answers
from trimol.training._random import forked
from trimol.training.loop import whereabouts

LOOKED = 20  # the look takes one step in so many of a run's
FEWEST_STEPS = 20
ENDS = 3  # final runs that are looked at


@dataclass(frozen=True)
class Diagnosis:
    """Whether a task needs a multi-objective method.

    Attributes:
        regime: What is the matter with the objectives: ``"none"``, ``"scales"``, ``"direction"``,
            ``"noise"`` or ``"stationary"`` (`trimol.runs.look`).
        use: ``"static"``, or the name of the method that is better.
        sentence: What to do, and why.
        evidence: All numbers behind it, ready for JSON.
        look: What was seen in plain training, and at the end of static weighting's final runs.
        trial: Methods against static weighting; None where the look was all.
    """

    regime: str
    use: str
    sentence: str
    evidence: dict[str, Any]
    look: Look
    trial: Trial | None

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
    task: str,
    *,
    folder: Path | str,
    methods: Sequence[str] = TRIED,
    task_options: Mapping[str, Any] | None = None,
    steps: int = 500,
    batch_size: int = 64,
    trials: int | None = None,
    seeds: int = 10,
    tuning_seeds: int = 3,
    first_seed: int = 0,
    minutes: float | None = None,
    look_steps: int | None = None,
    look_only: bool = False,
    jobs: int | None = None,
    on: str | None = None,
    watch: Progress | None = None,
    stage: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find out whether a task needs a multi-objective method, and which.

    First a *look*: plain training for a few per cent of the steps, with the gradients' angles,
    lengths and noise measured. Then a *trial*: static weighting and every method, each tuned on
    validation data with as many trials, run again with fresh seeds and compared on test data, at
    equal samples and at equal time. :mod:`trimol.runs.verdict` has the rule that decides.

    Everything is kept in the folder: a study that was stopped goes on.

    Args:
        task: A task's name, or ``path/to/file.py:Class``.
        folder: Where the runs are kept.
        methods: The methods that are to beat static weighting.
        task_options: Keyword arguments of the task's constructor.
        steps: Steps of every run.
        batch_size: Samples a step.
        trials: Settings tried of each contender; by default 9 for each objective and 9 more.
        seeds: Final runs of each contender.
        tuning_seeds: Runs of every setting that is tried.
        first_seed: Tuning takes the seeds from here on, the final runs those after.
        minutes: No more trials are begun after so long.
        look_steps: Steps of the look; by default a twentieth of ``steps``, and at least 20.
        look_only: Leave out the trial.
        jobs: How many runs at a time; as many as there are cores by default.
        on: A Ray cluster to run them on (`trimol.runs.execute_all`).
        watch: Called with (done, total), in steps of all runs of the trial.
        stage: Told in a few words what is being done.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = diagnose("digits", folder=folder, steps=40, look_only=True)
        >>> found.use, found.trial
        ('static', None)
    """
    options = dict(task_options or {})
    plan = TrialPlan(
        task=task,
        methods=tuple(methods),
        options=options,
        trials=trials,
        steps=steps,
        batch_size=batch_size,
        seeds=seeds,
        tuning_seeds=tuning_seeds,
        first_seed=first_seed,
        minutes=minutes,
    )
    say = stage or (lambda _: None)
    say("a look at plain training")
    seen = look(
        task,
        task_options=options,
        steps=look_steps or max(FEWEST_STEPS, steps // LOOKED),
        batch_size=batch_size,
        seed=first_seed,
    )
    if look_only:
        return _kept(_looked(seen), task, folder)
    tried = trial(plan, folder, jobs=jobs, on=on, watch=watch, stage=stage)
    say("a look at the end of static weighting's runs")
    ends = [_end(run) for run in tried.runs[BASELINE][:ENDS]]
    return _kept(_diagnosed(revised(seen, ends) if ends else seen, tried), task, folder)


def _kept(found: Diagnosis, task: str, folder: Path | str) -> Diagnosis:
    files.make_folder(Path(folder))
    name = Path(task).name if ".py" in task else task
    files.write_json(Path(folder) / FILE, {"task": name, **found.summary})
    return found


def _looked(seen: Look) -> Diagnosis:
    return Diagnosis(
        regime=seen.regime,
        use=BASELINE,
        sentence=advice(seen.regime, seen.reason),
        evidence=_plain({"look": _of_look(seen)}),
        look=seen,
        trial=None,
    )


def _diagnosed(seen: Look, tried: Trial) -> Diagnosis:
    return Diagnosis(
        regime=seen.regime,
        use=tried.verdict.use,
        sentence=sentence(tried),
        evidence=_plain({"look": _of_look(seen), "trial": _of_trial(tried)}),
        look=seen,
        trial=tried,
    )


def _end(run: StoredRun) -> Moment:
    """A look at the model at the end of a run."""
    config = run.config
    task = task_for(config)
    with forked(whereabouts().device):
        model: nn.Module = answers.model(task)
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


def _of_trial(tried: Trial) -> dict[str, Any]:
    """The numbers of a trial, by name."""
    verdict = tried.verdict
    counts = dict(tried.tuning.group_by("method").len().iter_rows())
    return {
        "metrics": dict(tried.ways),
        "contenders": {
            name: {
                "setting": asdict(candidate),
                "trials": counts[name],
                "cost": tried.costs[name],
                "steps_at_equal_time": tried.steps[name],
                "seeds": len(tried.runs[name]),
                "kind": "baseline" if name == verdict.baseline else verdict.kind(name),
            }
            for name, candidate in tried.settings.items()
        },
        "gains": [_of_gain(gain) for gain in verdict.gains],
        "hypervolume": {
            name: {"value": reach.estimate, "low": reach.low, "high": reach.high}
            for name, reach in tried.reached.items()
        },
        "reference": tried.reference,
        "points": tried.points,
        "held_out": tried.held_out,
        "notes": tried.notes,
        "failed": tried.failed,
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
