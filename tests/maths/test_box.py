import numpy as np
import pytest

from trimol.maths import box


@pytest.mark.parametrize(
    ("gramian", "pull", "cap", "want"),
    [
        ([[2.0]], [1.0], 10.0, [0.5]),
        ([[2.0]], [1.0], 0.1, [0.1]),  # held by the cap
        ([[2.0]], [-1.0], 10.0, [0.0]),  # held by zero
        ([[0.0]], [1.0], 10.0, [0.0]),  # nothing to be gained
        ([[2.0, 0.0], [0.0, 4.0]], [1.0, 1.0], 10.0, [0.5, 0.25]),
        ([[1.0, -1.0], [-1.0, 1.0]], [1.0, 1.0], 10.0, [10.0, 10.0]),  # opposed: only the cap
        ([[1.0, -1.0], [-1.0, 1.0]], [3.0, -1.0], 10.0, [10.0, 9.0]),
        ([[1.0, 1.0], [1.0, 1.0]], [1.0, 1.0], 10.0, [0.5, 0.5]),  # equal: shared
        ([[1e16, 0.0], [0.0, 1e-16]], [1e8, 1e-8], 1e9, [1e-8, 1e8]),
    ],
)
def test_known_minimisers(gramian, pull, cap, want):
    found = box.minimise(np.array(gramian), np.array(pull), cap)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)
