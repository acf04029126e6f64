"""Sphinx: the pages of this folder, executed notebooks, and the API from the docstrings."""

import contextlib
import io
import os
import re
from pathlib import Path

import trimol

# The notebooks' networks are small: threads would wait for each other, on a busy machine most.
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "trimol"
copyright = "the trimol authors"
release = trimol.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_static"]
html_theme = "furo"
html_title = f"trimol {release}"
html_static_path = ["_static"]
html_css_files = ["trimol.css"]
# One file that draws formulas as SVG: it asks the network for nothing, no fonts either.
mathjax_path = "mathjax/tex-svg.js"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
# The notebooks of the gallery run at a build, and again when their code has changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "notebooks")
nb_execution_timeout = 600  # a cell takes seconds; a busy machine may need minutes
nb_execution_raise_on_error = True
nb_merge_streams = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "literal"


def _method_pages(app: object) -> None:
    """One page a method, from its docstring: ``reference/methods/`` is written at every build."""
    folder = Path(__file__).parent / "reference" / "methods"
    folder.mkdir(exist_ok=True)
    for name in trimol.methods.names():
        (folder / f"{name}.md").write_text(_method_page(name), encoding="utf-8")


def _method_page(name: str) -> str:
    method = trimol.methods.get(name)
    batches = {1: "one batch", 2: "two independent batches", 3: "three independent batches"}
    return (
        f"# {method.__name__}\n\n{method.summary}\n\n"
        f"```sh\ntrimol run digits --method {name}\n```\n\n"
        f"A step takes {batches[method.draws]} and computes with {_NEEDS[method.needs]}. "
        "[All methods](../methods.md), [which one](../../start/which-method.md), and [what every "
        "method has](../api/methods.md): `info`, `state_dict()`, `accumulate`, …\n\n"
        f"```{{eval-rst}}\n.. autoclass:: trimol.{method.__name__}\n   :members:\n"
        # What a method defines, not what its user calls.
        "   :exclude-members: weigh, scalar\n```\n\n"
        f"## To cite\n\n```bibtex\n{_bibtex(name)}\n```\n"
    )


def _bibtex(name: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        trimol.citation(name)
    return printed.getvalue().strip()


_NEEDS = {
    "nothing": "nothing of the losses",
    "losses": "the values of the losses only",
    "gramian": "the inner products of all gradients",
    "product": "one product of gradients, whatever the number of losses",
    "jacobian": "all gradients",
    "representation": "the gradients by the representation between trunk and heads",
}


def _link_methods(app: object, page: str, source: list[str]) -> None:
    """In the table of all methods each name leads to its page, which only a build has."""
    if page != "reference/methods":
        return
    for name in trimol.methods.names():
        shown = f"| `{trimol.methods.get(name).__name__}` |"
        source[0] = source[0].replace(shown, f"| [{shown[2:-2]}](methods/{name}.md) |", 1)


DISPLAYED = re.compile(r"(?<=\.\. math::\n)(?: +\S.*\n)+")


def _one_formula_a_line(
    app: object, what: str, name: str, documented: object, options: object, lines: list[str]
) -> None:
    """Formulas that a docstring sets side by side come one below the other: pages are narrow."""
    lines[:] = DISPLAYED.sub(_below_each_other, "\n".join(lines)).split("\n")


def _below_each_other(formulas: re.Match[str]) -> str:
    text = formulas[0]
    if r"\qquad" not in text:
        return text
    return "    & " + text.lstrip().replace(r"\qquad", r"\\ &")


def _no_type_in_words(
    app: object, what: str, name: str, documented: object, options: object, lines: list[str]
) -> None:
    """Napoleon takes what is before a colon in a property's first line for its type."""
    if what == "property":
        lines[:0] = ["..", ""]  # an empty comment, which has no colon


def setup(app: object) -> None:
    """Sphinx calls this first."""
    app.connect("autodoc-process-docstring", _no_type_in_words, priority=400)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", _one_formula_a_line)  # type: ignore[attr-defined]
    app.connect("builder-inited", _method_pages)  # type: ignore[attr-defined]
    app.connect("source-read", _link_methods)  # type: ignore[attr-defined]
