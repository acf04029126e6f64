"""Where the stages of a trial stopped, when its time was limited.

``stopped-….json`` in the trial's folder has how far each of them came, so that a trial that is
resumed comes as far and no further.
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trimol.runs import _storage as files
from trimol.runs._trial_plan import TrialPlan
from trimol.runs.study import part_name


class Stops:
    """The clock of a trial, and its notes of when the time was up."""

    def __init__(self, plan: TrialPlan, folder: Path) -> None:
        self.minutes, self.began = plan.minutes, time.monotonic()
        self.file = folder / f"{part_name('stopped', _facts(plan))}.json"
        self.noted = files.read_json(self.file) if self.file.exists() else {}

    def allowed(self, stage: str, most: int) -> int:
        """How many rounds a stage may have: as many as it had, else so many."""
        return int(self.noted.get(stage, most))

    def late(self, stage: str) -> bool:
        """Whether the time is up, unless it is known how many rounds there are to be."""
        if self.minutes is None or stage in self.noted:
            return False
        return time.monotonic() - self.began > 60 * self.minutes

    def note(self, stage: str, rounds: int) -> None:
        """Note down how many rounds there were."""
        if self.minutes is not None:
            self.noted[stage] = rounds
            files.write_json(self.file, self.noted)


def _facts(plan: TrialPlan) -> dict[str, Any]:
    """What decides the order of the trials."""
    return {
        **asdict(plan),
        "methods": list(plan.methods),
        "options": dict(plan.options),
        "rates": list(plan.rates),
    }
