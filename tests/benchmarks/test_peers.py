"""docs/reference/peers.md: every line is one of the script's, and what can be computed anew is."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("torchjd", reason="needs the extra 'torchjd'")

# Rows of a few exact numbers: the others are medians of many solutions, or need cvxpy.
EXACT = (
    "TorchJD IMTLG",
    "TorchJD AlignedMTL",
    "TorchJD FAMO, small losses",
    "TorchJD DWA",
    "TorchJD MoDo, SDMGrad, GradVac, ExcessMTL, PCD",
    "TorchJD MoDo, M = 1",
    "TorchJD Random",
    "LibMTL MoDo, SDMGrad",
    "LibMTL RLW",
)


@pytest.fixture
def peers(load_script, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield load_script("benchmarks/peers.py")
    sys.modules.pop("solvers", None)


@pytest.fixture
def committed():
    return json.loads((ROOT / "results" / "peers.json").read_text(encoding="utf-8"))


def test_every_line_is_the_scripts(peers, committed):
    for registered, rows in ((peers.DEPARTURES, "rows"), (peers.AGREEMENTS, "agreements")):
        listed = {peer: row.__doc__ for peer, row in registered.items()}
        assert {row["peer"]: row["what"] for row in committed[rows]} == listed


@pytest.mark.parametrize("peer", EXACT)
def test_a_figure_computed_anew(peers, committed, peer):
    (row,) = [row for row in committed["rows"] if row["peer"] == peer]
    assert peers.DEPARTURES[peer]() == row["figure"]


def test_agreements_are_to_rounding(peers, committed):
    for row in committed["agreements"]:
        assert float(row["figure"]) < 1e-8
        assert float(peers.AGREEMENTS[row["peer"]]()) < 1e-8


def test_sizes_in_words(peers):
    said = [peers.size(number) for number in (2e-5, 0.0031, 0.23, 1.7, 732.4)]
    assert said == ["2e-05", "0.31 %", "23 %", "170 %", "732 times"]
