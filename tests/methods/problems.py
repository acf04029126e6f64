"""Small problems that the tests of methods share: those of the conformance kit."""

from trimol.testing._problems import (
    Batch,
    TwoHeads,
    batch,
    clear,
    flat_gradient,
    naive_jacobian,
    network,
)

__all__ = ["Batch", "TwoHeads", "batch", "clear", "flat_gradient", "naive_jacobian", "network"]
