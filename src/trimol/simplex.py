"""The simplex: projection onto it, and the exact min-norm point in it."""

from trimol.maths.min_norm import min_norm
from trimol.maths.projection import project

__all__ = ["min_norm", "project"]
