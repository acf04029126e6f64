"""How long a step of a run takes, beside that of others."""

import time
from collections.abc import Mapping
from statistics import median

from trimol.runs._execute import started, task_for
from trimol.runs.config import RunConfig
from trimol.training import Run, train

STEPS, ROUNDS = 5, 15
STILL = 1e-9  # a step size at which nothing diverges


def step_costs(configs: Mapping[str, RunConfig]) -> dict[str, float]:
    """The seconds of a step of each run, as measured now.

    The runs take turns, a few steps each, and the median turn counts: a busy machine then slows all
    alike, while who had the luckiest turn is chance.
    """
    runs = {name: _begun(config) for name, config in configs.items()}
    for run in runs.values():
        _turn(run)  # warms up
    rounds = [{name: _turn(run) for name, run in runs.items()} for _ in range(ROUNDS)]
    return {name: median(each[name] for each in rounds) for name in runs}


def _begun(config: RunConfig) -> Run:
    """A run with next to no step size: a step costs the same."""
    still = config.model_copy(update={"schedule": None, "lr": STILL})
    return started(task_for(still), still)


def _turn(run: Run) -> float:
    began = time.perf_counter()
    train(run, STEPS)
    return (time.perf_counter() - began) / STEPS
