"""Multi-objective learning in PyTorch: one model, several losses, and the three errors."""

from trimol import gradients, methods, simplex
from trimol._version import __version__
from trimol.data import draws, pairs
from trimol.errors import Errors, measure
from trimol.methods import MGDA, MoDo, Static, citation

__all__ = [
    "MGDA",
    "Errors",
    "MoDo",
    "Static",
    "__version__",
    "citation",
    "draws",
    "gradients",
    "measure",
    "methods",
    "pairs",
    "simplex",
]
