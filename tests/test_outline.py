"""What is read from the source is what the imported classes say."""

import inspect
import subprocess
import sys
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from trimol import methods, tasks
from trimol._outline import Outline, Parameter, first_line
from trimol.methods import _registry as method_registry
from trimol.tasks import _catalogue as task_registry


def as_text(kind: Any) -> str:
    """A type as an annotation has it."""
    if get_origin(kind) is None:
        return "None" if kind is NoneType else str(kind.__name__)
    name = "Literal" if get_origin(kind) is Literal else get_origin(kind).__name__
    inside = (repr(a) if name == "Literal" else as_text(a) for a in get_args(kind))
    return f"{name}[{', '.join(inside)}]"


def imported(kind: type) -> list[Parameter]:
    """The parameters as Python has them."""
    hints = get_type_hints(kind.__init__)
    parameters = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        hint = hints[name]
        members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        required = parameter.default is parameter.empty
        parameters.append(
            Parameter(
                name,
                tuple(as_text(member) for member in members),
                None if required else parameter.default,
                required=required,
                keyword=parameter.kind is parameter.KEYWORD_ONLY,
            )
        )
    return parameters


@pytest.mark.parametrize("name", methods.names())
def test_a_method(name: str) -> None:
    outline, kind = method_registry.outline(name), methods.get(name)
    for attribute in ("summary", "reference", "needs", "draws"):
        assert outline.value(attribute) == getattr(kind, attribute), attribute
    assert list(outline.parameters) == imported(kind)
    assert outline.summary == inspect.getdoc(kind).splitlines()[0]


@pytest.mark.parametrize("name", tasks.names())
def test_a_task(name: str) -> None:
    outline, kind = task_registry.outline(name), tasks.get(name)
    kinds = {parameter.kind for parameter in inspect.signature(kind).parameters.values()}
    assert outline.takes_others == (inspect.Parameter.VAR_KEYWORD in kinds)
    for attribute in ("name", "objectives"):
        assert outline.value(attribute) == getattr(kind, attribute), attribute
    assert list(outline.parameters) == imported(kind)
    assert outline.summary == inspect.getdoc(kind).splitlines()[0]


def test_keywords_passed_on_are_those_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    import ast

    from trimol import _outline

    source = '''
from trimol.methods.base import Method, Needs as What
HALF = 0.5
Kind = int | None

class Base(Method):
    needs: What = "losses"
    def __init__(self, params, objectives, *, every: int = 1, width: Kind = None): ...

class Derived(Base):
    """It has
    two lines."""
    def __init__(self, params, objectives, *, width: Kind = 3, c: float = HALF, **others): ...
'''
    real = _outline._tree
    monkeypatch.setattr(
        _outline, "_tree", lambda module: ast.parse(source) if module == "mine" else real(module)
    )
    derived = Outline("mine:Derived")
    found = {p.name: (p.types, p.default, p.required) for p in derived.parameters if p.keyword}
    assert found == {
        "width": (("int", "None"), 3, False),
        "c": (("float",), 0.5, False),
        "every": (("int",), 1, False),
    }
    assert (derived.summary, derived.value("needs"), derived.value("draws")) == (
        "It has",
        "losses",
        1,
    )
    with pytest.raises(AttributeError, match="mine:Derived has no colour"):
        derived.value("colour")


def test_nothing_is_imported() -> None:
    code = (
        "import sys; from trimol.methods._registry import names, outline;"
        "from trimol.tasks import _catalogue as tasks;"
        "[outline(name).parameters for name in names()];"
        "[tasks.outline(name).value('objectives') for name in tasks.names()];"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_first_line_of_a_module() -> None:
    assert first_line("trimol.cli.plan").startswith("Step sizes and steps for MoDo from a goal")
