import pytest
import torch
from problems import batch, flat_gradient, naive_jacobian, network

import trimol


def test_default_is_the_mean():
    model = network()
    params = list(model.parameters())
    losses = model.losses(batch())
    expected = naive_jacobian(losses, params).mean(0)
    scalar = trimol.Static(params, 3)(losses)
    assert scalar.item() == pytest.approx(losses.mean().item(), rel=1e-14)
    scalar.backward()
    torch.testing.assert_close(flat_gradient(params), expected)


def test_weights_need_not_sum_to_one():
    model = network()
    params = list(model.parameters())
    losses = model.losses(batch())
    trimol.Static(params, 3, weights=[1.0, 1.0, 1.0])(losses).backward()
    torch.testing.assert_close(
        flat_gradient(params), naive_jacobian(model.losses(batch()), params).sum(0)
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"weights must have 3 entries, one per objective, found shape \(1,\)"),
        ([1.0, -1.0, 0.0], r"at least 0 and not all zero, found \[1.0, -1.0, 0.0\]"),
        ([0.0, 0.0, 0.0], "not all zero"),
        ([1.0, float("nan"), 0.0], "must be finite"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        trimol.Static([torch.zeros(1, requires_grad=True)], 3, weights=weights)
