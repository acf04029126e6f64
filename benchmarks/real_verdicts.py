"""What `trimol diagnose` says of the built-in tasks: the second table of docs/howto/diagnose.md.

    python benchmarks/real_verdicts.py --work DIR --tasks digits german   # adds to what DIR has
    python benchmarks/real_verdicts.py --work DIR --tasks --json results/real_verdicts.json

The budgets (``BUDGETS``) are small: a minute of trials on one core for each task. Nobody knows the
right answers; these are ours to live with. Each finished diagnosis is a file in DIR; its runs are
deleted. A stopped one goes on.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimol.runs import _storage as files
from trimol.runs._environment import environment, now
from trimol.runs.diagnosis import Diagnosis, diagnose

METHODS = ("upgrad", "stch")
SCENES = {"image_size": (16, 24), "train": 48, "validation": 16, "test": 16}


@dataclass(frozen=True)
class Budget:
    """How much a task is given.

    Attributes:
        steps: The steps of a run.
        batch_size: Samples a step.
        options: The task's options.
        trials: Settings tried of each contender, before those around the best.
        seeds: Final runs of each contender.
        tuning_seeds: Runs of each setting.
        methods: Those that are tried.
        minutes: No more trials are begun after so long.
    """

    steps: int = 100
    batch_size: int = 64
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 6
    seeds: int = 6
    tuning_seeds: int = 2
    methods: tuple[str, ...] = METHODS
    minutes: float = 1.0


BUDGETS = {
    "digits": Budget(steps=150, options={"validation": 287}),
    "german": Budget(),
    "compas": Budget(),
    "adult": Budget(),
    "funnel": Budget(batch_size=256),
    "credit": Budget(),
    "census": Budget(batch_size=256, options={"source": "adult"}),
    "poisson": Budget(),
    "burgers": Budget(),
    "helmholtz": Budget(),
    "kovasznay": Budget(),
    "schroedinger": Budget(),
    "mnist": Budget(),
    "office-31": Budget(),
    "office-home": Budget(),
    "scenes": Budget(batch_size=8, steps=40, options=SCENES),
    "qm9": Budget(batch_size=32, steps=60, options={"molecules": 600, "width": 16, "blocks": 2}),
}


def asked(work: Path, name: str) -> dict[str, Any]:
    """One diagnosis, made or read."""
    path = work / f"{name}.json"
    if not path.exists():
        files.write_json(path, _diagnosed(work / name, name, BUDGETS[name]))
    return dict(files.read_json(path))


def _diagnosed(folder: Path, name: str, budget: Budget) -> dict[str, Any]:
    began = time.process_time()
    found = diagnose(
        name,
        folder=folder,
        methods=list(budget.methods),
        task_options=dict(budget.options),
        steps=budget.steps,
        batch_size=budget.batch_size,
        trials=budget.trials,
        seeds=budget.seeds,
        tuning_seeds=budget.tuning_seeds,
        minutes=budget.minutes,
        jobs=1,
    )
    shutil.rmtree(folder)
    return {
        "task": name,
        "regime": found.regime,
        "use": found.use,
        "sentence": found.sentence,
        "steps": budget.steps,
        "trials": budget.trials,
        "seeds": budget.seeds,
        "tuning_seeds": budget.tuning_seeds,
        "methods": list(budget.methods),
        "minutes": budget.minutes,
        "tried": _tried(found),
        "cpu_seconds": time.process_time() - began,
    }


def _tried(found: Diagnosis) -> int:
    """How many settings of static weights were tried."""
    return 0 if found.trial is None else len(found.trial.tuning.filter(method="static"))


def study(work: Path) -> dict[str, Any]:
    """The table of what is there."""
    rows = [asked(work, name) for name in BUDGETS if (work / f"{name}.json").exists()]
    return {
        "study": "real_verdicts",
        "rows": rows,
        "command": "python benchmarks/real_verdicts.py --work DIR",
        "created": now(),
        "environment": environment(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What trimol diagnose says of built-in tasks.")
    parser.add_argument("--work", type=Path, required=True, help="where diagnoses are kept")
    parser.add_argument("--tasks", nargs="*", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--json", type=Path, help="write the table of all that is in --work")
    args = parser.parse_args()
    files.make_folder(args.work)
    for name in args.tasks:
        found = asked(args.work, name)
        print(name, found["regime"], found["sentence"], f"{found['cpu_seconds']:.0f} s", flush=True)
    if args.json:
        table = study(args.work)
        args.json.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
