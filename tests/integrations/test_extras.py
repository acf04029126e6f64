"""Without the other library, one line says which extra installs it."""

import sys

import pytest
import torch

from trimol._extras import MissingExtra
from trimol.integrations.torchjd import TorchJD


def test_without_torchjd(monkeypatch):
    for name in ("torchjd", "torchjd.aggregation"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"needs torchjd: pip install 'trimol\[torchjd\]'$"):
        TorchJD([torch.zeros(2, requires_grad=True)], 2, aggregator="UPGrad")
