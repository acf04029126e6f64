"""Two processes, each with half of every batch, do what one process does with the whole."""

import pytest
from table import ROWS

from trimol.testing import assert_two_processes_equal_the_joined_batch, run_in_processes


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return run_in_processes(ROWS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", ROWS)
def test_two_processes_equal_the_joined_batch(ranks, name):
    assert_two_processes_equal_the_joined_batch(ranks, name, ROWS[name])
