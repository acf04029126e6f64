import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, clear, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.crmogm import crmogm_step


@pytest.mark.parametrize("rho", [0.0, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
def test_steps_are_the_update_by_hand(alpha, rho):
    model = network()
    params = list(model.parameters())
    expected = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    crmogm = trimol.CRMOGM(params, 3, alpha=alpha, rho=rho, weights=expected)
    optimizer = torch.optim.SGD(params, lr=0.1)
    for seed in range(4):
        clear(params)
        jacobian = naive_jacobian(model.losses(batch(seed=seed)), params)
        found = trimol.simplex.min_norm(jacobian @ jacobian.T, rho)
        expected = alpha * expected + (1 - alpha) * found
        losses = model.losses(batch(seed=seed))
        scalar = crmogm(losses)
        scalar.backward()
        torch.testing.assert_close(crmogm.weights, expected)
        torch.testing.assert_close(flat_gradient(params), expected @ jacobian)
        assert scalar.item() == pytest.approx((expected @ losses).item(), rel=1e-10)
        optimizer.step()


def test_alpha_zero_is_mgda_and_alpha_one_is_static():
    model = network()
    start = [0.5, 0.3, 0.2]
    mgda = trimol.MGDA(model.parameters(), 3)
    none = trimol.CRMOGM(model.parameters(), 3, alpha=0.0, weights=start)
    full = trimol.CRMOGM(model.parameters(), 3, alpha=1.0, weights=start)
    for method in (mgda, none, full):
        method(model.losses(batch()))
    torch.testing.assert_close(none.weights, mgda.weights, rtol=0, atol=1e-15)
    assert full.weights.tolist() == start
    assert not full.info.updated


def test_agrees_with_torchjd_for_two_objectives():
    """With M = 2 TorchJD's MGDA is exact too; its λ0 is then given."""
    peers = pytest.importorskip("torchjd.aggregation")
    generator = torch.Generator().manual_seed(0)
    start = torch.full((2,), 0.5).double()
    peer = peers.CRMOGMWeighting(peers.MGDAWeighting(), alpha=0.7, initial_weights=start)
    weights = torch.full((2,), 0.5, dtype=torch.float64)
    for _ in range(20):
        jacobian = torch.randn(2, 5, generator=generator, dtype=torch.float64)
        gramian = jacobian @ jacobian.T
        weights = crmogm_step(weights, trimol.simplex.min_norm(gramian), 0.7)
        torch.testing.assert_close(weights, peer(gramian), rtol=0, atol=1e-12)


def test_alpha_may_change_between_steps():
    model = network()
    crmogm = trimol.CRMOGM(model.parameters(), 3)
    crmogm.alpha = 1.0
    crmogm(model.losses(batch()))
    assert crmogm.weights.tolist() == [1 / 3] * 3
    assert "alpha=1" in repr(crmogm)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.integers(1, 6).flatmap(
        lambda m: st.tuples(
            st.lists(st.floats(0, 1), min_size=m, max_size=m).filter(lambda v: sum(v) > 0.01),
            st.lists(st.sampled_from([0.0, 1e-8, 1.0, 1.0, 1e8]), min_size=m, max_size=m),
        )
    ),
    st.integers(1, 4),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_weights_stay_on_the_simplex_for_nasty_gramians(case, rank, alpha, seed):
    start, scales = case
    jacobian = (
        np.random.default_rng(seed).normal(size=(len(start), rank)) * np.array(scales)[:, None]
    )
    jacobian[-1] = jacobian[0]  # a duplicate
    jacobian = torch.from_numpy(jacobian)
    weights = torch.tensor(start, dtype=torch.float64)
    weights /= weights.sum()
    found = trimol.simplex.min_norm(jacobian @ jacobian.T)
    moved = crmogm_step(weights, found, alpha)
    assert (moved >= 0).all()
    assert moved.sum().item() == pytest.approx(1, abs=1e-14)
    torch.testing.assert_close(moved, weights.lerp(found, 1 - alpha), rtol=1e-12, atol=1e-15)


def test_step_is_batchable():
    weights = torch.full((7, 3), 1 / 3, dtype=torch.float64)
    found = torch.rand(7, 3, dtype=torch.float64)
    found /= found.sum(-1, keepdim=True)
    together = torch.func.vmap(lambda w, f: crmogm_step(w, f, 0.9))(weights, found)
    torch.testing.assert_close(together, 0.9 * weights + 0.1 * found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -0.1}, "alpha must be a number from 0 to 1, found -0.1"),
        ({"alpha": 1.1}, "alpha must be a number from 0 to 1, found 1.1"),
        ({"alpha": float("nan")}, "alpha must be a number from 0 to 1, found nan"),
        ({"rho": -1.0}, "rho must be a finite number of at least 0, found -1"),
        ({"weights": [1.0, 1.0, 1.0]}, "weights must sum to 1, found a sum of 3"),
        ({"chunk": 0}, "chunk must be a whole number of at least 1, found 0"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.CRMOGM([torch.zeros(2, requires_grad=True)], 3, **arguments)
