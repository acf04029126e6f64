import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from known_fronts import FRONTS, SIDE, descended, on_the_front
from scipy.optimize import minimize

import trimol
from trimol.maths.fronts import hypervolume, nondominated
from trimol.methods.hvgrad import hvgrad_weights

REFERENCE = [1.0, 1.0]


def test_weights_are_the_differences_of_the_hypervolume():
    """By moving one loss of one point at a time; five points that dominate none of each other."""
    rng = np.random.default_rng(0)
    losses = rng.dirichlet(np.ones(3), 5)
    assert nondominated(losses).all()
    corner, h = np.full(3, 1.1), 1e-6
    slopes = np.zeros_like(losses)
    for k, m in np.ndindex(*losses.shape):
        moved = losses.copy()
        moved[k, m] -= h
        slopes[k, m] = (hypervolume(moved, corner) - hypervolume(losses, corner)) / h
    expected = slopes / slopes.sum(1, keepdims=True) / 5
    assert hvgrad_weights(losses, corner) == pytest.approx(expected, abs=1e-5)


def test_dominated_points_and_points_beyond_the_reference():
    losses = np.array([[0.1, 0.1], [0.5, 0.5], [0.5, 2.0]])
    weights = hvgrad_weights(losses, np.ones(2))
    assert weights[1].tolist() == pytest.approx([1 / 6, 1 / 6])  # alone in its layer
    assert weights[2].tolist() == pytest.approx([0, 1 / 3])  # back below the reference first


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    arrays(np.float64, (4, 3), elements=st.integers(-3, 3).map(float)),
    st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_weights_of_any_losses(losses, scale):
    """Ties, repeats, points beyond: each point's weights are at least 0 and sum to 1/K."""
    weights = hvgrad_weights(losses * scale, np.full(3, 2.0 * scale))
    assert (weights >= 0).all()
    assert weights.sum(1) == pytest.approx(np.full(4, 0.25))


@pytest.mark.parametrize("points", [1, 3, 5])
@pytest.mark.parametrize("front", FRONTS)
def test_a_population_dominates_as_much_as_points_of_the_front_can(front, points):
    """The most that K points of the known front dominate, found by another optimizer."""
    losses = FRONTS[front]
    corner = losses(on_the_front(SIDE)).amax().item() * 1.05

    def missed(places):
        own = [losses(on_the_front(t)).tolist() for t in places]
        return -hypervolume(own, [corner] * 2)

    spread = np.linspace(-0.5, 0.5, points) if points > 1 else np.array([0.1])
    best = -minimize(missed, spread, method="Nelder-Mead", options={"maxiter": 2000}).fun
    generator = torch.Generator().manual_seed(0)
    start = (0.6 * torch.randn(points, 2, generator=generator)).tolist()
    x, method = descended(
        trimol.HVGrad,
        losses,
        start=start,
        lr=0.3,
        points=points,
        reference_point=[corner] * 2,
    )
    assert hypervolume(losses(x), [corner] * 2) >= 0.995 * best
    assert method.weights.shape == (2 * points,)


def test_the_reference_is_of_the_first_step_and_is_kept():
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]], requires_grad=True)
    method = trimol.HVGrad([x], 4, points=2)
    method(x.flatten())
    assert method.reference_point.tolist() == pytest.approx([3.3, 2.2])
    method(10 * x.flatten())
    assert method.reference_point.tolist() == pytest.approx([3.3, 2.2])
    other = trimol.HVGrad([x], 4, points=2)
    other.load_state_dict(method.state_dict())
    assert torch.equal(other.reference_point, method.reference_point)
    assert method.reset().reference_point.isinf().all()


def test_bad_hyperparameters():
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="points must divide the number of losses, 4, found 3"):
        trimol.HVGrad([x], 4, points=3)
    with pytest.raises(ValueError, match="reference_point must have 2 entries"):
        trimol.HVGrad([x], 4, points=2, reference_point=[1.0])
