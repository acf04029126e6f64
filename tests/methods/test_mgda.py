import pytest
import torch
from problems import batch, flat_gradient, naive_jacobian, network

import trimol


@pytest.mark.parametrize("rho", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_direction_is_the_min_norm_combination(rho, chunk):
    model = network()
    params = list(model.parameters())
    jacobian = naive_jacobian(model.losses(batch()), params)
    expected = trimol.simplex.min_norm(jacobian @ jacobian.T, rho)
    mgda = trimol.MGDA(params, 3, rho=rho, chunk=chunk)
    losses = model.losses(batch())
    scalar = mgda(losses)
    assert scalar.item() == pytest.approx((expected @ losses).item(), rel=1e-10)
    scalar.backward()
    torch.testing.assert_close(mgda.weights, expected)
    torch.testing.assert_close(flat_gradient(params), expected @ jacobian)


def test_direction_does_not_conflict():
    """The min-norm point has a non-negative inner product with every gradient."""
    for seed in range(20):
        model = network(seed=seed)
        params = list(model.parameters())
        jacobian = naive_jacobian(model.losses(batch(seed=seed)), params)
        trimol.MGDA(params, 3)(model.losses(batch(seed=seed))).backward()
        direction = flat_gradient(params)
        assert (jacobian @ direction >= (1 - 1e-9) * direction.square().sum()).all()


def test_info_has_norms_and_cosines():
    model = network()
    params = list(model.parameters())
    jacobian = naive_jacobian(model.losses(batch()), params)
    mgda = trimol.MGDA(params, 3)
    mgda(model.losses(batch()))
    torch.testing.assert_close(mgda.info.norms, jacobian.norm(dim=1))
    expected = torch.nn.functional.cosine_similarity(jacobian[:, None], jacobian[None], dim=-1)
    torch.testing.assert_close(mgda.info.cosines, expected)
    assert mgda.info.route == "rows"


def test_bad_rho_and_chunk():
    x = [torch.zeros(1, requires_grad=True)]
    with pytest.raises(ValueError, match="rho must be a finite number of at least 0, found -1"):
        trimol.MGDA(x, 2, rho=-1.0)
    with pytest.raises(ValueError, match="chunk must be a whole number of at least 1, found 0"):
        trimol.MGDA(x, 2, chunk=0)
