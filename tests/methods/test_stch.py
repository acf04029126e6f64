import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, network

import trimol
from trimol.methods.stch import stch_weights


@pytest.mark.parametrize("mu", [0.01, 0.5, 10.0])
def test_direction_is_the_gradient_of_the_scalarization(mu):
    model = network()
    params = list(model.parameters())
    prefer = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    ideal = torch.tensor([-0.1, 0.0, 0.2], dtype=torch.float64)
    losses = model.losses(batch())
    smooth = mu * (prefer * (losses - ideal) / mu).logsumexp(0)
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(smooth, params)])
    stch = trimol.STCH(params, 3, mu=mu, prefer=prefer, ideal=ideal)
    losses = model.losses(batch())
    scalar = stch(losses)
    scalar.backward()
    torch.testing.assert_close(flat_gradient(params), expected)
    assert scalar.item() == pytest.approx((stch.weights @ losses).item(), rel=1e-12)


@pytest.mark.parametrize("prefer", [None, [0.1, 0.6, 0.3]])
def test_torchjd_agrees(prefer):
    """Theirs prefers 1/M by default: prefer and μ by M."""
    scalarization = pytest.importorskip("torchjd.scalarization")
    model = network()
    params = list(model.parameters())
    vector = None if prefer is None else torch.tensor(prefer, dtype=torch.float64)
    scalar = scalarization.STCH(0.1, weights=vector)(model.losses(batch()))
    theirs = torch.cat([g.reshape(-1) for g in torch.autograd.grad(scalar, params)])
    factor = 3 if prefer is None else 1
    stch = trimol.STCH(params, 3, mu=0.1 * factor, prefer=prefer)
    stch(model.losses(batch())).backward()
    torch.testing.assert_close(flat_gradient(params), theirs * factor)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_a_small_mu_finds_the_ray_on_a_non_convex_front(share):
    """f = 1 − exp(−‖x ∓ 1/√2‖²) (Fonseca): no weighted sum reaches the middle of its front."""
    prefer = torch.tensor([share, 1 - share], dtype=torch.float64)
    x = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    stch = trimol.STCH([x], 2, mu=0.01, prefer=prefer)
    optimizer = torch.optim.SGD([x], lr=0.1)

    def losses():
        return torch.stack([1 - (-(x - c).square().sum()).exp() for c in (0.5**0.5, -(0.5**0.5))])

    for _ in range(1000):
        optimizer.zero_grad()
        stch(losses()).backward()
        optimizer.step()
    first, second = (prefer * losses().detach()).tolist()
    assert first == pytest.approx(second, abs=0.03)
    assert (x[0] - x[1]).abs() < 1e-2  # on the Pareto set: the segment between the two centres
    assert x.detach().abs().max() <= 0.5**0.5


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=6),
    st.sampled_from([1e-8, 0.1, 1e8]),
    st.integers(0, 10**6),
)
def test_weights_of_any_losses(losses, mu, seed):
    losses = torch.tensor(losses, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    prefer = torch.rand(len(losses), generator=generator, dtype=torch.float64) + 0.01
    weights = stch_weights(losses, prefer, mu)
    assert (weights >= 0).all()
    assert (weights / prefer).sum().item() == pytest.approx(1, abs=1e-12)
    worst = (prefer * losses).argmax()
    assert weights[worst] / prefer[worst] == (weights / prefer).max()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mu": 0.0}, "mu must be a finite number above 0, found 0"),
        ({"prefer": [1.0, 0.0, 1.0]}, r"prefer must be above 0, found \[1.0, 0.0, 1.0\]"),
        ({"ideal": [1.0]}, "ideal must have 3 entries, one per objective, found shape"),
        ({"ideal": [0.0, float("nan"), 0.0]}, "ideal must be finite, found"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.STCH([torch.zeros(2, requires_grad=True)], 3, **arguments)
