import pytest
import torch
from gramians import jacobian, jacobians
from hypothesis import given, settings
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.alignedmtl import alignedmtl_weights


def aligned(J, preference):
    """σ U Vᵀ of J = U Σ Vᵀ, combined: the nearest matrix with all singular values σ."""
    U, sigma, Vt = torch.linalg.svd(J, full_matrices=False)
    rank = int((sigma > 1e-9 * sigma[0]).sum())
    return sigma[rank - 1] * preference @ U[:, :rank] @ Vt[:rank]


def uniform(size):
    return torch.full((size,), 1 / size, dtype=torch.float64)


@pytest.mark.parametrize("preference", [None, [0.2, 0.3, 0.5], [1.0, 1.0, 1.0]])
def test_one_step_is_algorithm_1(preference):
    model = network()
    params = list(model.parameters())
    J = naive_jacobian(model.losses(batch()), params)
    losses = model.losses(batch())
    method = trimol.AlignedMTL(params, 3, preference=preference)
    scalar = method(losses)
    scalar.backward()
    wanted = uniform(3) if preference is None else torch.tensor(preference).double()
    torch.testing.assert_close(flat_gradient(params), aligned(J, wanted), rtol=1e-6, atol=1e-9)
    assert scalar.item() == pytest.approx((method.weights @ losses).item(), rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(jacobians)
def test_the_direction_is_as_long_as_the_shortest_component(J):
    size, G = len(J), J @ J.T
    weights = alignedmtl_weights(G, uniform(size))
    assert weights.isfinite().all()
    squared = J.square().sum(1)
    # An SVD of J resolves all components:
    if squared.any() and squared.max() < 1e4 * squared[squared > 0].min():
        direction = weights @ J
        error = (direction - aligned(J, uniform(size))).norm()
        assert error <= 1e-6 * J.norm(dim=1).max()


def test_a_short_gradient_is_not_dropped_in_float32():
    """Its squared length is below the rounding of the long one's, its direction is not."""
    J = torch.tensor([[1.0, 0.0], [1e-5, 1e-5]])
    weights = alignedmtl_weights(J @ J.T, uniform(2))
    direction = weights @ J.double()
    torch.testing.assert_close(direction, aligned(J.double(), uniform(2)), rtol=1e-3, atol=0)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_does_not_depend_on_the_scale(scale):
    J = jacobian("random", 4, 1)
    one, two = (alignedmtl_weights(s**2 * J @ J.T, uniform(4)) for s in (scale, 1.0))
    torch.testing.assert_close(one, two)


@pytest.mark.parametrize("mode", ["min", "median", "rmse"])
def test_agrees_with_torchjd(mode):
    kind = pytest.importorskip("torchjd.aggregation").AlignedMTLWeighting
    for seed in range(30):
        J = jacobian("random", 1 + seed % 6, seed)
        G = J @ J.T
        ours = alignedmtl_weights(G, uniform(len(J)), mode)
        torch.testing.assert_close(ours, kind(scale_mode=mode)(G), rtol=1e-7, atol=1e-9)


def test_zero_gradients_and_one():
    assert alignedmtl_weights(torch.zeros(2, 2), uniform(2)).tolist() == [0.5, 0.5]
    assert alignedmtl_weights(torch.tensor([[1e-20]]), uniform(1)).tolist() == [1.0]


def test_bad_arguments():
    x = [torch.zeros(1, requires_grad=True)]
    with pytest.raises(ValueError, match="scale_mode must be min, median or rmse, found 'max'"):
        trimol.AlignedMTL(x, 2, scale_mode="max")
    with pytest.raises(ValueError, match=r"preference must be finite, at least 0 and not all zero"):
        trimol.AlignedMTL(x, 2, preference=[0.5, -0.4])
