"""The speeds of recommenders: every contender is measured, plain against itself is one."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from trimol.runs import _storage as files


def test_every_contender_is_measured(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    script = load_script("benchmarks/recommenders.py")
    out = tmp_path / "speeds.json"
    given = ["recommenders.py", "--quick", "--json", str(out), "--shards", str(tmp_path / "rows")]
    monkeypatch.setattr(sys, "argv", [*given, "--batch-size", "64"])
    script.main()
    rows = files.read_json(out)["rows"]
    assert [(r["network"], r["method"]) for r in rows] == [
        (network, name) for network in ("shared", "mmoe") for name in ("plain", *script.METHODS)
    ]
    assert all(row["samples/s"] > 0 for row in rows)
    assert [row["against plain"] for row in rows if row["method"] == "plain"] == [1, 1]
    assert "× plain" in capsys.readouterr().out
