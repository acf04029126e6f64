"""What to try: settings, search spaces, samplers, and a study that spends a budget of trainings."""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
