import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_fronts import FRONTS, descended, on_the_ray
from problems import batch, flat_gradient, network

import trimol
from trimol.methods.pbi import pbi_weights

PREFER, IDEAL = [0.2, 0.5, 0.3], [-0.1, 0.0, 0.2]


def scalarized(losses, prefer, ideal, theta):
    """d₁ + θ d₂ as in the paper, with its direction 1/p."""
    above = losses - ideal
    direction = 1 / prefer
    first = (above @ direction) / direction.norm()
    return first + theta * (above - first * direction / direction.norm()).norm()


@pytest.mark.parametrize("theta", [0.0, 1.0, 5.0])
def test_direction_is_the_gradient_of_the_scalarization(theta):
    model = network()
    params = list(model.parameters())
    prefer, ideal = torch.tensor(PREFER).double(), torch.tensor(IDEAL).double()
    value = scalarized(model.losses(batch()), prefer, ideal, theta)
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, params)])
    method = trimol.PBI(params, 3, prefer=PREFER, ideal=IDEAL, theta=theta)
    method(model.losses(batch())).backward()
    torch.testing.assert_close(flat_gradient(params), expected)


def test_torchjd_agrees():
    """Theirs is told the direction, ours the preference: its inverse."""
    scalarization = pytest.importorskip("torchjd.scalarization")
    losses = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64, requires_grad=True)
    direction = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    (theirs,) = torch.autograd.grad(scalarization.PBI(weights=direction, theta=5.0)(losses), losses)
    torch.testing.assert_close(pbi_weights(losses.detach(), 1 / direction, 5.0), theirs)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("front", FRONTS)
def test_it_ends_where_the_front_crosses_the_ray(front, share):
    losses, prefer = FRONTS[front], [share, 1 - share]
    x, _ = descended(trimol.PBI, losses, prefer=prefer, lr=0.06)
    torch.testing.assert_close(losses(x), on_the_ray(losses, prefer), rtol=0, atol=0.01)


def test_a_small_theta_leaves_the_ray():
    losses, prefer = FRONTS["convex"], [0.2, 0.8]
    x, _ = descended(trimol.PBI, losses, prefer=prefer, lr=0.06, theta=0.0)
    assert (losses(x) - on_the_ray(losses, prefer)).abs().max() > 0.1


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=6),
    st.sampled_from([1e-12, 1.0, 1e12]),
    st.integers(0, 10**6),
)
def test_weights_of_any_losses(above, scale, seed):
    """Finite, of length √(1 + θ²) off the ray and 1 on it, whatever the losses' unit."""
    above = torch.tensor(above, dtype=torch.float64) * scale
    generator = torch.Generator().manual_seed(seed)
    prefer = torch.rand(len(above), generator=generator, dtype=torch.float64) + 0.01
    length = pbi_weights(above, prefer, 5.0).norm().item()
    assert length == pytest.approx(1) or length == pytest.approx(26**0.5, rel=1e-6)
    on_it = pbi_weights(scale / prefer, prefer, 5.0)
    assert on_it.norm().item() == pytest.approx(1)


def test_bad_hyperparameters():
    with pytest.raises(ValueError, match="theta must be a finite number of at least 0, found -1"):
        trimol.PBI([torch.zeros(2, requires_grad=True)], 2, theta=-1.0)
