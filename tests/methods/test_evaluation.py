"""Evaluation, beyond what the kit holds every method to."""

import warnings

import pytest
import torch
from torch import nn

import trimol


def test_training_in_eval_mode_is_said_once():
    x = torch.ones(2, requires_grad=True)
    mgda = trimol.MGDA([x], 2).eval()
    with pytest.warns(RuntimeWarning, match=r"^MGDA: backward\(\) through a call in eval mode"):
        mgda(x.square()).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mgda(x.square()).backward()
        mgda.train()(x.square()).backward()


def test_a_submodule_follows_the_module_around_it():
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(2, 2)
            self.method = trimol.MoDo(self.net.parameters(), ["a", "b"], gamma=0.1)

        def forward(self, *batches: torch.Tensor) -> torch.Tensor:
            return self.method(*[self.net(batch).square().mean(0) for batch in batches])

    whole, z = Whole(), torch.ones(3, 2)
    whole(z, 2 * z)
    before = whole.method.weights.clone()
    with torch.no_grad():
        value = whole.eval()(z)
        torch.testing.assert_close(value.double(), before @ whole.net(z).square().mean(0).double())
    assert torch.equal(whole.method.weights, before)
    assert int(whole.method.step) == 1
    whole.train()(z, 3 * z)
    assert int(whole.method.step) == 2


def test_evaluation_takes_one_vector_or_as_many_as_draws():
    x = torch.ones(2, requires_grad=True)
    modo = trimol.MoDo([x], 2, draws=3).eval()
    assert modo(x).item() == modo(x, x, x).item() == 1.0
    with pytest.raises(ValueError, match=r"MoDo takes 3 loss vectors.* found 2"):
        modo(x, x)
