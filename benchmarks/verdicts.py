"""Is what `trimol diagnose` says right? The tables of docs/howto/diagnose.md.

    python benchmarks/verdicts.py --work DIR --jobs 2                       # an hour
    python benchmarks/verdicts.py --work DIR --json results/verdicts.json   # then: docs/measured.py

Two kinds of diagnoses:

*Planted* gains (``landscapes.py``): formulas in place of trainings, of which one method is better
by a known share, or by as much as the plan of the budget says it can find. The truth is known
twice. *Of the choice*: the difference without noise of the two settings that were chosen. *Of the
budget*: the mean of that over all diagnoses of the landscape with this budget, as luck in tuning
is part of what a budget comes to.

*Known* answers (``known_answers.py``): real trainings. A seed names a task's data and its runs.
What endless tuning comes to is known; the truth of the choice is found by brute force, by training
the two settings that were chosen with many more seeds.

Each finished diagnosis is a file in DIR; its runs are deleted. A stopped script resumes.
"""

import argparse
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from known_answers import ANSWERS, STATIC, Answer
from landscapes import LANDSCAPES, OTHER, PLANTED, RATE, Landscape

from trimol import diagnose
from trimol.compare import Spending
from trimol.compare._answer import LEAST, LEVEL, SMALL, detectable
from trimol.runs import _storage as files
from trimol.runs._environment import environment, now
from trimol.runs.statistics import quantile
from trimol.search import Setting, TaskProblem, Training
from trimol.search._problem import Failure
from trimol.search._score import Scorer

BY_NAME = {answer.name: answer for answer in ANSWERS}
SHAPES = {landscape.name: landscape for landscape in LANDSCAPES}
BUDGETS = (20, 50, 100)
LIMIT = "limit"  # the gain that the plan promises to find
GAINS: tuple[float | str, ...] = (0.0, 0.02, 0.05, 0.1, 0.2, LIMIT)
NEAR = (0.7, 0.9)  # chances of being found that gains near that limit have
REPLICATIONS = 3  # with a budget of 100; with smaller ones, more
APART = 1000  # between the seeds of two diagnoses
DRAWS = 4000  # of gains, to know a chance
MANY = 40  # seeds of the brute force truth
KNOWN = 30  # the budget of the tasks with known answers
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One diagnosis.

    Attributes:
        kind: "planted" or "known".
        name: The landscape or task.
        budget: Trainings in all.
        seed: Names the diagnosis.
        gain: What is planted.
    """

    kind: str
    name: str
    budget: int
    seed: int
    gain: float | str = 0.0

    def file(self, work: Path) -> Path:
        """Return where the diagnosis is kept."""
        name = "".join(c if c.isalnum() else "-" for c in f"{self.name}-{self.gain}")
        return work / f"{self.kind}-{name}-{self.budget}-{self.seed}.json"


def asked(work: Path, case: Case) -> Row:
    """Make one diagnosis, or read it."""
    path = case.file(work)
    if not path.exists():
        found = _planted(case) if case.kind == "planted" else _known(case, path.with_suffix(""))
        files.write_json(path, {**vars(case), **found})
    return {name: value for name, value in files.read_json(path).items() if name != "digest"}


# --- planted gains --------------------------------------------------------------------------------


def landscape_of(case: Case) -> Landscape:
    """Return the case's landscape: random numbers of its own, and its gain."""
    shape = SHAPES[case.name]
    gain = case.gain
    if isinstance(gain, str):
        start = Setting(STATIC, RATE, {"weights": [1.0] * shape.objectives}), Setting(OTHER, RATE)
        gain = -math.expm1(-shape.noise_of(*start) * detectable(Spending(case.budget, 2).seeds))
    return replace(shape, name=f"{case.name} {case.gain} {case.budget}", gain=gain)


def _planted(case: Case) -> Row:
    shape = landscape_of(case)
    found = diagnose(
        shape,
        objectives=[f"o{m}" for m in range(shape.objectives)],
        goals=shape.goals,
        lr=RATE,
        budget=case.budget,
        methods=[PLANTED, OTHER],
        seed=APART * case.seed,
    )
    final = found.evidence["trial"]["contenders"]
    rival = next((n for n in final if n != STATIC and final[n]["seeds"]), None)
    if rival is None or found.answer is None:
        return {"use": found.use, "rival": rival}
    pair = found.settings[STATIC], found.settings[rival]
    return {
        "use": found.use,
        "rival": rival,
        "said": found.answer.gain,
        "ci": found.answer.ci,
        "seeds": found.answer.n,
        "truth": shape.gain_of(*pair),
        "by_tuning": shape.gain_of(*pair, planted=False),
        "noise": shape.noise_of(*pair),
    }


def with_truth(found: Sequence[Row]) -> list[Row]:
    """Add the truth of the budget, and the chance of "use" that the plan promises.

    What tuning alone gains for a method does not depend on the planted gain, so that all diagnoses
    of a landscape and budget tell of it.
    """
    told = [row for row in found if "truth" in row]
    rows = []
    for row in told:
        alike = [r for r in told if (r["name"], r["budget"]) == (row["name"], row["budget"])]
        cell = [r for r in alike if r["gain"] == row["gain"]]
        planted = fmean(r["truth"] - r["by_tuning"] for r in cell)
        truth = fmean(r["by_tuning"] for r in alike) + planted
        rows.append({**row, "of_budget": truth, "promised": chance(row)})
    return rows


def chance(row: Row) -> float:
    """Return the chance that a true gain is named: it is beyond noise, and at least `LEAST`."""
    n, drawn = row["seeds"], np.random.default_rng(0)
    gains = row["truth"] + row["noise"] * drawn.standard_normal((DRAWS, n))
    means, errors = gains.mean(1), gains.std(1, ddof=1) / math.sqrt(n)
    return float(np.mean((means >= LEAST) & (means > quantile(n - 1, 1 - LEVEL) * errors)))


def rates(rows: Sequence[Row]) -> Row:
    """Return how often what was said is wrong, as [count, of so many], by both truths."""
    near = [row for row in rows if NEAR[0] <= row["promised"] <= NEAR[1]]
    found: Row = {"n": len(rows)}
    for kind in ("truth", "of_budget"):

        def covers(row: Row, kind: str = kind) -> bool:
            return bool(abs(row["said"] - row[kind]) <= row["ci"])

        found[kind] = {
            "false use": _count([row for row in rows if row[kind] <= 0], _used),
            "false stay": _count([row for row in rows if row[kind] > SMALL], _stays),
            "covered": _count(rows, covers),
        }
    stays = [row for row in rows if _stays(row)]
    found["stays wrong"] = _count(stays, lambda row: row["truth"] > SMALL)
    found["found"] = _count(near, _used)
    found["promised"] = fmean(row["promised"] for row in near) if near else None
    return found


def _count(rows: Sequence[Row], which: Callable[[Row], bool]) -> list[int]:
    """Count the rows that a condition holds for: [count, of so many]."""
    return [sum(map(which, rows)), len(rows)]


def _used(row: Row) -> bool:
    return row["use"] in (PLANTED, OTHER)


def _stays(row: Row) -> bool:
    return bool(row["use"] == STATIC)


def planted_rows(found: Sequence[Row]) -> list[Row]:
    """Return the rates of each budget and each landscape, and the answers to each gain."""
    rows, table = with_truth(found), list[Row]()
    budgets, names = (list(dict.fromkeys(r[k] for r in rows)) for k in ("budget", "name"))
    for of, values in (("budget", budgets), ("name", names)):
        table += [{"of": of, of: v, **rates([r for r in rows if r[of] == v])} for v in values]
    for budget in budgets:
        for gain in dict.fromkeys(row["gain"] for row in rows):
            own = [r for r in rows if (r["budget"], r["gain"]) == (budget, gain)]
            said = Counter("use" if _used(row) else row["use"] for row in own)
            truth = fmean(row["truth"] for row in own)
            table.append(
                {"of": "gain", "budget": budget, "gain": gain, "said": dict(said), "truth": truth}
            )
    return table


# --- known answers --------------------------------------------------------------------------------


def _known(case: Case, folder: Path) -> Row:
    answer = BY_NAME[case.name]
    options = {**answer.options, **({"seed": case.seed} if answer.seeded else {})}
    given: dict[str, Any] = {"steps": answer.steps, "batch_size": answer.batch_size, "jobs": 1}
    asked: dict[str, Any] = {
        "folder": folder,
        "methods": answer.methods,
        "task_options": options,
        "seed": APART * case.seed,
    }
    first = diagnose(answer.task, check_only=True, **given, **asked)
    found = diagnose(answer.task, budget=case.budget, **given, **asked)
    truth: Row = {}
    final = found.evidence["trial"]["contenders"]
    rival = next((n for n in final if n != STATIC and final[n]["seeds"]), None)
    if rival is not None:
        problem = TaskProblem(answer.task, folder, options=options, **given)
        truth = true_gain(problem, found.settings[STATIC], found.settings[rival])
    shutil.rmtree(folder)
    assert first.look is not None
    assert found.look is not None
    return {
        "checked": first.regime,
        "regime": found.regime,
        "warnings": sorted({*first.look.warnings, *found.look.warnings}),
        "use": found.use,
        "spent": found.spent,
        "said": None if found.answer is None else found.answer.gain,
        "ci": None if found.answer is None else found.answer.ci,
        **truth,
    }


def true_gain(problem: TaskProblem, base: Setting, own: Setting) -> Row:
    """Train two settings with many seeds that no diagnosis has: the gain and its standard error."""
    seeds = range(APART // 2, APART // 2 + MANY)
    points = []
    for setting in (base, own):
        outcomes = problem.train([Training(setting, seed, final=True) for seed in seeds])
        points.append([point for point in outcomes if not isinstance(point, Failure)])
    pairs = list(zip(*points, strict=False))
    scorer = Scorer(problem.ways)
    scorer.fit([a for a, _ in pairs], [point for pair in pairs for point in pair])
    gains = [scorer.score(b) - scorer.score(a) for a, b in pairs]
    return {"truth": fmean(gains), "error": stdev(gains) / math.sqrt(len(gains))}


def right_regime(answer: Answer, found: Mapping[str, Any], of: str = "regime") -> bool:
    """Whether the regime is one of those that are right, with the warning that there must be."""
    warned = not answer.warning or any(answer.warning in text for text in found["warnings"])
    return found[of] in answer.regimes and warned


def outcome(answer: Answer, found: Mapping[str, Any]) -> str:
    """Say whether static weights are advised where they suffice, and a method where not."""
    if found["use"] == "undecided":
        return "undecided"
    return "right" if (found["use"] == STATIC) == answer.static else "wrong"


def known_row(name: str, found: Sequence[Row]) -> Row:
    """Return what was said of a task, and how often it was right."""
    answer = BY_NAME[name]
    ends = Counter(outcome(answer, each) for each in found)
    return {
        "of": "known",
        "task": name,
        "n": len(found),
        "checked": dict(Counter(each["checked"] for each in found).most_common()),
        "regimes": dict(Counter(each["regime"] for each in found).most_common()),
        "right_regimes": list(answer.regimes),
        "check_right": sum(right_regime(answer, each, "checked") for each in found),
        "regime_right": sum(right_regime(answer, each) for each in found),
        "uses": dict(Counter(each["use"] for each in found).most_common()),
        "right_use": STATIC if answer.static else "a method",
        **{end: ends[end] for end in ("right", "undecided", "wrong")},
        "truths": [each.get("truth") for each in found],
        # By the truth of the choice: is it clearly (two standard errors) the other way?
        "false use": sum(
            each["use"] in answer.methods and each["truth"] + 2 * each["error"] < 0
            for each in found
        ),
        "false stay": sum(
            each["use"] == STATIC and each.get("truth", 0) - 2 * each.get("error", 0) > SMALL
            for each in found
        ),
    }


# --- all of it ------------------------------------------------------------------------------------


def cases(replications: int, seeds: int) -> list[Case]:
    """Return all diagnoses, in an order in which part of them is a fair sample, too."""
    counts = {budget: round(replications * max(BUDGETS) / budget) for budget in BUDGETS}
    planted = [
        Case("planted", name, budget, seed, gain)
        for seed in range(1, 1 + max(counts.values()))
        for budget in BUDGETS
        for name in SHAPES
        for gain in GAINS
        if seed <= counts[budget]
    ]
    known = [Case("known", name, KNOWN, seed) for seed in range(seeds) for name in BY_NAME]
    return known + planted


def study(work: Path, wanted: Sequence[Case], command: str) -> dict[str, Any]:
    """Return the tables of what is there."""
    found = [asked(work, case) for case in wanted if case.file(work).exists()]
    planted, known = ([r for r in found if r["kind"] == kind] for kind in ("planted", "known"))
    names = dict.fromkeys(row["name"] for row in known)
    of_tasks = [known_row(n, [row for row in known if row["name"] == n]) for n in names]
    return {
        "study": "verdicts",
        "rows": (planted_rows(planted) if planted else []) + of_tasks,
        "diagnoses": found,
        "command": f"python benchmarks/verdicts.py --work DIR {command}",
        "created": now(),
        "environment": environment(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Is what trimol diagnose says right?")
    parser.add_argument("--work", type=Path, required=True, help="where diagnoses are kept")
    parser.add_argument("--replications", type=int, default=REPLICATIONS, help="of each gain")
    parser.add_argument("--seeds", type=int, default=3, help="of each task with a known answer")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the tables of all that is in --work")
    args = parser.parse_args()
    files.make_folder(args.work)
    wanted = cases(args.replications, args.seeds)
    with ProcessPoolExecutor(args.jobs) as pool:
        pending = [pool.submit(asked, args.work, case) for case in wanted]
        for count, done in enumerate(as_completed(pending), start=1):
            row = done.result()
            print(f"{count}/{len(pending)}", row["kind"], row["name"], row["use"], flush=True)
    if args.json:
        table = study(args.work, wanted, f"--replications {args.replications} --seeds {args.seeds}")
        args.json.write_text(json.dumps(table, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
