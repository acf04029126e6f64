"""From loss tensors to evidence. The one place in trimol that calls autograd.

- :func:`jacobian`, :func:`gramian`: all gradients, one backward per objective;
- :func:`product`: G1ᵀ(G2 λ), at a cost that does not grow with the number of objectives;
- `Evidence`: what the losses of one step tell a method;
- :func:`observed`: the values of losses without a graph.
"""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
