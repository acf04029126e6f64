"""Nasty Gramians and products for the methods that turn these into weights."""

import torch
from hypothesis import strategies as st
from torch import Tensor

KINDS = ("random", "rank one", "duplicates", "zero row", "opposed", "stationary", "scaled", "tiny")


def jacobian(kind: str, objectives: int, seed: int) -> Tensor:
    """Gradients of the kind, one a row, in float64."""
    generator = torch.Generator().manual_seed(seed)
    J = torch.randn(objectives, objectives + 2, generator=generator, dtype=torch.float64)
    powers = torch.randint(-8, 9, (objectives, 1), generator=generator).double()
    match kind:
        case "rank one":
            J = J[:, :1] * J[:1]
        case "duplicates":
            J[objectives // 2 :] = J[: objectives - objectives // 2].clone()
        case "zero row":
            J[0] = 0
        case "opposed":
            J[-1] = -2 * J[0]
        case "stationary":
            J[-1] = -J[:-1].sum(0)
        case "scaled":
            J = J * 10**powers
        case "tiny":
            J = J * 1e-8
    return J


jacobians = st.builds(jacobian, st.sampled_from(KINDS), st.integers(1, 7), st.integers(0, 10**6))
# Weights, not normalised, and products G1ᵀ(G2 λ) of any size.
weights_and_products = st.integers(1, 6).flatmap(
    lambda m: st.tuples(
        st.lists(st.floats(0.01, 1), min_size=m, max_size=m),
        st.lists(st.floats(-1e12, 1e12), min_size=m, max_size=m),
    )
)
