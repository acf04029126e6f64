"""The three errors of multi-objective learning, measured on whole data sets or estimated.

- `measure`: the front door, exact;
- `estimate`: from random batches, each error between two bounds of a stated confidence;
- `conflict_over_runs`: the conflict of an algorithm, from several runs of it;
- :mod:`~trimol.errors._pareto`: R_opt, R_pop, R_gen, the distances from Pareto stationarity;
- :mod:`~trimol.errors._conflict`: E_ca and E_caw, the distances from conflict avoidance;
- :mod:`~trimol.errors._fulldata`: exact mean gradients over a loader;
- :mod:`~trimol.errors._subsample`: random batches of one;
- :mod:`~trimol.errors._bracket`: bounds from a few batches;
- :mod:`~trimol.errors._inputs`: what is to be measured, checked.
"""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
