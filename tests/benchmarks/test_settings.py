"""The table of docs/howto/integrations.md: cells of it measured anew, and what it may not hold."""

import json
from pathlib import Path

import pytest
import torch

import trimol

ROOT = Path(__file__).parents[2]
QUICK = ("plain", "bf16", "checkpoint", "checkpoint, reentrant", "accumulation", "sparse")


@pytest.fixture
def settings(load_script, monkeypatch):
    found = load_script("benchmarks/settings.py")
    for name, small in (("WIDTH", 16), ("BATCH", 8), ("REPEATS", 1)):
        monkeypatch.setattr(found, name, small)
    return found


@pytest.fixture(scope="module")
def committed():
    found = json.loads((ROOT / "results" / "settings.json").read_text(encoding="utf-8"))
    return {(row["method"], row["setting"]): row for row in found["rows"]}


def test_every_method_is_in_every_setting(settings, committed):
    assert set(committed) == {(m, s) for m in trimol.methods.names() for s in settings.SETTINGS}


def test_nothing_is_wrong(committed):
    assert {row["verdict"] for row in committed.values()} <= {"exact", "slow", "refused"}
    assert {row["verdict"] for (_, s), row in committed.items() if s == "plain"} == {"exact"}


@pytest.mark.parametrize("setting", QUICK)
@pytest.mark.parametrize("method", ["static", "mgda", "modo", "moco", "mgdaub"])
def test_a_cell_measured_anew(settings, committed, method, setting):
    row = settings.methods()[method]
    found = settings.cell(row, settings.Training(settings.SETTINGS[setting]))
    known = committed[method, setting]
    exact = {"slow": "exact"}.get(known["verdict"], known["verdict"])
    assert (found["verdict"], found["line"]) == (exact, known["line"])
    assert found.get("route") == known.get("route")


def test_a_wrong_gradient_is_noticed(settings, monkeypatch):
    scalar = trimol.Static.scalar
    monkeypatch.setattr(
        trimol.Static,
        "scalar",
        lambda self, evidence, *args: (
            scalar(self, evidence, *args)
            * (
                1.001
                if self.params[0].dtype == torch.float32
                else 1.0  # the network's, not by hand
            )
        ),
    )
    training = settings.Training(settings.SETTINGS["plain"])
    assert settings.cell(settings.methods()["static"], training)["verdict"] == "wrong"
