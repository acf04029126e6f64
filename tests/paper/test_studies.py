"""Studies by name: each runs small, writes its figures, and says what it found."""

import json
import subprocess
import sys

import numpy as np
import polars
import pytest

from trimol import paper as reproduce
from trimol.paper import _drawing as drawing
from trimol.paper import _studies as registry
from trimol.paper import fig1 as toy
from trimol.paper import fig2 as rates
from trimol.paper import fig3 as sweeps
from trimol.paper import measured_theory as theory
from trimol.runs import study as results


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Quick is not quick enough for a test."""
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setattr(toy, "QUICK_STEPS", 40)
    monkeypatch.setattr(sweeps, "QUICK_POINTS", 2)
    monkeypatch.setattr(sweeps, "QUICK_SEEDS", 2)
    monkeypatch.setattr(theory, "QUICK_STEPS", (16, 32, 64))
    monkeypatch.setattr(theory, "QUICK_SAMPLES", (8, 10))
    monkeypatch.setattr(theory, "QUICK_EXAMPLES", (64,))


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take longer than what they show: their files are empty."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig1", "fig5", "fig6", "fig7", "fig3", "fig2", "theory"])
def test_a_study_writes_what_it_promises(name, tmp_path):
    seen = []
    study = reproduce.run(name, tmp_path, quick=True, watch=lambda *now: seen.append(now))
    assert study.title == reproduce.get(name).title
    for file in study.files:
        assert (tmp_path / name / file).stat().st_size > 500, file
    assert any(file.endswith(".svg") for file in study.files)
    assert any(file.endswith(".png") for file in study.files)
    content = json.loads((tmp_path / name / "study.json").read_text())
    assert content["command"] == f"trimol reproduce {name} --quick"
    assert content["environment"]["torch"]
    assert study.rows
    assert study.notes
    assert all(np.isfinite(row["mean"]) for row in study.rows)
    assert results.find(tmp_path)[0].rows == content["rows"]
    if name != "fig2":
        assert seen[-1][0] == seen[-1][1]


@pytest.mark.usefixtures("undrawn")
def test_studies_share_their_parts(tmp_path, monkeypatch):
    reproduce.run("fig1", tmp_path, quick=True)
    monkeypatch.setattr("trimol.paper._toy_runs.simulate", None)  # would fail if called
    assert reproduce.run("fig7", tmp_path, quick=True).rows


@pytest.mark.slow
def test_figures_are_the_same_bytes_again(tmp_path):
    first = reproduce.run("fig2", tmp_path / "a")
    again = reproduce.run("fig2", tmp_path / "b")
    for file in first.figures:
        assert (first.folder / file).read_bytes() == (again.folder / file).read_bytes()


def test_tables_are_the_papers(tmp_path):
    for name in ("table1", "table2"):
        known = [row for row in reproduce.run(name, tmp_path).rows if row["paper"] is not None]
        assert len(known) >= 5
        assert all(row["mean"] == pytest.approx(row["paper"]) for row in known)


def test_the_regions_are_where_the_paper_puts_them():
    table = rates.region_table()
    at = table.filter((polars.col("c") - 0.25).abs() < 1e-9, (polars.col("t") - 0.8).abs() < 1e-9)
    assert at["region"].to_list() == ["IV"]
    assert set(table["region"].unique()) == {"I", "II", "III", "IV", None}
    balance = at.select("R_opt", "R_gen", "E_ca").row(0)
    assert balance == pytest.approx((0.1, 0.1, 0.1))


def test_sweeps_show_means_and_intervals_over_data_sets():
    table = polars.DataFrame({"value": [1.0, 1.0, 2.0, 2.0], "R_opt": [1.0, 3.0, 5.0, 5.0]})
    value, mean, half = drawing.means(table, "value", "R_opt")
    assert value.tolist() == [1, 2]
    assert mean.tolist() == [2, 5]
    assert half.tolist() == pytest.approx([12.7062, 0])  # t₁ · √2/√2


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_users_number_of_seeds_is_taken(tmp_path):
    study = reproduce.run("fig3", tmp_path, quick=True, seeds=3)
    assert {row["n"] for row in study.rows} == {3}
    assert study.command == "trimol reproduce fig3 --quick --seeds 3"


def test_bad_input_is_one_clear_line(tmp_path):
    with pytest.raises(ValueError, match=r"study must be one of fig1, .* found 'fig99'"):
        reproduce.run("fig99", tmp_path)
    with pytest.raises(ValueError, match="seeds must be at least 1, found 0"):
        reproduce.run("fig1", tmp_path, seeds=0)
    with pytest.raises(ValueError, match="name must be new, found 'fig1' twice"):
        registry.register("fig1", "", "", "")


def test_every_registered_study_can_be_imported():
    for name in reproduce.names():
        assert callable(reproduce.get(name).build()), name


def test_names_and_titles_are_known_without_torch():
    code = (
        "import sys, trimol.paper.registration; from trimol import paper;"
        "print(paper.names()[0], paper.get('claims').title.split(':')[0], *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("fig1 The ledger of claims ")
    assert not {"torch", "polars", "numpy", "matplotlib"} & set(run.stdout.split())


def test_a_study_takes_its_own_options_only(tmp_path):
    with pytest.raises(ValueError, match="fig1 takes no such option, found budget 'paper'"):
        reproduce.run("fig1", tmp_path, budget="paper")
    with pytest.raises(ValueError, match="scenes takes budget, found regime"):
        reproduce.run("scenes", tmp_path, regime="frozen")
    with pytest.raises(ValueError, match="budget must be one of equal, paper, found 'large'"):
        reproduce.run("scenes", tmp_path, budget="large")
    assert not list(tmp_path.iterdir())


def test_options_that_are_not_given_have_defaults():
    entry = reproduce.get("table4")
    assert entry.checked({"regime": None}) == {"regime": "frozen", "budget": "equal"}
    assert entry.checked({"budget": "paper"}) == {"regime": "frozen", "budget": "paper"}
    assert reproduce.get("fig1").checked({}) == {"regime": "frozen", "budget": "equal"}
