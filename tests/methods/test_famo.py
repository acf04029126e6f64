import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods import replicated
from trimol.methods._replicated import Jacobians
from trimol.methods.famo import famo_slope, famo_weights


def train(method, model, steps, *, observe=True, lr=0.05):
    params = list(model.parameters())
    for seed in steps:
        model.zero_grad()
        method(model.losses(batch(seed=seed))).backward()
        with torch.no_grad():
            for p in params:
                p -= lr * p.grad
            if observe:
                method.observe(model.losses(batch(seed=seed)))


@pytest.mark.parametrize("adam", [False, True])
def test_steps_are_algorithm_1(adam):
    """ξ stepped by torch's own optimizer, δ by autograd through the softmax."""
    model = network()
    params = list(model.parameters())
    famo = trimol.FAMO(params, 3, beta=0.1, gamma=0.01, adam=adam)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind([logits], lr=0.1, weight_decay=0.01)
    for seed in range(4):
        before = model.losses(batch(seed=seed))
        jacobian = naive_jacobian(before, params)
        weights = logits.softmax(0).detach() / before.detach()
        weights = weights / weights.sum()
        scalar = famo(model.losses(batch(seed=seed)))
        model.zero_grad()
        scalar.backward()
        torch.testing.assert_close(famo.weights, weights, rtol=1e-6, atol=0)
        torch.testing.assert_close(flat_gradient(params), weights @ jacobian, rtol=1e-6, atol=1e-9)
        assert scalar.item() == pytest.approx((weights @ before).item(), rel=1e-6)
        with torch.no_grad():
            for p in params:
                p -= 0.05 * p.grad
            after = model.losses(batch(seed=seed))
            famo.observe(after)
        optimizer.zero_grad()
        logits.softmax(0).backward(before.detach().log() - after.log())
        optimizer.step()
        torch.testing.assert_close(famo.logits, logits.detach(), rtol=1e-5, atol=1e-9)


def test_torchjd_agrees_on_losses_far_from_zero():
    """Their ε is absolute, so only to it."""
    scalarization = pytest.importorskip("torchjd.scalarization")
    model = network()
    params = list(model.parameters())
    ours, theirs = trimol.FAMO(params, 3), scalarization.FAMO(3)
    for seed in range(5):
        scalar = theirs(model.losses(batch(seed=seed)).float())
        expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(scalar, params)])
        model.zero_grad()
        ours(model.losses(batch(seed=seed))).backward()
        torch.testing.assert_close(flat_gradient(params), expected, rtol=1e-4, atol=1e-6)
        with torch.no_grad():
            for p in params:
                p -= 0.05 * p.grad
            after = model.losses(batch(seed=seed))
        ours.observe(after)
        theirs.update(after.float())


def test_unobserved_steps_are_judged_by_the_next_losses():
    """On full data that is the same as observing them."""
    results = []
    for observe in (True, False):
        model = network()
        famo = trimol.FAMO(model.parameters(), 3)
        train(famo, model, [0] * 6, observe=observe)
        results.append(famo.weights)
    torch.testing.assert_close(*results, rtol=1e-12, atol=0)


def test_the_noise_of_unobserved_steps_telescopes():
    """Losses that only fluctuate do not drive the logits away."""
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    famo = trimol.FAMO([x], 3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2000):
        famo(x.detach() + 0.3 * torch.randn(3, generator=generator).double().exp() * x)
    assert famo.logits.abs().max() < 0.6
    assert famo.logits.abs().max() < 0.3 * 0.025 * 2000**0.5  # a random walk of Adam's steps


def test_the_slower_objective_gains_weight():
    """A loss far above zero falls slowly in relation to itself."""

    def losses():
        return torch.stack([x[0].square() + 10, x[1].square()])

    x = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
    famo = trimol.FAMO([x], 2)
    for _ in range(50):
        (grad,) = torch.autograd.grad(famo(losses()), x)
        with torch.no_grad():
            x -= 0.02 * grad
            famo.observe(losses())
    assert famo.logits[0] > famo.logits[1] + 1


@pytest.mark.parametrize("observe_first", [True, False])
def test_state_of_a_fresh_instance_continues(observe_first):
    """Also between a step and its observation."""
    model = network()
    whole, half = (trimol.FAMO(model.parameters(), 3) for _ in range(2))
    train(whole, model, range(3), observe=observe_first)
    half.load_state_dict(whole.state_dict())
    after = model.losses(batch(seed=2)).detach()
    for famo in (whole, half):
        famo.observe(after)
        famo(model.losses(batch(seed=3)))
    for key, value in whole.state_dict().items():
        assert torch.equal(value, half.state_dict()[key])
    fresh = trimol.FAMO(model.parameters(), 3).state_dict()
    for key, value in whole.reset().state_dict().items():
        assert torch.equal(value, fresh[key])


def test_observing_accepts_lists_and_needs_no_graph():
    model = network()
    famo = trimol.FAMO(model.parameters(), 3)
    famo(model.losses(batch()))
    famo.observe([torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)])
    logits = famo.logits
    assert logits.any()
    famo.observe(model.losses(batch()))  # nothing left to compare with
    assert torch.equal(famo.logits, logits)


def test_what_is_not_finite_never_enters_the_state():
    model = network()
    famo = trimol.FAMO(model.parameters(), 3)
    train(famo, model, range(2))
    famo(model.losses(batch()))
    logits = famo.logits
    famo.observe(torch.tensor([1.0, float("nan"), 2.0]))
    assert torch.equal(famo.logits, logits)
    state = {k: v.clone() for k, v in famo.state_dict().items()}
    with pytest.warns(RuntimeWarning, match="FAMO: losses with NaN"):
        famo(model.losses(batch()) * float("inf"))
    for key in ("weights", "logits", "moments", "before", "observations"):
        assert torch.equal(famo.state_dict()[key], state[key])


def test_min_losses_are_subtracted():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    famo = trimol.FAMO([x], 2, min_losses=[-2.0, 0.5])
    famo(torch.cat([-x, x]))
    torch.testing.assert_close(
        famo.weights, torch.tensor([1 / 3, 2 / 3]).double(), rtol=1e-6, atol=0
    )


losses = st.lists(st.floats(-8, 8), min_size=1, max_size=6)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(losses, st.integers(0, 10**6))
def test_weights_and_slope_of_any_losses(powers, seed):
    before = 10 ** torch.tensor(powers, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(len(before), generator=generator, dtype=torch.float64)
    after = before * torch.rand(len(before), generator=generator, dtype=torch.float64)
    weights = famo_weights(logits, before)
    direct = logits.softmax(0) / before
    torch.testing.assert_close(weights, direct / direct.sum(), rtol=1e-9, atol=1e-300)
    variable = logits.clone().requires_grad_()
    (want,) = torch.autograd.grad(variable.softmax(0), variable, before.log() - after.log())
    torch.testing.assert_close(famo_slope(logits, before, after), want, rtol=1e-9, atol=1e-9)


def test_losses_of_zero_are_finite():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    famo = trimol.FAMO([x], 2)
    for shift in (0.0, 1.0, 0.0):
        famo(torch.stack([x[0], x[1] + shift]))  # with a gradient: without, it would be absent
        assert famo.weights.isfinite().all()
        assert famo.logits.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": -1.0}, "beta must be a finite number of at least 0, found -1"),
        ({"gamma": float("nan")}, "gamma must be a finite number of at least 0, found nan"),
        ({"min_losses": [0.0]}, "min_losses must have 3 entries, one per objective"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.FAMO([torch.zeros(2, requires_grad=True)], 3, **arguments)


def test_bad_losses():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    famo = trimol.FAMO([x], 2)
    with pytest.raises(
        ValueError, match=r"at least min_losses.* found -1 for objective 1, below 0"
    ):
        famo(torch.cat([x, -x]))
    with pytest.raises(ValueError, match="must have 2 entries, one per objective, found 3"):
        famo.observe(torch.ones(3))


def test_a_replica_without_losses_harms_no_other_above_any_least_loss():
    least = torch.tensor([[5.0, 7.0], [0.0, -3.0]])
    famo = replicated("famo", replicas=2, objectives=2, min_losses=least)
    rows, losses = torch.ones(2, 2, 1), torch.tensor([[float("nan"), 9.0], [1.0, 2.0]])
    with pytest.warns(RuntimeWarning, match=r"NaN or infinity in replicas \[0\]"):
        famo.direction(Jacobians([rows], losses))
    assert famo.weights[0].tolist() == [0.5, 0.5]
    assert famo.weights[1].tolist() == pytest.approx([5 / 6, 1 / 6])
