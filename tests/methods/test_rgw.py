import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, clear, flat_gradient, naive_jacobian, network
from scipy import stats

import trimol
from trimol.data import IndependentDraws
from trimol.methods.rgw import rgw_weights

LEVEL = 1e-3  # all seeds are fixed, so each test has one fixed p-value


def test_steps_move_with_the_weights_of_the_step():
    model = network()
    params = list(model.parameters())
    rgw = trimol.RGW(params, 3, seed=4)
    for step in range(3):
        clear(params)
        losses = model.losses(batch(seed=step))
        expected = rgw_weights(3, 4, step)
        jacobian = naive_jacobian(losses, params)
        scalar = rgw(losses)
        scalar.backward()
        assert torch.equal(rgw.weights, expected)
        torch.testing.assert_close(flat_gradient(params), expected @ jacobian)
        assert scalar.item() == pytest.approx((expected @ losses).item(), rel=1e-12)


def test_weights_are_the_softmax_of_independent_gaussians():
    """log λ minus its mean is ξ minus its mean: N(0, 1 − 1/M), and differences N(0, 2)."""
    drawn = torch.stack([rgw_weights(3, 1, step) for step in range(4000)]).log().numpy()
    for a, b in itertools.combinations(range(3), 2):
        difference = (drawn[:, a] - drawn[:, b]) / np.sqrt(2)
        assert stats.kstest(difference, "norm").pvalue > LEVEL
    centred = drawn - drawn.mean(1, keepdims=True)
    covariance = np.cov(centred.T)
    np.testing.assert_allclose(covariance, np.eye(3) - 1 / 3, atol=0.05)


def test_steps_and_seeds_are_independent():
    def first(seeds, steps):
        return np.array([rgw_weights(2, a, b)[0].item() for a, b in zip(seeds, steps, strict=True)])

    ones = np.ones(4000, dtype=int)
    here = first(5 * ones, range(4000))
    for there in (first(5 * ones, range(1, 4001)), first(6 * ones, range(4000))):
        assert stats.pearsonr(here, there).pvalue > LEVEL


def test_the_sampler_of_the_same_seed_is_another_stream():
    sampler = IndependentDraws(1000, 1, k=1, replacement=True, seed=7)
    indices = [sampler.indices(step)[0].item() for step in range(2000)]
    drawn = [rgw_weights(2, 7, step)[0].item() for step in range(2000)]
    assert stats.spearmanr(indices, drawn).pvalue > LEVEL


def test_the_sequence_is_fixed_for_all_versions():
    expected = torch.tensor([0.4082, 0.3304, 0.2614], dtype=torch.float64)
    torch.testing.assert_close(rgw_weights(3, 0, 0), expected, rtol=0, atol=1e-4)
    expected = torch.tensor([0.8659, 0.0778, 0.0562], dtype=torch.float64)
    torch.testing.assert_close(rgw_weights(3, 1, 2), expected, rtol=0, atol=1e-4)


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    rgw_weights(3, 0, 0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_the_seed_is_state():
    model = network()
    rgw = trimol.RGW(model.parameters(), 3, seed=11)
    for seed in range(3):
        rgw(model.losses(batch(seed=seed)))
    fresh = trimol.RGW(model.parameters(), 3)
    fresh.load_state_dict(rgw.state_dict())
    for method in (rgw, fresh):
        method(model.losses(batch(seed=3)))
    assert torch.equal(fresh.weights, rgw.weights)
    assert "seed=11" in repr(fresh)
    fresh.reset()(model.losses(batch()))
    assert torch.equal(fresh.weights, rgw_weights(3, 0, 0))


def test_the_mean_of_many_steps_is_that_of_the_losses():
    mean = torch.stack([rgw_weights(4, 2, step) for step in range(4000)]).mean(0)
    torch.testing.assert_close(mean, torch.full_like(mean, 0.25), rtol=0, atol=0.01)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.integers(1, 200), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_weights_are_on_the_simplex(objectives, seed, step):
    weights = rgw_weights(objectives, seed, step)
    assert weights.shape == (objectives,)
    assert (weights > 0).all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", [-1, 1.5, 2**63])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match=f"seed must be .* found {seed}"):
        trimol.RGW([torch.zeros(2, requires_grad=True)], 3, seed=seed)
