"""Methods: modules that turn several losses into one scalar. One algorithm a file."""

from trimol.methods.base import Info, Method
from trimol.methods.citation import citation
from trimol.methods.mgda import MGDA
from trimol.methods.modo import MoDo
from trimol.methods.registry import get, names
from trimol.methods.static import Static

__all__ = ["MGDA", "Info", "Method", "MoDo", "Static", "citation", "get", "names"]
