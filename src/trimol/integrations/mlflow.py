"""MLflow as a sink of `trimol.Monitor`: every number of a record as a metric of a run."""

import re
import time

from trimol._extras import require
from trimol.training.records import Record


class MLflow:
    """Log records to a run of MLflow, by a client of its own: no run is made the active one.

    Characters that MLflow does not take in a name become ``_``. Needs the ``mlflow`` extra.

    Args:
        run: The id of a run to log to. Without, a new one is made, and ended by `close`.
        experiment: The name of the experiment that a new run belongs to; made if there is none.
        tracking_uri: Where MLflow keeps its data; what MLflow is set to by default.
        name: The name of a new run.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        experiment: str = "trimol",
        tracking_uri: str | None = None,
        name: str | None = None,
    ) -> None:
        mlflow = require("mlflow", extra="mlflow", purpose="the MLflow sink")
        self._metric = mlflow.entities.Metric
        self.client = mlflow.MlflowClient(tracking_uri)
        self._own = run is None
        self.run: str = self._new_run(experiment, name) if run is None else run

    def __call__(self, record: Record) -> None:
        """Log one record, at its step."""
        now, step = int(time.time() * 1000), int(record["step"])
        metrics = [
            self._metric(metric_name(key), float(value), now, step)
            for key, value in record.items()
            if key != "step"
        ]
        self.client.log_batch(self.run, metrics=metrics)

    def close(self) -> None:
        """End the run, if it was made here."""
        if self._own:
            self.client.set_terminated(self.run)

    def _new_run(self, experiment: str, name: str | None) -> str:
        known = self.client.get_experiment_by_name(experiment)
        home = self.client.create_experiment(experiment) if known is None else known.experiment_id
        created: str = self.client.create_run(home, run_name=name).info.run_id
        return created


def metric_name(key: str) -> str:
    """A key of a record as MLflow takes it.

    >>> metric_name("loss/cross-entropy"), metric_name("cosine/fit (a)/λ")
    ('loss/cross-entropy', 'cosine/fit _a_/_')
    """
    return re.sub(r"[^0-9A-Za-z_\-. /]", "_", key)
