"""Table 3 and what lies beyond it, on small images: rows, verdicts, tuning."""

import math
from dataclasses import replace
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
        table3_beyond.candidates(Context(Path("x"), Path("x"), Path("x"), full=full))
        for full in (False, True)
    )
    assert list(short) == ["static", "mgda", "modo"]
    assert list(long) == list(table3_beyond.stated()["methods"])
    for grid in (short, long):
        assert {len({config.key for config in configs}) for configs in grid.values()} == {24}


def looked_at(config: RunConfig, *losses: float) -> StoredRun:
    record = {"step": 10, "samples": 640, "validation/accuracy": 0.5}
    record |= {f"validation_loss/{number}": loss for number, loss in enumerate(losses)}
    return StoredRun(Path("x"), config, {}, table_of_records([record]), {"record": record}, ())


@pytest.fixture
def trials() -> list[RunConfig]:
    return [
        RunConfig(task="mnist", method="static", lr=lr, steps=10, validation_only=True)
        for lr in (0.1, 0.3, 1.0)
    ]


def test_the_best_trial_has_the_lowest_losses(trials: list[RunConfig]) -> None:
    # In logarithms: halving a small loss is worth halving a large one.
    losses = ([1.0, 0.01], [1.1, 0.005], [1.1, 0.006])
    found = {c.key: [looked_at(c, *own)] for c, own in zip(trials, losses, strict=True)}
    assert table3_beyond.best(trials, found).lr == 0.3
    assert table3_beyond.beyond_edge(trials, found) is None
    found[trials[1].key] = [looked_at(trials[1], 0.1, 0.001), Diverged("at step 3")]
    assert table3_beyond.best(trials, found).lr == 1.0
    shown = table3_beyond.tuning({"static": trials}, found)["mean_log_loss"].to_list()
    assert shown[0] == pytest.approx(math.log(0.1))
    assert shown[1] is None
    with pytest.raises(Diverged, match="every step size of static diverged"):
        table3_beyond.best(trials[1:2], found)


def test_a_grid_goes_on_where_its_edge_is_best(trials: list[RunConfig]) -> None:
    def chosen(*losses: float) -> RunConfig | None:
        found = {c.key: [looked_at(c, own)] for c, own in zip(trials, losses, strict=True)}
        return table3_beyond.beyond_edge(trials, found)

    up, down = chosen(3.0, 2.0, 1.0), chosen(1.0, 2.0, 3.0)
    assert up is not None
    assert down is not None
    assert (up.lr, down.lr) == (3.0, 0.0333)
    assert chosen(2.0, 1.0, 3.0) is None
    # The edge is that of the same kind: with another schedule the grid is another.
    other = trials[2].model_copy(update={"schedule": "linear", "lr": 0.3})
    found = {c.key: [looked_at(c, c.lr + 1)] for c in trials} | {other.key: [looked_at(other, 0.1)]}
    beyond = table3_beyond.beyond_edge([*trials, other], found)
    assert beyond is not None
    assert (beyond.schedule, beyond.lr) == ("linear", 0.9)


def test_the_search_extends_its_grid(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def run(
        settings: list[RunConfig], seeds: list[int], *_: object, **__: object
    ) -> list[list[StoredRun]]:
        assert seeds == [10, 11]
        asked.extend(config.lr for config in settings)
        return [[looked_at(c, abs(math.log(c.lr / 25)) + 1)] for c in settings]

    stated = few(lr=[0.3, 1.0], schedules=["constant"], methods={"static": [{}]})
    monkeypatch.setattr(table3_beyond, "stated", lambda: stated)
    monkeypatch.setattr(table3_beyond, "run_over_seeds", run)
    grid, tried = table3_beyond.search(replace(context, quick=False))
    assert asked == [0.3, 1.0, 3.0, 9.0, 27.0, 81.0]
    assert [config.lr for config in grid["static"]] == asked
    assert table3_beyond.best(grid["static"], tried).lr == 27.0
    notes = table3_beyond._how({**grid, "mgda": grid["static"][:2]}, tried)
    assert "static 4." in notes[0]


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
