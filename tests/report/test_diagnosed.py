"""A diagnosis on the page: tables and figures as plain numbers, and files that are not ours."""

import copy
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.report import _diagnosis_plots as plots
from trimol.report._diagnosed import Diagnosed, chosen, gains, remarks
from trimol.report._page import write_page
from trimol.report._style import looks
from trimol.runs._diagnosis_file import FILE
from trimol.runs._storage import StoreError


def gain(method, metric, mean, *, way="lower", **more):
    return {
        "method": method, "metric": metric, "way": way, "base": -2.0, "mean": mean,
        "ci": 0.1, "wide": 0.2, "n": 5, "p": 0.01,
        "share": mean / 2, "better": False, "worse": False,
    } | more  # fmt: skip


def contender(kind, **setting):
    return {
        "setting": {"lr": 0.1, "hyperparameters": setting, "task_options": {}, "schedule": None},
        "trials": 9, "cost": 1.5, "seeds": 5, "kind": kind,
    }  # fmt: skip


CONTENT = {
    "task": "<b>mine</b>",
    "regime": "direction",
    "use": "static",
    "sentence": "Stay with static weights: no <i>method</i> is better.",
    "evidence": {
        "look": {
            "reason": "gradients oppose",
            "warnings": ["beware"],
            "moments": [
                {
                    "name": "step 3",
                    "cosines": [
                        {"pair": ["a", "b"], "value": 0.5, "low": 0.4, "high": 0.6},
                        {"pair": ["a", "c"], "value": -0.5, "low": -0.6, "high": -0.4},
                        {"pair": ["b", "c"], "value": None, "low": None, "high": None},
                    ],
                    "noise": {"a": {"value": 2.0, "low": 1.0, "high": None}},
                }
            ],
        },
        "trial": {
            "metrics": {"a": "lower", "hit": "higher"},
            "contenders": {
                "static": contender("baseline", weights=[0.25, 0.75]),
                "modo": contender("trades", gamma=0.1),
            },
            "gains": [
                gain("modo", "a", 0.5, better=True),
                gain("modo", "hit", -0.4, way="higher", worse=True),
            ],
            "points": {
                "static": [{"a": 1.0, "hit": 0.5}, {"a": 2.0, "hit": 0.4}, {"a": 2.0, "hit": 0.9}],
                "modo": [],
            },
            "held_out": 3,
            "notes": ["The time was up."],
            "failed": ["modo, seed 3: it diverged"],
        },
    },
}


def without_trial():
    content = copy.deepcopy(CONTENT)
    del content["evidence"]["trial"]
    return content


def test_differences_have_the_metrics_own_sign():
    table = gains(CONTENT)
    assert table.columns == ("method", "metric", "static", "difference")
    assert table.rows == (
        ("modo", "a ↓", "−2", "−0.50 ± 0.10 ▲"),
        ("modo", "hit ↑", "−2", "−0.40 ± 0.10 ▼"),
    )


def test_what_was_chosen():
    unknown = copy.deepcopy(CONTENT)
    unknown["evidence"]["trial"]["contenders"]["modo"]["cost"] = None
    first, second = chosen(unknown).rows
    assert first == ("static", "weights (0.25, 0.75), learning rate 0.1", "9", "1.5")
    assert second[-1] == "–"  # nobody measured it


def test_remarks_say_what_a_reader_must_know():
    told = " ".join(remarks(CONTENT))
    for text in (
        "3 samples of train",
        "The time was up.",
        "it diverged",
        "beware",
    ):
        assert text in told
    assert remarks(without_trial()) == ["beware"]


def test_right_of_zero_is_better_in_the_forest():
    bars = Diagnosed(CONTENT).bars
    assert [(b.metric, b.mean) for b in bars] == [("a", 0.25), ("hit", -0.2)]
    assert bars[0].low == pytest.approx(0.2)
    drawn = plots.forest(bars, looks(["modo"]))
    assert [trace.x[0] for trace in drawn.data] == pytest.approx([25, -20])
    assert [trace.y[0] for trace in drawn.data] == [0, 1]


def test_dominated_settings_are_hollow():
    """Of the three the second is worse than the first on both metrics."""
    (figure,) = Diagnosed(CONTENT).reached
    (cloud,) = figure.clouds
    assert (figure.metrics, cloud.best) == (("a", "hit"), (True, False, True))
    hollow, filled = plots.reached(figure, looks(["static"])).data
    assert (list(hollow.x), list(filled.x)) == ([2.0], [1.0, 2.0])
    assert hollow.marker.symbol.endswith("-open")


def test_the_least_cosine_and_the_most_noise_of_each_moment():
    assert Diagnosed(CONTENT).moments.rows == (
        ("step 3", "−0.5 (−0.6 to −0.4), a and c", "–", "2 (1 to –), a", "–"),
    )


def test_the_page_begins_with_the_sentence(tmp_path):
    (tmp_path / FILE).write_text(json.dumps(CONTENT))
    written = write_page(tmp_path)
    page = written.page.read_text(encoding="utf-8")
    assert written.left_out == []
    assert "Stay with static weights: no &lt;i&gt;method&lt;/i&gt; is better." in page
    assert "<b>mine</b>" not in page
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    own = ("differences", "reached")
    assert drawn == {f"diagnosis-of-b-mine-b-{n}.{form}" for n in own for form in ("svg", "pdf")}
    assert all(f'href="figures/{name}"' in page for name in drawn)
    (tmp_path / FILE).write_text(json.dumps(without_trial()))
    assert write_page(tmp_path).left_out == []


PLACES = [
    ("evidence", "look"),
    ("evidence", "look", "moments"),
    ("evidence", "look", "moments", 0, "cosines"),
    ("evidence", "trial", "gains", 0, "mean"),
    ("evidence", "trial", "contenders", "modo", "setting"),
    ("evidence", "trial", "contenders", "modo", "setting", "lr"),
    ("evidence", "trial", "contenders", "static", "kind"),
    ("evidence", "trial", "points", "static", 0, "a"),
    ("evidence", "trial", "points", "static", 0),
    ("evidence", "trial", "metrics", "a"),
    ("evidence", "trial", "metrics"),
    ("sentence",),
]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from([None, 3, "x", [], {}, {"x": 1}, [None], math.nan, -1e308, True]),
)
def test_what_was_edited_is_read_or_left_out(place, value):
    content = copy.deepcopy(CONTENT)
    *path, last = place
    within = content
    for name in path:
        within = within[name]
    within[last] = value
    try:
        found = Diagnosed(content)
    except StoreError:
        return
    style = looks(["static", "modo"])
    assert gains(content) is None or gains(content).columns
    assert chosen(content) is None or chosen(content).rows is not None
    assert isinstance(remarks(content), list)
    assert found.moments.columns
    if found.bars:
        plots.forest(found.bars, style)
    for figure in found.reached:
        plots.reached(figure, style)
