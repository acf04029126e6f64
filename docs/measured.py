"""Write the measured tables of docs/mnist.md anew from ``results/*.json``.

    python docs/measured.py

The page has places for them, from ``<!-- measured: NAME -->`` to ``<!-- end -->``. A file of
``results/`` is the ``study.json`` that ``trimol reproduce NAME`` wrote. A test holds the page to
the results.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mnist.md"
UNIT = 1e-3
TABLE3 = ("cross-entropy", "MSE", "Huber", "R_pop", "R_opt", "R_gen")
ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca")
READINGS = ("E_ca_definition", "E_ca_unbiased")
SWEEPS = {
    "T": ("steps", "T, with α = 0.1 and γ = 0.01"),
    "alpha": ("alpha", "α, with T = 1000 and γ = 0.01"),
    "gamma": ("gamma", "γ, with T = 1000 and α = 0.1"),
}

Row = dict[str, Any]


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
    found = study(name)
    if found is None:
        return f"Not measured yet: `trimol reproduce {name}`."
    tables = {
        "table3": _table3,
        "table3-beyond": _beyond,
        "fig4": _fig4,
        "threeway": _threeway,
        "claims": _claims,
    }
    return f"{tables[name](found['rows'])}\n\n{_made(name, found)}"


def _made(name: str, found: dict[str, Any]) -> str:
    where = found["environment"]
    return (
        f"Made by `trimol reproduce {name}` on {found['created'][:10]},\n"
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
    """Means by method, the best cross-entropy first; in brackets the settings that were chosen."""
    shown = ("cross-entropy", "MSE", "Huber", "accuracy", *ERRORS)
    known = {"method", "metric", "mean", "std", "n", "paper", "steps"}
    lines = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        own = {row["metric"]: row for row in rows if row["method"] == method}
        chosen = {k: v for k, v in own["MSE"].items() if k not in known and v is not None}
        name = f"{method} ({', '.join(f'{k} = {v:g}' for k, v in chosen.items())})"
        means = [f"{own[metric]['mean']:.3g}" for metric in shown]
        lines[own["cross-entropy"]["mean"], method] = [name, *means]
    return _table(["method", *shown], [lines[key] for key in sorted(lines)])


def _claims(rows: list[Row]) -> str:
    own = [row for row in rows if row["metric"].startswith("mnist-")]
    lines = [
        [
            f"“{row['quote']}” ({row['where']})",
            f"**{row['verdict']}**",
            "" if row["mean"] is None else _interval(row),
        ]
        for row in own
    ]
    return _table(["the paper", "verdict", "measured, with its 95 % interval"], lines)


def _interval(row: Row) -> str:
    return f"{row['what']}: {row['mean']:.2g} [{row['low']:.2g}, {row['high']:.2g}]"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = "|".join(["---"] * len(head))
    body = ["| " + " | ".join(line) + " |" for line in [head, *lines]]
    return "\n".join([body[0], f"|{rule}|", *body[1:]])


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
