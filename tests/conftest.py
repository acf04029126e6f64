"""Every test starts from the same seed. Its tensors are tiny: more threads would only wait."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
