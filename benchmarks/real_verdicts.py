"""What `trimol diagnose` says of the built-in tasks: the last table of docs/howto/diagnose.md.

    python benchmarks/real_verdicts.py --work DIR --tasks digits german   # adds to what DIR has
    python benchmarks/real_verdicts.py --work DIR --tasks --json results/real_verdicts.json

Nobody knows the right answers. Trainings are short (``PLANS``), and --budget says how many there
are for each task. With ``--before results/real_verdicts.json`` the rows have what that file says of
the task, too. Each finished diagnosis is a file in DIR; its runs are deleted. A stopped one
resumes.
"""

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimol import diagnose
from trimol.runs import _storage as files
from trimol.runs._environment import environment, now

SCENES = {"image_size": (16, 24), "train": 48, "validation": 16, "test": 16}
COMPARED = ("regime", "use", "sentence", "methods", "tried", "tuning_seeds", "seeds")


@dataclass(frozen=True)
class Plan:
    """How a task is trained.

    Attributes:
        steps: The steps of a training.
        batch_size: Samples per step.
        options: The task's options.
    """

    steps: int = 100
    batch_size: int = 64
    options: Mapping[str, Any] = field(default_factory=dict)


PLANS = {
    "digits": Plan(steps=150, options={"validation": 287}),
    "german": Plan(),
    "compas": Plan(),
    "adult": Plan(),
    "funnel": Plan(batch_size=256),
    "credit": Plan(),
    "census": Plan(batch_size=256, options={"source": "adult"}),
    "poisson": Plan(),
    "burgers": Plan(),
    "helmholtz": Plan(),
    "kovasznay": Plan(),
    "schroedinger": Plan(),
    "mnist": Plan(),
    "office-31": Plan(),
    "office-home": Plan(),
    "scenes": Plan(batch_size=8, steps=40, options=SCENES),
    "qm9": Plan(batch_size=32, steps=60, options={"molecules": 600, "width": 16, "blocks": 2}),
}


def asked(work: Path, name: str, budget: int) -> dict[str, Any]:
    """Make one diagnosis, or read it."""
    path = work / f"{name}-{budget}.json"
    if not path.exists():
        files.write_json(path, _diagnosed(path.with_suffix(""), name, budget))
    found = files.read_json(path)
    return {key: value for key, value in found.items() if key != "digest"}


def _diagnosed(folder: Path, name: str, budget: int) -> dict[str, Any]:
    plan, began = PLANS[name], time.process_time()
    found = diagnose(
        name,
        folder=folder,
        budget=budget,
        task_options=dict(plan.options),
        steps=plan.steps,
        batch_size=plan.batch_size,
        jobs=1,
    )
    shutil.rmtree(folder)
    return {
        "task": name,
        "budget": budget,
        "regime": found.regime,
        "use": found.use,
        "gain": None if found.answer is None else found.answer.gain,
        "ci": None if found.answer is None else found.answer.ci,
        "is_ratio": found.evidence["trial"]["is_ratio"],
        "sentence": found.sentence,
        "steps": plan.steps,
        "spent": found.spent,
        "cpu_seconds": time.process_time() - began,
    }


def study(work: Path, before: Path | None = None) -> dict[str, Any]:
    """Return the table of what is there, and of what earlier results say of the same tasks."""
    earlier = {} if before is None else {row["task"]: row for row in _rows(before)}
    rows = []
    for name in PLANS:
        for path in sorted(work.glob(f"{name}-[0-9]*.json"), key=lambda p: (len(p.name), p.name)):
            row = asked(work, name, int(path.stem.removeprefix(f"{name}-")))
            own = earlier.get(name, {})
            told = own.get("before") or {key: own[key] for key in COMPARED if key in own}
            rows.append({**row, **({"before": told} if told else {})})
    return {
        "study": "real_verdicts",
        "rows": rows,
        "missing": [name for name in PLANS if name not in {row["task"] for row in rows}],
        "command": "python benchmarks/real_verdicts.py --work DIR",
        "created": now(),
        "environment": environment(),
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["rows"])


def main() -> None:
    parser = argparse.ArgumentParser(description="What trimol diagnose says of built-in tasks.")
    parser.add_argument("--work", type=Path, required=True, help="where diagnoses are kept")
    parser.add_argument("--tasks", nargs="*", choices=list(PLANS), default=list(PLANS))
    parser.add_argument("--budget", type=int, default=30, help="trainings for each task")
    parser.add_argument("--before", type=Path, help="earlier results to compare with")
    parser.add_argument("--json", type=Path, help="write the table of all that is in --work")
    args = parser.parse_args()
    files.make_folder(args.work)
    for name in args.tasks:
        found = asked(args.work, name, args.budget)
        print(name, found["regime"], found["sentence"], f"{found['cpu_seconds']:.0f} s", flush=True)
    if args.json:
        table = study(args.work, args.before)
        args.json.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
