"""Studies on disk: what is saved comes back, half a study never looks like one."""

import json

import polars
import pytest

from trimol.runs import study as results
from trimol.runs.study import Study, row


@pytest.fixture
def study():
    table = polars.DataFrame({"T": [1, 2], "R_opt": [0.5, 0.25]})
    return Study(
        "fig0",
        "A title",
        rows=[
            row("modo", "R_opt", [1.0, 2.0], gamma=0.1),
            row("static", "R_opt", [3.0], paper=2.5),
        ],
        notes=["First.", "Second."],
        tables={"sweep": table},
        figures=["fig0.svg"],
        command="trimol reproduce fig0",
        environment={"python": "3.11"},
    )


def test_what_is_saved_comes_back(study, tmp_path):
    saved = results.save(study, tmp_path / "fig0")
    loaded = results.load(tmp_path / "fig0")
    assert loaded.tables["sweep"].equals(study.tables["sweep"])
    for name in ("name", "title", "rows", "notes", "figures", "command", "environment"):
        assert getattr(loaded, name) == getattr(study, name), name
    assert loaded.created == saved.created != ""
    assert loaded.folder == saved.folder == tmp_path / "fig0"
    assert loaded.summary() == study.summary()
    assert loaded.files == ["sweep.parquet", "fig0.svg"]


def test_the_file_holds_what_the_interface_promises(study, tmp_path):
    results.save(study, tmp_path)
    content = json.loads((tmp_path / "study.json").read_text())
    promised = {"study", "title", "rows", "files", "notes", "command", "created", "environment"}
    assert promised <= set(content)
    assert set(results.COLUMNS) <= set(content["rows"][0])
    assert content["rows"][0]["gamma"] == 0.1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["study.json", "sweep.parquet"]


def test_row_is_mean_and_sample_deviation():
    found = row("modo", "R_opt", [1.0, 2.0, 6.0])
    assert (found["mean"], found["n"], found["paper"]) == (3.0, 3, None)
    assert found["std"] == pytest.approx(7**0.5)
    assert row("modo", "R_opt", [1.0])["std"] is None
    with pytest.raises(ValueError, match="values of R_opt must not be empty"):
        row("modo", "R_opt", [])


def test_numbers_that_json_has_not_become_null(study, tmp_path):
    bad = Study("x", "X", rows=[row("modo", "R_opt", [float("nan")])])
    results.save(bad, tmp_path)
    assert results.load(tmp_path).rows[0]["mean"] is None


def test_a_negative_spread_is_nothing_that_was_saved(study, tmp_path):
    file = results.save(study, tmp_path).folder / "study.json"
    content = json.loads(file.read_text())
    del content["digest"]
    content["rows"][0]["std"] = -1
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"rows\[0\]: std must be at least 0, found -1"):
        results.load(tmp_path)


def test_find_goes_below_and_sorts(study, tmp_path):
    for name in ("b", "a/deep"):
        results.save(Study(name, name, rows=[]), tmp_path / name)
    assert [found.name for found in results.find(tmp_path)] == ["a/deep", "b"]
    assert results.find(tmp_path / "nowhere") == []


def test_a_part_is_computed_once_for_its_settings(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"runs": polars.DataFrame({"n": [len(calls)]})}

    first = results.part(tmp_path, "toy", {"T": 5, "seeds": 2}, compute)
    again = results.part(tmp_path, "toy", {"seeds": 2, "T": 5}, compute)
    other = results.part(tmp_path, "toy", {"T": 6, "seeds": 2}, compute)
    assert first["runs"].equals(again["runs"])
    assert other["runs"]["n"].to_list() == [2]
    assert len(calls) == 2


def test_a_part_without_its_list_is_computed_again(tmp_path):
    tables = {"runs": polars.DataFrame({"n": [1]})}
    results.part(tmp_path, "toy", {}, lambda: tables)
    (done,) = tmp_path.glob("*.json")
    done.unlink()
    tables = {"runs": polars.DataFrame({"n": [2]})}
    assert results.part(tmp_path, "toy", {}, lambda: tables)["runs"]["n"].to_list() == [2]


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("damage", ["bit", "empty", "gone"])
def test_a_damaged_part_is_computed_again(tmp_path, kind, damage):
    tables = {"runs": polars.DataFrame({"n": [1]})}
    results.part(tmp_path, "toy", {}, lambda: tables)
    (file,) = tmp_path.glob(f"*.{kind}")
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(bytes(content) if damage == "bit" else b"")
    if damage == "gone":
        file.unlink()
    tables = {"runs": polars.DataFrame({"n": [2]})}
    if (kind, damage) == ("json", "gone"):  # it may never have been finished
        found = results.part(tmp_path, "toy", {}, lambda: tables)
    else:
        with pytest.warns(RuntimeWarning, match=rf"{file.name}.* part of the study is computed"):
            found = results.part(tmp_path, "toy", {}, lambda: tables)
    assert found["runs"]["n"].to_list() == [2]
    again = results.part(tmp_path, "toy", {}, lambda: {})
    assert again["runs"]["n"].to_list() == [2]


def test_bad_input_is_one_clear_line(tmp_path):
    with pytest.raises(ValueError, match=r"folder must hold study\.json, found none in"):
        results.load(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(ValueError, match="must have files, rows, study, title"):
        results.load(tmp_path)
    with pytest.raises(ValueError, match="a row must have method, mean, std, n, paper"):
        results.save(Study("x", "X", rows=[{"metric": "R_opt"}]), tmp_path)
