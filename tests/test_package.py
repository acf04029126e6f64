"""The shape of the package: what importing costs, and the rules that keep it small."""

import ast
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import trimol
from trimol import methods

ROOT = Path(__file__).parents[1]


def load_graph() -> ModuleType:
    """Who imports whom, from the script that draws it."""
    spec = importlib.util.spec_from_file_location("docs_imports", ROOT / "docs" / "imports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GRAPH = load_graph()
MODULES = sorted(GRAPH.modules())
MOST_PUBLIC = 402
MOST_AT_IMPORT = 70
# Where gradients are computed outside gradients/, and why.
KIT = "the kit calls backward() on a method's scalar, as every user does"
DIFFERENTIATES = {
    "trimol.training.loop": "the loop calls backward() on a method's scalar, as every user does",
    "trimol.testing._directions": KIT,
    "trimol.testing._distributed": KIT,
    "trimol.testing._precision": KIT,
    "trimol.testing._problems": "the kit's own Jacobian, which the library's are held against",
    "trimol.testing._row": KIT,
    "trimol.testing._self_test": "`trimol doctor` takes steps, as every user does, to time them",
    "trimol.testing._state": KIT,
    "trimol.testing._steps": KIT,
}


def tree(module: str) -> ast.Module:
    return GRAPH.parsed(GRAPH.modules()[module])


@pytest.mark.parametrize(
    ("code", "at_once", "later"),
    [
        ("from . import config", {"trimol.runs.config"}, set()),
        ("from .config import RunConfig", {"trimol.runs.config"}, set()),
        ("from .. import report", {"trimol.report"}, set()),
        ("from ..report import _page", {"trimol.report._page"}, set()),
        ("import trimol.paper.claims as c, numpy", {"trimol.paper.claims"}, set()),
        ("from trimol import MoDo, simplex", {"trimol.methods", "trimol.simplex"}, set()),
        ("from trimol import Task", {"trimol.tasks"}, set()),
        ("def f():\n    from trimol.cli import run", set(), {"trimol.cli.run"}),
        ("class A:\n    from trimol.cli import run", {"trimol.cli.run"}, set()),
        ("if TYPE_CHECKING:\n    import trimol.cli", set(), {"trimol.cli"}),
        ("from os import path\nimport torch.nn", set(), set()),
    ],
)
def test_every_kind_of_import_is_seen(code, at_once, later):
    given = ast.parse(code)
    assert GRAPH.targets(given, "trimol.runs.store", at_once=True) == at_once
    assert GRAPH.targets(given, "trimol.runs.store") == at_once | later


def goes_down(module: str, name: str) -> bool:
    """Whether a module may import another."""
    own, other = GRAPH.layer(module), GRAPH.layer(name)
    if other in GRAPH.ANYWHERE:
        return True
    inside = own not in (*GRAPH.ANYWHERE, "")
    return inside and GRAPH.LAYERS.index(other) <= GRAPH.LAYERS.index(own)


def test_imports_go_down_only():
    imports = [(module, name) for module in MODULES for name in GRAPH.imported(module)]
    assert [pair for pair in imports if not goes_down(*pair)] == []
    assert goes_down("trimol.runs.store", "trimol.maths.box")
    assert not goes_down("trimol.maths.box", "trimol.runs.store")


def strings(module: str) -> list[str]:
    """The strings of a module but its docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    }
    constants = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Constant)]
    return [c.value for c in constants if isinstance(c.value, str) and id(c) not in docs]


def test_nothing_imports_the_paper():
    others = [module for module in MODULES if GRAPH.layer(module) != "paper"]
    imports = [(module, name) for module in others for name in GRAPH.imported(module)]
    assert [pair for pair in imports if GRAPH.layer(pair[1]) == "paper"] == []
    said = [m for m in others if any("trimol.paper" in text for text in strings(m))]
    assert said == ["trimol._registration"]


def differentiates(module: str) -> bool:
    """Whether autograd is called or taken from torch: ``backward``, ``autograd``, ``func.grad``."""
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Import):
            names |= {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names |= {*node.module.split("."), *(alias.name for alias in node.names)}
    return bool(names & {"autograd", "backward", "jacrev", "jacfwd", "jvp", "vjp", "hessian"})


def test_gradients_are_computed_in_one_place():
    others = [module for module in MODULES if GRAPH.layer(module) != "gradients"]
    assert {module for module in others if differentiates(module)} == set(DIFFERENTIATES)


# Where files are opened outside `trimol._files`, and why.
OPENS = {
    "trimol.testing._distributed": "the kit's processes share a temporary folder of their own",
    "trimol.data._files.fetch": "members of an archive are unpacked into a new folder",
    "trimol.cli._lines": "a command's own stdout and stderr, by their numbers",
}


def writes(module: str) -> bool:
    """Whether a module opens files for writing, or names them to a library that does."""
    calls = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]
    return any(_writes(ast.unparse(call.func), call) for call in calls)


def _writes(called: str, call: ast.Call) -> bool:
    given = [ast.unparse(each) for each in (*call.args, *(key.value for key in call.keywords))]
    name = called.rpartition(".")[2]
    if name == "open":
        return any(re.fullmatch("'[wax+b]+'", each) and each != "'b'" for each in given)
    if called in ("np.save", "np.savez", "torch.save") or name in ("savefig", "write_parquet"):
        return not {"file", "buffer"} & set(given)
    return name in ("write_text", "write_bytes", "touch", "open_memmap") or (
        name == "mkdir" and any(key.arg == "exist_ok" for key in call.keywords)
    )


def test_files_are_written_in_one_place():
    found = {module for module in MODULES if writes(module)}
    assert found - {"trimol._files"} == set(OPENS)
    for code in ("path.open('ab')", "open(path, mode='w')", "np.save(path, x)", "a.touch()"):
        call = ast.parse(code, mode="eval").body
        assert _writes(ast.unparse(call.func), call), code


def test_commands_print_in_one_place():
    """There, control characters of names, paths and messages are spelled out."""
    for module in MODULES:
        if GRAPH.layer(module) == "cli" or module.startswith("trimol.paper._commands"):
            calls = [n for n in ast.walk(tree(module)) if isinstance(n, ast.Call)]
            named = {getattr(call.func, "id", "") for call in calls if not sized(call)}
            assert not named & {"print", "Console"} or module == "trimol.cli._lines", module


def sized(call: ast.Call) -> bool:
    """Whether it is a console of some width, by which tables are measured and not printed."""
    return [key.arg for key in call.keywords] == ["width"]


def test_files_of_runs_are_read_in_one_place():
    """A pipe under the name of a run's file would be waited for without end."""
    for module in MODULES:
        if GRAPH.layer(module) in ("training", "runs", "report", "integrations"):
            named = {n.attr for n in ast.walk(tree(module)) if isinstance(n, ast.Attribute)}
            resources = module == "trimol.report._page"  # files of the package
            assert not named & {"read_bytes", "read_text"} or resources, module


def test_no_two_modules_share_a_name():
    """But a method's, which users know it by: `config` is ConFIG, and a run has a configuration."""
    methods = {f"trimol.methods.{name}" for name in trimol.methods.names()}
    names = Counter(file.stem for name, file in GRAPH.modules().items() if name not in methods)
    assert [name for name, n in names.items() if n > 1 and not name.startswith("__")] == []


def test_imports_have_no_ring():
    at_once = {module: GRAPH.imported(module, at_once=True) for module in MODULES}
    assert len(list(TopologicalSorter(at_once).static_order())) >= len(MODULES)


def test_a_newcomer_meets_few_public_names():
    public = [
        f"{module}.{node.name}"
        for module in MODULES
        if not any(part.startswith("_") for part in module.split("."))
        and GRAPH.layer(module) != "cli"  # every command has two, which nobody imports
        for node in tree(module).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(public) <= MOST_PUBLIC


def test_the_picture_of_the_imports_is_as_drawn_now():
    assert GRAPH.PICTURE.read_text(encoding="utf-8") == GRAPH.draw(), "run python docs/imports.py"


def after(code: str) -> set[str]:
    """The names of the modules that a fresh Python has loaded after some code."""
    said = f"import sys; {code}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_is_light():
    loaded = after("import trimol")
    assert len({name for name in loaded if name.partition(".")[0] == "trimol"}) <= MOST_AT_IMPORT
    # Neither what takes long, nor what some platform lacks.
    absent = {"torch", "numpy", "scipy", "fcntl", "resource", "termios"}
    assert not (loaded - after("pass")) & absent


def test_import_pulls_the_core_only():
    names = "trimol.MoDo, trimol.measure, trimol.Monitor, trimol.Task, trimol.theory"
    loaded = after(f"import trimol; {names}")
    extras = {"pydantic", "tyro", "rich", "polars", "sklearn", "pooch", "matplotlib", "plotly"}
    extras |= {"accelerate", "ray", "optuna", "PIL", "transformers", "lightning", "torchjd"}
    slow = {"scipy.optimize", "scipy.linalg"}  # half a second, when a solver is first used
    assert not loaded & (extras | slow)


LAZY = tuple(name for name, file in GRAPH.modules().items() if file.with_suffix(".pyi").is_file())


def stubbed(package: str) -> set[str]:
    """The names that a package's stub gives to type checkers, read anew; a star is another stub."""
    names: set[str] = set()
    for node in ast.parse(GRAPH.modules()[package].with_suffix(".pyi").read_text()).body:
        for alias in getattr(node, "names", ()):
            if alias.name == "*":
                below = node.module.removeprefix("trimol.").split(".")
                star = ast.parse(GRAPH.SOURCE.joinpath(*below).with_suffix(".pyi").read_text())
                names |= {a.asname for n in star.body for a in getattr(n, "names", ())}
            else:
                names.add(alias.asname)
    return names


@pytest.mark.parametrize("package", LAZY)
def test_the_names_of_a_lazy_package_are_those_of_its_stub_and_all_load(package):
    home = import_module(package)
    assert set(home.__all__) == stubbed(package)
    assert len(home.__all__) == len(set(home.__all__))
    assert set(dir(home)) >= stubbed(package)
    for name in home.__all__:
        assert getattr(home, name) is not None, name


def test_dir_is_complete_before_anything_is_loaded():
    code = "import trimol; names = dir(trimol); assert 'torch' not in sys.modules"
    said = f"import sys; {code}; print(*names)"
    run = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) >= stubbed("trimol")
    methods = {method.__name__ for method in map(trimol.methods.get, trimol.methods.names())}
    assert set(run.stdout.split()) >= methods


def test_a_name_in_other_letters_is_proposed_once():
    with pytest.raises(AttributeError, match=r"no attribute 'mgda'\. Did you mean: 'MGDA'\?$"):
        _ = trimol.mgda
    for name in ("mgda", "modo"):
        run = subprocess.run(
            [sys.executable, "-c", f"import trimol; trimol.{name}"], capture_output=True, text=True
        )
        assert run.stderr.splitlines()[-1].count("Did you mean") == 1
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = trimol.nothing


def documented() -> list[tuple[str, str]]:
    """Module and names of every block of the API pages."""
    pages = sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"automodule:: (\S+)\n +:members:(.*)", text)
    assert blocks, "no page of docs/reference/api names anything"
    return blocks


@pytest.mark.parametrize(("module", "names"), documented(), ids=lambda text: text.split(",")[0])
def test_the_api_page_names_what_is_there(module, names):
    home = import_module(module)
    for name in filter(None, map(str.strip, names.split(","))):
        assert getattr(home, name).__doc__, name


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_what_is_there(page):
    """Dotted names of ours, and paths of files; the changelog also names what was."""
    text = page.read_text(encoding="utf-8")
    if page.name == "CHANGELOG.md":
        text = text.partition("### Changed")[0]
    for name in set(re.findall(r"\btrimol(?:\.[A-Za-z_]\w*)+", text)):
        assert pkgutil.resolve_name(name) is not None
    places = (ROOT, ROOT / "src", GRAPH.SOURCE, ROOT / "docs")
    for path in set(re.findall(r"\b(?:[\w-]+/)+\w+\.(?:pyi?|toml|bib)\b", text)):
        assert any((place / path).exists() for place in places), path


def test_sources_name_what_is_there():
    """Dotted names of ours, in code, docstrings and comments."""
    for module in MODULES:
        text = GRAPH.modules()[module].read_text(encoding="utf-8")
        for name in set(re.findall(r"\btrimol(?:\.[A-Za-z_]\w*)+", text)):
            assert pkgutil.resolve_name(name) is not None, module


@pytest.mark.parametrize("package", LAZY)
def test_no_module_hides_a_name_that_its_package_loads_lazily(package):
    home = import_module(package)
    modules = {file.stem for file in Path(home.__file__).parent.glob("*.py")}
    for name in set(home.__all__) & modules:
        assert isinstance(getattr(home, name), ModuleType), name


def is_module(name: str) -> bool:
    return name in GRAPH.modules()


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_taken(file: Path) -> set[str]:
    """Names with one underscore that a file takes from other modules of the package."""
    tree = ast.parse(file.read_text())
    taken, modules = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trimol":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if is_module(name):
                    modules[alias.asname or alias.name] = name
                elif private(alias.name):
                    taken.add(name)
        elif isinstance(node, ast.Import):
            modules |= {a.asname: a.name for a in node.names if a.asname and is_module(a.name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{modules.get(node.value.id)}.{node.attr}"
            if node.value.id in modules and private(node.attr) and not is_module(name):
                taken.add(name)
    return taken


def test_no_private_name_is_taken_from_another_module():
    taken = {module: private_names_taken(file) for module, file in GRAPH.modules().items()}
    assert {module: names for module, names in taken.items() if names} == {}


def test_a_private_name_taken_is_noticed(tmp_path):
    file = tmp_path / "taker.py"
    file.write_text(
        "from trimol.maths import cone, _numerics\nfrom trimol.maths.box import _active_set\n"
        "import trimol.maths.box as box\nimport numpy._core\n"
        "cone._pivoted, box._RAISE, cone.push, _numerics.EPS, cone.__name__, numpy._core\n"
    )
    names = {"box._active_set", "box._RAISE", "cone._pivoted"}
    assert private_names_taken(file) == {f"trimol.maths.{name}" for name in names}


def test_the_loop_calls_backward_and_no_other_part_of_autograd():
    nodes = ast.walk(tree("trimol.training.loop"))
    assert not [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == "autograd"]


# Where names of methods are what the file is about: the orders that the theorems state, and the
# paper's own experiments, with the methods that the paper has.
# A classifier with a bound is one method by its nature.
NAMED = {
    "theory/rates.py": {"static", "modo", "smg", "moco", "crmogm"},
    "integrations/sklearn.py": {"preference"},
    # The word: a run's configuration.
    "runs/_entry.py": {"config"},
    "runs/_execute.py": {"config"},
}
NAMED_IN_PAPER = {"static", "mgda", "modo", "smg", "moco"}


def named(file: Path) -> set[str]:
    """The methods that a file names: as strings that are no docstrings, or by their classes."""
    tree = ast.parse(file.read_text())
    classes = {methods.get(name).__name__: name for name in methods.names()}
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            found |= {node.value} & set(methods.names())
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
            names = {"Name": "id", "Attribute": "attr", "alias": "name"}
            written = getattr(node, names[type(node).__name__]).rpartition(".")[2]
            found |= {classes[written]} if written in classes else set()
    return found


def named_by_right(place: Path) -> set[str]:
    if place.parts[0] == "methods":
        return set(methods.names())
    studies = place.parts[0] == "paper" and place.parts[1] != "tasks"
    return NAMED.get(place.as_posix(), NAMED_IN_PAPER if studies else set())


def test_methods_are_named_among_the_methods_and_in_settings_only():
    wrong = {
        module: named(file) - named_by_right(file.relative_to(GRAPH.SOURCE))
        for module, file in GRAPH.modules().items()
    }
    assert {module: names for module, names in wrong.items() if names} == {}
