"""The file to copy keeps every promise itself."""

import doctest
import importlib.util
from pathlib import Path

import pytest
import torch

from trimol.testing import CHECKS

FILE = Path(__file__).parents[2] / "examples" / "own_method.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_method", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_promise(example, check):
    check(example.ROW)


def test_its_example_runs(example):
    result = doctest.testmod(example, extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0
