"""The shape of the package: what importing costs, and which way imports go."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import trimol

SOURCE = Path(trimol.__file__).parent
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
    "report",
    "testing",
    "integrations",
    "cli",
    "paper",
    "__main__",
)
ANYWHERE = {"_version", "_checks", "_extras", "_failures", "_files", "_lazy", "_registration"}
ANYWHERE |= {"_outline"}


def layer_of(module: str) -> str:
    return module.split(".")[1]


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"trimol.{alias.name}" for alias in node.names}
                if node.module == "trimol"
                else {node.module}
            )
    return {name for name in found if name.startswith("trimol.")}


FILES = [f for f in SOURCE.rglob("*.py") if f != SOURCE / "__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_go_down_only(file):
    own = file.relative_to(SOURCE).with_suffix("").parts[0]
    if own in ANYWHERE:
        assert {layer_of(name) for name in imports(file)} <= ANYWHERE
        return
    for name in imports(file):
        layer = layer_of(name)
        assert layer in ANYWHERE or LAYERS.index(layer) <= LAYERS.index(own), name


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_nothing_imports_the_paper(file):
    if file.relative_to(SOURCE).parts[0] != "paper":
        assert not [name for name in imports(file) if layer_of(name) == "paper"]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_only_the_gradients_layer_calls_autograd(file):
    if file.relative_to(SOURCE).parts[0] in ("gradients", "training", "runs", "testing"):
        return  # the loop and the kit may call loss.backward(), as every user does
    names = {n.attr for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Attribute)}
    assert not names & {"autograd", "backward"}


def test_import_pulls_the_core_only():
    code = (
        "import sys, torch; before = set(sys.modules); import trimol;"
        "print(*{m.split('.')[0] for m in set(sys.modules) - before}, *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extras = {"pydantic", "tyro", "rich", "polars", "sklearn", "pooch", "matplotlib", "plotly"}
    extras |= {"accelerate", "ray", "optuna", "PIL", "transformers", "lightning", "torchjd"}
    slow = {"scipy.optimize", "scipy.linalg"}  # half a second, when a solver is first used
    assert not set(run.stdout.split()) & (extras | slow)


def test_public_names():
    for name in trimol.__all__:
        assert hasattr(trimol, name), name


LAZY = ("trimol", "trimol.methods", "trimol.runs", "trimol.tasks", "trimol.training")
LAZY += ("trimol.theory",)


@pytest.mark.parametrize("package", LAZY)
def test_no_module_hides_a_name_that_its_package_loads_lazily(package):
    home = import_module(package)
    modules = {file.stem for file in Path(home.__file__).parent.glob("*.py")}
    for name in set(home.__all__) & modules:
        assert isinstance(getattr(home, name), ModuleType), name
