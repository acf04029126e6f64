"""Code lines of every package, without docstrings, comments and blank lines: they only fall.

Who raises a number says in a comment beside it which capability the lines bought.
"""

import ast
import io
import tokenize
from pathlib import Path

import pytest

import trimol

SOURCE = Path(trimol.__file__).parent
MOST = {
    ".": 775,
    "cli": 3060,
    "compare": 1110,
    "data": 870,
    "errors": 1060,
    "gradients": 4375,
    "integrations": 500,
    "maths": 900,
    "methods": 3640,
    "paper": 5720,
    "report": 2915,
    "runs": 4700,
    "search": 1830,
    "tasks": 2850,
    "testing": 955,
    "theory": 1480,
    "training": 2335,
}
SKIPPED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING),
}
NAMED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count_lines(text: str) -> int:
    """Count the lines of code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, NAMED) and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def package_of(file: Path) -> str:
    inside = file.relative_to(SOURCE).parts
    return inside[0] if len(inside) > 1 else "."


def test_what_counts_as_a_line():
    assert count_lines('"""Title."""\n\nx = 1  # one\n# two\ny = (\n    2\n)\n') == 4
    assert count_lines('def f():\n    """Say it."""\n    return """a\nb"""\n') == 3


@pytest.mark.parametrize("package", MOST)
def test_a_package_does_not_grow(package):
    files = [file for file in SOURCE.rglob("*.py") if package_of(file) == package]
    found = sum(count_lines(file.read_text(encoding="utf-8")) for file in files)
    assert files
    assert found <= MOST[package], f"{package} has {found} lines of code"


def test_every_package_has_a_limit():
    assert {package_of(file) for file in SOURCE.rglob("*.py")} == set(MOST)
