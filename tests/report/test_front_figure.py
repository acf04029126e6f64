"""What a report shows of a front: the numbers behind the plots, the plots, and the page."""

import math
from dataclasses import replace
from pathlib import Path

import polars
import pytest
from report_samples import HOSTILE

from trimol import report
from trimol.report import _interactive as interactive
from trimol.report import _printed as printed
from trimol.report._front import figures, is_front, listing, sentences
from trimol.report._style import looks
from trimol.runs import study as results
from trimol.runs._front_points import Front, FrontPoint, Space, derived, judged
from trimol.runs._front_tables import front_study, save_front

NAMES = ("fit", "slope", "size", "cost")


def made(objectives=2, *, goals=False, seeds=1, methods=("static", HOSTILE), known=False) -> Front:
    """A made-up front: per method and seed a dominated point and others on a plane."""
    names = NAMES[:objectives]
    spaces = [Space(name, names, (1,) * objectives) for name in ("test", "train")]
    if goals:
        spaces.append(Space("goals", ("accuracy", HOSTILE), (-1, 1)))
    points = [
        FrontPoint(
            method,
            seed,
            tuple(0.9 if i == place else 0.1 / (objectives - 1) for i in range(objectives)),
            None,
            place == 1,
            Path("runs", f"task-{method}-seed{seed}-{place}abcdef{rank}"),
            {
                "test": tuple(2.0 + rank + seed - 0.5 * (i == place) for i in range(objectives)),
                "train": tuple(1.0 + rank - 0.5 * (i == place) for i in range(objectives)),
                **({"goals": (0.5 + place, 1.0 + place)} if goals else {}),
            },
            {},
            {},
        )
        for rank, method in enumerate(methods)
        for seed in range(seeds)
        for place in range(objectives)
    ]
    beaten = FrontPoint(
        *(methods[0], 0, (1 / objectives,) * objectives, None, False, Path("runs/x-beaten0")),
        {**points[0].values, **dict.fromkeys(("test", "train"), (9.0,) * objectives)},
        *({}, {}),
    )
    marked = judged([*points, beaten], spaces)
    known_at = {"test": polars.DataFrame({n: [0.1, 0.2] for n in names}).to_numpy()}
    return Front(
        task="made-up",
        methods=tuple(methods),
        seeds=seeds,
        spaces=tuple(spaces),
        points=marked,
        references={space.name: derived(marked, space) for space in spaces},
        given=False,
        known=known_at if known else {},
        failed=[],
    )


def study(**options):
    return front_study(made(**options), Path("runs"))


def test_points_are_sorted_by_method_seed_and_dominance() -> None:
    (figure,) = figures(study(seeds=2, known=True))
    assert figure.kinds == ("test", "train")
    assert figure.axes == ("fit", "slope")
    found = {(d.label, d.kind, d.seed, d.dominated): d.at for d in figure.dots}
    assert found["static", "test", 0, False] == ((1.5, 2.0), (2.0, 1.5))
    assert found["static", "test", 0, True] == ((9.0, 9.0),)
    assert found[HOSTILE, "train", 1, False] == ((1.5, 2.0), (2.0, 1.5))
    assert len(found) == 2 * (2 * 2 + 1)
    assert figure.known == {"test": ((0.1, 0.1), (0.2, 0.2))}
    assert figure.joined


def test_goals_are_a_figure_of_their_own_that_says_which_way_is_better() -> None:
    losses, goals = figures(study(goals=True))
    assert (losses.name, goals.name) == ("front", "goals")
    assert goals.axes == ("accuracy (higher is better)", f"{HOSTILE} (lower is better)")
    assert goals.kinds == ("goals",)
    assert not goals.joined


def test_points_that_are_not_finite_are_not_drawn() -> None:
    front = made()
    first, *others = front.points
    broken = replace(first, values={**first.values, "test": (math.nan, 1.0)})
    front = replace(front, points=judged([broken, *others], front.spaces))
    drawn = figures(front_study(front, Path("runs")))[0]
    assert sum(len(d.at) for d in drawn.dots if d.kind == "test") == len(front.points) - 1
    interactive.front(drawn, looks(drawn.labels))


def test_hollow_is_dominated_and_the_first_kind_is_shown() -> None:
    (figure,) = figures(study(known=True))
    (plot,) = interactive.front(figure, looks(figure.labels))
    own = [t for t in plot.data if t.meta["label"] == "static"]
    assert [(t.marker.symbol, t.visible) for t in own if t.meta["kind"] == "test"] == [
        ("circle", True),
        ("circle-open", True),
    ]
    assert {t.visible for t in own if t.meta["kind"] == "train"} == {False}
    assert plot.data[0].mode == "lines"  # the true front
    assert {t.type for t in plot.data} == {"scatter"}
    filled = own[0]
    assert (filled.line.shape, filled.mode) == ("hv", "lines+markers")
    assert "<script" not in interactive.embedded(plot)


def test_three_axes_are_drawn_in_space_and_four_in_parallel() -> None:
    (three,) = figures(study(objectives=3))
    (plot,) = interactive.front(three, looks(three.labels))
    assert {t.type for t in plot.data} == {"scatter3d"}
    assert plot.layout.scene.zaxis.title.text == "size"
    (four,) = figures(study(objectives=4))
    assert four.parallel
    (plot,) = interactive.front(four, looks(four.labels))
    assert len(plot.data) == 2 * (2 * 4 + 1)  # a line a point, on both kinds of data
    assert all(0 <= min(t.y) <= max(t.y) <= 1 for t in plot.data)
    assert [t.line.dash for t in plot.data if max(t.y) == min(t.y) == 1] == ["dot"] * 2
    assert list(plot.layout.xaxis.ticktext) == list(NAMES)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_the_printed_figure_is_a_picture_and_the_same_every_time(objectives: int) -> None:
    (figure,) = figures(study(objectives=objectives, known=True))
    drawn = printed.front(figure, looks(figure.labels))
    assert drawn["svg"].lstrip().startswith(b"<?xml")
    assert drawn["pdf"].startswith(b"%PDF")
    assert printed.front(figure, looks(figure.labels))["svg"] == drawn["svg"]


def test_sentences_and_listing_say_what_the_points_do() -> None:
    found = study(methods=("static", "stch"))
    first, second, apart, reference = sentences(found)
    assert first.startswith("static: 2 of 3 points not dominated on test data; hypervolume ")
    assert second.startswith("stch: 2 of 2 points not dominated on test data; hypervolume ")
    assert apart.startswith("stch − static: hypervolume −")
    assert "one seed cannot tell a difference from luck: 5 seeds at least" in apart
    assert "derived from these runs" in reference
    rows = {row[0]: row for row in listing(found, "static").rows}
    assert rows["2 ○"][1:] == (".50 .50", "9", "9", "beaten")
    assert rows["3+"][1] == ".10 .90"


def test_models_that_a_given_reference_leaves_out_are_said() -> None:
    front = replace(made(methods=("static",)), given=True, references={"test": (9, 1.9)})
    whole = replace(front, spaces=front.spaces[:1])
    said, _ = sentences(front_study(whole, Path("runs")))
    assert "(without 1 model beyond the reference point)" in said  # (1.5, 2)
    said, *_ = sentences(study(methods=("static",)))
    assert "beyond" not in said


def test_several_seeds_have_intervals_and_a_verdict() -> None:
    found = study(methods=("static", "stch"), seeds=5)
    first, _, apart, _ = sentences(found)
    assert "±" in first
    assert "lower by more than the noise" in apart or "no difference" in apart
    few = sentences(study(methods=("static", "stch"), seeds=4))[2]
    assert " ± " in few
    assert "4 seeds cannot tell a difference from luck: 5 seeds at least" in few
    rows = {row[0]: row for row in listing(found, "stch").rows}
    assert "±" in rows["1"][2]
    assert listing(found, "stch").columns[-1] == "first seed's run"


def test_the_page_shows_a_front_and_hostile_names_are_text(tmp_path: Path) -> None:
    save_front(made(goals=True, known=True), tmp_path)
    page = report.write(tmp_path).read_text()
    assert page.count("<figure data-figure=") == 2
    assert HOSTILE not in page
    assert (tmp_path / "figures" / "front-made-up-front.svg").exists()
    assert (tmp_path / "figures" / "front-made-up-goals.pdf").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop("method"),
        lambda table: table.with_columns(polars.lit("x").alias("test/fit")),
        lambda table: table.with_columns(polars.lit(None).alias("test/fit")),
        lambda table: table.with_columns(polars.lit(1.5).alias("seed")),
        lambda table: table.select(c for c in table.columns if not c.startswith("dominated")),
        lambda table: table.head(0),
    ],
)
def test_a_study_that_was_changed_is_shown_as_any_other(change, tmp_path: Path) -> None:
    whole = study()
    broken = results.Study(**{**vars(whole), "tables": {"points": change(whole.tables["points"])}})
    assert is_front(whole)
    assert not is_front(broken)
    results.save(broken, tmp_path)
    assert 'data-figure="front"' not in report.write(tmp_path).read_text()


def test_rows_that_are_missing_make_it_no_front() -> None:
    whole = study()
    assert not is_front(results.Study(**{**vars(whole), "rows": whole.rows[1:]}))
