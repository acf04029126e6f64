"""Table 3 and what lies beyond it, on small images: rows, verdicts, tuning."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import images
import polars
import pytest

from trimol import methods
from trimol.paper import _printed_mnist as table3_paper
from trimol.paper import _studies as registry
from trimol.paper import table3, table3_beyond
from trimol.paper._studies import Context
from trimol.runs import StoredRun
from trimol.runs import study as results
from trimol.runs.config import RunConfig
from trimol.runs.store import table as table_of_records
from trimol.training import Diverged


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A quick run on images of our own; one process, as the machine's cores are the tests'."""
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    images.write(tmp_path / "data")
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)
    monkeypatch.setattr(table3, "OPTIONS", {"hidden": 8, "validation": 100})
    folder = tmp_path / "out"
    folder.mkdir()
    return Context(folder / "study", folder / "parts", folder, quick=True, seeds=2)


@pytest.mark.slow
def test_rows_of_table_3(context: Context) -> None:
    study = table3.table3(context)
    names = ["cross-entropy", "MSE", "Huber", "accuracy", "R_opt", "R_pop", "R_gen", "E_ca"]
    for method in ("static", "mgda", "modo"):
        own = [row for row in study.rows if row["method"] == method]
        assert [row["metric"] for row in own] == [*names, "E_ca_definition", "E_ca_unbiased"]
        assert {row["n"] for row in own} == {2}
        assert {row["lr"] for row in own} == {table3_paper.paper()["table3"][method]["lr"]}
        assert {row["paper"] for row in own} == {None}  # a quick run is not compared
    by_name = {(row["method"], row["metric"]): row["mean"] for row in study.rows}
    assert by_name["mgda", "E_ca"] <= by_name["static", "E_ca"]
    saved = results.load(results.save(study, context.folder).folder)
    assert len(saved.tables["runs"]) == 6


def test_cells_are_judged(tmp_path: Path) -> None:
    cell = table3_paper.cells("modo")["R_opt"]
    config = RunConfig(
        task="mnist", method="modo", lr=1.0, steps=10, hyperparameters={"gamma": 1.0}
    )
    table = polars.DataFrame(
        {
            "seed": [0, 1, 2],
            "step": [10] * 3,
            "test_loss/Huber": [0.01, 0.011, 0.012],
            "R_opt": [cell.mean - 1e-5, cell.mean, cell.mean + 1e-5],
            "R_gen": [-1e-4, 1e-4, 1e-4],
        }
    )
    rows = {row["metric"]: row for row in table3.rows_of(config, table, compare=True)}
    assert rows["R_opt"]["verdict"] == "agrees"
    assert rows["R_opt"]["within_2_std"]
    assert rows["R_opt"]["paper"] == 1.9e-3
    assert rows["R_opt"]["paper_std"] == pytest.approx(4e-4)
    assert rows["Huber"]["verdict"] == "differs"
    assert not rows["Huber"]["within_2_std"]
    assert rows["R_gen"]["mean"] == pytest.approx(1e-4)  # of |R_gen| of each run
    said = table3._said(list(rows.values()))[0]
    assert said.startswith("2 of 3 cells agree")
    assert "Huber of modo: 0.011 here, 0.0021 there" in said


def few(**changes: object) -> dict[str, object]:
    """The search with three methods."""
    stated = table3_beyond.stated()
    chosen = {name: stated["methods"][name] for name in ("static", "mgda", "modo")}
    return {**stated, "methods": chosen, **changes}


@pytest.mark.slow
def test_every_method_is_tuned_and_measured(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = few(lr=[0.1, 0.3])
    monkeypatch.setattr(table3_beyond, "stated", lambda: tried)
    study = table3_beyond.beyond(context)
    tuning = study.tables["tuning"]
    assert len(tuning) == 3 * 12  # as many for each
    for method in ("static", "mgda", "modo"):
        own = tuning.filter(polars.col("method") == method)
        assert len(own) == 12
        best = own.filter(polars.col("mean_log_loss") == own["mean_log_loss"].min())
        rows = [row for row in study.rows if row["method"] == method]
        assert {row["lr"] for row in rows} == set(best["lr"])
        assert {row["schedule"] for row in rows} == set(best["schedule"])
        compared = {row["metric"] for row in rows if "difference" in row}
        assert compared == (set() if method == "static" else set(table3_beyond.COMPARED))
    assert study.notes[0].startswith("12 trials of every method: 0.1, 0.3 as step sizes")
    assert any(note.startswith("modo against static: cross-entropy ") for note in study.notes)
    assert any("at the end of any of the 6 runs" in note for note in study.notes)
    tuned = set(study.tables["runs"]["seed"])
    assert tuned.isdisjoint(table3_beyond.stated()["seeds"])  # other seeds than those of tuning
    results.save(study, context.folder)  # lists and words among the settings do no harm


@pytest.mark.usefixtures("context")  # a setting's key names the data
def test_every_method_has_as_many_trials() -> None:
    counts = {len(options) for options in table3_beyond.stated()["methods"].values()}
    assert counts == {3}
    short, long = (
        table3_beyond.list_grids(Context(Path("x"), Path("x"), Path("x"), full=full))
        for full in (False, True)
    )
    assert list(short) == ["static", "mgda", "modo"]
    assert list(long) == list(table3_beyond.stated()["methods"])
    for grid in (short, long):
        assert {len({setting.key for setting in own}) for own in grid.values()} == {24}


def looked_at(config: RunConfig, *losses: float) -> StoredRun:
    record = {"step": 10, "samples": 640, "validation/accuracy": 0.5}
    record |= {f"validation_loss/{number}": loss for number, loss in enumerate(losses)}
    return StoredRun(Path("x"), config, {}, table_of_records([record]), {"record": record}, ())


def train_by(
    losses: Callable[[RunConfig], list[float] | None], asked: list[float], monkeypatch: Any
) -> None:
    """Replace the runs of the study: these losses on validation images, None where it diverges."""

    def run(configs: list[RunConfig], seeds: list[int], *_: object, **__: object) -> list[Any]:
        assert seeds == [10, 11]
        asked.extend(config.lr for config in configs)
        return [[_ended(config, losses(config)) for _ in seeds] for config in configs]

    def _ended(config: RunConfig, found: list[float] | None) -> StoredRun | Diverged:
        return Diverged("at step 3") if found is None else looked_at(config, *found)

    monkeypatch.setattr(table3_beyond, "run_over_seeds", run)


@pytest.fixture
def one_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Static weights alone, at three step sizes."""
    stated = few(lr=[0.1, 0.3, 1.0], schedules=["constant"], methods={"static": [{}]})
    monkeypatch.setattr(table3_beyond, "stated", lambda: stated)


@pytest.mark.usefixtures("one_grid")
def test_the_best_trial_has_the_lowest_losses(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {0.1: [1.0, 0.01], 0.3: [1.1, 0.005], 1.0: [1.1, 0.006]}
    asked: list[float] = []
    train_by(lambda config: losses[config.lr], asked, monkeypatch)
    study = table3_beyond.search(replace(context, quick=False))
    assert study.best("static").setting.lr == 0.3
    assert asked == [0.1, 0.3, 1.0]
    table = table3_beyond.tabulate_trials(study)
    assert table["mean_log_loss"][0] == pytest.approx(math.log(0.1))
    assert table["validation_accuracy"].to_list() == [0.5] * 3


@pytest.mark.usefixtures("one_grid")
def test_trials_that_fail_have_no_numbers(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {0.1: [2.0], 0.3: None, 1.0: [0.0], 0.0333: [1.0], 0.0111: [3.0]}
    train_by(lambda config: losses[config.lr], [], monkeypatch)
    study = table3_beyond.search(replace(context, quick=False))
    assert study.best("static").setting.lr == 0.0333  # one below the edge, by the file's factor
    shown = table3_beyond.tabulate_trials(study)["mean_log_loss"].to_list()
    assert shown == pytest.approx([math.log(2), None, None, 0.0, math.log(3)])
    train_by(lambda config: None, [], monkeypatch)
    study = table3_beyond.search(replace(context, quick=False))
    with pytest.raises(Diverged, match="no setting of static came to an end: at step 3"):
        study.best("static")


def test_the_search_extends_its_grid(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[str, Any] = {"static": [{}], "mgda": [{"times": 9.0}]}
    stated = few(lr=[0.3, 1.0], schedules=["constant"], methods=own)
    monkeypatch.setattr(table3_beyond, "stated", lambda: stated)
    train_by(lambda config: [abs(math.log(config.lr / 25)) + 1], asked := [], monkeypatch)
    study = table3_beyond.search(replace(context, quick=False))
    tried = {m: [trial.setting.lr for trial in trials] for m, trials in study.trials.items()}
    assert tried == {"static": [0.3, 1.0, 3.0, 9.0, 27.0, 81.0], "mgda": [2.7, 9.0, 27.0, 81.0]}
    assert sorted(asked) == sorted(lr for lrs in tried.values() for lr in lrs)
    assert study.best("static").setting.lr == 27.0
    (how, _) = table3_beyond._how(study)
    assert "static 2." in how


def test_a_search_ends_at_last(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = few(lr=[0.3, 1.0], schedules=["constant"], methods={"static": [{}]})
    monkeypatch.setattr(table3_beyond, "stated", lambda: stated)
    train_by(lambda config: [1 / config.lr], asked := [], monkeypatch)
    study = table3_beyond.search(replace(context, quick=False))
    assert asked == [0.3, 1.0, 3.0, 9.0, 27.0, 81.0, 243.0, 729.0]
    assert table3_beyond._how(study)[-1] == "Still at the edge of the grid: static."


def test_differences_are_paired_and_conflict_is_counted() -> None:
    def table(shift: list[float], cosine: float) -> polars.DataFrame:
        names = {f"test_loss/{name}" for name in ("cross-entropy", "MSE", "Huber")}
        values = [start + own for start, own in zip((1.0, 5.0, 9.0, 2.0, 3.0), shift, strict=True)]
        return polars.DataFrame(
            {"seed": [*range(5)], "step": [10] * 5, **dict.fromkeys(sorted(names), values)}
            | {"metric/accuracy": [0.9] * 5, "cosine/a/b": [cosine, 0.9, 0.8, 0.8, 0.8]}
            | {"conflicting": [float(cosine < 0), 0.0, 0.0, 0.0, 0.0]}
        )

    tables = {"static": table([0] * 5, 0.5), "modo": table([-0.1, -0.11, -0.12, -0.1, -0.12], 0.25)}
    found = {one.metric: one for one in table3_beyond.against_first(tables)}
    assert found["MSE"].mean == pytest.approx(-0.11)
    assert found["MSE"].clear
    assert not found["accuracy"].clear
    said = table3_beyond._remaining(list(found.values()))
    assert said[0].startswith("modo against static: cross-entropy -0.11 ± 0.01 (clear, p = ")
    none = table3_beyond.conflict(tables)
    assert none.startswith("No pair of gradients conflicts at the end of any of the 10 runs")
    assert "a and b 0.25" in none
    some = table3_beyond.conflict({**tables, "mgda": table([0] * 5, -0.5)})
    assert some.startswith("A pair of gradients conflicts at the end of 1 of 15 runs")


def test_the_grid_names_methods_and_their_hyperparameters() -> None:
    import inspect

    for method, options in table3_beyond.stated()["methods"].items():
        known = inspect.signature(methods.get(method)).parameters
        assert all(set(own) - {"times"} <= set(known) for own in options)


def test_studies_are_registered() -> None:
    for name in ("table3", "table3-beyond", "fig4", "threeway"):
        assert callable(registry.get(name).build())
