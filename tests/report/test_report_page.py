"""The page as a whole: what is in it, that nothing breaks out of it, and what it refuses."""

import math
import re
import shlex
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from report_samples import (
    HOSTILE,
    OBJECTIVES,
    compared,
    config,
    records,
    save,
    study,
    without_printing,
)

from trimol import report
from trimol.cli._parse import parse, split_flags
from trimol.cli.run import Options, configuration
from trimol.report._interactive import embedded
from trimol.report._page import pictures
from trimol.report._runs import command
from trimol.report._summary import measured_and_paper
from trimol.runs.config import configure
from trimol.runs.study import Study, row


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    if "figures_are_written" not in request.node.name:
        without_printing(monkeypatch)


class Elements(HTMLParser):
    """The elements of a page, as a browser would find them."""

    def __init__(self, text):
        super().__init__()
        self.found, self.data = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.lasttag not in ("script", "style"):
            self.data.append(data)

    def all(self, tag):
        return [attributes for found, attributes in self.found if found == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.data).split())


def written(folder):
    return report.write(folder).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_and_the_figures_are_written(tmp_path):
    compared(tmp_path / "runs", seeds=2, steps=100)
    study(tmp_path / "fig0")
    page = report.write(str(tmp_path))
    assert page == tmp_path / "report.html"
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    figures = ("triangle", "errors", "losses", "metrics", "weights", "conflicts")
    assert names == {f"digits-{name}.{form}" for name in figures for form in ("svg", "pdf")}
    found = Elements(page.read_text(encoding="utf-8"))
    assert [a["data-figure"] for a in found.all("figure") if "data-figure" in a] == list(figures)
    for sentence in ("3 methods on digits", "Figure 0: a study", "First paragraph.", "agrees"):
        assert sentence in found.text
    assert not list(tmp_path.rglob(".*")), "temporary files are left"
    for path in (tmp_path / "figures").iterdir():
        assert path.read_bytes().startswith({".svg": b"<?xml", ".pdf": b"%PDF"}[path.suffix])


def test_the_page_can_be_written_again_over_itself(tmp_path):
    compared(tmp_path, methods=("modo",), seeds=1, steps=50)
    first, second = written(tmp_path), written(tmp_path)
    undated = [re.sub(r"written [^.]*\.", "", page) for page in (first, second)]
    assert undated[0] == undated[1]


def test_every_link_leads_to_a_file_or_a_section(tmp_path):
    compared(tmp_path / "a folder # with % signs", seeds=1, steps=50)
    study(tmp_path / "fig0")
    found = Elements(written(tmp_path))
    ids = {attributes.get("id") for _, attributes in found.found}
    links = [attributes["href"] for attributes in found.all("a")]
    assert len(links) > 20
    for link in links:
        if link.startswith("#"):
            assert link[1:] in ids
        else:
            assert (tmp_path / unquote(link)).is_file(), link


def test_nothing_is_fetched(tmp_path):
    compared(tmp_path, seeds=1, steps=50)
    found = Elements(written(tmp_path))
    for tag, attributes in found.found:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name) or ""
            assert not re.match(r"\w+:", address) or address.startswith("data:"), (tag, address)
    (policy,) = (a["content"] for a in found.all("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_names_from_outside_are_shown_and_never_run(tmp_path):
    objectives = (
        HOSTILE,
        "</script><script>alert(2)</script>",
        "a\"'><img src=x onerror=alert(3)>",
    )
    for seed in range(2):
        for method in ("static", HOSTILE):
            rows = records(objectives, 100, metrics=(HOSTILE,))
            place = tmp_path / f"{len(method)}-{seed}"
            save(place, config(method, task=f"task {HOSTILE}", seed=seed), rows)
    study(tmp_path / "fig0", title=HOSTILE)
    page = written(tmp_path)
    found = Elements(page)
    assert "<script>alert" not in page
    assert not [a for a in found.all("img") if not a["src"].startswith("data:")]
    own = [a for a in found.all("script") if "type" not in a]
    assert len(own) == 1
    assert not any(name.startswith("on") for _, attributes in found.found for name in attributes)
    for name in objectives:
        assert name in found.text


def test_json_cannot_close_its_element():
    text = embedded({"a": "</script><!--", "b": "\u2028&"})
    assert not set(text) & set("<>&\u2028")


@pytest.mark.parametrize(
    ("objectives", "seeds", "methods", "test"),
    [
        (("only",), 1, ("modo",), True),
        (("only",), 2, ("modo", "mgda"), False),
        (tuple("abcdefghijkl"), 2, ("modo", "mgda"), True),
    ],
    ids=["M=1, one run", "M=1, no test data", "M=12"],
)
def test_other_numbers_of_objectives_seeds_and_methods(tmp_path, objectives, seeds, methods, test):
    compared(tmp_path, methods=methods, seeds=seeds, objectives=objectives, steps=100, test=test)
    found = Elements(written(tmp_path))
    matrices = [a for a in found.all("figure") if a.get("data-figure") == "cosines"]
    assert len(matrices) == (len(objectives) > 4)
    assert ("There is one objective" in found.text) == (len(objectives) == 1)
    assert ("There is no test data" in found.text) == (not test)


def test_unfinished_and_diverged_runs(tmp_path):
    rows = records(OBJECTIVES, 200)
    for name in rows[2]:
        if name not in ("step", "samples"):
            rows[2][name], rows[3][name] = math.nan, math.inf
    save(tmp_path / "a", config("static"), rows[:4])
    save(tmp_path / "b", config("modo"), rows[:2], finished=False)
    save(tmp_path / "c", config("mgda"), [], finished=False)
    text = Elements(written(tmp_path)).text
    assert "static: 1 of 1 run recorded numbers that are not finite, from step 100 on" in text
    assert "modo: no run is finished; shown as far as measured (step 50 of 1000)." in text
    assert "mgda: no run is finished" in text
    assert "NaN" not in (tmp_path / "report.html").read_text().partition('id="library"')[0].replace(
        "NaN (0 of 1 finite)", ""
    )


def test_a_run_that_has_measured_nothing_yet(tmp_path):
    save(tmp_path / "a", config(), [], finished=False)
    page = report.write(tmp_path)
    assert "Nothing has been measured yet." in page.read_text()
    assert page.stat().st_size < 100_000  # no figure, no plotly.js


@pytest.mark.parametrize("case", ["empty", "missing", "file"])
def test_nothing_to_report_on_is_one_clear_line(tmp_path, case):
    folder = {"empty": tmp_path, "missing": tmp_path / "no", "file": tmp_path / "f"}[case]
    (tmp_path / "f").write_text("")
    with pytest.raises(report.ReportError, match=r"^folder must .* found .*$") as caught:
        report.write(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_a_studys_rows_stand_beside_the_paper(tmp_path):
    given = Study(
        "x",
        "X",
        rows=[
            row("modo", "R_opt", [1.0, 3.0], paper=2.5, gamma=0.1)
            | {"verdict": "agrees", "paper_std": 0.5},
            row("static", "R_opt", [float("nan")], alpha=[1, 2.5]) | {"mean": None},
        ],
    )
    table = measured_and_paper(given)
    assert table.columns == (
        *("method", "gamma", "alpha", "metric", "measured (mean ± std)", "n", "paper", "verdict"),
    )
    assert table.rows == (
        ("modo", "0.1", "–", "R_opt", "2.0 ± 1.4", "2", "2.50 ± 0.50", "agrees"),
        ("static", "–", "1, 2.5", "R_opt", "–", "1", "–", "–"),
    )


def test_the_interval_of_a_mean_has_a_column():
    rows = [row("modo", "ΔA_id", [1.0, 3.0], ci=0.5), row("static", "ΔA_id", [2.0])]
    table = measured_and_paper(Study("x", "X", rows=rows))
    assert table.columns[-1] == "95 % interval of the mean"
    assert [line[-1] for line in table.rows] == ["1.5 to 2.5", "–"]
    assert "ci" not in table.columns


def test_runs_of_a_study_are_left_to_it(tmp_path):
    study(tmp_path / "table0")
    compared(tmp_path / "table0" / "runs")
    text = Elements(written(tmp_path)).text
    assert "Figure 0: a study" in text
    assert "3 methods on digits" not in text
    compared(tmp_path / "own")
    assert "3 methods on digits" in Elements(written(tmp_path)).text


def test_a_single_trial_has_no_spread():
    table = measured_and_paper(Study("x", "X", rows=[row("modo", "R_opt", [0.5], paper=0.5)]))
    assert table.columns == ("method", "metric", "measured", "n", "paper")
    assert table.rows == (("modo", "R_opt", "0.5", "1", "0.5"),)


def test_of_a_figure_in_several_formats_the_vector_graphic_is_shown(tmp_path):
    (picture,) = pictures(study(tmp_path / "fig0"), [])
    assert picture.name == "fig0.svg"
    assert picture.uri.startswith("data:image/svg+xml;base64,")


def test_a_figure_that_is_gone_is_named(tmp_path):
    study(tmp_path / "fig0")
    (tmp_path / "fig0" / "fig0.svg").unlink()
    with pytest.warns(RuntimeWarning, match=r"cannot read .*fig0\.svg: No such file or directory$"):
        page = report.write(tmp_path)
    assert "fig0.svg: No such file or directory" in page.read_text()


def test_many_rows_are_behind_a_click(tmp_path):
    study(tmp_path / "fig0", rows=60)
    assert "All 60 numbers" in Elements(written(tmp_path)).text


@pytest.mark.parametrize(
    ("method", "others"),
    [
        ("modo", {"hyperparameters": {"gamma": 0.25, "rho": 0.1, "weights": [0.2, 0.3, 0.5]}}),
        ("modo", {"hyperparameters": {"simultaneous": True}, "task_options": {"hidden": 8}}),
        ("moco", {"hyperparameters": {"gamma": None}, "rho": 0.5, "precision": "bf16"}),
        ("static", {"optimizer": "nesterov", "watch_every": 4}),
    ],
)
def test_the_command_gives_the_same_run(method, others):
    asked = configure("digits", method, steps=30, seed=3, lr=0.5, measure_every=7, **others)
    _, _, *arguments = shlex.split(command(asked))
    own, flags = split_flags(arguments, Options)
    again = configuration(parse(Options, own, "run"), flags)
    assert again.key == asked.key


def test_a_page_about_one_thing_has_its_title_once(tmp_path):
    study(tmp_path / "one")
    page = written(tmp_path)
    assert "<h1>Figure 0: a study</h1>" in page
    assert page.count("<h2>") == page.count("<h2>What came out</h2>") == 1
    compared(tmp_path / "runs", seeds=2, steps=100)
    page = written(tmp_path)
    assert f"<h1>{tmp_path.name}</h1>" in page
    assert "<h2>Figure 0: a study</h2>" in page


def test_e_ca_has_one_reading(tmp_path):
    """The others are for machines: see ``summarise``."""
    compared(tmp_path, seeds=3, steps=100)
    heads = written(tmp_path).split("<thead>")[1].split("</thead>")[0]
    assert heads.count("E_ca<") + heads.count("E_ca ") == 1
