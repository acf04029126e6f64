"""The figures' plain numbers, and that both drawings show them."""

import json
import math
import xml.etree.ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import OBJECTIVES, compared, config, record, records, save

from trimol.report import _curves as curves
from trimol.report import _interactive as interactive
from trimol.report import _printed as printed
from trimol.report._curves import cosines
from trimol.report._runs import comparisons
from trimol.report._style import COLOURS, looks
from trimol.report._triangle import AXES, Triangle, triangle
from trimol.runs.statistics import finite_mean

MANY = tuple(f"objective {i}" for i in range(12))


@pytest.fixture
def comparison(tmp_path):
    (found,) = comparisons(compared(tmp_path, seeds=3, steps=200))
    return found


def single(tmp_path, rows):
    (found,) = comparisons([save(tmp_path / "run", config(), rows)])
    return found


def test_a_line_is_the_mean_and_the_interval_at_every_step(comparison):
    figure = curves.errors(comparison)
    line = figure.panels[0].lines[1]
    runs = comparison.settings[1].runs
    by_hand = [
        finite_mean([run.metrics["R_opt"][i] for run in runs])
        for i in range(runs[0].metrics.height)
    ]
    assert line.label == "mgda"
    assert line.steps == (0, 50, 100, 150, 200)
    assert line.mean == tuple(e.estimate for e in by_hand)
    assert line.low == pytest.approx([e.estimate - e.half for e in by_hand], rel=1e-12)
    assert line.high == pytest.approx([e.estimate + e.half for e in by_hand], rel=1e-12)
    assert line.n == (3,) * 5


def test_errors_show_the_size_of_r_gen_beside_its_bound(comparison):
    figure = curves.errors(comparison)
    panel = figure.panels[2]
    main = [line for line in panel.lines if not line.reference]
    bound = [line for line in panel.lines if line.reference]
    assert [p.title.partition(":")[0] for p in figure.panels] == [
        "R_opt",
        "R_pop",
        "|R_gen|",
        "E_ca",
    ]
    assert figure.scales == ("log", "linear")
    assert min(value for line in main for value in line.mean) >= 0
    assert all(line.mean == pytest.approx([0.01] * 5) for line in bound)
    assert len(main) == len(bound) == 3


def test_losses_can_be_those_of_training_and_of_test(comparison, tmp_path):
    figure = curves.losses(comparison)
    assert [panel.title for panel in figure.panels] == list(OBJECTIVES)
    assert figure.kinds == ("test", "train")
    alone = single(tmp_path, records(OBJECTIVES, 100, test=False))
    assert curves.losses(alone).kinds == ("train",)
    assert curves.metrics(alone) is None
    assert [p.title[:4] for p in curves.errors(alone).panels] == ["R_op", "E_ca"]


def test_weights_on_the_simplex_have_an_axis_from_zero_to_one(comparison, tmp_path):
    assert all(panel.fixed == (0.0, 1.0) for panel in curves.weights(comparison).panels)
    rows = records(OBJECTIVES, 100)
    rows[0]["weight/MSE"] = 7.0
    free = curves.weights(single(tmp_path, rows))
    assert [panel.fixed for panel in free.panels] == [(0.0, 1.0), None, (0.0, 1.0)]


def test_one_objective_has_no_weights_and_no_conflict(tmp_path):
    alone = single(tmp_path, records(("only",), 100))
    assert curves.weights(alone) is curves.conflicts(alone) is cosines(alone) is None
    assert len(curves.losses(alone).panels) == 1


def test_few_pairs_get_a_panel_each_and_many_a_matrix(comparison, tmp_path):
    assert len(curves.conflicts(comparison).panels) == 1 + 3
    assert cosines(comparison) is None
    rows = records(MANY, 200)
    alone = single(tmp_path, rows)
    assert len(curves.conflicts(alone).panels) == 1
    figure = cosines(alone)
    assert figure.steps == (0, 50, 100, 150, 200)
    last = figure.settings[0].matrices[-1]
    for i in range(12):
        for j in range(12):
            below = rows[-1].get(f"cosine/{MANY[j]}/{MANY[i]}", math.nan)
            assert last[i][j] == pytest.approx(below, nan_ok=True)


def test_a_matrix_shows_what_was_measured_last(tmp_path):
    runs = [
        save(tmp_path / "a", config("static"), records(MANY, 200)),
        save(tmp_path / "b", config("mgda"), records(MANY, 100, every=100)),
    ]
    figure = cosines(*comparisons(runs))
    assert figure.steps == (0, 50, 100, 150, 200)
    assert figure.settings[1].steps == (0, 0, 100, 100, 100)


def test_numbers_that_are_not_finite_leave_a_gap_and_zero_keeps_the_axis(tmp_path):
    rows = records(OBJECTIVES, 150)
    for row, value in zip(rows, (0.5, math.nan, 0.0, math.inf), strict=True):
        row["R_opt"] = value
    panel = curves.errors(single(tmp_path, rows)).panels[0]
    assert panel.logarithmic
    assert panel.lines[0].mean == pytest.approx((0.5, math.nan, 0.0, math.nan), nan_ok=True)
    assert panel.lines[0].n == (1, 0, 1, 0)


def test_methods_that_take_more_samples_a_step_are_compared_at_equal_samples(tmp_path, comparison):
    assert curves.errors(comparison).progress == ("steps",)
    runs = [
        save(tmp_path / "a", config("static"), records(OBJECTIVES, 100)),
        save(tmp_path / "b", config("mgda"), records(OBJECTIVES, 100, batch=128)),
    ]
    figure = curves.errors(*comparisons(runs))
    assert figure.progress == ("samples", "steps")
    assert [line.samples for line in figure.panels[0].lines] == [(0, 3200, 6400), (0, 6400, 12800)]
    plot = json.loads(interactive.curves(figure, looks(["static", "mgda"]))[0].to_json())
    assert plot["data"][1]["x"] == [0, 6400, 12800]
    assert plot["data"][1]["meta"]["x"]["steps"] == [0, 50, 100]
    assert plot["layout"]["xaxis"]["title"]["text"] == "samples"


def test_negative_losses_have_no_logarithmic_axis(tmp_path):
    rows = records(("a",), 100)
    for row in rows:
        row["test_loss/a"] = -1.0
        row["loss/a"] = -2.0
    assert curves.losses(single(tmp_path, rows)).scales == ("linear",)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2000), st.integers(2, 400))
def test_thinning_keeps_the_ends_and_the_order(n, most):
    steps = list(range(0, 7 * n, 7))
    thin = curves.thinned(steps, most)
    assert len(thin) == min(n, most)
    assert thin == sorted(set(thin))
    assert not steps or (thin[0], thin[-1]) == (steps[0], steps[-1])


def test_the_triangle_is_relative_to_the_worst(comparison):
    figure = triangle(comparison)
    for axis in range(len(AXES)):
        means = [shape.corners[axis].value.estimate for shape in figure.shapes]
        ratios = [shape.corners[axis].ratio for shape in figure.shapes]
        assert max(ratios) == 1.0
        assert ratios == pytest.approx([mean / max(means) for mean in means])
    for shape in figure.shapes:
        for corner in shape.corners:
            assert 0 <= corner.low <= corner.ratio <= corner.high
            assert 0 < figure.radius(corner.ratio) <= 1


def test_errors_of_zero_lie_in_the_centre(tmp_path):
    zero, one = record(0, OBJECTIVES), record(0, OBJECTIVES)
    for name in ("R_opt", "R_gen", "E_ca"):
        zero[name] = 0.0
    runs = [
        save(tmp_path / "a", config("static"), [zero]),
        save(tmp_path / "b", config("mgda"), [one]),
    ]
    figure = triangle(*comparisons(runs))
    assert [figure.radius(c.ratio) for c in figure.shapes[0].corners] == [0.0] * 3
    assert [figure.radius(c.ratio) for c in figure.shapes[1].corners] == [1.0] * 3


def test_many_methods_have_no_whiskers_and_are_not_moved_aside(comparison):
    few = triangle(comparison)
    assert few.whiskers
    assert [few.shift(i) for i in range(3)] == pytest.approx([-0.024, 0, 0.024])
    many = Triangle("", "", "", few.shapes * 3, decades=2)
    assert not many.whiskers
    assert [many.shift(i) for i in range(9)] == [0.0] * 9
    one, crowd = (interactive.triangle(f, looks(comparison.labels))[0] for f in (few, many))
    outlines = [sum(t.mode == "lines+markers" for t in plot.data) for plot in (one, crowd)]
    whiskers = [sum(t.line.width == 4 for t in plot.data) for plot in (one, crowd)]
    assert (outlines, whiskers) == ([3, 9], [9, 0])


def test_the_axes_are_logarithmic_and_even():
    figure = Triangle("", "", "", (), decades=3)
    radii = [figure.radius(10.0**-power) for power in range(5)]
    assert radii == pytest.approx([1, 2 / 3, 1 / 3, 0, 0])
    ends = [figure.point(axis, 1.0) for axis in range(3)]
    assert [math.hypot(*end) for end in ends] == pytest.approx([1, 1, 1])
    assert sum(x for x, _ in ends) == pytest.approx(0)
    assert sum(y for _, y in ends) == pytest.approx(0)


@pytest.mark.parametrize("case", ["one method", "no test data"])
def test_no_trade_off_without_two_methods_and_test_data(tmp_path, case):
    if case == "one method":
        runs = compared(tmp_path, methods=("modo",), seeds=2, steps=100)
    else:
        runs = compared(tmp_path, seeds=2, steps=100, test=False)
    assert triangle(*comparisons(runs)) is None


def test_looks_are_distinct_for_more_methods_than_there_are():
    found = looks(f"m{i}" for i in range(35))
    assert len(set(found.values())) == 35
    assert {look.colour for look in found.values()} == set(COLOURS)
    assert looks(["a", "b", "a"])["b"] == looks(["a", "b"])["b"]


def test_plotly_draws_the_numbers_of_the_line(comparison):
    figure = curves.errors(comparison)
    plot = json.loads(interactive.curves(figure, looks(comparison.labels))[0].to_json())
    low, high, mean = (plot["data"][i] for i in range(3, 6))
    line = figure.panels[0].lines[1]
    assert {trace["meta"]["label"] for trace in (low, high, mean)} == {"mgda"}
    assert mean["x"] == list(line.steps)
    assert mean["y"] == pytest.approx(line.mean)
    assert low["meta"]["ends"]["linear"] == pytest.approx(line.low)
    assert high["y"] == pytest.approx(line.high)
    assert min(low["y"]) > 0  # cut: a logarithmic axis has no zero
    assert plot["layout"]["yaxis"]["type"] == "log"
    assert plot["layout"]["xaxis"]["title"]["text"] == "steps"
    assert "‖∇F_S λ‖" in plot["layout"]["yaxis"]["title"]["text"]


def test_plotly_gets_every_frame_of_a_matrix(tmp_path):
    figure = cosines(single(tmp_path, records(MANY, 200)))
    plot = json.loads(interactive.cosines(figure)[0].to_json())
    frames = plot["layout"]["meta"]["frames"]
    assert len(frames) == len(figure.steps)
    assert frames[-1] == plot["data"][0]["z"]
    assert frames[0][1][0] == round(figure.settings[0].matrices[0][1][0], 3)
    assert frames[0][0][1] is None


@pytest.mark.slow
def test_printed_figures_are_whole_and_the_same_every_time(comparison, tmp_path):
    style = looks(comparison.labels)
    many = cosines(single(tmp_path / "many", records(MANY, 100)))
    for draw in (
        lambda: printed.curves(curves.errors(comparison), style),
        lambda: printed.triangle(triangle(comparison), style),
        lambda: printed.cosines(many),
    ):
        found = draw()
        assert found == draw()
        assert xml.etree.ElementTree.fromstring(found["svg"]).tag.endswith("svg")
        assert found["pdf"].startswith(b"%PDF")
        assert b"%%EOF" in found["pdf"][-16:]


def test_strange_names_are_printed_without_a_word(tmp_path):
    alone = single(tmp_path, records(("$x_1$ costs $", "目标", "<b>&"), 100))
    style = looks(alone.labels)
    assert printed.curves(curves.losses(alone), style)["svg"]


def test_an_axis_of_zeros_does_not_go_below_them():
    zeros, some = (curves.Panel("t", "y", (_flat(value),)) for value in (0.0, 0.5))
    assert zeros.limits == pytest.approx((-0.03, 1.03))
    assert some.limits is None


def _flat(value):
    own = (value, value)
    return curves.Line("a", "", False, (0, 1), (0.0, 8.0), own, own, own, (2, 2))


@pytest.mark.parametrize(
    ("means", "share", "possible"),
    [
        ((0.2, 0.9), True, (0.0, 1.0)),
        ((0.2, 0.9), False, (0.0, math.inf)),
        ((0.2, 1.9), True, (0.0, math.inf)),
        ((-0.2, 0.9), True, (-math.inf, math.inf)),
        ((math.nan, math.nan), True, (-math.inf, math.inf)),
    ],
)
def test_bands_end_where_a_number_does(means, share, possible):
    """Of three seeds that begin at 0.5 ± 1: an accuracy of -0.5 is none."""
    line = curves.Line("a", "", False, (0, 1), (0.0, 8.0), means, (-3.0, -3.0), (3.0, 3.0), (3, 3))
    panel = curves.Panel("t", "y", (line,), share=share)
    assert panel.possible == possible
    figure = curves.Curves("metrics", "M", "", (panel,))
    (drawn,) = interactive.curves(figure, looks(["a"]))
    low, high, *_ = drawn["data"]
    assert list(low["y"]) == [max(-3.0, possible[0])] * 2
    assert list(high["y"]) == [min(3.0, possible[1])] * 2
    assert printed.curves(figure, looks(["a"]))["svg"]
