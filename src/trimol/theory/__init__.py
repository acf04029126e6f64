"""The paper's theory as a tool.

- :mod:`~trimol.theory.bounds`: the theorems as functions of their constants;
- :mod:`~trimol.theory.rates`: the rates as data, and the paper's Tables 1 and 2 made from them;
- :mod:`~trimol.theory.regions`: the regions of the paper's Figure 2;
- `plan`: step sizes and steps from a goal;
- `estimate_constants`: the theorems' constants, as far as a model and its data show them.
"""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
