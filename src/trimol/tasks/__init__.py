"""Tasks: a model, its losses, data and metrics, ready to be trained by any method."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
