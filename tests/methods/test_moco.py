import warnings

import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, clear, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.moco import moco_step
from trimol.simplex import min_norm, project


def by_hand(weights, tracker, gamma, rho):
    gramian = tracker @ tracker.T
    if gamma is None:
        return min_norm(gramian, rho)
    return project(weights - gamma * (gramian @ weights + rho * weights))


@pytest.mark.parametrize("zero_start", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize("gamma", [None, 0.1])
def test_steps_are_the_update_by_hand(gamma, rho, zero_start):
    model = network()
    params = list(model.parameters())
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    moco = trimol.MoCo(
        params, 3, beta=0.3, gamma=gamma, rho=rho, zero_start=zero_start, weights=weights
    )
    optimizer = torch.optim.SGD(params, lr=0.1)
    tracker = None
    for seed in range(4):
        clear(params)
        losses = model.losses(batch(seed=seed))
        gradient = naive_jacobian(losses, params)
        if tracker is None:
            tracker = torch.zeros_like(gradient) if zero_start else gradient
        tracker = tracker - 0.3 * (tracker - gradient)
        weights = by_hand(weights, tracker, gamma, rho)
        scalar = moco(losses)
        scalar.backward()
        torch.testing.assert_close(moco.tracker, tracker)
        torch.testing.assert_close(moco.weights, weights)
        torch.testing.assert_close(flat_gradient(params), weights @ tracker)
        assert scalar.item() == pytest.approx((weights @ losses).item(), rel=1e-10)
        optimizer.step()


def test_beta_one_is_mgda():
    model = network()
    params = list(model.parameters())
    moco, mgda = trimol.MoCo(params, 3, beta=1.0), trimol.MGDA(params, 3)
    for seed in range(3):
        directions = []
        for method in (moco, mgda):
            clear(params)
            method(model.losses(batch(seed=seed))).backward()
            directions.append(flat_gradient(params))
        torch.testing.assert_close(moco.weights, mgda.weights)
        torch.testing.assert_close(*directions)


def test_heads_are_not_tracked():
    model = network()
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    moco = trimol.MoCo(trunk, 3, beta=0.5)
    moco(model.losses(batch(seed=0)))
    before = moco.tracker.clone()
    losses = model.losses(batch(seed=1))
    on_trunk, on_heads = naive_jacobian(losses, trunk), naive_jacobian(losses, heads)
    moco(losses).backward()
    torch.testing.assert_close(flat_gradient(trunk), moco.weights @ (before + on_trunk) / 2)
    torch.testing.assert_close(flat_gradient(heads), on_heads.sum(0))


def test_gradients_whose_squares_are_beyond_float32_are_weighed():
    """1e25: their inner products, 1e50, are finite in float64."""
    model = network(dtype=torch.float32)
    moco = trimol.MoCo(model.parameters(), 3)
    moco(model.losses(batch(dtype=torch.float32)) * torch.tensor([1.0, 1e25, 1.0])).backward()
    assert moco.info.skipped == 0
    assert moco.weights[1] < 1e-20
    assert moco.tracker.isfinite().all()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_leaves_the_tracker(bad, first):
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    moco = trimol.MoCo(params, 3)
    if not first:
        moco(model.losses(batch(dtype=torch.float32)))
    before = {key: value.clone() for key, value in moco.state_dict().items()}
    losses = model.losses(batch(seed=1, dtype=torch.float32)) * torch.tensor([1.0, bad, 1.0])
    with pytest.warns(RuntimeWarning, match=r"infinity in the loss of 1 .*; λ is kept as it is"):
        moco(losses).backward()
    for key in ("weights", "tracker", "seen"):
        assert torch.equal(moco.state_dict()[key], before[key])
    assert moco.info.skipped == 1
    # What x moves along is this batch's gradient: not finite, so that a GradScaler skips the step.
    jacobian = naive_jacobian(
        model.losses(batch(seed=1, dtype=torch.float32)) * torch.tensor([1.0, bad, 1.0]), params
    )
    expected = moco.weights.float() @ jacobian
    torch.testing.assert_close(flat_gradient(params), expected, equal_nan=True)
    clear(params)  # and the next step goes on as if that one had not been
    twin = trimol.MoCo(params, 3)
    twin.load_state_dict({**before, "step": moco.step})
    for method in (moco, twin):
        method(model.losses(batch(seed=2, dtype=torch.float32)))
    assert torch.equal(moco.tracker, twin.tracker)
    assert torch.equal(moco.weights, twin.weights)


def test_a_frozen_parameter_keeps_its_part_of_the_tracker():
    model = network()
    params = list(model.parameters())
    size = params[0].numel()
    params[0].requires_grad_(False)
    moco = trimol.MoCo(params, 3, beta=0.5)
    moco(model.losses(batch(seed=0)))
    assert not moco.tracker[:, :size].any()
    params[0].requires_grad_(True)  # starts with its first gradient, the others go on
    old = moco.tracker.clone()
    losses = model.losses(batch(seed=1))
    gradient = naive_jacobian(losses, params)
    moco(losses).backward()
    torch.testing.assert_close(moco.tracker[:, :size], gradient[:, :size])
    torch.testing.assert_close(moco.tracker[:, size:], (old + gradient)[:, size:] / 2)
    torch.testing.assert_close(flat_gradient(params), moco.weights @ moco.tracker)
    params[0].requires_grad_(False)
    kept = moco.tracker[:, :size].clone()
    moco(model.losses(batch(seed=2)))
    assert torch.equal(moco.tracker[:, :size], kept)
    rest = moco.tracker[:, size:]
    torch.testing.assert_close(moco.weights, min_norm(rest @ rest.T))


def test_between_updates_x_moves_along_this_batch():
    model = network()
    params = list(model.parameters())
    moco = trimol.MoCo(params, 3, every=2)
    moco(model.losses(batch(seed=0)))
    tracker = moco.tracker.clone()
    losses = model.losses(batch(seed=1))
    expected = moco.weights @ naive_jacobian(losses, params)
    moco(losses).backward()
    torch.testing.assert_close(flat_gradient(params), expected)
    assert torch.equal(moco.tracker, tracker)


@pytest.mark.parametrize("gamma", [None, 0.01])
def test_state_resumes_bit_for_bit(gamma):
    model = network(dtype=torch.float32)
    moco = trimol.MoCo(model.parameters(), 3, gamma=gamma)
    for seed in range(3):
        moco(model.losses(batch(seed=seed, dtype=torch.float32)))
    fresh = trimol.MoCo(model.parameters(), 3, gamma=gamma)
    fresh.load_state_dict(moco.state_dict())
    for method in (moco, fresh):
        method(model.losses(batch(seed=3, dtype=torch.float32)))
    assert all(torch.equal(a, fresh.state_dict()[k]) for k, a in moco.state_dict().items())
    assert moco.reset().tracker.abs().sum() == 0
    assert not moco.seen.any()


def test_the_tracker_is_wide_enough_for_small_steps():
    moco = trimol.MoCo(network(dtype=torch.bfloat16).parameters(), 3)
    assert moco.tracker.dtype == torch.float32
    assert moco.to(torch.bfloat16).tracker.dtype == torch.float32


def test_noise_is_averaged_away():
    """At a fixed point with noisy gradients, the direction comes closer to the exact one."""
    torch.manual_seed(0)
    exact = torch.tensor([[1.0, 0.2], [-0.8, 0.3]], dtype=torch.float64)
    best = min_norm(exact @ exact.T) @ exact
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    errors = {}
    for beta in (1.0, 0.02):
        moco, found = trimol.MoCo([x], 2, beta=beta), []
        for _ in range(400):
            x.grad = None
            moco((exact + torch.randn(2, 2).double()) @ x).backward()
            found.append(x.grad.clone())
        errors[beta] = (torch.stack(found[200:]).mean(0) - best).norm().item()
    assert errors[0.02] < errors[1.0] / 2


@settings(derandomize=True, deadline=None, max_examples=100)
@given(jacobians, st.sampled_from([None, 0.0, 1e-3, 1.0, 1e6]), st.sampled_from([0.0, 0.5]))
def test_weights_stay_on_the_simplex_for_nasty_trackers(jacobian, gamma, rho):
    gramian = jacobian @ jacobian.T
    start = torch.full((len(jacobian),), 1 / len(jacobian), dtype=torch.float64)
    moved = moco_step(start, gramian, gamma, rho)
    assert (moved >= 0).all()
    assert moved.sum().item() == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(moved, by_hand(start, jacobian, gamma, rho), rtol=1e-9, atol=1e-12)


def test_nothing_is_said_where_all_is_finite():
    model = network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trimol.MoCo(model.parameters(), 3)(model.losses(batch())).backward()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 1.5}, "beta must be a number from 0 to 1, found 1.5"),
        ({"beta": -0.5}, "beta must be a number from 0 to 1, found -0.5"),
        ({"gamma": -1.0}, "gamma must be a finite number of at least 0, found -1"),
        ({"rho": float("nan")}, "rho must be a finite number of at least 0, found nan"),
        ({"weights": [0.5, 0.2, 0.2]}, r"weights must sum to 1, found a sum of 0\.9"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.MoCo([torch.zeros(2, requires_grad=True)], 3, **arguments)
