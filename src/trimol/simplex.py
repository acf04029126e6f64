"""The simplex: projection onto it, and the exact min-norm point in it."""

from trimol.maths.simplex import min_norm, project

__all__ = ["min_norm", "project"]
