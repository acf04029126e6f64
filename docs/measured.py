"""Write the measured tables of the docs anew from ``results/*.json``.

    python docs/measured.py

Pages have places for them, from ``<!-- measured: NAME -->`` to ``<!-- end -->``. A file of
``results/`` is the ``study.json`` that ``trimol reproduce NAME`` wrote. A place for claims names
which: ``claims:office`` are those whose id begins with ``office``; one for steps, which of its
tables. A test holds the pages to the results.
"""

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from trimol.runs.comparison import Difference, judged_together
from trimol.runs.statistics import Paired, interval
from trimol.search._score import percent

ROOT = Path(__file__).parents[1]
UNIT = 1e-3
PER_CENT = 0.01
TABLE3 = ("cross-entropy", "MSE", "Huber", "R_pop", "R_opt", "R_gen")
ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca")
READINGS = ("E_ca_definition", "E_ca_unbiased")
ANSWERS = ("static", "undecided")  # others are methods
WITH_NOTES = {"table3-beyond", "leaderboard"}
SWEEPS = {
    "T": ("steps", "T, with α = 0.1 and γ = 0.01"),
    "alpha": ("alpha", "α, with T = 1000 and γ = 0.01"),
    "gamma": ("gamma", "γ, with T = 1000 and α = 0.1"),
}

Row = dict[str, Any]


def pages() -> list[Path]:
    """The pages with places for measured tables."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [path for path in found if "<!-- measured: " in path.read_text(encoding="utf-8")]


def study(name: str) -> dict[str, Any] | None:
    """A study's results; None if it was not run yet."""
    path = ROOT / "results" / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def filled(page: str) -> str:
    """The page with every place filled."""

    def block(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- measured: {name} -->\n\n{measured(name)}\n\n<!-- end -->"

    return re.sub(r"<!-- measured: (\S+) -->.*?<!-- end -->", block, page, flags=re.DOTALL)


def measured(name: str) -> str:
    """What a place holds."""
    what, _, part = name.partition(":")
    found = study(what)
    if found is None:
        return f"Not measured yet: `{_command(what)}`."
    if what == "products":
        shown = _products(found["rows"], {"passes": "passes", "time": "ratio"}[part])
        return f"{shown}\n\n{_made(what, found)}" if part == "time" else shown
    if what == "staleness":
        return f"{_staleness(found['rows'])}\n\n{_made(what, found)}"
    if what == "real_models":
        return f"{_real_models(found['rows'])}\n\n{_made(what, found)}"
    if what == "steps":
        return (
            f"{STEPS[part](found)}\n\n{_made(what, found)}"
            if part == "runs"
            else STEPS[part](found)
        )
    if what == "physics":
        shown = PHYSICS[part](found)
        return f"{shown}\n\n{_made(what, found)}" if part == "published" else shown
    if what == "molecules":
        return f"{_molecules(found)}\n\n{_made(what, found)}"
    if part == "agreements":
        found = found | {"rows": found[part]}
    tables = {
        "table3": _table3,
        "table3-beyond": _beyond,
        "fig4": _fig4,
        "threeway": _threeway,
        "peers": _peers,
        "settings": _settings,
        "compatibility": _compatibility,
        "gamma": _gammas,
        "ray_scaling": _ray_scaling,
        "small_models": _small_models,
        "separate": _separate,
        "solvers": _solvers,
        "traffic": _traffic,
        "compiled": _compiled,
        "verdicts": _verdicts,
        "real_verdicts": _real_verdicts,
        "budget_curve": _budget_curve,
        "fairness": _fronts,
        "recommenders": _speeds,
        "leaderboard": _leaderboard,
        "classic_toy": _ways,
    }
    if what == "claims":
        own = [row for row in found["rows"] if row["metric"].startswith(part)]
        if not own:
            return "Not judged yet: `trimol reproduce claims`."
        shown = _claims(own)
    elif what in tables:
        shown = tables[what](found["rows"])
        if what in WITH_NOTES:
            shown += f"\n\n{_notes(found['notes'])}"
    else:
        shown = f"{_multitask(found['rows'])}\n\n{_notes(found['notes'])}"
    return f"{shown}\n\n{_made(what, found)}"


def _command(name: str) -> str:
    """What makes a study: `table4-finetune` is a regime of `table4`; some are benchmarks."""
    if (ROOT / "benchmarks" / f"{name}.py").exists():
        return f"python benchmarks/{name}.py"
    study, regime, _ = name.partition("-finetune")
    return f"trimol reproduce {study}" + (" --regime finetune" if regime else "")


def _made(name: str, found: dict[str, Any]) -> str:
    where = found["environment"]
    planted = found.get("planted")
    first = f"\n(planted gains: commit {planted['commit'][:12]})" if planted else ""
    return (
        f"Made by `{found['command']}`{first} on {found['created'][:10]},\n"
        f"commit {str(where['commit'])[:12]} and the changes of that day, Python "
        f"{where['python']},\ntorch {where['torch']}, two CPU cores: `results/{name}.json`."
    )


def _table3(rows: list[Row]) -> str:
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = {row["metric"]: row for row in rows if row["method"] == method}
        lines.append([method, *(_cell(own[metric]) for metric in TABLE3)])
    return _table(["method", *TABLE3], lines)


def _cell(row: Row) -> str:
    """Ours and the paper's in brackets, in units of 1e-3; what differs is said."""
    digits = 1 if row["mean"] > 0.1 else 2
    ours = f"{row['mean'] / UNIT:.{digits}f} ± {row['std'] / UNIT:.{digits}f}"
    paper = f"{row['paper'] / UNIT:.4g} ± {row['paper_std'] / UNIT:.2g}"
    return f"{ours} ({paper})" + ("" if row["verdict"] == "agrees" else " **differs**")


def _fig4(rows: list[Row]) -> str:
    parts = []
    for sweep, (column, title) in SWEEPS.items():
        own = [row for row in rows if row["sweep"] == sweep]
        lines = []
        for value in dict.fromkeys(row[column] for row in own):
            means = {row["metric"]: row["mean"] for row in own if row[column] == value}
            lines.append([f"{value:g}", *(f"{means[m]:.2e}" for m in (*ERRORS, *READINGS))])
        parts.append(f"Over {title}:\n\n{_table([sweep, *ERRORS, *READINGS], lines)}")
    return "\n\n".join(parts)


def _threeway(rows: list[Row]) -> str:
    parts = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        lines = []
        for method, gamma in dict.fromkeys((row["method"], row.get("gamma")) for row in own):
            chosen = [r for r in own if (r["method"], r.get("gamma")) == (method, gamma)]
            means = {row["metric"]: row["mean"] for row in chosen}
            name = method if gamma is None else f"{method}, γ = {gamma:g}"
            lines.append([name, *(f"{means[m]:.2e}" for m in ERRORS)])
        parts.append(_table([task, *ERRORS], lines))
    return "\n\n".join(parts)


def _beyond(rows: list[Row]) -> str:
    """Means by method, the best cross-entropy first, and how they differ from static weighting."""
    shown = ("cross-entropy", "MSE", "Huber", "accuracy", *ERRORS)
    means, apart = {}, {}
    for method in dict.fromkeys(row["method"] for row in rows):
        own = {row["metric"]: row for row in rows if row["method"] == method}
        name = f"{method} ({_chosen(own['MSE'])})"
        key = own["cross-entropy"]["mean"], method
        means[key] = [name, *(f"{own[metric]['mean']:.4g}" for metric in shown)]
        if own["MSE"].get("difference") is not None:
            apart[key] = [method, *(_difference(own[metric]) for metric in shown[:4])]
    table = _table(["method", *shown], [means[key] for key in sorted(means)])
    if not apart:
        return table
    head = ["minus static", *shown[:4]]
    return f"{table}\n\n{_table(head, [apart[key] for key in sorted(apart)])}"


def _chosen(row: Row) -> str:
    """The setting of a row in words."""
    known = {"method", "metric", "mean", "std", "n", "paper", "steps"}
    known |= {"difference", "difference_ci", "p"}
    said = {k: v for k, v in row.items() if k not in known and v is not None}
    return ", ".join(f"{name} = {_value(value)}" for name, value in said.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(_value, value))
    return value if isinstance(value, str) else f"{value:g}"


def _difference(row: Row) -> str:
    """A paired difference with its 95 % interval; bold where Holm's p is below 5 %."""
    half = "" if row["difference_ci"] is None else f" ± {row['difference_ci']:.1g}"
    shown = f"{row['difference']:+.2g}{half}"
    return f"**{shown}**" if row["p"] is not None and row["p"] < 0.05 else shown


def _peers(rows: list[Row]) -> str:
    return _table(["peer", "what", "figure"], [list(row.values()) for row in rows])


def _compatibility(rows: list[Row]) -> str:
    """What became of the tests under each release; those that failed, by name."""
    columns = ("torch", "python", "passed", "skipped", "failed")
    lines = [[str(row[column]) for column in columns] for row in rows]
    failed = [
        f"torch {row['torch']}, Python {row['python']}: `{name}`"
        for row in rows
        for name in row["failures"]
    ]
    table = _table(["torch", "Python", *columns[2:]], lines)
    return f"{table}\n\nFailed:\n\n{_notes(failed)}" if failed else table


def _products(rows: list[Row], value: str) -> str:
    """Passes over M, or times over plain, by network: contestants × numbers of objectives."""
    parts = []
    for network in dict.fromkeys(row["network"] for row in rows if value in row):
        own = [row for row in rows if row["network"] == network and value in row]
        sizes = sorted({row["objectives"] for row in own})
        found = {(row["contestant"], row["objectives"]): f"{row[value]:.3g}" for row in own}
        names = [name for name in CONTESTANTS if any((name, size) in found for size in sizes)]
        lines = [[name, *(found.get((name, size), "") for size in sizes)] for name in names]
        parts.append(_table([network, *(f"M = {size}" for size in sizes)], lines))
    return "\n\n".join(parts)


def _small_models(rows: list[Row]) -> str:
    """Times over the plain step: losses as one vector, and as many heads; beside the aim."""
    halves, lines = "plain, two halves", []
    for network, size in dict.fromkeys((row["network"], row["objectives"]) for row in rows):
        own = [row for row in rows if (row["network"], row["objectives"]) == (network, size)]
        found = {(row["shape"], row["contestant"]): row["ratio"] for row in own}
        cells = [network.removeprefix("small "), str(size), f"{own[0]['plain_ms']:.1f}"]
        for shape in ("vector", "heads"):
            split, modo = found[shape, halves], found[shape, "MoDo"]
            cells += [f"{split:.2f}", f"{modo:.2f} ({1.25 * (split + 0.67):.2f})"]
        names = ("bare loop", "MGDA", "upgrad", "TorchJD MoDo", "TorchJD MGDA")
        lines.append([*cells, *(f"{found['vector', name]:.1f}" for name in names)])
    head = ["", "M", "plain, ms", "halves", "MoDo (aim)", "halves, heads", "MoDo, heads (aim)"]
    head += ["bare loop", "MGDA", "UPGrad", "TorchJD MoDo", "TorchJD MGDA"]
    return _table(head, lines)


def _separate(rows: list[Row]) -> str:
    """Times over the plain step, by the number of points; and the way that was taken."""
    sizes = list(dict.fromkeys(row["points"] for row in rows))
    found = {(row["contestant"], row["points"]): row for row in rows}
    lines = []
    for name in dict.fromkeys(row["contestant"] for row in rows):
        own = [found[name, size] for size in sizes]
        route = own[0]["route"]
        lines.append([name, *(f"{r['ratio']:.2f}" for r in own), f"`{route}`" if route else ""])
    times = [found["plain", size]["plain_ms"] for size in sizes]
    head = [f"{n} points, {ms:.0f} ms" for n, ms in zip(sizes, times, strict=True)]
    return _table(["", *head, "route"], lines)


def _solvers(rows: list[Row]) -> str:
    """Milliseconds and residuals, ours and TorchJD's, and the ratio of the times."""
    sizes = sorted({row["objectives"] for row in rows})
    found = {(row["method"], row["objectives"]): row for row in rows}
    lines = []
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [found.get((name, size)) for size in sizes]
        lines.append([name, *("" if row is None else _solved(row) for row in own)])
    head = "ms · residual, ours / TorchJD (time, ours over theirs)"
    return _table([head, *(f"M = {size}" for size in sizes)], lines)


def _solved(row: Row) -> str:
    each = [
        f"{row[f'{who} ms']:.3g} · {row[f'{who} residual']:.0e}" if f"{who} ms" in row else "—"
        for who in ("ours", "torchjd")
    ]
    return " / ".join(each) + (f" ({row['ratio']:.2f})" if "ratio" in row else "")


def _traffic(rows: list[Row]) -> str:
    """What one process hands to collectives in a step, and the time, beside plain DDP."""
    lines = [
        [
            f"{row['processes']} processes",
            row["contestant"],
            f"{row['own']:,.0f}".replace(",", " "),
            f"{row['other']:,.0f}".replace(",", " "),
            *(f"{row[key]:.3g}" for key in ("large", "small")),
            *(f"{row[key]:.2f}" for key in ("ratio", "in collectives")),
        ]
        for row in rows
    ]
    size = f"{rows[0]['parameters'] / 1e3:.0f} k parameters, M = {rows[0]['objectives']}"
    head = [size, "", "DDP's bytes", "bytes beyond", "gradients", "small exchanges"]
    return _table([*head, "time", "of it in collectives"], lines)


def _compiled(rows: list[Row]) -> str:
    """Times of compiled models over the compiled plain step."""
    names = list(dict.fromkeys(name for row in rows for name in row["ratios"]))
    lines = [
        [
            f"{row['network']}, {row['way']}",
            str(row["objectives"]),
            f"{row['plain_ms']:.1f}",
            *(f"{row['ratios'][name]:.3g}" if name in row["ratios"] else "—" for name in names),
        ]
        for row in rows
    ]
    return _table(["model", "M", "plain, ms", *names], lines)


def _real_models(rows: list[Row]) -> str:
    """Time as a multiple of plain and peak memory, a table a model; what failed is said below."""
    parts, notes = [], {}
    for model, tokens in dict.fromkeys((row["model"], row.get("tokens")) for row in rows):
        own = [row for row in rows if (row["model"], row.get("tokens")) == (model, tokens)]
        sizes = sorted({row["objectives"] for row in own})
        cells = {(row["contestant"], row["objectives"]): _size(row) for row in own}
        names = dict.fromkeys(row["contestant"] for row in own)
        lines = [[name, *(cells.get((name, size), "") for size in sizes)] for name in names]
        weighed = max(row.get("weighed", 0) for row in own) / 1e6
        batch = "4 images" if tokens is None else f"4 × {tokens} tokens"
        head = f"{model}, {weighed:.3g} M weighed, {batch}: time · MB"
        parts.append(_table([head, *(f"M = {size}" for size in sizes)], lines))
        for row in own:
            if "failed" in row:
                notes[f"{model}, {row['contestant']}: {row['failed']}"] = None
    return "\n\n".join([*parts, *([_notes(list(notes))] if notes else [])])


def _size(row: Row) -> str:
    if "failed" in row:
        return "failed"
    return f"{row['ratio']:.2f} · {row['MB']:.0f}" if "ratio" in row else f"· {row['MB']:.0f}"


def _staleness(rows: list[Row]) -> str:
    """Means over seeds by `every`; bold where the difference from 1 is beyond chance (Holm)."""
    parts = []
    for measure, title in STALE.items():
        columns = sorted({row["every"] for row in rows})
        lines = []
        for task, method in dict.fromkeys((row["task"], row["method"]) for row in rows):
            own = {r["every"]: r for r in rows if (r["task"], r["method"]) == (task, method)}
            cells = [_stale(own[k], measure) if k in own else "" for k in columns]
            lines.append([f"{task}, {method}", *cells])
        parts.append(_table([title, *(f"every = {k}" for k in columns)], lines))
    return "\n\n".join(parts)


def _stale(row: Row, measure: str) -> str:
    shown, p = f"{fmean(row[measure]):.3g}", row.get(f"p {measure}")
    return f"**{shown}**" if p is not None and p < 0.05 else shown


def _ray_scaling(rows: list[Row]) -> str:
    """Ratios only: the machine was busy."""
    head = ["", "workers", "time of a run, beside as many processes", "faster than one worker"]
    lines = [
        [
            row["engine"],
            str(row["workers"]),
            f"{row['beside_processes']:.1f}",
            f"{row['faster_than_one']:.1f}",
        ]
        for row in rows
    ]
    return _table(head, lines)


def _gammas(rows: list[Row]) -> str:
    """Compare "auto" with the fixed γ of the least E_ca, task by task.

    A γ whose losses stayed high is passed over: where nothing is learned, gradients vanish, and
    E_ca with them.
    """
    lines, found = [], []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        fixed = [row for row in own if row["gamma"] != "auto" and math.isfinite(row["loss"])]
        (auto,) = (row for row in own if row["gamma"] == "auto")
        lowest = min(row["loss"] for row in fixed)
        learned = [row for row in fixed if row["loss"] - lowest <= abs(lowest)]
        best = min(learned, key=lambda row: row["E_ca"])
        numbers = [f"{row[m]:.2e}" for m in ("E_ca", "loss") for row in (best, auto)]
        lines.append([f"{task} ({auto['n']} seeds)", best["gamma"], *numbers])
        found.append((task, auto["E_ca"] / best["E_ca"] if best["E_ca"] else 1.0, auto, best))
    head = ["task", "best γ", "E_ca with it", "with auto", "mean loss with it", "with auto"]
    as_good = [task for task, ratio, _, _ in found if ratio <= 1.12]
    others = [f"{ratio:.1f} times on {task}" for task, ratio, _, _ in found if task not in as_good]
    slower = [
        f"{auto['loss'] / best['loss']:.1f} times on {task}"
        for task, _, auto, best in found
        if auto["loss"] - best["loss"] > 0.05 * abs(best["loss"])
    ]
    sentence = (
        f"E_ca with `auto` is at most 1.12 times that of the best fixed γ on {len(as_good)} of "
        f"{len(found)} tasks ({', '.join(others)}). The mean training loss is at most 5 % larger "
        f"but for {', '.join(slower)}: where λ follows the shortest gradient, the other losses "
        "fall more slowly. No rule among some twenty that were tried was better in both."
    )
    return "\n\n".join([_table(head, lines), textwrap.fill(sentence, 100)])


def _verdicts(rows: list[Row]) -> str:
    """Show how often diagnoses were right: of planted gains, and of tasks with known answers."""
    budgets, answers, known = (
        [row for row in rows if row["of"] == of] for of in ("budget", "gain", "known")
    )
    head = ["trainings", "diagnoses", "false “use”", "false “stay”", "intervals right, %"]
    head += ["gains near the limit: found, %", "promised, %"]
    lines = [
        [
            str(row["budget"]),
            str(row["n"]),
            f"{_ratio(row['truth']['false use'])}; {_ratio(row['of_budget']['false use'])}",
            f"{_ratio(row['truth']['false stay'])}; {_ratio(row['of_budget']['false stay'])}",
            _both(row, "covered"),
            _rate(row["found"]),
            f"{row['promised'] / PER_CENT:.1f}",
        ]
        for row in budgets
    ]
    shown = [
        [
            "the limit" if isinstance(gain, str) else _share(gain),
            *(_answers(row["said"]) for row in answers if row["gain"] == gain),
        ]
        for gain in dict.fromkeys(row["gain"] for row in answers)
    ]
    second = ["planted gain: use/stay/undecided, %", *(f"{row['budget']}" for row in budgets)]
    parts = [_table(head, lines), _failing(rows), _table(second, shown), _known(known)]
    return "\n\n".join(parts)


def _both(row: Row, name: str) -> str:
    """A rate by the truth of the choice, and by that of the budget."""
    return f"{_rate(row['truth'][name])}/{_rate(row['of_budget'][name])}"


def _rate(count: list[int]) -> str:
    """
    >>> _rate([3, 60]), _rate([0, 0])
    ('5.0', '–')
    """
    return f"{count[0] / count[1] / PER_CENT:.1f}" if count[1] else "–"


def _ratio(count: list[int]) -> str:
    """
    >>> _ratio([3, 60])
    '3/60'
    """
    return f"{count[0]}/{count[1]}"


def _of(count: list[int]) -> str:
    """
    >>> _of([3, 60])
    '5.0 % of 60'
    """
    return f"{_rate(count)} % of {count[1]}"


def _answers(said: dict[str, int]) -> str:
    """The shares of the three answers.

    >>> _answers({"use": 3, "static": 1})
    '75/25/0'
    """
    total, kinds = sum(said.values()), ("use", "static", "undecided")
    return "/".join(f"{said.get(kind, 0) / total / PER_CENT:.0f}" for kind in kinds)


def _failing(rows: list[Row]) -> str:
    """Say how often it is right over all budgets, and where it is worst."""
    names = [row for row in rows if row["of"] == "name"]

    def total(name: str, truth: str = "truth") -> list[int]:
        return [sum(row[truth][name][k] for row in names) for k in (0, 1)]

    worst = max(names, key=lambda row: row["truth"]["false use"][0])
    low = min(names, key=lambda row: row["truth"]["covered"][0] / row["n"])
    sentence = (
        f"Over all {len(names)} landscapes, {_of(total('false use'))} methods whose chosen setting "
        f"is no better were named ({worst['truth']['false use'][0]} of the "
        f"{total('false use')[0]} where “{worst['name']}”). Intervals hold the gain of the choice "
        f"in {_rate(total('covered'))} %, that of the budget in "
        f"{_rate(total('covered', 'of_budget'))} %; the worst is “{low['name']}” "
        f"({_rate(low['truth']['covered'])} %)."
    )
    return textwrap.fill(sentence, 100, break_on_hyphens=False)


def _known(rows: list[Row]) -> str:
    """Show what was said of each task with a known answer."""
    lines = [
        [
            row["task"],
            _counted(row["uses"]),
            _from_to([gain for gain in row["truths"] if gain is not None]),
            row["right_use"],
        ]
        for row in rows
    ]
    head = ["task", "answers", "true gain of the chosen method", "with endless tuning"]
    seen = sum(row["n"] for row in rows)
    first, last, wrong, use, stay = (
        sum(row[key] for row in rows)
        for key in ("check_right", "regime_right", "wrong", "false use", "false stay")
    )
    text = (
        f"Regimes right: {_of([first, seen])} by the check alone{_where(rows, 'check_right')}, "
        f"{_rate([last, seen])} % with trainings. By the true gain of the settings that were "
        f"chosen, {use} of {seen} answers name a method that is no better, and {stay} stay with "
        f"static weights where the method is better by more than 5 %. Endless tuning would answer "
        f"{wrong} of them otherwise{_where(rows, 'wrong', least=False)}: a method can be ahead of "
        "static weights that were tuned with few trainings."
    )
    return f"{_table(head, lines)}\n\n{textwrap.fill(text, 100, break_on_hyphens=False)}"


def _from_to(gains: Sequence[float]) -> str:
    """Show the least and the largest of some gains.

    >>> _from_to([0.1, -0.05]), _from_to([])
    ('−5.1 % to +9.5 %', '–')
    """
    if not gains:
        return "–"
    low, high = (_gain(gain) for gain in (min(gains), max(gains)))
    return f"{low} to {high}"


def _gain(gain: float) -> str:
    """Show a gain with its sign.

    >>> _gain(0.1), _gain(-1.9)
    ('+9.5 %', 'worse by a factor of 39')
    """
    shown = percent(gain)
    if shown.startswith("a factor"):
        return f"{'better' if gain > 0 else 'worse'} by {shown}"
    return f"{'+' if gain > 0 else '−'}{shown}"


def _where(rows: list[Row], key: str, *, least: bool = True) -> str:
    """Name the tasks of which not all are right, or those of which some are."""
    if least:
        found = [row["task"] for row in rows if row[key] < row["n"]]
        return f" (but for {', '.join(found)})" if found else ""
    return f" ({', '.join(row['task'] for row in rows if row[key])})" if rows else ""


def _real_verdicts(rows: list[Row]) -> str:
    """Show what was said of built-in tasks with each budget, and what a longer study said."""
    budgets = sorted({row["budget"] for row in rows})
    by_key = {(row["task"], row["budget"]): row for row in rows}
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lines = []
    for task in tasks:
        own = [by_key.get((task, budget)) for budget in budgets]
        cells = [cell for row in own for cell in (("–", "–") if row is None else _answer_of(row))]
        lines.append([f"`{task}`", next(row["regime"] for row in own if row), *cells])
    head = ["task", "regime"]
    head += [text for b in budgets for text in (f"use ({b} trainings)", "gain of the method")]
    parts = []
    for budget in budgets:
        own_rows = [row for row in rows if row["budget"] == budget]
        said = Counter("a method" if r["use"] not in ANSWERS else r["use"] for r in own_rows)
        counts = ", ".join(f"{name} on {count}" for name, count in said.most_common())
        parts.append(f"With {budget} trainings the answer is {counts} of {len(own_rows)}.")
    both = [t for t in tasks if all((t, budget) in by_key for budget in budgets)]
    if len(budgets) > 1:
        few, many = budgets[0], budgets[-1]
        moved = [t for t in both if by_key[t, few]["use"] != by_key[t, many]["use"]]
        parts.append(f"The two differ on {', '.join(f'`{t}`' for t in moved) or 'no task'}.")
    before = [row for row in rows if "before" in row and row["budget"] == budgets[-1]]
    if before:
        tried = [row["before"]["tried"] for row in before]
        static = sum(row["before"]["use"] == "static" for row in before)
        parts.append(
            f"A longer study, which tried {min(tried)} to {max(tried)} static settings on two "
            f"seeds each, answered “static” on {static} of {len(before)}."
        )
    text = textwrap.fill(" ".join(parts), 100, break_on_hyphens=False)
    return f"{_table(head, lines)}\n\n{text}"


def _answer_of(row: Row) -> tuple[str, str]:
    """Return the answer of a diagnosis, and the gain with its interval."""
    if row["gain"] is None:
        return row["use"], "–"
    ratio = row["is_ratio"]
    shown = percent(row["gain"], row["ci"], ratio=ratio)
    if shown.startswith("a factor"):
        return row["use"], f"{'better' if row['gain'] > 0 else 'worse'} by {shown}"
    return row["use"], f"{'+' if row['gain'] > 0 else '−'}{shown}"


SHOWN = (("equal", 1), ("equal", 5), ("1/gradient", 5), ("tpe", 5), ("tpe", 20), ("tpe", 60))
OURS = (("tune", 1), ("tune", 5), ("tune", 20), ("tune", 50), ("diagnose", 20), ("diagnose", 50))
RULES = ("equal", "1/loss", "1/gradient", "tpe", "tune", "diagnose")


def _budget_curve(rows: list[Row]) -> str:
    """Show how far from the best setting known strategies are, by their budget."""
    regrets = {(r["task"], r["start"], r["strategy"], r["budget"]): r for r in rows}
    places = list(dict.fromkeys((row["task"], row["start"]) for row in rows))
    lines = []
    for task, start in places:
        own = [regrets[task, start, *key] for key in (*SHOWN, *OURS)]
        methods = [
            row
            for (t, s, strategy, budget), row in regrets.items()
            if (t, s, budget) == (task, start, 5) and strategy not in RULES
        ]
        best = min(methods, key=lambda row: row["regret"])
        cells = [f"{row['regret']:.1f}" for row in own]
        lines.append([task, start, *cells, f"{best['strategy']} {best['regret']:.1f}"])
    head = ["task", "start", *(f"{name}, {budget}" for name, budget in (*SHOWN, *OURS))]
    ours, theirs = (
        [regrets[*place, *key] for place in places] for key in (("tune", 20), ("tpe", 60))
    )
    behind = [
        f"{row['task']} ({row['start']})"
        for row, other in zip(ours, theirs, strict=True)
        if _is_behind(row, other)
    ]
    nearer = {
        key: sum(
            regrets[*p, "tune", key[0]]["regret"] <= regrets[*p, "tpe", key[1]]["regret"]
            for p in places
        )
        for key in ((5, 5), (20, 20), (20, 60))
    }
    text = (
        f"With 5 trainings, `tune` is nearer to the best than Optuna's TPE in {nearer[5, 5]} of "
        f"{len(places)} rows, with 20 in {nearer[20, 20]}. With 20 it is nearer than TPE with 60 "
        f"in {nearer[20, 60]}, and further beyond noise (paired, 95 %) in {len(behind)}"
        f"{': ' + ', '.join(behind) if behind else ''}. The last column is chosen by hindsight."
    )
    return f"{_table([*head, 'best method, 5'], lines)}\n\n{textwrap.fill(text, 100)}"


def _is_behind(row: Row, other: Row) -> bool:
    """Whether a regret is larger than another, campaign by campaign, beyond noise."""
    apart = [a - b for a, b in zip(row["each"], other["each"], strict=True)]
    half = interval(apart)
    return half is not None and sum(apart) / len(apart) > half


def _counted(said: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in said.items())


def _fronts(rows: list[Row]) -> str:
    """Hypervolumes of fronts, published and ours."""
    kinds = ("batches", "train", "test")
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = {row["metric"]: row for row in rows if row["method"] == method}
        found = [own[f"hypervolume, {kind}"] for kind in kinds]
        paper = found[0]["paper"]
        printed = "" if paper is None else f"{paper:.3f}"
        lines.append([f"`{method}`", printed, *(f"{row['mean']:.3f}" for row in found)])
    ours = ("training batches of 128", "all training rows", "test rows")
    return _table(["", "published, training", *(f"ours, {what}" for what in ours)], lines)


def _leaderboard(rows: list[Row]) -> str:
    """Mean ranks, and for every task rank, score and verdict."""
    scored = {(row["task"], row["method"]): row for row in rows if row["metric"] == "score"}
    tasks = list(dict.fromkeys(task for task, _ in scored))
    lines = [
        [f"`{row['method']}`", f"{row['mean']:.1f}"]
        + [_played(scored.get((task, row["method"]))) for task in tasks]
        for row in rows
        if row["metric"] == "rank"
    ]
    return _table(["method", "mean rank", *tasks], lines)


def _played(row: Row | None) -> str:
    """A rank with a score: its interval is that of the difference from static weighting."""
    if row is None:
        return "—"
    if row.get("ci") is None:
        return f"{row['rank']} · {row['mean']:.1f}"
    sure = f" **{row['verdict']}**" if row["verdict"] in ("better", "worse") else ""
    return f"{row['rank']} · {row['mean']:+.1f} ± {row['ci']:.1f}{sure}"


def _speeds(rows: list[Row]) -> str:
    """Samples a second and times plain, by network."""
    found = {(row["network"], row["method"]): row for row in rows}
    networks = list(dict.fromkeys(row["network"] for row in rows))
    lines = [
        [method]
        + [
            cell
            for network in networks
            for own in [found[network, method]]
            for cell in (f"{own['samples/s']:.0f}", f"{own['against plain']:.2f}")
        ]
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    return _table(["", *(head for n in networks for head in (n, "× plain"))], lines)


def _ways(rows: list[Row]) -> str:
    """How far every run ends from the front, a table a protocol, the best methods first."""
    starts = ("(−8.5, 7.5)", "(0, 0)", "(9, 9)", "(−7.5, −0.5)", "(9, −1)")
    parts = []
    for steps, coarse in dict.fromkeys((row["steps"], row["coarse"]) for row in rows):
        own = [row for row in rows if (row["steps"], row["coarse"]) == (steps, coarse)]
        passed = any("reached_earlier" in row for row in own)
        lines = [
            [
                row["method"],
                f"{row['reached']} of 5",
                *([str(row["reached_earlier"])] if passed else []),
                *(f"{d:.2g}" for d in row["distances"]),
            ]
            for row in sorted(own, key=lambda row: -row["reached"])
        ]
        head = f"{steps} steps" + (f", each for {coarse}" if coarse > 1 else "")
        earlier = ["after 35 000"] if passed else []
        parts.append(_table([head, "reached (within 0.1)", *earlier, *starts], lines))
    return "\n\n".join(parts)


def _published(found: dict[str, Any]) -> str:
    """The protocol of ConFIG's example: its number, ours, and what is not picked on test."""
    rows = [row for row in found["rows"] if row["protocol"] == "published"]
    theirs = any("best by its reference" in row for row in rows)
    columns = ["best", *["best by its reference"] * theirs, "last"]
    lines = [
        [
            row["method"] + (", start disturbed by 1e-6" if row.get("disturbed") else ""),
            "" if row["paper"] is None else f"{row['paper']:.5f}",
            *(f"{row[column]:.5f}" if column in row else "" for column in columns),
        ]
        for row in rows
    ]
    head = ["5000 steps, seed 19018", "published, best step", "ours, best step"]
    head += ["the same by the example's reference"] * theirs
    return _table([*head, "ours, last step"], lines)


def _reference(found: dict[str, Any]) -> str:
    """How far what the example takes for the solution is from the solution."""
    for row in found["rows"]:
        if row["protocol"] == "reference":
            early = [key for key in row if key.startswith("first frame")]
            lines = [[f"{row[key]:.2g}" for key in ("MSE", *early)]]
            return _table(["mean squared distance, all frames", *early], lines)
    return "Not measured yet: `python benchmarks/physics.py published --reference FILE`."


def _equal_time(found: dict[str, Any], points: int) -> str:
    """Errors after the last step at equal time, the best first; and how large u became."""
    of = [row for row in found["rows"] if row.get("points") == points]
    rows = [row for row in of if row["protocol"] == "equal-time"]
    if not rows:
        return "Not measured yet: `python benchmarks/physics.py equal-time`."
    costs = {row["method"]: row["cost"] for row in of if row["protocol"] == "cost"}
    runs = {name: [row for row in rows if row["method"] == name] for name in _methods(rows)}
    beside = _times(runs, "static")
    lines = []
    for method, own in runs.items():
        errors, sizes = ([row[key] for row in own] for key in ("MSE", "size"))
        setting = [f"{own[0]['lr']:g}", own[0].get("schedule"), _value(own[0].get("weights") or "")]
        cells = [method, f"{costs[method]:.2f}", str(own[0]["steps"])]
        cells += [", ".join(part for part in setting if part), str(len(own))]
        cells += [f"{fmean(errors):.2g}", f"{min(errors):.2g}–{max(errors):.2g}"]
        cells += [beside.get(method, "1"), f"{min(sizes):.2g}–{max(sizes):.2g}"]
        lines.append((fmean(errors), cells))
    head = ["method", "a step × plain", "steps", "chosen", "seeds", "MSE", "from–to"]
    head += ["MSE ÷ static's", "size of u"]
    return _table(head, [cells for _, cells in sorted(lines)])


def _methods(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _times(runs: dict[str, list[Row]], baseline: str) -> dict[str, str]:
    """How many times the baseline's error, seed by seed, with its interval and what it says.

    Of logarithms: errors lie decades apart, and one bad seed would decide a mean.
    """
    logs = {name: {row["seed"]: math.log(row["MSE"]) for row in own} for name, own in runs.items()}
    pairs = []
    for name in logs.keys() - {baseline}:
        seeds = sorted(logs[name].keys() & logs[baseline].keys())
        base, own = ([logs[who][seed] for seed in seeds] for who in (baseline, name))
        pairs.append((name, "MSE", Paired(base, own)))
    found = {}
    for one in judged_together(baseline, pairs):
        ends = [math.exp(one.mean + sign * (one.ci or math.inf)) for sign in (-1, 1)]
        found[one.method] = f"{math.exp(one.mean):.2g} ({ends[0]:.2g}–{ends[1]:.2g}){_said(one)}"
    return found


def _said(one: Difference) -> str:
    """What a difference of errors says, in view of all that were looked at."""
    return "" if not one.clear else " **better**" if one.mean < 0 else " **worse**"


def _molecules(found: dict[str, Any]) -> str:
    """Δm, the cost of a step and mean absolute errors by property; the literature's last."""
    rows = found["rows"]
    metrics = [m for m in dict.fromkeys(row["metric"] for row in rows) if m != "Δm"]
    means = {name: {r["metric"]: r for r in rows if r["method"] == name} for name in _methods(rows)}
    beside = _beside_static(
        {name: own["Δm"]["values"] for name, own in means.items() if "Δm" in own}
    )
    lines = []
    for method, own in means.items():
        cost = f"{found['costs'][method]:.1f}" if method in found["costs"] else ""
        drop = own["Δm"]["mean"] if "Δm" in own else 0.0
        shown = f"{drop:+.1f} %" if "Δm" in own else ""
        cells = [method, shown, beside.get(method, ""), cost]
        lines.append((drop, [*cells, *(f"{own[m]['mean']:.3g}" for m in metrics)]))
    names = [metric.removesuffix(" MAE") for metric in metrics]
    printed = [
        [who, "", "", "", *(f"{errors[name]:.3g}" for name in names)]
        for who, errors in found["literature"].items()
    ]
    ranked = [cells for _, cells in sorted(lines)]
    return _table(["method", "Δm", "beside static", "a step × plain", *names], [*ranked, *printed])


def _beside_static(values: dict[str, list[float]], baseline: str = "static") -> dict[str, str]:
    """How far from the baseline, seed by seed, with its interval and what it says."""
    pairs = [
        (name, "Δm", Paired(values[baseline], own))
        for name, own in values.items()
        if name != baseline
    ]
    found = {}
    for one in judged_together(baseline, pairs):
        found[one.method] = f"{one.mean:+.1f} ± {one.ci or math.inf:.1f}{_said(one)}"
    return found


def _settings(rows: list[Row]) -> str:
    """Settings by methods, those alike in one column; why one is refused is said below, once."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    notes: dict[str, str] = {}
    alike: dict[tuple[str, ...], list[str]] = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        own = {row["setting"]: row for row in rows if row["method"] == method}
        cells = (_outcome(own[c], notes) if c in own else "not run" for c in settings)
        alike.setdefault(tuple(cells), []).append(method)
    most = max(alike.values(), key=len)
    heads = ["all others" if methods is most else ", ".join(methods) for methods in alike.values()]
    lines = [
        [setting, *own] for setting, own in zip(settings, zip(*alike, strict=True), strict=True)
    ]
    said = [f"{mark}: {line}" for line, mark in notes.items()]
    return f"{_table(['', *heads], lines)}\n\n{_notes(said)}"


def _outcome(row: Row, notes: dict[str, str]) -> str:
    """One cell; its line gets a letter."""
    said = {"slow": f"exact, slow ({row.get('ratio')}×)"}.get(row["verdict"], row["verdict"])
    if row["line"]:
        said += f" ({notes.setdefault(row['line'], chr(ord('a') + len(notes)))})"
    return said


def _multitask(rows: list[Row]) -> str:
    """Shares in per cent ± standard deviation, ΔA with its interval; in brackets the paper's."""
    metrics = [m for m in dict.fromkeys(row["metric"] for row in rows) if "/" not in m]
    lines = []
    for method, budget in dict.fromkeys((row["method"], row["budget"]) for row in rows):
        own = {r["metric"]: r for r in rows if (r["method"], r["budget"]) == (method, budget)}
        cells = [_score(own[metric]) if metric in own else "" for metric in metrics]
        label = method if budget == "equal" else f"{method}, the paper's budget"
        lines.append([_with_setting(label, own.get("ΔA_id", {})), *cells])
    return _table(["method", *metrics], lines)


def _with_setting(method: str, row: Row) -> str:
    known = {"method", "metric", "mean", "std", "n", "ci", "budget"}
    known |= {"paper", "paper_std", "verdict"}
    chosen = {k: v for k, v in row.items() if k not in known and v is not None}
    said = ", ".join(f"{k.replace('_', ' ')} = {v:g}" for k, v in chosen.items())
    return f"{method} ({said})" if said else method


def _score(row: Row) -> str:
    """A number of a multi-task table."""
    share = "accuracy" in row["metric"] or "within" in row["metric"] or row["metric"] == "mIoU"
    unit, digits = (PER_CENT, 1) if share else (1.0, 2 if "ΔA" in row["metric"] else 3)
    spread = row["ci"] if "ΔA" in row["metric"] else row["std"]
    ours = f"{row['mean'] / unit:.{digits}f}"
    ours += "" if spread is None else f" ± {spread / unit:.{digits}f}"
    if row["paper"] is None:
        return ours
    return f"{ours} ({row['paper'] / unit:.4g})"


def _by_place(rows: list[Row]) -> dict[tuple[str, str, str], dict[str, Row]]:
    """The variants of each task, optimizer and method."""
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["task"], row["optimizer"], row["method"]), {})[row["variant"]] = row
    return found


def _steps_long(found: dict[str, Any]) -> str:
    """One network of usual size, untuned: what directions and steps do."""
    head = ["Adam 1e-3", "β₁", "weights", "direction", "step", "worst cosine", "MSE"]
    lines = []
    for row in found["rows"]:
        if row["task"] == LONG_RUN:
            momentum = "0" if "β₁" in row["optimizer"] else "0.9"
            shares = [_share(row[name]) for name in ("batch direction", "batch step")]
            worst = f"{row['batch step, worst cosine']:+.2g}"
            error = f"{row['metrics']['MSE']:.3f}"
            lines.append([row["method"], momentum, VARIANTS[row["variant"]], *shares, worst, error])
    return _table(head, lines)


def _steps_conflicts(found: dict[str, Any]) -> str:
    """The share of steps that raise a loss, by variant."""
    head = ["task", "optimizer", "method", *VARIANTS.values()]
    lines = []
    for place, own in _by_place(_tuned(found)).items():
        shares = [_raised(own[v]) if v in own else "" for v in VARIANTS]
        lines.append([*place, *shares])
    return _table(head, lines)


def _steps_shares(found: dict[str, Any]) -> str:
    """The same by task and optimizer: the least and the largest share of a method."""
    places: dict[tuple[str, str], list[Row]] = {}
    for row in _tuned(found):
        places.setdefault((row["task"], row["optimizer"]), []).append(row)
    lines = []
    for place, rows in places.items():
        own = [[row for row in rows if row["variant"] == variant] for variant in VARIANTS]
        lines.append([*place, *(_range(rows) for rows in own)])
    return _table(["task", "optimizer", *VARIANTS.values()], lines)


def _range(rows: list[Row]) -> str:
    """From the least to the largest share over methods; in brackets the mean, of all data."""
    known = [row for row in rows if row["batch step"] is not None]
    if not known:
        return ""
    shares = [row["batch step"] / PER_CENT for row in known]
    ends = dict.fromkeys(f"{end:.0f}" for end in (min(shares), max(shares)))
    return f"{'–'.join(ends)} % ({_share(fmean(row['data step'] for row in known))})"


def _raised(row: Row) -> str:
    """Of its own batch, and in brackets of all training data."""
    if row["batch step"] is None:
        return ALL_DIVERGED
    return f"{_share(row['batch step'])} ({_share(row['data step'])})"


def _steps_scores(found: dict[str, Any]) -> str:
    """Scores on test data, as published and the difference that a variant makes."""
    head = ["task", "optimizer", "method", "seeds", "published", "in the metric −", "guarded −"]
    lines = []
    for place, own in _by_place(_tuned(found)).items():
        if "published" not in own:
            continue
        base = own["published"]
        apart = [_apart(own[v]) if v in own else "" for v in ("metric", "guarded")]
        seeds = str(min(row["n"] for row in own.values()))
        score = ALL_DIVERGED if base["score"] is None else f"{base['score']:.3f}"
        lines.append([*place, seeds, score, *apart])
    return _table(head, lines)


def _apart(row: Row) -> str:
    """A paired difference; what diverged is said."""
    if row.get("difference") is None:
        return "not known"
    lost = f" ({row['diverged']} diverged)" if row.get("diverged") else ""
    return _difference(row) + lost


def _steps_verdicts(found: dict[str, Any]) -> str:
    """The mean over methods, and how many comparisons a variant wins, loses, and leaves open."""
    lines = []
    for pooled in found["pooled"]:
        place = ("task", "optimizer", "variant")
        own = [
            row
            for row in found["rows"]
            if all(row[name] == pooled[name] for name in place) and row.get("p") is not None
        ]
        sure = [row for row in own if row["p"] < 0.05]
        better, lower = (sum(row["difference"] < 0 for row in some) for some in (sure, own))
        counts = [better, len(sure) - better, len(own) - len(sure)]
        told = [
            *map(str, counts),
            f"{lower} of {len(own)}",
            f"{_apart(pooled)}, {pooled['n']} seeds",
        ]
        lines.append([pooled["task"], pooled["optimizer"], VARIANTS[pooled["variant"]], *told])
    head = ["task", "optimizer", "weights", "better", "worse", "not told apart", "lower on average"]
    return _table([*head, "difference, the mean over methods"], lines)


def _steps_errors(found: dict[str, Any]) -> str:
    """R_opt and E_ca: published / in the metric / guarded."""
    lines = []
    for place, own in _by_place(_tuned(found)).items():
        names = ("R_opt", "E_ca", "E_ca in the metric")
        cells = [
            " / ".join(_power(own[v][name]) if v in own else "–" for v in VARIANTS)
            for name in names
        ]
        lines.append([*place, *cells])
    return _table(["task", "optimizer", "method", "R_opt", "E_ca", "E_ca in the metric"], lines)


def _power(value: float | None) -> str:
    return ALL_DIVERGED if value is None else f"{value:.1e}"


def _steps_costs(found: dict[str, Any]) -> str:
    """The time of a step beside that of the published method."""
    lines = []
    for row in found["costs"]:
        ratios = [f"{row['ratios'][v]:.2f}×" if v in row["ratios"] else "" for v in VARIANTS][1:]
        milliseconds = f"{row['milliseconds']:.1f} ms"
        lines.append([row["task"], row["optimizer"], row["method"], milliseconds, *ratios])
    head = ["task", "optimizer", "method", *VARIANTS.values()]
    return _table(head, lines)


def _steps_runs(found: dict[str, Any]) -> str:
    """What was run."""
    lines = []
    for task, setting in found["settings"].items():
        own = [row for row in found["rows"] if row["task"] == task]
        optimizers = dict.fromkeys(row["optimizer"] for row in own)
        seeds = [
            _seeds(name, [row for row in own if row["optimizer"] == name]) for name in optimizers
        ]
        sizes = [str(setting["steps"]), str(setting["batch"])]
        lines.append([task, *sizes, "; ".join(seeds), setting["judged by"]])
    return _table(["task", "steps", "batch", "optimizers and seeds", "judged by"], lines)


def _seeds(optimizer: str, rows: list[Row]) -> str:
    """An optimizer, how many methods were run with it, and with how many seeds."""
    counts = sorted({row["n"] for row in rows})
    seeds = f"{counts[0]}–{counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{optimizer}: {len({row['method'] for row in rows})} methods, {seeds}"


def _tuned(found: dict[str, Any]) -> list[Row]:
    return [row for row in found["rows"] if row["task"] != LONG_RUN]


def _share(value: float) -> str:
    return f"{value / PER_CENT:.0f} %"


CONTESTANTS = (
    *("bare loop", "TorchJD MGDA", "MGDA"),
    *("MGDA, gap 0.3", "MGDA, gap 0.1", "MGDA, gap 0.01", "CAGrad, gap 0.1"),
)
PHYSICS = {
    "published": _published,
    "reference": _reference,
    "equal-time": partial(_equal_time, points=2000),
    "equal-time-small": partial(_equal_time, points=200),
}
STALE = {"R_opt": "R_opt", "E_ca": "E_ca", "test": "mean test loss"}
LONG_RUN = "burgers, long"
ALL_DIVERGED = "all diverged"
VARIANTS = {"published": "as published", "metric": "in the metric", "guarded": "guarded"}
STEPS = {
    "long": _steps_long,
    "conflicts": _steps_conflicts,
    "shares": _steps_shares,
    "scores": _steps_scores,
    "verdicts": _steps_verdicts,
    "errors": _steps_errors,
    "costs": _steps_costs,
    "runs": _steps_runs,
}


def _notes(notes: list[str]) -> str:
    """What the study says of itself."""
    return "\n".join(
        textwrap.fill(f"- {note}", 100, subsequent_indent="  ", break_on_hyphens=False)
        for note in notes
    )


def _claims(rows: list[Row]) -> str:
    lines = [
        [
            cell.replace("|", "\\|")
            for cell in (
                f"“{row['quote']}” ({row['where']})",
                f"**{row['verdict']}**",
                "" if row["mean"] is None else _interval(row),
            )
        ]
        for row in rows
    ]
    return _table(["the paper", "verdict", "measured, with its 95 % interval"], lines)


def _interval(row: Row) -> str:
    return f"{row['what']}: {row['mean']:.2g} [{row['low']:.2g}, {row['high']:.2g}]"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = "|".join(["---"] * len(head))
    body = ["| " + " | ".join(line) + " |" for line in [head, *lines]]
    return "\n".join([body[0], f"|{rule}|", *body[1:]])


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
