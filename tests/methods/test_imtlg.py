import pytest
import torch
from gramians import jacobian, jacobians
from hypothesis import given, settings
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.imtlg import imtlg_weights


def closed_form(J):
    """The paper's: α₂…α_M = g₁Uᵀ(DUᵀ)⁻¹ with the unit vectors' differences U, the gradients' D."""
    units = J / J.norm(dim=1, keepdim=True)
    D, U = J[:1] - J[1:], units[:1] - units[1:]
    rest = torch.linalg.solve((D @ U.T).T, U @ J[0])
    return torch.cat([1 - rest.sum()[None], rest])


def test_one_step_is_the_papers_closed_form():
    model = network()
    params = list(model.parameters())
    J = naive_jacobian(model.losses(batch()), params)
    losses = model.losses(batch())
    imtlg = trimol.IMTLG(params, 3)
    scalar = imtlg(losses)
    scalar.backward()
    torch.testing.assert_close(imtlg.weights, closed_form(J))
    torch.testing.assert_close(flat_gradient(params), closed_form(J) @ J)
    assert scalar.item() == pytest.approx((imtlg.weights @ losses).item(), rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(jacobians)
def test_projections_are_equal(J):
    weights = imtlg_weights(J @ J.T)
    assert weights.sum().item() == pytest.approx(1, abs=1e-9 * weights.abs().sum().item())
    norms = J.norm(dim=1)
    units = J[norms > 0] / norms[norms > 0, None]
    projections = units @ (weights @ J)
    spread = (projections - projections.mean()).abs().max() if len(units) else 0
    assert spread <= 1e-6 * (weights.abs() @ norms)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_does_not_depend_on_the_scale(scale):
    J = jacobian("random", 4, 1)
    torch.testing.assert_close(imtlg_weights(scale**2 * J @ J.T), imtlg_weights(J @ J.T))


def test_the_line_of_the_direction_does_not_depend_on_single_scales():
    J = jacobian("random", 4, 1)
    scaled = J * torch.tensor([[1e-3], [1.0], [50.0], [1e4]])
    one, two = imtlg_weights(J @ J.T) @ J, imtlg_weights(scaled @ scaled.T) @ scaled
    assert torch.cosine_similarity(one, two, dim=0).abs().item() == pytest.approx(1, abs=1e-12)


def test_degenerate_gradients():
    assert imtlg_weights(torch.zeros(4, 4)).tolist() == [0.25] * 4
    assert imtlg_weights(torch.tensor([[1e-20]])).tolist() == [1.0]
    opposed = torch.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=torch.float64)
    assert imtlg_weights(opposed).tolist() == pytest.approx([1 / 3, 2 / 3])
    equal = torch.ones(2, 2, dtype=torch.float64)
    assert imtlg_weights(equal).tolist() == pytest.approx([0.5, 0.5])
    zero = torch.diag(torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64))
    assert imtlg_weights(zero).tolist() == pytest.approx([0, 2 / 3, 1 / 3])


def test_agrees_with_torchjd_where_the_gradients_are_independent():
    weighting = pytest.importorskip("torchjd.aggregation").IMTLGWeighting()
    for seed in range(30):
        J = jacobian("random", 2 + seed % 5, seed)
        G = J @ J.T
        torch.testing.assert_close(imtlg_weights(G), weighting(G), rtol=1e-7, atol=1e-9)
