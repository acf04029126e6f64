"""The paper's theory as a tool.

- :mod:`~trimol.theory.bounds`: the theorems as functions of their constants;
- :mod:`~trimol.theory.rates`: the rates as data, and the paper's Tables 1 and 2 made from them;
- :mod:`~trimol.theory.regions`: the regions of the paper's Figure 2;
- `plan`: step sizes and steps from a goal;
- `estimate`: the theorems' constants, as far as a model and its data show them.
"""

from trimol.theory import bounds, rates, regions
from trimol.theory.constants import Constants
from trimol.theory.estimation import Estimates, estimate
from trimol.theory.planning import Plan, plan

__all__ = [
    "Constants",
    "Estimates",
    "Plan",
    "bounds",
    "estimate",
    "plan",
    "rates",
    "regions",
]
