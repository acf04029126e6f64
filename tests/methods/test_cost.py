"""``cost=``: new weights as often as they are paid for, by passes that are counted."""

import copy
from typing import Any

import pytest
import torch
from problems import batch, network
from table import ROWS
from torch import Tensor

import trimol
from trimol._failures import BadValue
from trimol.gradients import _product, _tangents
from trimol.methods import Method, replicated

STEPS = 40


def trained(row, method: Method, net, seeds) -> list[Any]:
    told = []
    for seed in seeds:
        row.call(method, net.step(method.draws if method.due else 1, seed)).backward()
        told.append(method.info)
    return told


def seen(net, **options) -> dict[str, Method]:
    params = list(net.parameters())
    return {
        "modo": trimol.MoDo(params, 3, gamma=0.1, **options),
        "simultaneous": trimol.MoDo(params, 3, gamma=0.1, simultaneous=True, **options),
        "full": trimol.MoDo(params, 3, gamma=0.1, draws=1, **options),
        "three": trimol.MoDo(params, 3, gamma=0.1, draws=3, **options),
        "mgda": trimol.MGDA(params, 3, **options),
        "chunk": trimol.MGDA(params, 3, chunk=1, **options),
        "moco": trimol.MoCo(params, 3, **options),
        "static": trimol.Static(params, 3, **options),
        "famo": trimol.FAMO(params, 3, **options),
    }


# In backwards of the whole batch, beyond the one of a plain step.
EXTRA = {
    "modo": 1,  # a backward and a tangent pass of half the batch each
    "simultaneous": 0.5,
    "full": 2,
    "three": 2 / 3,
    "mgda": 2,  # three, of which none is left to do
    "chunk": 6,  # 3 + 2 + 1, and the user's own
    "moco": 2,
    "static": 0,
    "famo": 0,
}


@pytest.mark.parametrize("name", EXTRA)
def test_what_a_step_costs_beyond_a_plain_one(monkeypatch, name):
    """As counted by autograd itself: backwards and pushes of all draws, over their number."""
    net, passes, grad, push = network(), [], torch.autograd.grad, _tangents.push

    def counting_grad(*args, **options):
        passes.append(1)
        return grad(*args, **options)

    def counting_push(*args):
        passes.append(1)
        return push(*args)

    method = seen(net)[name]
    losses = [net.losses(batch(seed=i)) for i in range(method.draws)]
    method(*losses)  # looks for hooks of others
    losses = [net.losses(batch(seed=i)) for i in range(method.draws)]
    monkeypatch.setattr(torch.autograd, "grad", counting_grad)
    monkeypatch.setattr(_product, "push", counting_push)
    method(*losses)
    assert method.info.extra == pytest.approx(EXTRA[name] / 1.5)
    spared = {"mgda": 1, "moco": 1, "simultaneous": 0.5}.get(name, 0)
    assert len(passes) / method.draws - spared == pytest.approx(EXTRA[name])


@pytest.mark.parametrize("cost", [0.1, 0.25, 1.0, 100.0])
@pytest.mark.parametrize("name", ["modo", "mgda", "three", "famo", "static"])
def test_steps_cost_no_more_than_is_said(cost, name):
    net = network()
    method, spent = seen(net, cost=cost)[name], 0.0
    for step in range(STEPS):
        losses = [net.losses(batch(seed=10 * step + i)) for i in range(method.draws)]
        waited = method.waits
        assert method.due == (waited == 0 and name != "static")
        method(*(losses if method.due else losses[:1]))
        spent += method.info.extra
        assert method.info.updated == (waited == 0 and name != "static")
        # At every step: the first weights are paid for by the steps that follow.
        assert spent <= cost * (step + 1) + EXTRA[name] / 1.5 + 1e-9
    if 0 < EXTRA[name] / 1.5 < cost * STEPS:
        most = min(cost * STEPS, STEPS * EXTRA[name] / 1.5)
        assert spent >= most - EXTRA[name] / 1.5  # and no less often than is paid for


def test_modo_at_a_quarter_moves_in_every_third_step_or_sooner():
    net = network()
    method = trimol.MoDo(net.parameters(), 3, gamma=0.1, cost=0.25)
    row = ROWS["modo"]
    told = trained(row, method, net, range(9))
    assert [info.updated for info in told] == [True, False, False] * 2 + [True, False, True]
    assert [info.waits for info in told[:4]] == [2, 1, 0, 2]


@pytest.mark.parametrize("name", ["modo", "mgda", "mgda-products"])
def test_resumes_bit_for_bit(name):
    row = ROWS[name]

    def made() -> tuple[Any, Method]:
        net = network()
        return net, row.new(net.parameters(), cost=0.4)

    net, method = made()
    trained(row, method, net, range(5))
    state = copy.deepcopy(method.state_dict())
    told = trained(row, method, net, range(5, 15))
    other, again = made()
    again.load_state_dict(state)
    resumed = trained(row, again, other, range(5, 15))
    assert any(info.updated for info in told)
    for one, two in zip(told, resumed, strict=True):
        assert torch.equal(one.weights, two.weights)
        assert (one.updated, one.waits, one.extra) == (two.updated, two.waits, two.extra)


def test_accumulated_steps_count_their_forwards():
    net = network()
    method = trimol.MoDo(net.parameters(), 3, gamma=0.1, draws=1, cost=1.0)
    x, y = batch()

    def losses(part: Tensor) -> Tensor:
        return net.losses((x[part], y[part]))

    method.accumulate(losses, [[part] for part in torch.arange(len(x)).chunk(2)]).backward()
    assert method.info.extra == pytest.approx(3 / 1.5)
    assert method.info.waits == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": 0}, "cost must be a finite number above 0, found 0"),
        (
            {"cost": 0.2, "every": 3},
            "every must be 1 with cost, which decides it, found 3",
        ),
    ],
)
def test_mistakes_are_refused(options, message):
    with pytest.raises(BadValue) as caught:
        trimol.MGDA(network().parameters(), 3, **options)
    assert str(caught.value) == message


def test_replicas_are_refused():
    with pytest.raises(BadValue, match="cost must be None for replicas"):
        replicated("mgda", replicas=2, objectives=3, cost=0.2)
