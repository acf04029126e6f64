"""Sphinx: the pages of this folder, and the API from the docstrings."""

import trimol

project = "trimol"
copyright = "the trimol authors"
release = trimol.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
html_theme = "furo"
myst_enable_extensions = ["dollarmath"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "literal"
