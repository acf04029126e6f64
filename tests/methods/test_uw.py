import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.uw import uw_step


def test_steps_are_joint_gradient_descent_on_the_papers_loss():
    """The same as handing (x, s) to torch's SGD."""
    ours, theirs = network(), network()
    uw = trimol.UW(ours.parameters(), 3, lr=0.2, weights=[0.5, 0.5, 1.0])
    s = -(2 * torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64)).log()
    s.requires_grad_()
    optimizers = [
        torch.optim.SGD(ours.parameters(), lr=0.1),
        torch.optim.SGD(
            [{"params": list(theirs.parameters())}, {"params": [s], "lr": 0.2}], lr=0.1
        ),
    ]
    for seed in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = theirs.losses(batch(seed=seed))
        weights = 0.5 * (-s).exp().detach()
        (0.5 * (-s).exp() * losses + 0.5 * s).sum().backward()
        scalar = uw(ours.losses(batch(seed=seed)))
        scalar.backward()
        assert scalar.item() == pytest.approx((weights @ losses).item(), rel=1e-12)
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(uw.weights, 0.5 * (-s).exp().detach())
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b)


def test_one_step_by_hand():
    model = network()
    params = list(model.parameters())
    losses = model.losses(batch())
    expected = naive_jacobian(losses, params).sum(0) / 2  # λ starts at ½, as published
    uw = trimol.UW(params, 3, lr=0.1)
    uw(losses).backward()
    torch.testing.assert_close(flat_gradient(params), expected)  # x moves with λ_t
    torch.testing.assert_close(uw.weights, 0.5 * (0.05 - 0.05 * losses.detach()).exp())


def test_torchjd_agrees():
    scalarization = pytest.importorskip("torchjd.scalarization")
    model = network()
    theirs = scalarization.UW(3).double()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.3)
    uw = trimol.UW(model.parameters(), 3, lr=0.3, weights=[0.5] * 3)
    for seed in range(4):
        losses = model.losses(batch(seed=seed))
        optimizer.zero_grad()
        theirs(losses.detach()).backward()
        optimizer.step()
        uw(losses)
        torch.testing.assert_close(uw.weights, 0.5 * (-theirs.log_var).exp().detach())


@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=6), st.floats(0.1, 0.5))
def test_constant_losses_come_to_half_their_inverse(losses, lr):
    """From any side, in the units of the loss; the fixed point itself is left alone."""
    losses = torch.tensor(losses, dtype=torch.float64)
    best = 1 / (2 * losses)
    torch.testing.assert_close(uw_step(best, losses, lr), best)
    weights = best * torch.logspace(-1, 0.5, len(losses), dtype=torch.float64)
    for _ in range(int(60 / lr)):
        weights = uw_step(weights, losses, lr)
    torch.testing.assert_close(weights, best, rtol=1e-6, atol=0)


def test_a_loss_of_zero_is_finite():
    weights = torch.full((2,), 0.5, dtype=torch.float64)
    for _ in range(1000):
        weights = uw_step(weights, torch.tensor([0.0, 1.0], dtype=torch.float64), 0.5)
    assert weights.float().isfinite().all()
    assert weights[0].item() == pytest.approx(0.5 * math.exp(69))


@pytest.mark.parametrize("lr", [0.1, 1.0])
def test_one_huge_loss_is_forgotten(lr):
    """λ goes to the best for that loss, not to zero, and comes back for the losses that follow."""
    x = torch.ones(2, requires_grad=True)
    uw = trimol.UW([x], 2, lr=lr, weights=[0.5, 0.5])
    uw(torch.stack([1e6 * x[0], x[1]]))
    torch.testing.assert_close(uw.weights, torch.tensor([5e-7, 0.5]).double())
    for _ in range(int(60 / lr)):
        uw(x * 1)
    torch.testing.assert_close(uw.weights, torch.tensor([0.5, 0.5]).double(), rtol=1e-4, atol=0)


def test_a_negative_loss_is_named_and_changes_nothing():
    x = torch.ones(3, requires_grad=True)
    uw = trimol.UW([x], 3)
    message = (
        "^losses must be at least 0, since UW learns the logarithm of their size, found -0.25 for "
        "objective 1$"
    )
    with pytest.raises(ValueError, match=message):
        uw(x * torch.tensor([1.0, -0.25, 2.0]))
    fresh = trimol.UW([x], 3)
    uw(x * 1), fresh(x * 1)
    assert torch.equal(uw.weights, fresh.weights)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr must be a finite number of at least 0, found -1"),
        ({"weights": [1.0, 0.0, 1.0]}, r"weights must be above 0, found \[1.0, 0.0, 1.0\]"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.UW([torch.zeros(2, requires_grad=True)], 3, **arguments)
