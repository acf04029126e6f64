"""The concave front: its formulas, and that no weighted sum reaches its middle."""

import numpy as np
import pytest
import torch
from torch.func import jacrev

from trimol.maths import fronts
from trimol.tasks import load
from trimol.tasks.concave import Concave
from trimol.tasks.quadratic import Quadratic

NONE = torch.zeros(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_jacobian_is_that_of_the_values(dimension: int) -> None:
    task = Concave(dimension=dimension)
    x = torch.randn(dimension, dtype=torch.float64)
    expected = jacrev(lambda at: task.values(at, NONE))(x)
    torch.testing.assert_close(task.jacobian(x, NONE), expected)


@pytest.mark.parametrize("dimension", [1, 3])
def test_nothing_dominates_the_front(dimension: int) -> None:
    task = Concave(dimension=dimension)
    known = task.true_front((NONE,), 50)
    assert fronts.nondominated(known).all()
    others = task.values(2 * torch.randn(20_000, dimension, dtype=torch.float64), NONE)
    beaten = (others[:, None] < known - 1e-12).all(-1)
    assert not beaten.any()


def test_no_weighted_sum_is_least_in_the_middle() -> None:
    along = torch.linspace(1, -1, 2001, dtype=torch.float64)
    known = Concave().true_front((NONE,), 2001)
    for weight in np.linspace(0, 1, 101):
        least = (known @ torch.tensor([weight, 1 - weight], dtype=torch.float64)).argmin()
        assert abs(along[least]) > 0.9


def test_the_seed_decides_the_start() -> None:
    task = load("concave")
    torch.manual_seed(1)
    first = task.model()()
    torch.manual_seed(2)
    assert not torch.equal(first, task.model()())


@pytest.mark.parametrize("b2", [(1.0, 3.0), (1.0, 3.0, 2.0)])
def test_the_quadratics_front_is_where_weighted_sums_are_least(b2: tuple[float, ...]) -> None:
    """A strongly convex front is all of its weighted sums' minimisers."""
    task = Quadratic(b1=(1.0, 2.0, 1.0)[: len(b2)], b2=b2)
    batch = task.data().train
    mean = batch[0].mean(0)
    known = task.true_front(batch, 2001)
    weights = torch.distributions.Dirichlet(torch.ones(len(b2), dtype=torch.float64)).sample((50,))
    reached = task.values(task.minimiser(weights, mean), mean)
    assert torch.cdist(reached, known).min(1).values.max() < 1e-3
    assert fronts.nondominated(known).all()
