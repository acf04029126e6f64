"""Objectives by name: losses in any order, and what a method says speaks of them so."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from problems import batch, network
from table import TABLE

import trimol
from covering import one_of_each_kind
from trimol.training.monitor import Monitor

NAMES = ["ctr", "cvr", "time"]
every_kind = pytest.mark.parametrize("name", one_of_each_kind(TABLE))


def step(name, row, losses):
    """Take one step of the method of this name, of parameters that a seed gives."""
    model = network()
    method = row.new(model.parameters(), NAMES)
    vectors = [losses(model.losses(batch(seed=seed))) for seed in range(method.draws)]
    method(*vectors).backward()
    return method, [p.grad for p in model.parameters()]


@every_kind
def test_losses_by_name_are_a_vector_whatever_the_order(name):
    row = TABLE[name]
    given, wanted = (
        step(name, row, losses)
        for losses in (lambda v: {"time": v[2], "ctr": v[0], "cvr": v[1]}, list)
    )
    assert torch.equal(given[0].weights, wanted[0].weights)
    assert all(map(torch.equal, given[1], wanted[1]))


@every_kind
def test_names_are_no_state(name):
    row = TABLE[name]
    named, counted = (row.new(network().parameters(), o) for o in (NAMES, 3))
    assert named.state_dict().keys() == counted.state_dict().keys()
    counted.load_state_dict(named.state_dict())
    assert (named.objectives, named.names) == (3, ("ctr", "cvr", "time"))
    assert (counted.objectives, counted.names) == (3, (0, 1, 2))
    assert copy.deepcopy(named).names == pickle.loads(pickle.dumps(named)).names == named.names
    assert repr(named).startswith(f"{type(named).__name__}(objectives=['ctr', 'cvr', 'time'], ")
    assert "objectives=3, " in repr(counted)


def test_weights_and_info_speak_names():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    method = trimol.Static([x], ["ctr", "cvr"], weights=[0.25, 0.75])
    assert method.weights_by_name == {"ctr": 0.25, "cvr": 0.75}
    method({"cvr": x[1], "ctr": x[0]})
    assert method.info.names == ("ctr", "cvr")
    assert method.info.losses_by_name == {"ctr": 2.0, "cvr": 3.0}
    assert method.info.weights_by_name == method.weights_by_name
    assert trimol.Static([x], 2).weights_by_name == {0: 0.5, 1: 0.5}


def test_one_line_names_what_is_missing_or_unknown():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    method, counted = trimol.MGDA([x], ["ctr", "cvr"]), trimol.MGDA([x], 2)
    missing = r"^losses must have 'ctr', 'cvr', found none for 'cvr' \(say None where"
    with pytest.raises(ValueError, match=missing):
        method({"ctr": x[0]})
    with pytest.raises(
        ValueError, match=r"^losses must be by the names 'ctr', 'cvr', found 'cvt'$"
    ):
        method({"ctr": x[0], "cvt": x[1]})
    with pytest.raises(ValueError, match=r"names 0, 1, found 'ctr' \(give the method names"):
        counted({"ctr": x[0], "cvr": x[1]})
    with pytest.raises(ValueError, match="objective 'cvr' reaches none of the given parameters"):
        method([x[0], torch.tensor(1.0)])


@pytest.mark.parametrize("kind", [trimol.UW, trimol.DWA, trimol.GradNorm, trimol.FAMO])
def test_a_loss_that_may_not_be_negative_is_named(kind):
    x = torch.tensor([2.0, -3.0], requires_grad=True)
    with pytest.raises(ValueError, match=r"found -3 for objective 'cvr'"):
        kind([x], ["ctr", "cvr"])(x * 1)


@pytest.mark.parametrize("wrong", [[], ["a", "a"], ["a", 1], "ctr", {"a", "b"}, None])
def test_bad_names(wrong):
    with pytest.raises((ValueError, TypeError), match=r"^objectives must be .* found "):
        trimol.Static([torch.zeros(1, requires_grad=True)], wrong)


@pytest.mark.parametrize("wrong", ["ctr", {"a": 1, "b": 2}.keys(), np.array(["a", "b"]), None, 2.0])
def test_what_is_no_list_of_names_is_told_that_it_may_be_one(wrong):
    line = "objectives must be a list of different names, or a whole number, found "
    with pytest.raises(ValueError, match=f"^{line}{re.escape(repr(wrong))}$"):
        trimol.MoDo([torch.zeros(1, requires_grad=True)], wrong)


def test_bounds_by_name():
    x = torch.zeros(1, requires_grad=True)
    named = trimol.Preference([x], ["ctr", "cvr"], bounds={"cvr": 4.0})
    assert named.bounds == trimol.Preference([x], 2, bounds={1: 4.0}).bounds == {1: 4.0}
    with pytest.raises(ValueError, match=r"of objectives 0 to 1 \(ctr, cvr\), found 'cvt'$"):
        trimol.Preference([x], ["ctr", "cvr"], bounds={"cvt": 4.0})


def test_famo_observes_by_name():
    x = torch.tensor([2.0, 1.0], requires_grad=True)
    named, counted = trimol.FAMO([x], ["ctr", "cvr"]), trimol.FAMO([x], 2)
    for method in (named, counted):
        method(x.square())
    named.observe({"cvr": x[1] / 2, "ctr": x[0]})
    counted.observe(torch.stack([x[0], x[1] / 2]))
    assert torch.equal(named.logits, counted.logits)


def test_the_monitor_takes_the_names_and_losses_by_name():
    x = torch.tensor([3.0], requires_grad=True)

    def losses(z):
        return {"far": (x + z).square().mean(), "near": (x - z).square().mean()}

    method = trimol.MGDA([x], ["near", "far"])
    record = Monitor(losses, method, train=[torch.ones(4)], every=1).measure()
    assert (record["loss/near"], record["loss/far"]) == (4.0, 16.0)
    assert "cosine/near/far" in record


@pytest.mark.parametrize("name", trimol.methods.names())
def test_a_number_of_objectives_beyond_all_reason_is_one_line(name):
    said = "objectives must be at most 100000, found 1000000000000"
    with pytest.raises(ValueError, match=said):
        trimol.methods.get(name)([torch.zeros(2, requires_grad=True)], 10**12)
