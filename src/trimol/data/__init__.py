"""Data: batches dealt out as the k draws of one step, and samplers that draw them."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
