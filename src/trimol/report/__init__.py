"""Reports: one HTML page of runs and studies that needs no network, and its figures as files."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
