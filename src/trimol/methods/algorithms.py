"""All methods, each loaded when it is first used; the stub beside this file lists them."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
