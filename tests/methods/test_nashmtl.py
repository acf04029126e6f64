import numpy as np
import pytest
import torch
from gramians import jacobian
from problems import batch, flat_gradient, naive_jacobian, network
from scipy.optimize import minimize

import trimol
from trimol.methods.nashmtl import nashmtl_weights


@pytest.mark.parametrize("max_norm", [None, 1.0, 100.0])
def test_one_step_is_the_bargaining_solution(max_norm):
    """d maximises Σ log gᵢᵀd in the unit ball (found on the directions, not on the weights)."""
    model = network()
    params = list(model.parameters())
    J = naive_jacobian(model.losses(batch()), params)
    units = (J / J.norm(dim=1, keepdim=True)).numpy()
    basis = torch.linalg.qr(J.T)[0].numpy()
    rows = units @ basis

    def objective(e):
        inner = rows @ e
        return 1.5 * (e @ e) - np.log(inner).sum(), 3 * e - (1 / inner) @ rows

    assert (rows @ rows.mean(0) > 0).all()
    found = minimize(objective, rows.mean(0), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    expected = torch.from_numpy(basis @ found)  # of length one: 3‖e‖² = M
    nash = trimol.NashMTL(params, 3, max_norm=max_norm)
    losses = model.losses(batch())
    scalar = nash(losses)
    scalar.backward()
    direction = flat_gradient(params)
    length = 1.0 if max_norm == 1.0 else 3**0.5
    torch.testing.assert_close(direction, expected * length, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(nash.weights @ J, expected * 3**0.5, rtol=1e-6, atol=1e-7)
    assert nash.info.scale == pytest.approx(length / 3**0.5, rel=1e-9)
    assert scalar.item() == pytest.approx((nash.weights @ losses).item(), rel=1e-12)


def test_length_and_conflict():
    for seed in range(30):
        J = jacobian("random", 2 + seed % 6, seed)
        direction = nashmtl_weights(J @ J.T) @ J
        assert direction.norm().item() == pytest.approx(len(J) ** 0.5, rel=1e-9)
        assert (J @ direction > 0).all()


def test_single_scales_do_not_matter():
    J = jacobian("random", 4, 1)
    scaled = J * torch.tensor([[1e-8], [1.0], [50.0], [1e8]])
    torch.testing.assert_close(
        nashmtl_weights(scaled @ scaled.T) @ scaled, nashmtl_weights(J @ J.T) @ J
    )


@pytest.mark.parametrize("max_norm", [0, -1.0, float("nan")])
def test_bad_max_norm(max_norm):
    message = f"max_norm must be a finite number above 0, found {max_norm}"
    with pytest.raises(ValueError, match=message):
        trimol.NashMTL([torch.zeros(1, requires_grad=True)], 2, max_norm=max_norm)
