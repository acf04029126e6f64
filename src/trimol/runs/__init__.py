"""Studies: runs that are stored and resumed, compared with each other."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
