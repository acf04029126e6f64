"""How tests are dealt out to workers (`conftest.py`)."""

import pytest


def test_the_cases_of_a_test_stay_together(request: pytest.FixtureRequest) -> None:
    """Where they do not, nobody is told: every worker makes what a module's tests share."""
    grouped = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith(f"@test_groups.{request.node.originalname}") is grouped
