"""Zero, negative, tiny, huge and broken losses: weighed right, or refused in one line."""

import warnings
from itertools import product

import pytest
import torch
from table import TABLE

from covering import in_turn

ODD = (0.0, 1e-30, 1e6, 1e30, float("nan"), float("inf"))
METHODS = ("dwa", "famo", "gradnorm", "preference", "rgw", "static", "stch", "uw")
# Their mathematics has logarithms or ratios of losses.
RATIOS = ("dwa", "famo", "gradnorm", "uw")


def stepped(method, x, scales):
    """One step whose losses are ``scales``; their gradients are 1 along an axis each."""
    losses = x - x.detach() + torch.tensor(scales, dtype=x.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        method(losses).backward()


@pytest.mark.parametrize(
    ("name", "odd", "dtype"),
    [
        (*pair, dtype)
        for pair, dtype in in_turn(product(METHODS, ODD), [torch.float32, torch.float64])
    ],
)
def test_an_odd_loss_leaves_finite_weights_that_move_again(name, odd, dtype):
    x = torch.zeros(3, dtype=dtype, requires_grad=True)
    method = TABLE[name].new([x], 3)
    stepped(method, x, [1.0, 1.0, 1.0])
    stepped(method, x, [1.0, odd, 1.0])
    assert method.weights.isfinite().all()
    left = method.weights[1].item()
    for _ in range(3):
        x.grad = None
        stepped(method, x, [1.0, 1.0, 1.0])
        assert x.grad.isfinite().all()
    # None is lost for good: its weight is there, or grows.
    assert method.weights[1] > min(1e-3, left)


@pytest.mark.parametrize("name", METHODS)
def test_a_negative_loss_is_right_or_named(name):
    x = torch.zeros(3, requires_grad=True)
    method = TABLE[name].new([x], 3)
    stepped(method, x, [1.0, 1.0, 1.0])
    before = {key: value.clone() for key, value in method.state_dict().items()}
    if name in RATIOS:
        with pytest.raises(ValueError, match=r"^losses must be at least .* objective 1"):
            stepped(method, x, [1.0, -0.5, 1.0])
        after = method.state_dict()
        assert all(torch.equal(before[key], after[key]) for key in before)
    stepped(method, x, [1.0, 0.5 if name in RATIOS else -0.5, 1.0])
    assert method.weights.isfinite().all()
