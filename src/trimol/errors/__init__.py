"""The three errors of multi-objective learning, measured on whole data sets or estimated.

- `measure`: the front door, exact;
- `estimate`: from random batches, each error between two bounds of a stated confidence;
- `conflict_over_runs`: the conflict of an algorithm, from several runs of it;
- :mod:`~trimol.errors.pareto`: R_opt, R_pop, R_gen, the distances from Pareto stationarity;
- :mod:`~trimol.errors.conflict`: E_ca and E_caw, the distances from conflict avoidance;
- :mod:`~trimol.errors.fulldata`: exact mean gradients over a loader;
- :mod:`~trimol.errors.subsample`: random batches of one;
- :mod:`~trimol.errors.bracket`: bounds from a few batches;
- :mod:`~trimol.errors.inputs`: what is to be measured, checked;
- :mod:`~trimol.errors.stability`: uniform stability, estimated from twin runs.
"""

from trimol.errors.bracket import Bracket
from trimol.errors.conflict import ConflictOverRuns, conflict_over_runs
from trimol.errors.estimate import Estimate, estimate
from trimol.errors.measure import Errors, measure

__all__ = [
    "Bracket",
    "ConflictOverRuns",
    "Errors",
    "Estimate",
    "conflict_over_runs",
    "estimate",
    "measure",
]
