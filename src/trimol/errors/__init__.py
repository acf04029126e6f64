"""The three errors of multi-objective learning, measured on whole data sets or estimated.

- `measure`: the front door, exact;
- `estimate`: from random batches, each error between two bounds of a stated confidence;
- `conflict_over_runs`: the conflict of an algorithm, from several runs of it.
"""

# _pareto: R_opt, R_pop, R_gen. _conflict: E_ca and E_caw. _fulldata: exact mean gradients over a
# loader. _subsample: random batches of one. _bracket: bounds from a few. _inputs: checks.

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
