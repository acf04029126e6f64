"""Studies: runs that are stored and resumed, compared with each other."""

from trimol.study.compare import Comparison, Difference, Row, compare, differences, summarise
from trimol.study.config import RunConfig, configure
from trimol.study.execute import execute
from trimol.study.files import StoreError
from trimol.study.multitask import Candidate, Contest, Outcome, drop, play
from trimol.study.signals import Interrupted
from trimol.study.store import StoredRun

__all__ = [
    "Candidate",
    "Comparison",
    "Contest",
    "Difference",
    "Interrupted",
    "Outcome",
    "Row",
    "RunConfig",
    "StoreError",
    "StoredRun",
    "compare",
    "configure",
    "differences",
    "drop",
    "execute",
    "play",
    "summarise",
]
