"""Office studies: which table, which regime, and what a reader is told first."""

from pathlib import Path
from typing import Any

import pytest

from trimol.paper import _studies as registry
from trimol.paper import multitask_tables as multitask
from trimol.paper._studies import Context
from trimol.runs.study import Study

STUDIES = {
    "table4": "office-31",
    "table5": "office-home",
    "table-appendix-office31": "office-31",
    "table-appendix-officehome": "office-home",
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []

    def study(name: str, context: Context, regime: str) -> Study:
        found.append((name, regime, multitask.about(regime, context)))
        return Study(name, "", rows=[])

    monkeypatch.setattr(multitask, "study", study)
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_its_table(name: str, told: list[tuple[Any, ...]], tmp_path: Path) -> None:
    registry.run(name, tmp_path)
    registry.run(name, tmp_path, regime="finetune", quick=True)
    (first, frozen, (about,)), (second, finetune, (quick, _)) = told
    assert first == second == name
    assert (frozen, finetune) == ("frozen", "finetune")
    assert "another experiment" in about
    assert quick.startswith("A quick run")


@pytest.mark.parametrize(("name", "task"), STUDIES.items())
def test_the_task_takes_the_options(name: str, task: str, tmp_path: Path) -> None:
    from trimol.tasks import load

    for regime in ("frozen", "finetune"):
        for quick in (False, True):
            context = Context(tmp_path, tmp_path, tmp_path, quick=quick)
            planned = multitask.planned_comparison(name, context, regime)
            assert planned.task == task
            for settings in planned.methods.values():
                options = {**planned.options, **settings[0].task_options}
                found = load(task, options)
            metrics = [m for own in found.goals.values() for m in own]
            assert metrics == list(planned.baselines["paper's baselines, validation"])


def test_every_function_is_registered() -> None:
    for name in STUDIES:
        entry = registry.get(name)
        assert entry.build() is getattr(multitask, entry.function)
        assert entry.options == ("regime", "budget")
