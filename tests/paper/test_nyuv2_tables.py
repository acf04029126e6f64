"""NYU-v2 and generated scenes: the tables' options fit the tasks, and scenes run small."""

import json
from pathlib import Path

import pytest

from trimol import paper as reproduce
from trimol.cli import main
from trimol.data._files.datasets import MissingData
from trimol.paper import _multitask_report as multitask_report
from trimol.paper import _studies as registry
from trimol.paper import multitask_tables as multitask
from trimol.paper._studies import Context
from trimol.paper.tasks.scenes import write
from trimol.tasks import load


@pytest.mark.parametrize(
    ("name", "regime"),
    [("table6", "nyuv2"), ("table-appendix-nyuv2", "nyuv2"), ("scenes", "scenes")],
)
def test_the_task_takes_the_options(name: str, regime: str, tmp_path: Path) -> None:
    for quick in (False, True):
        planned = multitask.planned_comparison(
            name, Context(tmp_path, tmp_path, tmp_path, quick), regime
        )
        for settings in planned.methods.values():
            found = load(planned.task, {**planned.options, **settings[0].task_options})
        metrics = {m for own in found.goals.values() for m in own}
        for values in planned.baselines.values():
            assert set(values) == metrics
        printed = set(multitask.cells(name, "modo"))
        assert not printed or printed - {"ΔA_id", "ΔA_st"} == metrics


def test_nyu_is_left_out_of_all() -> None:
    apart = [name for name in registry.names() if registry.get(name).apart]
    assert apart == ["table6", "table-appendix-nyuv2"]
    assert registry.get("table6").options == ("budget",)


@pytest.mark.slow
def test_scenes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = dict(multitask.stated())
    small = {"image_size": (16, 16), "train": 24, "validation": 8, "test": 8, "missing": 0.0}
    quick = {"epochs": 3, "points": 1, "seeds": 1, "options": small}
    said["regimes"] = {"scenes": {**said["regimes"]["scenes"], "quick": quick}}
    monkeypatch.setattr(multitask, "stated", lambda: said)
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)
    monkeypatch.setattr(multitask_report, "draw", lambda *_: [])
    study = reproduce.run("scenes", tmp_path, quick=True)
    modo = [row["metric"] for row in study.rows if row["method"] == "modo"]
    assert modo[9:11] == ["ΔA_id", "ΔA_st"]
    assert len(modo) == 9 + 2 + 2 * 3  # ΔA of each of the three tasks, too
    assert {row["paper"] for row in study.rows} == {None}


def test_a_study_that_lacks_its_data_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "nothing"))
    with pytest.raises(MissingData, match=r"nyuv2/train/image/0\.npy is not in"):
        reproduce.run("table6", tmp_path / "studies")
    assert not (tmp_path / "studies" / "table6").exists()


@pytest.mark.slow
def test_table6_by_the_command_on_generated_rooms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way with files in NYU-v2's layout: reader, validation split, tasks, table."""
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)  # starting processes takes long
    write(tmp_path / "data" / "nyuv2", train=24, test=4, image_size=(24, 32))
    out = tmp_path / "studies"
    assert main(["reproduce", "table6", "--quick", "--quiet", "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    metrics = {m for own in load("nyuv2", {"backbone": "small"}).goals.values() for m in own}
    for method in ("static", "mgda", "modo"):
        own = {row["metric"]: row for row in found["rows"] if row["method"] == method}
        assert metrics | {"ΔA_id", "ΔA_st", "ΔA_id/depth"} <= set(own)
        assert 0 < own["pixel accuracy"]["mean"] < 1
        assert own["mIoU"]["paper"] == pytest.approx(0.5, abs=0.05)
    assert all((out / "table6" / Path(name).name).is_file() for name in found["files"])
