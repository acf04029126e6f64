"""Multi-objective learning in PyTorch: one model, several losses, and the three errors."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
