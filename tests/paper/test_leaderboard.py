"""The leaderboard: scores, ranks and verdicts by hand; a stop, a missing task, the command."""

import json
from dataclasses import replace
from pathlib import Path

import polars
import pytest

from trimol import methods
from trimol._failures import RunError
from trimol.cli import main
from trimol.paper import _leaderboard as board
from trimol.paper import _standings as standings
from trimol.paper._studies import Context
from trimol.runs import study as results

FEW = ["static", "mgda", "smg", "uw"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Quick is not quick enough for a test: few methods, one process."""
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)
    monkeypatch.setattr(methods, "names", lambda: FEW)
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-data"))


def context(folder: Path, **changes: object) -> Context:
    made = Context(folder / "leaderboard", folder / "parts", folder, quick=True)
    return replace(made, **changes)  # type: ignore[arg-type]


def table(values: dict[str, list[float]]) -> polars.DataFrame:
    """Final runs with a loss of the size 2 and an accuracy of the size 0.5."""
    cells = [
        {"metric": "loss", "way": "lower", "scale": 2.0},
        {"metric": "accuracy", "way": "higher", "scale": 0.5},
    ]
    return polars.DataFrame(
        [
            {"method": method, "seed": seed, "value": value if cell["way"] == "lower" else 0.5}
            | cell
            for method, own in values.items()
            for seed, value in enumerate(own)
            for cell in cells
        ]
    )


def tables(values: dict[str, list[float]]) -> standings.Tables:
    tried = [
        {"method": method, "lr": lr, "schedule": None, "hyperparameters": "{}"}
        | {"score": lr, "chosen": lr == 1.0}
        for method in values
        for lr in (0.1, 1.0)
    ]
    notes = polars.DataFrame({"note": ["odd is not considered: so."]})
    return {"runs": table(values), "tuning": polars.DataFrame(tried), "notes": notes}


BASE = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02]
NEAR = [0.001, -0.001, 0.002, 0.0, 0.001, -0.002]
PLAYED = {
    "static": BASE,
    "good": [value - 0.2 + noise for value, noise in zip(BASE, NEAR, strict=True)],
    "same": [value + noise for value, noise in zip(BASE, NEAR, strict=True)],
    "bad": [value + 0.3 + noise for value, noise in zip(BASE, NEAR, strict=True)],
    "wild": [value + noise for value, noise in zip(BASE, [1, -2, 2, -1, 1, 0.5], strict=True)],
}


def test_a_score_is_the_mean_of_the_metrics_in_their_scales() -> None:
    found = standings.scores(table({"static": [1.0, 3.0]}))
    assert found == {"static": {0: 25.0, 1: -25.0}}  # half of (100 − 50) and of (100 − 150)


def test_who_has_not_all_numbers_has_no_score() -> None:
    found = standings.scores(
        table({"static": [1.0, 2.0], "short": [1.0], "nan": [float("nan"), 1.0]})
    )
    assert list(found) == ["static"]


def test_verdicts_ranks_and_words() -> None:
    played = {"a": tables(PLAYED), "b": tables({"static": BASE, "good": BASE[::-1]})}
    found = standings.judged(played)
    by = {(one.metric, one.method): standings.verdict(one) for one in found}
    assert (by["a", "good"], by["a", "bad"]) == ("better", "worse")
    assert (by["a", "same"], by["a", "wild"]) == ("alike", "open")
    rows = standings.rows(played, found)
    scored = {row["method"]: row for row in rows if (row["metric"], row["task"]) == ("score", "a")}
    assert (scored["good"]["rank"], scored["bad"]["rank"]) == (1, 5)
    assert scored["static"]["mean"] == pytest.approx(0.0)
    assert "verdict" not in scored["static"]
    assert scored["good"]["mean"] == pytest.approx(5.0, abs=0.1)  # 0.2 of 2, of two metrics
    assert (scored["good"]["trials"], scored["good"]["lr"]) == (2, 1.0)
    ranks = standings.ranking(played)
    assert [row["n"] for row in ranks] == [2, 2, 1, 1, 1]  # those on both tasks first
    words = standings.summary(played, found)
    assert words[0].startswith("5 differences from tuned static weighting on 2 tasks: 1 better")
    assert words[1].startswith("a: better: good; worse: bad; neither: 2")


@pytest.mark.slow
def test_a_stop_changes_nothing_and_what_is_finished_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = board.leaderboard(context(tmp_path / "whole"))

    def stop(done: int, total: int) -> None:
        if done > 0.3 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        board.leaderboard(context(tmp_path / "stopped", watch=stop))
    assert list((tmp_path / "stopped").rglob("summary.json"))
    again = board.leaderboard(context(tmp_path / "stopped"))
    assert again.rows == whole.rows
    assert again.notes == whole.notes
    assert not list((tmp_path / "stopped").rglob("summary.json"))  # the numbers are kept, not runs
    monkeypatch.setattr(board, "contest", lambda *_, **__: pytest.fail("run again"))
    assert board.leaderboard(context(tmp_path / "stopped")).rows == whole.rows


def test_everybody_has_as_many_trials_and_who_is_missing_has_a_reason(tmp_path: Path) -> None:
    study = board.leaderboard(context(tmp_path))
    counts = study.tables["tuning"].group_by("task", "method").len()
    assert set(counts["len"]) == {board.QUICK.most}
    assert any(note.startswith("smg is not considered") for note in study.notes)
    ranked = {(row["task"], row["method"]) for row in study.rows if row["metric"] == "score"}
    for task in ("digits", "quadratic"):
        for name in FEW:
            reasons = [n for n in study.notes if name in n and "not considered" in n]
            assert (task, name) in ranked or reasons


def test_a_task_without_its_data_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [board.Place("compas", 0.01, 5, 16), board.Place("quadratic", 0.1, 5, 16)]
    monkeypatch.setattr(board, "PLACES", places)
    study = board.leaderboard(context(tmp_path))
    assert {row["task"] for row in study.rows} == {"all", "quadratic"}
    assert any(n.startswith("compas was not played: ") and "data get" in n for n in study.notes)


def test_the_command_prints_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "QUICK_PLACES", 1)
    flags = ["--quick", "--seeds", "3", "--json", "--quiet", "--out", str(tmp_path)]
    assert main(["reproduce", "leaderboard", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["study"] == "leaderboard"
    assert all({*results.COLUMNS, "task"} <= row.keys() for row in found["rows"])
    assert {row["n"] for row in found["rows"] if row["metric"] == "score"} == {3}
    assert {row["method"] for row in found["rows"]} <= set(FEW)
    assert all(Path(file).exists() for file in found["files"])
    assert results.load(tmp_path / "leaderboard").rows == found["rows"]


def test_a_board_without_its_baseline_is_one_line() -> None:
    with pytest.raises(RunError, match=r"^a final run of static has no number"):
        standings.scores(table({"static": [1.0, float("nan")], "mgda": [1.0, 2.0]}))
