import numpy as np
import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.pcgrad import pcgrad_weights


def surgery(J, order):
    """Algorithm 1 on the gradients themselves."""
    total = torch.zeros_like(J[0])
    for i, g in enumerate(J):
        projected = g.clone()
        for j in order[i]:
            if j != i and projected @ J[j] < 0:
                projected -= (projected @ J[j]) / (J[j] @ J[j]) * J[j]
        total += projected
    return total


def orders(objectives, seed):
    each = np.tile(np.arange(objectives), (objectives, 1))
    return np.random.default_rng(seed).permuted(each, axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_steps_are_algorithm_1(seed):
    model = network(tasks=5)
    params = list(model.parameters())
    pcgrad = trimol.PCGrad(params, 5, seed=seed)
    for step in range(3):
        losses = model.losses(batch(tasks=5, seed=step))
        expected = surgery(naive_jacobian(losses, params), pcgrad.order())
        model.zero_grad()
        scalar = pcgrad(losses)
        scalar.backward()
        torch.testing.assert_close(flat_gradient(params), expected)
        assert scalar.item() == pytest.approx((pcgrad.weights @ losses).item(), rel=1e-12)


def test_every_step_and_seed_has_its_own_orders():
    model = network(tasks=5)
    pcgrad, other = (trimol.PCGrad(model.parameters(), 5, seed=seed) for seed in (0, 1))
    first = pcgrad.order()
    assert (np.sort(first, 1) == np.arange(5)).all()
    assert (first == pcgrad.order()).all()
    assert (first != other.order()).any()
    pcgrad(model.losses(batch(tasks=5)))
    second = pcgrad.order()
    assert (first != second).any()
    other = trimol.PCGrad(model.parameters(), 5)
    other.load_state_dict(pcgrad.state_dict())
    assert (other.order() == second).all()
    assert (pcgrad.reset().order() == first).all()


def test_no_global_random_numbers():
    model = network()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    trimol.PCGrad(model.parameters(), 3)(model.losses(batch()))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


@settings(derandomize=True, deadline=None, max_examples=200)
@given(jacobians, st.integers(0, 10**6))
def test_agrees_with_surgery_on_gradients(J, seed):
    order = orders(len(J), seed)
    weights = pcgrad_weights(J @ J.T, order)
    norms = J.norm(dim=1)
    assert (weights >= 1).all()
    difference = (weights @ J - surgery(J, order)).abs().max()
    assert difference <= 1e-9 * (weights @ norms)


def test_two_objectives_need_no_luck():
    """TorchJD 0.18 is exact here: with two objectives there is one order only."""
    weighting = pytest.importorskip("torchjd.aggregation").PCGradWeighting()
    for seed in range(20):
        torch.manual_seed(seed)
        J = torch.randn(2, 3, dtype=torch.float64)
        G = J @ J.T
        ours = pcgrad_weights(G, orders(2, seed))
        torch.testing.assert_close(ours, weighting(G), rtol=1e-12, atol=0)
        assert (J @ (ours @ J) >= -1e-12).all()


def test_one_objective_and_no_conflict():
    assert pcgrad_weights(torch.tensor([[3.0]]), orders(1, 0)).tolist() == [1.0]
    J = torch.rand(4, 3, dtype=torch.float64)
    assert pcgrad_weights(J @ J.T, orders(4, 0)).tolist() == [1.0] * 4


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match=f"seed must be .* at least 0, found {seed}"):
        trimol.PCGrad([torch.zeros(1, requires_grad=True)], 2, seed=seed)
