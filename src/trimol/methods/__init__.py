"""Methods: modules that turn several losses into one scalar. One algorithm a file."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
