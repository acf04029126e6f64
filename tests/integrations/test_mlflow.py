"""Records arrive in MLflow as metrics of one run."""

import sys
from pathlib import Path
from typing import Any

import pytest

from trimol._extras import MissingExtra
from trimol.integrations.mlflow import MLflow

# MLflow's own imports, and its wish that files be replaced by a database.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning:mlflow.*", "ignore:.*filesystem.*"
)


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # what the skinny package has
    return (tmp_path / "runs").as_uri()


def history(sink: MLflow, name: str) -> list[tuple[int, float]]:
    found: list[Any] = sink.client.get_metric_history(sink.run, name)
    return [(metric.step, metric.value) for metric in found]


def test_every_number_is_a_metric_at_its_step(uri: str) -> None:
    sink = MLflow(tracking_uri=uri, name="first")
    sink({"step": 2, "loss/fit": 0.5, "cosine/a (x)/b": -1.0})
    sink({"step": 4, "loss/fit": 0.25, "cosine/a (x)/b": -0.5})
    assert history(sink, "loss/fit") == [(2, 0.5), (4, 0.25)]
    assert history(sink, "cosine/a _x_/b") == [(2, -1.0), (4, -0.5)]
    assert sink.client.get_run(sink.run).info.status == "RUNNING"
    sink.close()
    assert sink.client.get_run(sink.run).info.status == "FINISHED"


def test_a_run_of_yours_is_continued_and_left_open(uri: str) -> None:
    first = MLflow(tracking_uri=uri)
    second = MLflow(first.run, tracking_uri=uri)
    second({"step": 1, "R_opt": 0.5})
    second.close()
    assert history(first, "R_opt") == [(1, 0.5)]
    assert first.client.get_run(first.run).info.status == "RUNNING"


def test_runs_of_one_name_share_an_experiment(uri: str) -> None:
    runs = [MLflow(tracking_uri=uri, experiment="mine") for _ in range(2)]
    homes = {sink.client.get_run(sink.run).info.experiment_id for sink in runs}
    assert len(homes) == 1


def test_without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    expected = r"^the MLflow sink needs mlflow: pip install 'trimol\[mlflow\]'$"
    with pytest.raises(MissingExtra, match=expected):
        MLflow()
