"""The ledger of claims: each of the paper's sentences, the data that test it, and a verdict."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

from trimol._failures import BadValue
from trimol.paper import _studies as registry
from trimol.paper import _theory_verdicts  # noqa: F401 (its statistics become known)
from trimol.paper import _verdicts as statistics
from trimol.paper._studies import Context, get
from trimol.paper._verdicts import MEANING, Finding, choose
from trimol.runs import study as results
from trimol.runs.study import Study

_REQUIRED = ("id", "quote", "where", "study", "table", "statistic")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what decides it."""

    id: str
    quote: str  # the paper's words
    where: str  # where it says so
    study: str  # the study whose data decide
    table: str  # the table of that study; "rows" are its rows
    statistic: str  # a function of trimol.paper._verdicts
    rows: dict[str, Any] = field(default_factory=dict)  # which rows of the table, by column
    arguments: dict[str, Any] = field(default_factory=dict)  # of the statistic
    note: str = ""  # how the words were made a number
    run: bool = False  # whether a missing study is run (else the claim is not tested)


def ledger(folder: Path | None = None) -> list[Claim]:
    """All claims, from every ``claims*.toml`` of a folder (this package's by default).

    >>> ledger()[0].id
    'toy-mgda-arrives'
    """
    files = sorted((folder or Path(__file__).parent).glob("claims*.toml"))
    claims = [claim for file in files for claim in _read(file)]
    names = [claim.id for claim in claims]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadValue(f"ids of claims must differ, found twice: {', '.join(twice)}")
    return claims


def judge(claim: Claim, study: Study) -> Finding:
    """What a study's data say about a claim."""
    table = (
        polars.DataFrame(list(study.rows), infer_schema_length=None)
        if claim.table == "rows"
        else study.tables.get(claim.table)
    )
    if table is None:
        raise BadValue(f"claim {claim.id}: study {study.name} has no table {claim.table!r}")
    return statistics.get(claim.statistic)(choose(table, claim.rows), **claim.arguments)


def claims(context: Context) -> Study:
    """Judge every claim; studies that are missing are run where the claims' file allows it."""
    listed = ledger()
    studies: dict[str, Study | None] = {}
    lines = []
    for i, claim in enumerate(listed):
        if claim.study not in studies:
            studies[claim.study] = _study(claim, context)
        lines.append(_line(claim, studies[claim.study]))
        if context.watch is not None:
            context.watch(i + 1, len(listed))
    table = polars.DataFrame(lines, infer_schema_length=None)
    return Study(
        "claims",
        get("claims").title,
        rows=[_row(line) for line in lines],
        notes=_page(lines, quick=any(_is_quick(study) for study in studies.values())),
        tables={"claims": table},
    )


def _study(claim: Claim, context: Context) -> Study | None:
    folder = context.root / claim.study
    if (folder / results.FILE).is_file():
        return results.load(folder)
    if not claim.run or claim.study not in registry.names():
        return None
    return registry.run(
        claim.study,
        context.root,
        quick=context.quick,
        seeds=context.seeds,
        watch=context.watch,
        on=context.on,
    )


def _line(claim: Claim, study: Study | None) -> dict[str, Any]:
    finding = None if study is None else judge(claim, study)
    interval = None if finding is None else finding.interval
    return {
        "id": claim.id,
        "verdict": "not tested" if finding is None else finding.verdict,
        "quote": claim.quote,
        "where": claim.where,
        "study": claim.study,
        "statistic": claim.statistic,
        "what": "" if finding is None else finding.words,
        "estimate": None if interval is None else float(interval.estimate),
        "low": None if interval is None else float(interval.low),
        "high": None if interval is None else float(interval.high),
        "n": 0 if interval is None else interval.n,
        "note": claim.note,
    }


def _row(line: dict[str, Any]) -> results.Row:
    """A line as every study has them: the claim is the metric."""
    kept = ("low", "high", "verdict", "quote", "where", "study", "what")
    known = {"method": "all", "metric": line["id"], "mean": line["estimate"], "std": None}
    return {**known, "n": line["n"], "paper": None, **{name: line[name] for name in kept}}


def _page(lines: list[dict[str, Any]], *, quick: bool) -> list[str]:
    """What to believe, the surprises first."""
    counts = {verdict: sum(line["verdict"] == verdict for line in lines) for verdict in MEANING}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    meaning = "; ".join(f"*{verdict}*: {words}" for verdict, words in MEANING.items())
    notes = [
        f"{len(lines)} claims: {said}. A verdict is read off a 95 % interval and nothing else. "
        f"{meaning}. With so many claims at 95 %, one or two verdicts may be wrong by chance. The "
        "thresholds that turn words into numbers are ours and stand in the ledger's file.",
    ]
    if quick:
        notes.append("Some studies were run with --quick: too few seeds to believe any of this.")
    for verdict in MEANING:
        notes += [_paragraph(line) for line in lines if line["verdict"] == verdict]
    return notes


def _paragraph(line: dict[str, Any]) -> str:
    start = f"{line['verdict'].upper()} — “{line['quote']}” ({line['where']})."
    if line["verdict"] == "not tested":
        return f"{start} Run it with: trimol reproduce {line['study']}."
    number = f"{line['estimate']:.3g} [{line['low']:.3g}, {line['high']:.3g}], n = {line['n']}"
    note = f" {line['note']}" if line["note"] else ""
    return f"{start} {line['what']}: {number}. Data: {line['study']}.{note}"


def _is_quick(study: Study | None) -> bool:
    return study is not None and "--quick" in study.command


def _read(file: Path) -> list[Claim]:
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    run = bool(content.get("run", False))
    entries = content.get("claim", [])
    for entry in entries:
        missing = [name for name in _REQUIRED if name not in entry]
        if missing:
            raise BadValue(f"{file.name}: a claim must have {', '.join(missing)}, found {entry}")
    return [Claim(**entry, run=run) for entry in entries]
