r"""The paper's theorems as functions of their constants.

A function returns a `Bound`: the value, the terms that it is made of, the theorem, what the theorem
assumes, and the limits on the step sizes, which were *checked*: outside them there is no theorem,
and the function raises.

===============  ===================================================================================
error            functions
===============  ===================================================================================
R_opt            `optimization`, `optimization_last` and `optimization_sc` (strongly convex),
                 `optimization_tracked` and `optimization_smg` (exact min-norm weights of estimates)
E_ca, E_caw      `conflict`, `conflict_weight`, `conflict_tracked`, `conflict_smg`,
                 `conflict_weight_static`
ε_F²             `stability`, `stability_sc`, `argument_stability`, `stability_lower`,
                 `stability_lower_sc`
R_gen, R_pop     `generalization`, `generalization_sc`, `population`, `population_sc`
===============  ===================================================================================

Static weighting is γ = 0, ρ = 0: λ stays where it starts.

**Readings.** Some constants that the paper prints do not follow from its own proof. With
``reading="derived"``, the default, a function returns what does follow; ``"printed"`` returns the
paper's expression as it stands. `Bound.corrections` says in words where the two differ.

The step that the proofs analyse takes three samples: two for λ and an independent third for x. With
two (x moving along the mean of both) the proofs of R_opt and E_ca have a gap, as x's sample is not
independent of the new λ; those of stability hold.

Reference:
    L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
    Optimization, Generalization and Conflict-Avoidance*, 2023, with its appendix.
"""

from trimol._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
