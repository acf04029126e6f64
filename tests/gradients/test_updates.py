"""The rules of optimizers, held to what torch's own do with the same gradients."""

import pytest
import torch
from torch import nn, optim

from trimol.gradients._stepping import Steps
from trimol.gradients._updates import rule_of

SETTINGS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd, decay": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.3),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "momentum, decay, dampening": lambda p: optim.SGD(
        p, lr=0.1, momentum=0.8, weight_decay=0.3, dampening=0.4
    ),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adam, foreach": lambda p: optim.Adam(p, lr=0.1, foreach=True),
    "adam, fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "adam, lr of a tensor": lambda p: optim.Adam(
        p, lr=torch.tensor(0.1, dtype=torch.float64), foreach=False
    ),
    "adam, decay": lambda p: optim.Adam(p, lr=0.1, weight_decay=0.3, betas=(0.0, 0.9)),
    "adam, amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, eps=1e-2),
    "adamw": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.3),
    "adamax": lambda p: optim.Adamax(p, lr=0.1, weight_decay=0.1),
    "nadam": lambda p: optim.NAdam(p, lr=0.1),
    "nadam, decoupled": lambda p: optim.NAdam(
        p, lr=0.1, weight_decay=0.2, decoupled_weight_decay=True
    ),
    "radam": lambda p: optim.RAdam(p, lr=0.1, weight_decay=0.1),
    "radam, decoupled": lambda p: optim.RAdam(
        p, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.1, weight_decay=0.1),
    "rmsprop, momentum": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.9),
    "rmsprop, centered": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1),
    "adagrad, started": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_step_is_torchs_own(name, dtype):
    """From the first step on, over as many as RAdam needs to be rectified, and with zeros in g."""
    torch.manual_seed(0)
    params = [torch.randn(7, dtype=dtype, requires_grad=True) for _ in range(2)]
    optimizer = SETTINGS[name](params)
    optimizer.add_param_group({"params": [torch.randn(3, dtype=dtype, requires_grad=True)]})
    optimizer.param_groups[1]["lr"] = 0.03
    params = [p for group in optimizer.param_groups for p in group["params"]]
    steps = Steps(optimizer)
    for _ in range(9):
        for p in params:
            p.grad = torch.randn_like(p) * 10 ** torch.empty_like(p).uniform_(-4, 2)
            p.grad[0] = 0
        before = [p.detach().clone() for p in params]
        expected = steps.taken(params, [p.grad for p in params])
        optimizer.step()
        for p, old, step in zip(params, before, expected, strict=True):
            rounding = 20 * torch.finfo(dtype).eps * (old.abs().max() + step.abs().max())
            assert ((old - p.detach()) - step).abs().max() <= rounding


def test_a_parameter_that_the_optimizer_has_not_seen():
    """Frozen at first: its state begins later than the others'."""
    a, b = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = optim.Adam([a, b], lr=0.1)
    a.grad = torch.ones_like(a)
    optimizer.step()
    gradient, before = torch.full_like(b, 3.0), b.detach().clone()
    (expected,) = Steps(optimizer).taken([b], [gradient])
    b.grad = gradient
    optimizer.step()
    torch.testing.assert_close(before - b.detach(), expected, rtol=1e-12, atol=0)


def test_a_parameter_of_another_optimizer_does_not_move():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    steps = Steps(optim.Adam([a], lr=0.1))
    assert not steps.taken([b], [torch.ones(2)])[0].any()
    with pytest.raises(ValueError, match="optimizer must hold the method's parameters"):
        steps.check([b])


class OwnStep(optim.Adam):
    def step(self, closure=None):
        return None


class OwnName(optim.Adam):
    pass


def test_subclasses_count_where_they_leave_the_step_as_it_is():
    p = [nn.Parameter(torch.ones(1))]
    assert rule_of(OwnName(p)) is rule_of(optim.Adam(p))
    with pytest.raises(ValueError, match="found OwnStep"):
        rule_of(OwnStep(p))


@pytest.mark.parametrize("kind", [optim.LBFGS, optim.Rprop, optim.Adafactor])
def test_optimizers_without_a_known_metric_are_one_line(kind):
    with pytest.raises(ValueError, match=f"a diagonal metric, found {kind.__name__}"):
        Steps(kind([nn.Parameter(torch.ones(2, 2))]))


def test_bad_optimizers_are_one_line():
    p = [nn.Parameter(torch.ones(2))]
    with pytest.raises(TypeError, match=r"must be a torch.optim.Optimizer, found list"):
        Steps(p)
    with pytest.raises(ValueError, match="maximize=True"):
        Steps(optim.SGD(p, lr=0.1, maximize=True))
