"""Weights & Biases as a sink of `trimol.Monitor`: every number of a record in a run's history."""

from typing import Any

from trimol._extras import require
from trimol.training.records import Record


class WandB:
    """Log records to a run of Weights & Biases, at their steps. Needs the ``wandb`` extra.

    Args:
        run: A run of yours, as `wandb.init` returns it. Without, a new one is made, and finished by
            `close`.
        project: The project of a new run.
        options: What else `wandb.init` takes, e.g. ``name`` or ``mode="offline"``.
    """

    def __init__(self, run: Any = None, *, project: str = "trimol", **options: Any) -> None:
        self._own = run is None
        if self._own:
            wandb = require("wandb", extra="wandb", purpose="the Weights & Biases sink")
            run = wandb.init(project=project, **options)
        self.run = run

    def __call__(self, record: Record) -> None:
        """Log one record, at its step."""
        numbers = {key: float(value) for key, value in record.items() if key != "step"}
        self.run.log(numbers, step=int(record["step"]))

    def close(self) -> None:
        """Finish the run, if it was made here."""
        if self._own:
            self.run.finish()
