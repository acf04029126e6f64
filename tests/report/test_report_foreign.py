"""Reports on files that are damaged, edited by hand, or somebody else's: one line each, no more."""

import base64
import json
import math
import os
import re
import shutil

import polars
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_samples import HOSTILE, config, records, save, study, without_printing

from trimol import report
from trimol.cli import main
from trimol.report import _page as page_module
from trimol.runs import _run_state as states
from trimol.runs import _storage as files

SECRET = "what nobody may see"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    without_printing(monkeypatch)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Two runs, one that failed, and a study."""
    folder = tmp_path_factory.mktemp("sound") / "runs"
    own = {"hyperparameters": {"weights": [0.5, 0.5]}, "task_options": {"hidden": 3}}
    rows = records(("a",), 100)
    for method in ("static", "modo"):
        save(folder / method, config(method, steps=100, **own), rows)
    save(folder / "failed", config("modo", seed=1, steps=100, **own), rows[:2], finished=False)
    states.stop(folder / "failed", ValueError("it broke"), saved=False)
    study(folder / "study")
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "runs")


def reported(folder, capsys, *flags):
    """The exit code, what was left out, and the page."""
    capsys.readouterr()
    code = main(["report", str(folder), *flags])
    said = capsys.readouterr().err.splitlines()
    prefix = "trimol: left out: "
    left_out = [line.removeprefix(prefix) for line in said if line.startswith(prefix)]
    return code, left_out, (folder / "report.html").read_text(encoding="utf-8")


def test_states_are_shown_on_the_page_and_in_the_terminal(folder, capsys):
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().err == "trimol: digits: modo, seed 1: failed: it broke\n"
    page = (folder / "report.html").read_text()
    assert "modo, seed 1: failed: it broke" in page
    assert '<td class="text">failed: it broke</td>' in page
    assert main(["report", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unfinished"] == ["digits: modo, seed 1: failed: it broke"]
    assert found["left_out"] == []


def everywhere(content, at=()):
    """The place of every value in JSON."""
    yield at
    if isinstance(content, dict | list):
        named = content.items() if isinstance(content, dict) else enumerate(content[:2])
        for key, value in named:
            yield from everywhere(value, (*at, key))


def changed(content, at, value):
    if not at:
        return value
    whole = json.loads(json.dumps(content))
    inner = whole
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return whole


DEEP = "[" * 5000 + "]" * 5000
PLACES = ("study/study.json", "modo/config.json", "modo/summary.json", "modo/environment.json")
VALUES = (
    *(None, [], {}, HOSTILE, "", 0, -1, 1.5, True, 1e308, math.nan, math.inf, 10**400),
    *([[[["x"]]]], [1, "a", None, {}], {"a": {"b": {"c": 1}}}, "\0", "../../secret", "/etc/passwd"),
    *("\ud800", DEEP),
)


@pytest.mark.slow
@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_value_anywhere_is_at_most_one_line(sound, tmp_path, capsys, data):
    folder = tmp_path / "runs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    file = folder / data.draw(st.sampled_from((*PLACES, "failed/state.json")), label="file")
    content = json.loads(file.read_text())
    content.pop("digest", None)
    at = data.draw(st.sampled_from(list(everywhere(content))), label="place")
    value = data.draw(st.sampled_from(VALUES), label="value")
    text = json.dumps(changed(content, at, "HERE" if value is DEEP else value))
    file.write_text(text.replace('"HERE"', DEEP))
    code, left_out, page = reported(folder, capsys)
    assert code == len(left_out) <= 1
    assert all(str(file.parent) in line for line in left_out)
    assert "<script>alert" not in page


@pytest.mark.parametrize("place", [*PLACES, "failed/state.json", "modo/metrics.parquet"])
@pytest.mark.parametrize("kind", ["empty", "binary", "folder", "loop", "outside"])
def test_a_file_that_is_none(place, kind, folder, tmp_path, capsys):
    if kind == "loop" and place in PLACES[:2]:
        pytest.skip("nobody finds a file that leads to itself, and its run or study is not there")
    file = folder / place
    content = file.read_bytes()
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "outside":
        (tmp_path / "elsewhere").write_bytes(content)
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.write_bytes({"empty": b"", "binary": bytes(range(256))}[kind])
    if file.name == "environment.json" and kind in ("empty", "binary"):  # a run is read without it
        assert main(["report", str(folder)]) == 0
        (said,) = [line for line in capsys.readouterr().err.splitlines() if str(file) in line]
        assert re.search(r"environment\.json is damaged.*read without it", said)
        return
    code, (line,), page = reported(folder, capsys)
    assert code == 1
    assert str(file) in line
    assert line.split("/")[-1] in page


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("R_opt", "text", "R_opt must hold numbers, found String"),
        ("step", None, "must have a whole number as step in every row"),
    ],
)
def test_a_table_that_holds_something_else(column, value, said, folder, capsys):
    file = folder / "modo" / "metrics.parquet"
    table = files.read_table(file)
    table = table.with_columns(polars.Series(column, [value] * len(table)))
    table.write_parquet(file)
    code, (line,), _ = reported(folder, capsys)
    assert code == 1
    assert said in line
    assert str(file) in line


@pytest.mark.slow
@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324])
def test_numbers_at_the_ends_are_drawn(value, folder, monkeypatch, capsys):
    monkeypatch.undo()  # Matplotlib, too
    for run in ("modo", "static"):
        file = folder / run / "metrics.parquet"
        table = files.read_table(file)
        floats = [name for name, kind in table.schema.items() if kind.is_float()]
        table.with_columns(polars.lit(value).alias(name) for name in floats).write_parquet(file)
    code, left_out, _ = reported(folder, capsys)
    assert (code, left_out) == (0, [])


@pytest.mark.parametrize("value", [[1], torch.ones(2, 2)], ids=["list", "matrix"])
def test_a_direction_that_is_none(value, folder, capsys):
    torch.save(value, folder / "modo" / "direction.pt")
    _, (line,), _ = reported(folder, capsys)
    assert "direction.pt must hold one vector, found" in line


@pytest.mark.parametrize("key", ["figures", "files"])
@pytest.mark.parametrize(
    "name",
    ["../../secret.svg", "{outside}/secret.svg", "link.svg", "a/../..", "\ud800.svg", "\0.svg"],
)
def test_nothing_from_outside_comes_in(key, name, folder, tmp_path, capsys):
    secret = tmp_path / "secret.svg"
    secret.write_text(f"<svg>{SECRET}</svg>")
    (folder / "study" / "link.svg").symlink_to(secret)
    file = folder / "study" / "study.json"
    content = json.loads(file.read_text())
    content.pop("digest", None)
    named = name.format(outside=tmp_path)
    file.write_text(json.dumps({**content, key: [named]}))
    code, (line,), page = reported(folder, capsys)
    assert (code, line) == (1, f"{file} must name files of its own folder, found {named!r}")
    assert "secret" not in page.replace(line, "").replace("&#39;", "'").replace(line, "")
    assert base64.b64encode(SECRET.encode()[:12]).decode() not in page


def test_links_that_lead_out_of_a_runs_folder_are_not_shown(folder, tmp_path, capsys):
    (tmp_path / "secret.txt").write_text(SECRET)
    (folder / "modo" / "mine.txt").write_text("mine")
    (folder / "modo" / "linked.txt").symlink_to(tmp_path / "secret.txt")
    code, left_out, page = reported(folder, capsys)
    assert (code, left_out) == (0, [])
    assert "mine.txt" in page
    assert "linked.txt" not in page


def test_figures_are_not_written_elsewhere(folder, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (folder / "figures").symlink_to(tmp_path / "elsewhere")
    assert main(["report", str(folder)]) == 1
    assert "found a link that leads out" in capsys.readouterr().err
    assert not os.listdir(tmp_path / "elsewhere")


def test_a_large_figure_is_left_out(folder, monkeypatch, capsys):
    monkeypatch.setattr(page_module, "LARGEST", 10)
    code, (line,), page = reported(folder, capsys)
    assert code == 1
    assert "fig0.svg must be a file of at most 10 bytes, found" in line
    assert "First paragraph." in page  # the rest of the study


def test_a_pipe_is_not_waited_for(folder, capsys):
    (folder / "study" / "fig0.svg").unlink()
    os.mkfifo(folder / "study" / "fig0.svg")
    code, (line,), _ = reported(folder, capsys)
    assert code == 1
    assert "fig0.svg must be a file" in line


def test_where_nothing_can_be_read_there_is_no_page(tmp_path, capsys):
    (tmp_path / "study.json").write_text("[]")
    assert main(["report", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "found none in" in said
    assert "study.json must have files, rows, study, title" in said
    assert not (tmp_path / "report.html").exists()


def test_the_library_warns(folder):
    (folder / "modo" / "summary.json").write_text("{")
    with pytest.warns(RuntimeWarning, match=r"^left out of the report: .*summary\.json is damaged"):
        report.write(folder)
