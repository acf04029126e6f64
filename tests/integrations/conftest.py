"""The examples are run with every method's first step held to plain backwards."""

import pytest


@pytest.fixture(autouse=True)
def check_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMOL_CHECK", "1")
