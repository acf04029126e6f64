"""The three errors of multi-objective learning, measured on whole data sets.

- `measure`: the front door;
- :mod:`~trimol.errors.pareto`: R_opt, R_pop, R_gen, the distances from Pareto stationarity;
- :mod:`~trimol.errors.conflict`: E_ca and E_caw, the distances from conflict avoidance;
- :mod:`~trimol.errors.fulldata`: exact mean gradients over a loader.
"""

from trimol.errors.measure import Errors, measure

__all__ = ["Errors", "measure"]
