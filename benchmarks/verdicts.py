"""Is what `trimol diagnose` says right? The confusion table of docs/howto/diagnose.md.

    python benchmarks/verdicts.py --work DIR                     # all tasks and seeds, some hours
    python benchmarks/verdicts.py --work DIR --json results/verdicts.json   # then: docs/measured.py
    python benchmarks/verdicts.py --work DIR --look-only         # the regimes alone, some minutes

The tasks and what is right for each are in ``known_answers.py``. A seed names a task's data and the
runs' seeds. The thresholds of the regimes were chosen on seeds from 100 on; the table is of seeds
from 0 on. With ``--look-only`` the end that a look cannot see is that of one run of static weights
with the task's own step size; otherwise that of the tuned runs.

Each finished diagnosis is a file in DIR; its runs are deleted. A stopped one goes on. With
``--join results/verdicts.json`` the diagnoses in there, made with the same numbers of trials and
seeds, are not made again.
"""

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from known_answers import ANSWERS, STATIC, Answer

from trimol.runs import _storage as files
from trimol.runs._environment import environment, now
from trimol.runs.config import task_of
from trimol.runs.diagnosis import diagnose
from trimol.runs.look import Look, examine, look, revised
from trimol.training import start, train

BY_NAME = {answer.name: answer for answer in ANSWERS}
PARTS, FEWEST = 10, 20  # a look alone takes one step in so many, and at least so many
APART = 1000  # between the seeds of two diagnoses' runs


@dataclass(frozen=True)
class Plan:
    """What is asked.

    Attributes:
        work: Where diagnoses are kept.
        look_only: Ask for the regime alone.
        trials: Settings tried of each contender; None: the usual number.
        final: Final runs of each contender.
        tuning: Runs of each setting.
        jobs: Runs at a time, in one diagnosis.
    """

    work: Path
    look_only: bool = False
    trials: int | None = None
    final: int = 10
    tuning: int = 3
    jobs: int = 1

    @property
    def budget(self) -> dict[str, int | None]:
        """The numbers of trials and seeds."""
        return {"trials": self.trials, "seeds": self.final, "tuning_seeds": self.tuning}

    @property
    def kind(self) -> str:
        """What a diagnosis's file is called by, beside task and seed."""
        return "look" if self.look_only else f"trial-{self.trials}-{self.final}-{self.tuning}"

    def file(self, name: str, seed: int) -> Path:
        """Where a diagnosis is kept."""
        return self.work / f"{name}-{seed}-{self.kind}.json"


def asked(plan: Plan, name: str, seed: int) -> dict[str, Any]:
    """One diagnosis, made or read."""
    path = plan.file(name, seed)
    if not path.exists():
        answer = BY_NAME[name]
        options = {**answer.options, **({"seed": seed} if answer.seeded else {})}
        found = (
            _looked(answer, options, seed)
            if plan.look_only
            else _tried(plan, answer, options, seed)
        )
        files.write_json(path, {"task": name, "seed": seed, **found})
    return dict(files.read_json(path))


def _looked(answer: Answer, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """The regime, with the end of a run of static weights."""
    common: dict[str, Any] = {"batch_size": answer.batch_size, "seed": seed}
    first = look(
        answer.task,
        task_options=options,
        steps=max(FEWEST, answer.steps // PARTS),
        **common,
    )
    task = task_of(answer.task, options)
    run = train(start(task, STATIC, lr=task.settings[STATIC].lr, **common), answer.steps)
    end = examine(task, run.model, data=run.data, step=run.step, optimizer=run.optimizer, **common)
    return _seen(revised(first, [end]))


def _seen(found: Look) -> dict[str, Any]:
    return {"regime": found.regime, "reason": found.reason, "warnings": list(found.warnings)}


def _tried(plan: Plan, answer: Answer, options: dict[str, Any], seed: int) -> dict[str, Any]:
    folder = plan.file(answer.name, seed).with_suffix("")
    found = diagnose(
        answer.task,
        folder=folder,
        methods=answer.methods,
        task_options=options,
        steps=answer.steps,
        batch_size=answer.batch_size,
        trials=plan.trials or answer.trials,
        seeds=plan.final,
        tuning_seeds=plan.tuning,
        first_seed=APART * seed,
        jobs=plan.jobs,
    )
    shutil.rmtree(folder)
    return {**_seen(found.look), "use": found.use, "sentence": found.sentence}


def right_regime(answer: Answer, found: dict[str, Any]) -> bool:
    """Whether the regime is one of those that are right, with the warning that there must be."""
    warned = not answer.warning or any(answer.warning in text for text in found["warnings"])
    return found["regime"] in answer.regimes and warned


def right_use(answer: Answer, found: dict[str, Any]) -> bool:
    """Whether static weights are advised where they suffice, and a method where not."""
    return bool((found["use"] == STATIC) == answer.static)


def row(name: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was said of a task, and how often it was right."""
    answer = BY_NAME[name]
    tried = [each for each in found if "use" in each]
    return {
        "task": name,
        "n": len(found),
        "regimes": dict(Counter(each["regime"] for each in found).most_common()),
        "right_regimes": list(answer.regimes),
        "regime_right": sum(right_regime(answer, each) for each in found),
        "uses": dict(Counter(each["use"] for each in tried).most_common()),
        "right_use": STATIC if answer.static else "a method",
        "tried": len(tried),
        "use_right": sum(right_use(answer, each) for each in tried),
    }


def study(plan: Plan, names: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """The table of what is there; a trial's regime goes before that of a look alone."""
    rows, said = [], []
    for name in names:
        found = [each for each in (_kept(plan, name, seed) for seed in seeds) if each]
        if found:
            rows.append(row(name, found))
            said += found
    asked_for = f"--first-seed {seeds[0]} --seeds {len(seeds)} --tuning-seeds {plan.tuning}"
    return {
        "study": "verdicts",
        "rows": rows,
        "said": said,
        "seeds": [seeds[0], seeds[-1]],
        "budget": plan.budget,
        "command": f"python benchmarks/verdicts.py --work DIR {asked_for}",
        "created": now(),
        "environment": environment(),
    }


def _kept(plan: Plan, name: str, seed: int) -> dict[str, Any] | None:
    for each in (plan, Plan(plan.work, look_only=True)):
        if each.file(name, seed).exists():
            return dict(files.read_json(each.file(name, seed)))
    return None


def join(plan: Plan, earlier: dict[str, Any]) -> None:
    """Put the diagnoses of earlier results where they are looked for."""
    if earlier["budget"] != plan.budget:
        raise SystemExit(f"--join must have the budget {plan.budget}, found {earlier['budget']}")
    for each in earlier["said"]:
        path = plan.file(each["task"], each["seed"])
        if "use" in each and not path.exists():
            files.write_json(path, each)


def main() -> None:
    parser = argparse.ArgumentParser(description="Is what trimol diagnose says right?")
    parser.add_argument("--work", type=Path, required=True, help="where diagnoses are kept")
    parser.add_argument("--tasks", nargs="+", choices=list(BY_NAME), default=list(BY_NAME))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--look-only", action="store_true", help="the regimes alone")
    parser.add_argument("--trials", type=int, help="settings tried of each contender")
    parser.add_argument("--final-seeds", type=int, default=10)
    parser.add_argument("--tuning-seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the table of all that is in --work")
    parser.add_argument("--join", type=Path, help="earlier results that are not made again")
    args = parser.parse_args()
    files.make_folder(args.work)
    plan = Plan(args.work, args.look_only, args.trials, args.final_seeds, args.tuning_seeds)
    if args.join:
        join(plan, json.loads(args.join.read_text()))
    seeds = list(range(args.first_seed, args.first_seed + args.seeds))
    todo = [(name, seed) for seed in seeds for name in args.tasks]
    with ProcessPoolExecutor(args.jobs) as pool:
        pending = {pool.submit(asked, plan, *one): one for one in todo}
        for count, done in enumerate(as_completed(pending), start=1):
            found = done.result()
            said = [found[key] for key in ("task", "seed", "regime", "use") if key in found]
            right = right_regime(BY_NAME[found["task"]], found)
            print(f"{count}/{len(pending)}", *said, "" if right else "WRONG REGIME", flush=True)
    table = study(plan, args.tasks, seeds)
    for each in table["rows"]:
        print(*each.values(), sep=" | ")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
