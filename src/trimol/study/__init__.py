"""Studies: runs that are stored and resumed, compared with each other."""

from trimol.study.compare import Comparison, Difference, Row, compare, differences, summarise
from trimol.study.config import RunConfig, configure
from trimol.study.execute import execute
from trimol.study.files import StoreError
from trimol.study.signals import Interrupted
from trimol.study.store import StoredRun

__all__ = [
    "Comparison",
    "Difference",
    "Interrupted",
    "Row",
    "RunConfig",
    "StoreError",
    "StoredRun",
    "compare",
    "configure",
    "differences",
    "execute",
    "summarise",
]
