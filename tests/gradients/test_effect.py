"""`trimol.effect`: what a step does to every loss, against a naive Jacobian."""

import pytest
import torch
from torch import nn

import trimol
from trimol.gradients import jacobian


def network() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return net, net(torch.randn(5, 3, dtype=torch.float64)).square().mean(0)


def test_effect_is_the_jacobian_times_the_step():
    net, losses = network()
    params = list(net.parameters())
    step = [torch.randn_like(p) for p in params]
    flat = torch.cat([part.flatten() for part in step])
    expected = jacobian(losses, params) @ flat
    torch.testing.assert_close(trimol.effect(losses, step, params), expected, rtol=1e-12, atol=0)


def test_a_step_of_an_optimizer_as_seen_from_before_it():
    """The first-order change is what a small step really does."""
    net, losses = network()
    params, x = list(net.parameters()), torch.randn(5, 3, dtype=torch.float64)
    losses = net(x).square().mean(0)
    step = [1e-6 * torch.randn_like(p) for p in params]
    expected = trimol.effect(losses, step, params)
    with torch.no_grad():
        for p, part in zip(params, step, strict=True):
            p += part
        change = net(x).square().mean(0) - losses
    torch.testing.assert_close(change, expected, rtol=1e-4, atol=1e-10)


def test_none_and_frozen_parameters_have_no_effect():
    net, _ = network()
    params = list(net.parameters())
    params[0].requires_grad_(False)
    losses = net(torch.ones(2, 3, dtype=torch.float64)).mean(0)
    step = [torch.ones_like(p) for p in params]
    full = trimol.effect(losses, step, params)
    assert torch.equal(trimol.effect(losses, [None, *step[1:]], params), full)


@pytest.mark.parametrize(
    ("step", "error", "line"),
    [
        (torch.zeros(2), TypeError, "step must be a list with one tensor for each parameter"),
        ([], ValueError, "step must have 1 tensors, as params has, found 0"),
        ([torch.zeros(3)], ValueError, r"found \(3,\) in place of \(2,\) at place 0"),
    ],
)
def test_bad_steps_are_one_line(step, error, line):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(error, match=line):
        trimol.effect([x.sum()], step, [x])
