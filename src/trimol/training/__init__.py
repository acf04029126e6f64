"""Training: the loop, which knows no method by name, and what to say about its result."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
