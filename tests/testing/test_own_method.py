"""The file to copy keeps every promise itself."""

import doctest

import pytest
import torch

from trimol.testing import CHECKS


@pytest.fixture(scope="module")
def example(load_script):
    return load_script("examples/own_method.py")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_promise(example, check):
    check(example.ROW)


def test_its_example_runs(example):
    result = doctest.testmod(example, extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0
