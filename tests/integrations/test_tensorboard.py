"""Records arrive in TensorBoard's files as they are."""

import sys
from pathlib import Path

import pytest

from trimol._extras import MissingExtra
from trimol.integrations.tensorboard import TensorBoard

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:tensorboard.*", "ignore:.*pkg_resources.*"
)


def test_every_number_is_a_scalar_at_its_step(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = TensorBoard(tmp_path)
    sink({"step": 2, "samples": 16, "loss/fit": 0.5, "R_opt": 0.25})
    sink({"step": 4, "samples": 32, "loss/fit": 0.25, "R_opt": 0.125})
    sink.close()
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(found.Tags()["scalars"]) == {"samples", "loss/fit", "R_opt"}
    assert [(e.step, e.value) for e in found.Scalars("R_opt")] == [(2, 0.25), (4, 0.125)]
    assert [e.value for e in found.Scalars("samples")] == [16, 32]


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    expected = r"^the TensorBoard sink needs tensorboard: pip install 'trimol\[tensorboard\]'$"
    with pytest.raises(MissingExtra, match=expected):
        TensorBoard(tmp_path)
