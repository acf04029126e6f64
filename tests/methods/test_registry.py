from typing import get_type_hints

import pytest

import trimol


def test_names_and_classes():
    assert {"static", "mgda", "modo"} <= set(trimol.methods.names())
    assert trimol.methods.get("modo") is trimol.MoDo


def test_unknown_name():
    with pytest.raises(ValueError, match=r"method must be one of .*modo.*, found 'modoo'"):
        trimol.methods.get("modoo")


@pytest.mark.parametrize("name", trimol.methods.names())
def test_every_method_can_be_cited(name, capsys):
    method = trimol.methods.get(name)
    assert method.summary.endswith(".")
    trimol.citation(name)
    by_name = capsys.readouterr().out
    assert by_name.startswith("@")
    assert f"{{{method.reference}," in by_name
    trimol.citation(method)
    assert capsys.readouterr().out == by_name


def test_hints_of_what_users_call_can_be_resolved() -> None:
    """By documentation tools and run-time type checkers."""
    assert get_type_hints(trimol.citation)["return"] is type(None)
