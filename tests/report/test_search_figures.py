"""The figures of a search: what they show, against the numbers; nothing that misleads."""

import math

import numpy as np
import polars
import pytest

from trimol.report import _search_figures as search
from trimol.report import _search_plots as plots
from trimol.report._page import write
from trimol.report._style import looks
from trimol.runs.study import Study, row, save

HOSTILE = "<img src=x onerror=alert(1)>"


def study(trials: int = 24, *, astray: bool = False, **columns: object) -> Study:
    """Two methods; the score of a is a peak over log lr alone, gamma is noise."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(trials):
        lr, gamma = 10 ** rng.uniform(-3, 1), rng.uniform(0, 1)
        loss = 0.1 + (math.log10(lr) + 1) ** 2
        for method in ("a", "b"):
            rows.append(
                {
                    "method": method,
                    "trial": number,
                    "setting/lr": lr,
                    "setting/gamma": gamma if method == "a" else None,
                    "setting/schedule": "linear" if number % 2 else "constant",
                    "goal/validation_loss/x": loss,
                    "goal/validation/y": 1 / loss,
                    "score": 100 * (1 - loss),
                    "best": False,
                    "front": False,
                    "note": "",
                }
            )
    if astray:
        rows[0] |= {"goal/validation_loss/x": 1e12, "score": -1e14}
    for method in ("a", "b"):
        own = [r for r in rows if r["method"] == method]
        max(own, key=lambda r: r["score"])["best"] = True
    max(rows, key=lambda r: r["score"])["front"] = True
    axes = polars.DataFrame(
        {
            "name": [n for n in rows[0] if n.startswith(("setting/", "goal/"))],
            "scale": ["log", "lin", "choice", "", ""],
            "better": ["", "", "", "lower", "higher"],
        }
    )
    table = polars.DataFrame(rows).with_columns(**columns)
    return Study("sweep t", "T", [row("a", "x", [1.0])], tables={"trials": table, "axes": axes})


def figures(own: Study) -> dict[str, search.SearchFigure]:
    return {figure.name: figure for figure in search.figures(own)[0]}


def test_every_trial_is_in_every_slice_of_its_method() -> None:
    own = figures(study())["slices"]
    assert [panel.title for panel in own.panels] == ["lr", "gamma", "schedule"]
    assert own.kinds == ("score (%)", "x", "y")
    table = study().tables["trials"]
    for panel, column in zip(own.panels, ("lr", "gamma", "schedule"), strict=True):
        for dots in panel.dots:
            rows = table.filter(polars.col("method") == dots.label)
            assert list(dots.x) == rows[f"setting/{column}"].to_list()
            assert sum(dots.best) == 1
    assert [panel.x.scale for panel in own.panels] == ["log", "lin", "choice"]
    assert {dots.label for dots in own.panels[1].dots} == {"a"}


def test_a_trial_astray_does_not_flatten_the_others() -> None:
    own = figures(study(astray=True))
    for panel in (*own["slices"].panels, *own["tradeoffs"].panels):
        for dots in panel.dots:
            assert max(abs(y) for y in dots.y) < 1e4
    texts = [text for dots in own["slices"].panels[0].dots for text in dots.texts]
    assert any("score −1e14" in text for text in texts)


def test_the_front_is_marked_and_the_rest_is_faint() -> None:
    (panel,) = figures(study())["tradeoffs"].panels
    strong = [dots for dots in panel.dots if dots.strong]
    assert sum(len(dots.x) for dots in panel.dots) == 48
    assert [len(dots.x) for dots in strong] == [1]
    assert (panel.x.title, panel.y.title) == ("x (lower is better)", "y (higher is better)")
    drawn = plots.search(figures(study())["tradeoffs"], looks("ab"))[0]
    opacities = {trace.marker.color.split()[-1] for trace in drawn.data}
    assert opacities == {"0.2)", "0.8)"}


def test_importance_finds_what_the_score_depends_on() -> None:
    pytest.importorskip("optuna")
    shares, missing = search.importances(search.Trials(study(60)))
    assert missing == []
    assert shares["a"]["setting/lr"] > 0.8
    assert sum(shares["a"].values()) == pytest.approx(1)
    assert list(shares["a"]) == sorted(shares["a"], key=lambda n: -shares["a"][n])


def test_of_few_trials_no_importance_is_claimed() -> None:
    made, missing = search.figures(study(5))
    assert "importance" not in [figure.name for figure in made]
    assert "need 10 trials" in missing[0]


def test_without_optuna_the_page_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    made, missing = search.figures(study())
    assert [figure.name for figure in made] == ["tradeoffs", "slices", "contours"]
    assert "trimol[studies]" in missing[0]


def test_a_contour_is_the_plane_between_its_trials() -> None:
    """A score that is linear in log lr and gamma is met everywhere inside the hull."""
    plane = 10 * polars.col("setting/lr").log10() + 20 * polars.col("setting/gamma").fill_null(0)
    own = search.Trials(study(score=plane))
    found = search.contours(own, {})
    panel = next(p for p in found.panels if p.label == "a")
    surface = panel.surface
    inside = 0
    for gamma, line in zip(surface.y, surface.z, strict=True):
        for lr, z in zip(surface.x, line, strict=True):
            if not math.isnan(z):
                inside += 1
                assert z == pytest.approx(
                    max(10 * math.log10(lr) + 20 * gamma, own.shown("score", -1e9)), abs=8
                )
    assert search.CELLS**2 / 4 < inside < search.CELLS**2


def test_trials_on_one_line_have_no_contour() -> None:
    same = {"setting/gamma": polars.col("setting/lr").log10()}
    own = study().tables["trials"].with_columns(**same)
    given = Study("s", "T", [], tables={"trials": own, "axes": study().tables["axes"]})
    assert search.contours(search.Trials(given), {}).panels == ()


def test_nothing_came_to_an_end() -> None:
    made, said = search.figures(study(score=polars.lit(None, polars.Float64)))
    assert made == []
    assert "No trial came to an end" in said[0]


@pytest.mark.slow
def test_the_page_has_the_figures_and_escapes_names(tmp_path) -> None:
    hostile = polars.col("setting/schedule").replace("linear", HOSTILE)
    save(study(12, **{"setting/schedule": hostile}), tmp_path)
    page = write(tmp_path).read_text()
    for name in ("tradeoffs", "slices", "importance", "contours"):
        assert f'data-figure="{name}"' in page
    assert HOSTILE not in page


def test_tables_of_another_kind_are_left_out_in_one_line(tmp_path) -> None:
    other = polars.DataFrame({"x": [1]})
    save(Study("s", "T", [row("a", "x", [1.0])], tables={"trials": other, "axes": other}), tmp_path)
    with pytest.warns(RuntimeWarning, match="trials must have best, front"):
        write(tmp_path)


@pytest.mark.slow
def test_figures_are_written_for_papers(tmp_path):
    """Contours, categories and importances among them, as SVG and PDF that the page links to."""
    save(study(), tmp_path)
    page = write(tmp_path).read_text(encoding="utf-8")
    for name in figures(study()):
        for form in ("svg", "pdf"):
            file = tmp_path / "figures" / f"sweep-t-{name}.{form}"
            assert file.stat().st_size > 1000
            assert f'href="figures/{file.name}"' in page
