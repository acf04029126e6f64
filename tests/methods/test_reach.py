"""Parameters that the losses stop reaching are named, once; what is left out on purpose is not."""

import copy
import warnings

import pytest
import torch
from torch import nn

import trimol

METHODS = (trimol.MoDo, trimol.MGDA, trimol.Static)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle = nn.Linear(3, 4), nn.Linear(4, 4)
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))
        self.skip = False

    def losses(self):
        h = self.first(torch.randn(5, 3)).tanh()
        h = h if self.skip else h + self.middle(h)
        return torch.stack([head(h).square().mean() for head in self.heads])

    def trunk(self):
        return [*self.first.parameters(), *self.middle.parameters()]


def step(method, net):
    method(*[net.losses() for _ in range(method.draws)]).backward()


def quiet(method, net, steps=1):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(steps):
            step(method, net)


@pytest.mark.parametrize("size", [4, 6])
@pytest.mark.parametrize("make", METHODS)
def test_a_replaced_layer_is_named_once(make, size):
    net = Net()
    method = make(net.trunk(), 2)
    quiet(method, net, 2)
    net.middle = nn.Linear(4, 4) if size == 4 else nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    message = (
        rf"^{make.__name__}: the losses no longer reach given parameters that they reached before: "
        r"2 of shape \(4, 4\), 3 of shape \(4,\)\. Were layers replaced"
    )
    with pytest.warns(RuntimeWarning, match=message) as caught:
        step(method, net)
    assert caught[0].filename == __file__
    quiet(method, net, 2)
    quiet(make(net.trunk(), 2), net)  # built anew


@pytest.mark.parametrize("make", METHODS)
def test_a_branch_that_is_skipped_at_times_is_not_named(make):
    net = Net()
    method = make(net.trunk(), 2)
    for skip in (False, True, False, True, True):
        net.skip = skip
        quiet(method, net)
    net.skip = False
    quiet(*copy.deepcopy((method, net)))


def test_a_branch_that_never_comes_back_is_named(monkeypatch):
    monkeypatch.setattr("trimol.methods._reach.PATIENCE", 5)
    net = Net()
    method = trimol.MGDA(net.trunk(), 2)
    quiet(method, net)
    net.skip = True
    quiet(method, net, 4)
    with pytest.warns(RuntimeWarning, match=r"before: 2 of shape \(4, 4\), 3 of shape \(4,\)"):
        step(method, net)


@pytest.mark.parametrize("make", METHODS)
def test_freezing_thawing_and_adding_heads_are_no_loss(make):
    net = Net()
    net.skip = True  # never reached
    method = make(net.trunk(), 2)
    quiet(method, net)
    net.skip = False
    quiet(method, net)
    net.middle.requires_grad_(False)
    quiet(method, net)
    net.middle.requires_grad_(True)
    net.heads[0] = nn.Linear(4, 1)  # not given: a head
    quiet(method, net)


def test_a_reset_forgets():
    net = Net()
    method = trimol.MGDA(net.trunk(), 2)
    quiet(method, net)
    net.middle = nn.Linear(4, 4)
    quiet(method.reset(), net)


def test_many_are_counted():
    layers = [nn.Linear(2, 2) for _ in range(4)]
    method = trimol.Static([p for layer in layers for p in layer.parameters()], 1)
    method(nn.Sequential(*layers)(torch.ones(1, 2)).sum()[None])
    layers[1:] = [nn.Linear(2, 2) for _ in range(3)]
    with pytest.warns(RuntimeWarning, match=r"4 of shape \(2, 2\) and 3 more\. Were"):
        method(nn.Sequential(*layers)(torch.ones(1, 2)).sum()[None])
