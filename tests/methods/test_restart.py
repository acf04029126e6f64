"""λ that was not resumed with the optimizer: said once, where the optimizer's state tells."""

import copy
import pickle
import warnings

import pytest
import torch
from problems import batch, network

import trimol

KINDS = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
    "momentum": lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def train(model, method, optimizer, steps):
    for seed in range(steps):
        optimizer.zero_grad()
        method(model.losses(batch(seed=seed))).backward()
        optimizer.step()


def train_by_closure(model, method, optimizer, steps):
    for seed in range(steps):

        def closure(seed=seed):
            optimizer.zero_grad()
            method(model.losses(batch(seed=seed))).backward()

        optimizer.step(closure)


@pytest.fixture(autouse=True)
def loud():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@every_kind
def test_a_fresh_method_beside_a_resumed_optimizer_is_named_once(kind):
    model = network()
    method, optimizer = trimol.MGDA(model.parameters(), 3), KINDS[kind](model.parameters())
    train(model, method, optimizer, 3)
    again, resumed = trimol.MGDA(model.parameters(), 3), KINDS[kind](model.parameters())
    resumed.load_state_dict(optimizer.state_dict())
    done = "steps" if kind == "momentum" else "3 steps"
    said = f"^MGDA: at its first step, while the optimizer has done {done} before: λ starts anew"
    with pytest.warns(RuntimeWarning, match=said):
        train(model, again, resumed, 1)
    train(model, again, resumed, 2)


@every_kind
def test_a_method_that_is_resumed_too_says_nothing(kind):
    model = network()
    method, optimizer = trimol.MGDA(model.parameters(), 3), KINDS[kind](model.parameters())
    train(model, method, optimizer, 3)
    again = trimol.MGDA(model.parameters(), 3)
    again.load_state_dict(method.state_dict())
    train(model, again, optimizer, 2)
    train(model, method.reset(), optimizer, 1)  # that is on purpose


def test_an_optimizer_of_another_model_is_no_concern():
    model, other = network(), network(seed=1)
    optimizer = torch.optim.Adam(other.parameters())
    train(other, trimol.MGDA(other.parameters(), 3), optimizer, 2)
    fresh = trimol.MGDA(model.parameters(), 3)
    fresh(model.losses(batch()))
    other.losses(batch()).sum().backward()
    optimizer.step()
    assert copy.deepcopy(fresh)._begun
    assert pickle.loads(pickle.dumps(fresh)).objectives == 3


@every_kind
def test_a_first_step_inside_the_optimizers_own_is_no_restart(kind):
    model = network()
    method, optimizer = trimol.MGDA(model.parameters(), 3), KINDS[kind](model.parameters())
    train_by_closure(model, method, optimizer, 3)
    assert method.info.updated


def test_a_restart_is_named_where_steps_are_closures():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    train_by_closure(model, trimol.MGDA(model.parameters(), 3), optimizer, 3)
    with pytest.warns(RuntimeWarning, match="the optimizer has done 3 steps before"):
        train_by_closure(model, trimol.MGDA(model.parameters(), 3), optimizer, 2)
