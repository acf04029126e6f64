"""Studies: many runs, compared."""

from trimol.study.compare import Row, compare, summarise

__all__ = ["Row", "compare", "summarise"]
