import numpy as np
import pytest
import torch
from gramians import jacobian
from problems import batch, flat_gradient, naive_jacobian, network
from scipy.optimize import root

import trimol
from trimol.maths.fairness import fair_weights


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_one_step_is_algorithm_1(alpha):
    model = network()
    params = list(model.parameters())
    J = naive_jacobian(model.losses(batch()), params)
    G = (J @ J.T).numpy()
    # An independent solver, in u = log w, where the equation needs no bounds.
    found = root(lambda u: np.log(G @ np.exp(u)) + u / alpha, np.zeros(3), tol=1e-13)
    assert found.success
    expected = torch.from_numpy(np.exp(found.x))
    fair = trimol.FairGrad(params, 3, alpha=alpha)
    losses = model.losses(batch())
    scalar = fair(losses)
    scalar.backward()
    torch.testing.assert_close(fair.weights, expected, rtol=1e-7, atol=0)
    torch.testing.assert_close(flat_gradient(params), expected @ J, rtol=1e-6, atol=1e-8)
    assert scalar.item() == pytest.approx((fair.weights @ losses).item(), rel=1e-12)


def test_agrees_with_torchjd_to_the_tolerance_of_its_least_squares():
    kind = pytest.importorskip("torchjd.aggregation").FairGradWeighting
    for seed in range(20):
        J = jacobian("random", 2 + seed % 4, seed)
        G = J @ J.T
        for alpha in (1.0, 2.0):
            torch.testing.assert_close(fair_weights(G, alpha), kind(alpha)(G), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("alpha", [0, -1.0, float("inf")])
def test_bad_alpha(alpha):
    with pytest.raises(ValueError, match=f"alpha must be a finite number above 0, found {alpha}"):
        trimol.FairGrad([torch.zeros(1, requires_grad=True)], 2, alpha=alpha)
