"""Every test starts from the same seed. Its tensors are tiny: more threads would only wait."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from pair import server
from trimol.gradients._hooks import WATCH

torch.set_num_threads(1)
# Virtual machines that announce AMX and do not have it end the process at a bfloat16 bmm; asked
# for at torch's first product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _hooks_seen() -> None:
    """Hooks of earlier tests cost this one no passes: it may count them, in whatever order."""
    WATCH.look()


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of studies start at once. Those of test_cli_process.py start as a user's do."""
    context = server()
    monkeypatch.setattr("trimol.runs._processes.multiprocessing.get_context", lambda _: context)


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """From a path in the repository to the module: examples and benchmarks are no package."""

    def load(path: str) -> ModuleType:
        file = Path(__file__).parents[1] / path
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
