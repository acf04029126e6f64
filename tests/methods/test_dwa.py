import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.dwa import dwa_weights


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("period", [1, 3])
def test_epochs_are_the_papers(period, temperature):
    """Epochs t ≥ 2 move with softmax(L(t-1)/L(t-2)/T), every step of them."""
    model = network()
    params = list(model.parameters())
    dwa = trimol.DWA(params, 3, period=period, temperature=temperature)
    means, seed = [], 0
    for epoch in range(5):
        weights = torch.full((3,), 1 / 3, dtype=torch.float64)
        if epoch >= 2:
            weights = (means[-1] / means[-2] / temperature).softmax(0)
        seen = []
        for _ in range(period):
            losses = model.losses(batch(seed=seed))
            expected = weights @ naive_jacobian(losses, params)
            seen.append(losses.detach())
            scalar = dwa(losses)
            model.zero_grad()
            scalar.backward()
            assert scalar.item() == pytest.approx((weights @ losses).item(), rel=1e-12)
            torch.testing.assert_close(flat_gradient(params), expected)
            with torch.no_grad():
                for p in params:
                    p -= 0.1 * p.grad
            seed += 1
        means.append(torch.stack(seen).mean(0))


def test_torchjd_agrees_up_to_the_factor():
    scalarization = pytest.importorskip("torchjd.scalarization")
    model = network()
    params = list(model.parameters())
    ours, theirs = trimol.DWA(params, 3, period=2), scalarization.DWA()
    for seed in range(8):
        expected = theirs(model.losses(batch(seed=seed))).item() / 3
        assert ours(model.losses(batch(seed=seed))).item() == pytest.approx(expected, rel=1e-12)
        if seed % 2:
            theirs.step()


def test_state_of_a_fresh_instance_continues_inside_an_epoch():
    model = network()
    whole, half = (trimol.DWA(model.parameters(), 3, period=3) for _ in range(2))
    for seed in range(7):
        whole(model.losses(batch(seed=seed)))
    half.load_state_dict(whole.state_dict())
    for seed in range(7, 10):
        for dwa in (whole, half):
            dwa(model.losses(batch(seed=seed)))
    assert whole.weights.tolist() != [1 / 3] * 3
    for key, value in whole.state_dict().items():
        assert torch.equal(value, half.state_dict()[key])


def test_what_is_not_finite_never_enters_the_state():
    model = network()
    dwa = trimol.DWA(model.parameters(), 3, period=2)
    dwa(model.losses(batch()))
    total = dwa.total
    with pytest.warns(RuntimeWarning, match="DWA: losses with NaN"):
        dwa(model.losses(batch()) * float("nan"))
    assert torch.equal(dwa.total, total)
    assert dwa.seen == 1


values = st.lists(
    st.sampled_from([0.0, 1e-300, 1e-8, 1.0, 3.0, 1e8, 1e300]), min_size=6, max_size=6
)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(values, values, st.integers(1, 6), st.sampled_from([1e-2, 2.0, 1e8]))
def test_weights_of_any_losses_are_on_the_simplex(last, before, size, temperature):
    last, before = (torch.tensor(v[:size], dtype=torch.float64) for v in (last, before))
    weights = dwa_weights(last, before, temperature)
    assert (weights >= 0).all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)


def test_losses_that_stay_get_equal_weights():
    losses = torch.tensor([0.0, 1e-8, 1e8], dtype=torch.float64)
    torch.testing.assert_close(dwa_weights(losses, losses, 2.0), torch.full((3,), 1 / 3).double())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a finite number above 0, found 0"),
        ({"period": 0}, "period must be a whole number of at least 1, found 0"),
        ({"weights": [1.0, 1.0, 1.0]}, "weights must sum to 1, found a sum of 3"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.DWA([torch.zeros(2, requires_grad=True)], 3, **arguments)
