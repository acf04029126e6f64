"""Who imports whom, read from the sources; drawn as ``docs/imports.svg``.

    python docs/imports.py

The rules in ``tests/test_package.py`` read the same graph, and hold the picture to it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "trimol"
PICTURE = ROOT / "docs" / "imports.svg"
# From the bottom up: a layer may import those before it, and itself.
LAYERS = (
    "maths",
    "simplex",
    "data",
    "gradients",
    "methods",
    "errors",
    "theory",
    "tasks",
    "training",
    "runs",
    "search",
    "compare",
    "report",
    "testing",
    "integrations",
    "cli",
    "paper",
    "__main__",
)
# Below all layers; these import each other only.
ANYWHERE = (
    "_version",
    "_attributes",
    "_checks",
    "_digests",
    "_docstrings",
    "_extras",
    "_failures",
    "_files",
    "_generators",
    "_lazy",
    "_outline",
    "_registration",
    "_terminal",
    "_warnings",
    "_words",
)

BOX, ROW, STEP, MARGIN, BELOW = (86, 28), 44, 61, 12, 62


@cache
def modules() -> dict[str, Path]:
    """The file of every module, by its name."""
    return {_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


def layer(module: str) -> str:
    """The layer that a module belongs to; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


@cache
def imported(module: str, *, at_once: bool = False) -> set[str]:
    """Our modules that a module imports, inside functions and for type checkers, too.

    Args:
        module: Its name.
        at_once: Only those that are imported when the module is.
    """
    return targets(parsed(modules()[module]), module, at_once=at_once)


def targets(tree: ast.AST, module: str, *, at_once: bool = False) -> set[str]:
    """Our modules that code would import if it stood in a module; see `imported`."""
    package = modules()[module].name == "__init__.py"
    later = _later(tree) if at_once else set()
    nodes = [node for node in ast.walk(tree) if id(node) not in later]
    asked = {pair for node in nodes for pair in _asked(node, module, package=package)}
    return {_target(base, item) for base, item in asked} - {"", module}


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def counts() -> Counter[tuple[str, str]]:
    """How many modules of one layer are imported by modules of another: (importing, imported)."""
    pairs = [(_box(m), _box(target)) for m in modules() for target in imported(m)]
    return Counter(pair for pair in pairs if pair[0] != pair[1] and "" not in pair)


def draw() -> str:
    """The picture: a staircase of boxes, and a number where one imports another."""
    boxes, pairs = [name for name in LAYERS if name == _box(name)], counts()
    height = MARGIN + ROW * len(boxes) + BELOW
    width = MARGIN + BOX[0] + STEP * (len(boxes) - 1) + MARGIN
    place = {
        name: (MARGIN + BOX[0] // 2 + STEP * i, MARGIN + ROW * (len(boxes) - 1 - i) + BOX[1] // 2)
        for i, name in enumerate(boxes)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker>',
        *_legend(),
        *_lines(place, pairs),
        *_boxes(place),
        *_ground(width, height),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _name(file: Path) -> str:
    inside = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("trimol", *inside)).removesuffix(".__init__")


def _later(tree: ast.AST) -> set[int]:
    """What is not run when a module is imported: the inside of functions, and types' imports."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    outer = [
        node
        for node in ast.walk(tree)
        if isinstance(node, functions)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    return {id(inner) for node in outer for inner in ast.walk(node)}


def _asked(node: ast.AST, module: str, *, package: bool) -> Iterator[tuple[str, str]]:
    """Module and name of every import; the name is empty where a module is imported whole."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = module.split(".")
        home = parts[: len(parts) - node.level + package] if node.level else []
        base = ".".join([*home, *([node.module] if node.module else [])])
        yield from ((base, alias.name) for alias in node.names)


def _target(base: str, item: str) -> str:
    """Which of our modules an import means; empty for other people's."""
    if f"{base}.{item}" in modules():
        return f"{base}.{item}"
    if base == "trimol" and item:
        return _lazy(item)  # the package itself only passes names on
    return base if base in modules() else ""


def _lazy(name: str) -> str:
    """Where a name of the package itself comes from, by its stub; a star is the methods'."""
    stub = parsed(SOURCE / "__init__.pyi")
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = [n.module for n in lines if name in {alias.asname for alias in n.names}]
    return (homes or ["trimol.methods"])[0] or ""


def _box(name: str) -> str:
    """The box of a module or layer: the public name ``simplex`` is part of the maths."""
    own = layer(name) if "." in name else name
    return {"simplex": "maths", "__main__": "cli", "trimol": ""}.get(own, own * (own in LAYERS))


def _lines(place: dict[str, tuple[int, int]], pairs: Counter[tuple[str, str]]) -> Iterator[str]:
    """A line down from each box that imports, one to the left into each that is imported."""
    for name, (x, y) in place.items():
        lowest = max((place[b][1] for a, b in pairs if a == name), default=y)
        farthest = max((place[a][0] for a, b in pairs if b == name), default=x)
        if lowest > y:
            yield f'<path d="M{x} {y}V{lowest}" stroke="#bbb" fill="none"/>'
        if farthest > x:
            end = x + BOX[0] // 2
            arrow = 'stroke="#bbb" fill="none" marker-end="url(#to)"'
            yield f'<path d="M{farthest} {y}H{end}" {arrow}/>'
    for (a, b), n in sorted(pairs.items()):
        x, y = place[a][0], place[b][1]
        up = place[b][1] < place[a][1]  # against the rule
        fill = "#d55e00" if up else "#0072b2"
        yield f'<circle cx="{x}" cy="{y}" r="10" fill="white" stroke="{fill}"/>'
        yield f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-size="11">{n}</text>'


def _boxes(place: dict[str, tuple[int, int]]) -> Iterator[str]:
    width, height = BOX
    for name, (x, y) in place.items():
        corner = f'x="{x - width // 2}" y="{y - height // 2}"'
        size = f'width="{width}" height="{height}" rx="5"'
        shade = "#fdf1e3" if name == "paper" else "#e8f1f8"
        yield f'<rect {corner} {size} fill="{shade}" stroke="#567"/>'
        yield f'<text x="{x}" y="{y + 4}" text-anchor="middle">{escape(name)}</text>'


def _legend() -> Iterator[str]:
    lines = (
        "Imports go down only.",
        "A number: how many imports the modules of the box above it make",
        "of modules of the box to its left.",
    )
    for i, text in enumerate(lines):
        weight = ' font-weight="bold"' if i == 0 else ""
        yield f'<text x="{MARGIN}" y="{MARGIN + 16 + 20 * i}"{weight}>{escape(text)}</text>'


def _ground(width: int, height: int) -> Iterator[str]:
    """What every layer may use; there are no arrows to it."""
    top, wide = height - BELOW + 8, width - 2 * MARGIN
    rect = f'<rect x="{MARGIN}" y="{top}" width="{wide}" height="44" rx="5" fill="#f2f2f2"'
    yield f'{rect} stroke="#999"/>'
    names = f"used by every layer: {' · '.join(ANYWHERE)}"
    said = "tasks and commands of the paper are found by name, through _registration; no import"
    for i, text in enumerate((names, said)):
        y = top + 18 + 18 * i
        yield f'<text x="{MARGIN + 10}" y="{y}" font-size="12" fill="#444">{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
