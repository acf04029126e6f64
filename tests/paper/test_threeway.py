"""The three-way picture: which settings, where they are, and that it is drawn."""

from pathlib import Path

import images
import polars
import pytest

from trimol.paper import threeway
from trimol.paper._studies import Context
from trimol.theory import plan


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    images.write(tmp_path / "data")
    # Small: 400 images, 100 of them held out.
    monkeypatch.setattr(threeway, "OPTIONS", {"mnist": {"validation": 100}, "digits": {}})
    folder = tmp_path / "out"
    (folder / "threeway").mkdir(parents=True)
    return Context(folder / "threeway", folder / "parts", folder)


def test_only_the_weights_differ(context: Context) -> None:
    for task, lr in threeway.LRS.items():
        sweep = threeway.sweep(task, context)
        assert {(s.task, s.lr, s.steps, s.batch_size) for s in sweep.settings} == {
            (task, lr, 1000, 64)
        }
        assert threeway.RUNS == 10
        assert list(sweep.ends) == ["static", "mgda"]
        assert set(threeway.GAMMAS) <= set(sweep.modo)
        assert list(sweep.modo) == sorted(sweep.modo)
        assert all(s.hyperparameters == {"gamma": gamma} for gamma, s in sweep.modo.items())


def test_the_plan_is_for_this_many_samples_and_is_run_too(context: Context) -> None:
    sweep = threeway.sweep("mnist", context)
    expected = plan(300, "balance", T=1000)
    assert (sweep.plan.n, sweep.plan.gamma) == (300, expected.gamma)
    assert float(f"{expected.gamma:.2g}") in sweep.modo


def made_up(task: str = "digits") -> polars.DataFrame:
    """R_opt rises and E_ca falls with γ; MGDA has no conflict at all."""
    rows = []
    for method, gamma, opt, gen, conflict in (
        ("modo", 1.0, 3.0, 0.2, 0.1),
        ("modo", 0.01, 1.0, 0.3, 1.0),
        ("static", None, 0.9, 0.4, 1.2),
        ("mgda", None, 4.0, 0.1, 0.0),
    ):
        for seed, factor in enumerate((0.9, 1.1)):
            rows.append(
                {
                    "task": task,
                    "method": method,
                    "gamma": gamma,
                    "seed": seed,
                    "R_opt": opt * factor,
                    "R_gen": gen * factor,
                    "E_ca": conflict * factor,
                }
            )
    return polars.DataFrame(rows)


def test_places_in_order_with_intervals() -> None:
    found = threeway.places(made_up(), "digits")
    assert [(p.method, p.gamma) for p in found] == [
        ("modo", 0.01),
        ("modo", 1.0),
        ("static", None),
        ("mgda", None),
    ]
    assert found[1].mean == pytest.approx((3.0, 0.2, 0.1))
    # Student's t of one degree of freedom is 12.706; 2.7 and 3.3 have a standard error of 0.3.
    assert found[1].half[0] == pytest.approx(12.7062 * 0.3, rel=1e-4)


@pytest.mark.slow
def test_the_picture_is_drawn(tmp_path: Path) -> None:
    table = polars.concat([made_up("digits"), made_up("mnist")])
    names = threeway.draw(table, {"mnist": 0.03, "digits": 0.01}, tmp_path)
    assert names == ["threeway.svg", "threeway.png"]
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)


@pytest.mark.slow
def test_a_quick_run_from_end_to_end(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)
    monkeypatch.setattr(threeway, "LRS", {"digits": 1.0})
    quick = Context(context.folder, context.parts, context.root, quick=True, seeds=2)
    study = threeway.threeway(quick)
    methods = {row["method"] for row in study.rows}
    assert methods == {"static", "mgda", "modo"}
    assert {row["task"] for row in study.rows} == {"digits"}
    errors = {(r["method"], r.get("gamma"), r["metric"]): r["mean"] for r in study.rows}
    static, modo = errors["static", None, "E_ca"], errors["modo", 1e-4, "E_ca"]
    assert modo == pytest.approx(static, rel=0.05)  # a tiny γ is static weighting, nearly
    assert errors["mgda", None, "E_ca"] < static
    assert "recommends γ" in study.notes[1]
