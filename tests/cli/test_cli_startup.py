"""Help, lists and usage errors answer without importing what takes long."""

import subprocess
import sys
from pathlib import Path

import pytest

from trimol.cli import COMMANDS

SLOW = {"torch", "polars", "scipy", "transformers", "sklearn", "pydantic", "typeguard"}
ANSWERED = [
    ["--help"],
    ["--version"],
    *([command, "--help"] for command in COMMANDS),
    ["methods"],
    ["methods", "modo"],
    ["methods", "--json"],
    ["tasks"],
    ["tasks", "--json"],
    ["reproduce"],
    ["reproduce", "--json"],
    ["data"],
]
REFUSED = [
    ["walk"],
    *([command, "--no-such-flag"] for command in COMMANDS),
    ["run"],
    ["run", "digits", "--stesp", "5"],
    ["run", "digits", "--steps", "many"],
    ["run", "digits", "--steps"],
    ["run", "digits", "--steps", "5", "--epochs", "5"],
    ["run", "digits", "--precision", "fp8"],
    ["run", "digits", "--method", "mood"],
    ["run", "digits", "--gama", "1"],
    ["run", "digits", "--gamma", "much"],
    ["run", "digits", "--weights", "1,x"],
    ["run", "digits", "--method", "alignedmtl", "--scale-mode", "max"],
    ["run", "digits", "--option", "hidden"],
    ["run", "digits", "--option", "width=3"],
    ["run", "dgits"],
    ["run", "nowhere.py:Mine"],
    ["compare"],
    ["compare", "dgits"],
    ["compare", "digits", "--methods", "modo,modo"],
    ["compare", "digits", "--methods", "modo,mood"],
    ["compare", "digits", "--set", "modo.x=1"],
    ["compare", "digits", "--set", "modo.gamma"],
    ["compare", "digits", "--set", "modo.gamma=x"],
    ["compare", "digits", "--set", "uw.lr=1"],
    ["compare", "digits", "--steps", "5", "--epochs", "5"],
    ["report"],
    ["report", "nowhere"],
    ["plan", "1"],
    ["plan", "100", "--ell-f", "1"],
    ["plan", "100", "--objective", "speed"],
    ["plan", "100", "--ell-f", "1", "--ell-f1", "2", "--losses", "3", "--mu", "4"],
    ["methods", "mood"],
    ["tasks", "more"],
    ["reproduce", "fig99"],
    ["reproduce", "table1", "--regime", "frozen"],
    ["reproduce", "table4", "--regime", "cold"],
    ["data", "get"],
    ["data", "get", "thongs"],
]
# One process for all of a kind: what one of them imports is still there at the end.
CODE = """
import sys
from trimol.cli import main

for arguments in {cases}:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code or 0
    loaded = {slow} & set(sys.modules)
    assert (code, loaded) == ({code}, set()), (arguments, code, loaded)
"""


@pytest.mark.parametrize(
    ("cases", "code"), [(ANSWERED, 0), (REFUSED, 2)], ids=["answers", "errors"]
)
def test_nothing_slow_is_imported(cases: list[list[str]], code: int, tmp_path: Path) -> None:
    script = CODE.format(cases=cases, slow=SLOW, code=code)
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    if code:
        assert len(run.stderr.splitlines()) == len(cases)
        assert run.stdout == ""
