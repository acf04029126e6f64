"""Directions that promise no conflict keep it where gradients in float64 depend on each other.

Near a weakly stationary point the Gramian holds, of the dependence, its own rounding only: a solver
that takes it at its word returned weights of 1e15, or none, and conflicts of a tenth.
"""

import functools

import pytest
import torch

from trimol.gradients._rows import combined, gram
from trimol.maths import cone
from trimol.methods.cagrad import cagrad_weights
from trimol.methods.upgrad import upgrad_weights
from trimol.testing import low_ranks

EPS = torch.finfo(torch.float64).eps
# What 10 000 tries of both solvers reach; the Gramian cannot tell more than the root of rounding.
KEPT = 1e-6
# Where the one or the other broke its promise, by up to 0.1.
BROKEN = (
    "10 × 7, rank 7 × 1e+10, stationary: weakly",
    "11 × 5, rank 5 × 100000, stationary: weakly",
    "11 × 10, rank 7 × 1000, stationary: weakly, a row twice",
    "13 × 7, rank 6 × 1000, stationary: weakly",
    "15 × 8, rank 6 × 1, stationary: weakly",
    "19 × 8, rank 7 × 1, stationary: weakly, a row twice",
    "20 × 9, rank 8 × 1000, stationary: weakly",
    "10 × 6, rank 3 × 1e+15, stationary: weakly",
)
SOLVERS = {
    "upgrad": functools.partial(upgrad_weights, rounding=EPS),
    "cagrad": functools.partial(cagrad_weights, c=1.0, rounding=EPS),
}


@pytest.fixture(scope="module")
def jacobians():
    found = {case.name: case.jacobian for case in low_ranks() if case.name in BROKEN}
    assert set(found) == set(BROKEN)
    return [*found.values(), *(case.jacobian for case in low_ranks(every=97, start=5))]


def direction(solve, jacobian):
    gramian = gram(jacobian)
    return combined(solve(gramian), jacobian, gramian)


@pytest.mark.parametrize("solver", SOLVERS)
def test_it_conflicts_with_none(solver, jacobians):
    for jacobian in jacobians:
        d, lengths = direction(SOLVERS[solver], jacobian), jacobian.norm(dim=1)
        assert (jacobian @ d >= -KEPT * lengths * (d.norm() + lengths.max())).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_order_of_the_objectives_means_nothing(solver, jacobians):
    for jacobian in jacobians:
        d, other = (direction(SOLVERS[solver], j) for j in (jacobian, jacobian.flip(0)))
        size = d.norm() + jacobian.norm(dim=1).max()
        assert (d - other).norm() <= KEPT * size


def test_what_keeps_the_promise_is_solved_as_it_is():
    """Independent gradients: the exact solution, to the bit."""
    gramian = gram(torch.randn(6, 9, generator=torch.Generator().manual_seed(0)).double())
    exact = (1 + cone.pushes(gramian.numpy()).sum(0)) / 6
    assert torch.equal(SOLVERS["upgrad"](gramian), torch.from_numpy(exact))
