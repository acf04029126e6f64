"""Table 3 and what lies beyond it, on small images: rows, verdicts, tuning."""

from pathlib import Path

import images
import polars
import pytest

from trimol import methods
from trimol.paper import _printed_mnist as table3_paper
from trimol.paper import _studies as registry
from trimol.paper import table3, table3_beyond
from trimol.paper._studies import Context
from trimol.runs import StoredRun
from trimol.runs import _over_seeds as over_seeds
from trimol.runs import study as results
from trimol.runs.config import RunConfig
from trimol.runs.store import table as table_of_records
from trimol.training import Diverged


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A quick run on images of our own; one process, as the machine's cores are the tests'."""
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    images.write(tmp_path / "data")
    monkeypatch.setattr(over_seeds, "cores", lambda: 1)
    monkeypatch.setattr(table3, "OPTIONS", {"hidden": 8, "validation": 100})
    folder = tmp_path / "out"
    folder.mkdir()
    return Context(folder / "study", folder / "parts", folder, quick=True, seeds=2)


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


def test_every_method_is_tuned_and_measured(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = {**table3_beyond.stated(), "lr": [0.1, 0.2, 0.25, 0.3]}
    monkeypatch.setattr(table3_beyond, "stated", lambda: tried)
    study = table3_beyond.beyond(context)
    tried = tried["methods"]
    assert {row["method"] for row in study.rows} == set(tried)
    tuning = study.tables["tuning"]
    assert len(tuning) == sum(2 * len(options) for options in tried.values())
    for method in tried:
        own = tuning.filter(polars.col("method") == method)
        best = own.filter(polars.col("validation_accuracy") == own["validation_accuracy"].max())
        lr = {row["lr"] for row in study.rows if row["method"] == method}
        assert lr <= set(best["lr"])
    assert any("10 000 validation images" in note for note in study.notes)


def looked_at(config: RunConfig, accuracy: float) -> StoredRun:
    record = {"step": 10, "samples": 640, "validation/accuracy": accuracy}
    return StoredRun(Path("x"), config, {}, table_of_records([record]), {"record": record}, ())


def test_the_best_candidate_is_the_most_accurate() -> None:
    candidates = [
        RunConfig(task="mnist", method="static", lr=lr, steps=10, validation_only=True)
        for lr in (0.1, 1.0, 10.0, 100.0)
    ]
    accuracies = ([0.5, 0.7], [0.8, 0.6], [0.1, 0.9])
    found: dict[str, list[StoredRun | Diverged]] = {
        config.key: [looked_at(config, accuracy) for accuracy in each]
        for config, each in zip(candidates, accuracies, strict=False)
    }
    found[candidates[3].key] = [looked_at(candidates[3], 0.99), Diverged("at step 3")]
    assert table3_beyond.best(candidates, found).lr == 1.0
    shown = table3_beyond.tuning(candidates, found)["validation_accuracy"].to_list()
    assert shown == [pytest.approx(0.6), pytest.approx(0.7), pytest.approx(0.5), None]
    with pytest.raises(Diverged, match="every step size of static diverged"):
        table3_beyond.best(candidates[3:], found)


def test_the_grid_names_methods_and_their_hyperparameters() -> None:
    import inspect

    for method, options in table3_beyond.stated()["methods"].items():
        known = inspect.signature(methods.get(method)).parameters
        assert all(set(own) <= set(known) for own in options)


def test_studies_are_registered() -> None:
    for name in ("table3", "table3-beyond", "fig4", "threeway"):
        assert callable(registry.get(name).build())
