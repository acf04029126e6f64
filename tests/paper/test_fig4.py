"""Figure 4: the sweeps, their numbers and the claims about them, on made-up data."""

from dataclasses import replace
from pathlib import Path

import images
import polars
import pytest

from trimol.paper import _printed_mnist as table3_paper
from trimol.paper import claims, fig4, table3
from trimol.paper._studies import Context
from trimol.runs import study as results


def context(folder: Path, **options: object) -> Context:
    return Context(folder / "fig4", folder / "parts", folder, **options)  # type: ignore[arg-type]


def test_the_sweeps_are_the_paper_s(tmp_path: Path) -> None:
    points = fig4.sweeps(context(tmp_path))
    grid = table3_paper.paper()["fig4"]["grid"]
    by_sweep = {name: [p for p in points if p.sweep == name] for name in ("T", "alpha", "gamma")}
    assert [p.value for p in by_sweep["alpha"]] == [p.value for p in by_sweep["gamma"]] == grid
    for point in by_sweep["alpha"]:
        assert point.config.lr == point.value
        assert point.config.hyperparameters == {"gamma": 0.01}
    for point in by_sweep["gamma"]:
        assert point.config.hyperparameters == {"gamma": point.value}
        assert point.config.lr == 0.1
    for point in (*by_sweep["alpha"], *by_sweep["gamma"]):
        assert point.config.steps == 1000
        assert point.config.measure_at == ()
    runs = {p.config.key for p in (*by_sweep["alpha"], *by_sweep["gamma"])}
    assert table3_paper.paper()["fig4"]["runs"] == 10
    assert len(runs) == 21  # the default is in both sweeps, and run once
    assert {p.config.key for p in by_sweep["T"]} == {by_sweep["T"][0].config.key}
    assert [p.value for p in by_sweep["T"]] == [p.step for p in by_sweep["T"]]
    assert (by_sweep["T"][0].step, by_sweep["T"][-1].step) == (10, 30_000)
    long = by_sweep["T"][0].config
    assert long.measure_at == tuple(p.step for p in by_sweep["T"])
    assert long.steps == 30_000


def test_full_goes_as_far_as_the_paper(tmp_path: Path) -> None:
    full = [p for p in fig4.sweeps(context(tmp_path, full=True)) if p.sweep == "T"]
    assert full[-1].step == 100_000
    assert full[-1].config.checkpoint_every == 2000  # little is lost if it is killed


def tables(points: list[fig4.Point]) -> dict[str, polars.DataFrame]:
    """As if run: R_opt = value, R_gen = −value/2, the rest constant; two seeds, ± 10 %."""
    made: dict[str, list[dict[str, float]]] = {}
    for point in points:
        for seed, factor in ((0, 0.9), (1, 1.1)):
            made.setdefault(point.config.key, []).append(
                {
                    "seed": seed,
                    "step": point.step,
                    "R_opt": factor * point.value,
                    "R_pop": 2.0,
                    "R_gen": -0.5 * factor * point.value,
                    "E_ca": 3.0,
                    "E_ca_definition": 2.5,
                    "E_ca_unbiased": -0.1,
                    "train_seconds": 1.0,
                    "measure_seconds": 0.5,
                }
            )
    return {key: polars.DataFrame(rows) for key, rows in made.items()}


@pytest.fixture
def points(tmp_path: Path) -> list[fig4.Point]:
    found = fig4.sweeps(context(tmp_path, quick=True, seeds=2))
    apart = [p for p in found if p.sweep != "gamma"]  # each with runs of its own
    return [replace(p, config=p.config.model_copy(update={"batch_size": 16})) for p in apart]


def test_numbers_of_each_place(points: list[fig4.Point]) -> None:
    table = fig4.tidy(points, tables(points))
    assert len(table) == 2 * len(points)
    rows = fig4.rows(points, table)
    place = points[-1]
    own = {r["metric"]: r for r in rows if r["sweep"] == "alpha" and r["alpha"] == place.value}
    assert own["R_opt"]["mean"] == pytest.approx(place.value)
    assert own["R_opt"]["n"] == 2
    assert own["R_gen"]["mean"] == pytest.approx(place.value / 2)  # its size
    assert (own["E_ca"]["mean"], own["E_ca_definition"]["mean"]) == (3.0, 2.5)
    assert own["E_ca_definition"]["std"] is None
    assert own["E_ca_definition"]["n"] == 2


def test_curves_have_bars_of_half_a_standard_deviation(points: list[fig4.Point]) -> None:
    table = fig4.tidy(points, tables(points))
    found = fig4.curve(table, "alpha", "R_opt")
    assert found.means == pytest.approx(found.values)
    for value, bar in zip(found.values, found.bars, strict=True):
        assert bar == pytest.approx(0.5 * 2**0.5 * 0.1 * value)  # std of 0.9 and 1.1 is √2 ∕ 10
    together = fig4.curve(table, "alpha", "E_ca_definition")
    assert set(together.bars) == {0.0}


def test_the_figure_is_drawn(points: list[fig4.Point], tmp_path: Path) -> None:
    names = fig4.draw(fig4.tidy(points, tables(points)), tmp_path)
    assert names == ["fig4.svg", "fig4.png"]
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)


def test_claims_are_judged(points: list[fig4.Point]) -> None:
    study = results.Study("fig4", "", rows=[], tables={"points": fig4.tidy(points, tables(points))})
    listed = {claim.id: claim for claim in claims.ledger()}
    # R_opt and |R_gen| rise with everything here, by construction.
    assert claims.judge(listed["mnist-T-gen"], study).verdict == "inconclusive"  # two seeds
    many = polars.concat(
        [study.tables["points"].with_columns(polars.col("seed") + 2 * i) for i in range(6)]
    )
    study = replace(study, tables={"points": many})
    assert claims.judge(listed["mnist-T-gen"], study).verdict == "holds"
    assert claims.judge(listed["mnist-T-opt"], study).verdict == "does not hold"
    assert claims.judge(listed["mnist-alpha-opt"], study).verdict == "does not hold"


@pytest.mark.slow
def test_an_interrupted_full_run_is_shown_as_far_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    images.write(tmp_path / "data")
    monkeypatch.setattr(table3, "OPTIONS", {"hidden": 4, "validation": 100})
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)
    monkeypatch.setattr(fig4, "STEPS", (2, 4))
    monkeypatch.setattr(fig4, "FURTHER", (6, 9))
    stated = {**table3_paper.paper()["fig4"], "grid": [0.1], "steps": 3, "runs": 2}
    stated = {**table3_paper.paper(), "fig4": stated}
    monkeypatch.setattr(table3_paper, "paper", lambda: stated)

    (tmp_path / "fig4").mkdir()

    def interrupt(done: int, total: int) -> None:
        if done >= 2 * 8:  # of both seeds 8 of 9 steps
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fig4.fig4(context(tmp_path, full=True, watch=interrupt))
    study = fig4.fig4(context(tmp_path))
    reached = sorted({row["steps"] for row in study.rows if row["sweep"] == "T"})
    assert reached == [2, 4, 6]
    assert any("to T = 6. Its time is not" in note for note in study.notes)
    whole = fig4.fig4(context(tmp_path, full=True))  # goes on
    assert sorted({r["steps"] for r in whole.rows if r["sweep"] == "T"}) == [2, 4, 6, 9]
    assert not any("Its time is not" in note for note in whole.notes)
    shared = [row for row in whole.rows if row["sweep"] != "T" or row["steps"] < 9]
    assert shared == study.rows
    assert len(fig4.fig4(context(tmp_path)).rows) == len(whole.rows)  # what is there is shown
