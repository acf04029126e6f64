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


@pytest.mark.parametrize("normalize", ["none", "l2", "loss", "loss+"])
def test_normalised_gradients_weigh_the_gradients_as_they_are(normalize):
    """λ from ∇f_m / n_m, then Σ λ_m ∇f_m: as Sener and Koltun's code does it."""
    model = network()
    params = list(model.parameters())
    losses = model.losses(batch()) * torch.tensor([1.0, 20.0, 0.3])
    rows, values = naive_jacobian(losses, params), losses.detach()
    sizes = {
        "none": torch.ones(3),
        "l2": rows.norm(dim=1),
        "loss": values,
        "loss+": values * rows.norm(dim=1),
    }
    scaled = rows / sizes[normalize][:, None]
    expected = trimol.simplex.min_norm(scaled @ scaled.T)
    mgda = trimol.MGDA(params, 3, normalize=normalize)
    mgda(losses).backward()
    torch.testing.assert_close(mgda.weights, expected)
    torch.testing.assert_close(flat_gradient(params), expected @ rows)
    torch.testing.assert_close(mgda.info.gramian, rows @ rows.T)  # of the gradients as they are


@pytest.mark.parametrize("normalize", ["l2", "loss", "loss+"])
@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1e12, 1e100])
def test_normalised_weights_follow_their_power_of_a_losss_scale(normalize, scale):
    """n_m is proportional to f_m or to its square: rescaling a loss, λ is of 1 or of 1/scale."""
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    weights = []
    for factor in (1.0, scale):
        mgda = trimol.MGDA([x], 2, normalize=normalize)
        mgda(torch.stack([factor * x[0], x[1].square()]))
        weights.append(mgda.weights)
    if normalize != "loss+":
        torch.testing.assert_close(*weights)
    else:  # orthogonal gradients: λ_m ∝ 1 / ‖∇f_m / n_m‖²= f_m², from here on the scale's
        ratio = (weights[1][0] / weights[1][1]) / (weights[0][0] / weights[0][1])
        assert weights[1].isfinite().all()
        assert abs(scale) >= 1e100 or ratio.item() == pytest.approx(scale**2, rel=1e-6)


@pytest.mark.parametrize("normalize", ["l2", "loss+"])
def test_a_zero_gradient_is_not_divided(normalize):
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    mgda = trimol.MGDA([x], 2, normalize=normalize)
    mgda(torch.stack([x[0].square() + 1, x[1]])).backward()
    assert mgda.weights.tolist() == [1.0, 0.0]
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("normalize", ["loss", "loss+"])
def test_losses_to_divide_by_must_be_positive(normalize):
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    mgda = trimol.MGDA([x], 2, normalize=normalize)
    message = rf"losses must be above 0 with normalize='{normalize.replace('+', '.')}', found -2"
    with pytest.raises(ValueError, match=message):
        mgda(torch.stack([x[0] + 1, x[1] - 3]))


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
    with pytest.raises(ValueError, match=r"normalize must be 'none' or 'l2' or .*, found 'l1'"):
        trimol.MGDA(x, 2, normalize="l1")
    with pytest.raises(ValueError, match="chunk must be a whole number of at least 1, found 0"):
        trimol.MGDA(x, 2, chunk=0)
