"""NYU-v2 and generated scenes: the tables' options fit the tasks, and scenes run small."""

from pathlib import Path

import pytest

from trimol import reproduce
from trimol.reproduce import multitask, multitask_draw, registry
from trimol.reproduce import multitask_paper as paper
from trimol.reproduce.registry import Context
from trimol.tasks import load


@pytest.mark.parametrize(
    ("name", "regime"),
    [("table6", "nyuv2"), ("table-appendix-nyuv2", "nyuv2"), ("scenes", "scenes")],
)
def test_the_task_takes_the_options(name: str, regime: str, tmp_path: Path) -> None:
    for quick in (False, True):
        planned = multitask.contest(name, Context(tmp_path, tmp_path, tmp_path, quick), regime)
        for candidates in planned.methods.values():
            found = load(planned.task, {**planned.options, **candidates[0].task_options})
        metrics = {m for own in found.goals.values() for m in own}
        for values in planned.baselines.values():
            assert set(values) == metrics
        printed = set(paper.cells(name, "modo"))
        assert not printed or printed - {"ΔA_id", "ΔA_st"} == metrics


def test_nyu_is_left_out_of_all() -> None:
    apart = [name for name in registry.names() if registry.get(name).apart]
    assert apart == ["table6", "table-appendix-nyuv2"]
    assert registry.get("table6").options == ("budget",)


def test_scenes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = dict(paper.stated())
    small = {"image_size": (16, 16), "train": 24, "validation": 8, "test": 8, "missing": 0.0}
    quick = {"epochs": 3, "points": 1, "seeds": 1, "options": small}
    said["regimes"] = {"scenes": {**said["regimes"]["scenes"], "quick": quick}}
    monkeypatch.setattr(paper, "stated", lambda: said)
    monkeypatch.setattr("trimol.study.multitask.cores", lambda: 1)
    fast = paper.candidates  # a metric that is still 0 after so few steps has no relative drop
    monkeypatch.setattr(
        paper, "candidates", lambda *a, **k: [{**flat, "lr": 0.01} for flat in fast(*a, **k)]
    )
    monkeypatch.setattr(multitask_draw, "draw", lambda *_: [])
    study = reproduce.run("scenes", tmp_path, quick=True)
    modo = [row["metric"] for row in study.rows if row["method"] == "modo"]
    assert modo[-2:] == ["ΔA_id", "ΔA_st"]
    assert len(modo) == 9 + 2
    assert {row["paper"] for row in study.rows} == {None}
