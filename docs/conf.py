"""Sphinx: the pages of this folder, and the API from the docstrings."""

from pathlib import Path

import trimol

project = "trimol"
copyright = "the trimol authors"
release = trimol.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "furo"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "literal"


def _method_pages(app: object) -> None:
    """One page per method, from its docstring: ``docs/methods/`` is written at every build."""
    folder = Path(__file__).parent / "methods"
    folder.mkdir(exist_ok=True)
    for name in trimol.methods.names():
        method = trimol.methods.get(name)
        (folder / f"{name}.md").write_text(
            f"# {method.__name__}\n\n{method.summary} Needs: {method.needs}; independent batches a "
            f"step: {method.draws}.\n\n```{{eval-rst}}\n.. autoclass:: trimol.{method.__name__}\n"
            "   :members:\n   :inherited-members: Module\n```\n",
            encoding="utf-8",
        )


def setup(app: object) -> None:
    """Sphinx calls this first."""
    app.connect("builder-inited", _method_pages)  # type: ignore[attr-defined]
