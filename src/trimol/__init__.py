"""Multi-objective learning in PyTorch: one model, several losses, and the three errors."""

from trimol import gradients, methods, simplex
from trimol._version import __version__
from trimol.data import draws, pairs
from trimol.methods import MGDA, MoDo, Static

__all__ = [
    "MGDA",
    "MoDo",
    "Static",
    "__version__",
    "draws",
    "gradients",
    "methods",
    "pairs",
    "simplex",
]
