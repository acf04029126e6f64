"""Points of a front that are several in one run: many models at once, or one that is told which."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from trimol.runs._front_points import LOSSES, METRIC, TEST
from trimol.runs._preferences import Weights
from trimol.runs.config import task_of
from trimol.runs.store import SUMMARY, StoredRun, load
from trimol.tasks import _answers as answers
from trimol.tasks.loading import blaming
from trimol.training.assessment import scored

_KEPT = 2  # models of runs


def measured(run: StoredRun, preference: Weights, member: int | None) -> dict[str, Any]:
    """Where one point of a finished run is: its losses and metrics, named as in a run's record."""
    config = run.config
    around = task_of(config.task, config.task_options)
    found: dict[str, Any] = {}
    with blaming(config.task, config.task_options):
        task, model = around.point(_model(run.path, _written(run)), preference, member)
        data = answers.data(around, config.seed)
        for name, prefix in LOSSES.items():
            samples = getattr(data, name)
            if samples is not None:
                losses, metrics = scored(task, model, samples)
                found |= {prefix + objective: value for objective, value in losses.items()}
                if name == TEST:
                    found |= {METRIC + metric: value for metric, value in metrics.items()}
    return found


def _written(run: StoredRun) -> int:
    """When a run ended: the folder may have been emptied and used again since it was read."""
    return (run.path / SUMMARY).stat().st_mtime_ns


@lru_cache(_KEPT)
def _model(folder: Path, written: int) -> nn.Module:
    """The model of a finished run, with its parameters at the end."""
    run = load(folder)
    model = answers.model(task_of(run.config.task, run.config.task_options))
    model.load_state_dict(run.parameters)
    return model
