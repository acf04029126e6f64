"""`length`, `max_norm` and `heads`: what becomes of a direction, in every way it is computed.

That each method keeps to them is asserted by the kit (`test_base.py`), by two processes in
`test_distributed.py`, and by replicas in `test_replicated.py`.
"""

import importlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network
from table import TABLE

import trimol
from python_functions import Doubled
from trimol.gradients._delivery import Delivery

MEAN = "mean gradient"
ROUTES = {"tangents": lambda x: 2 * x, "backwards": Doubled.apply}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("heads", ["plain", "weighted"])
@pytest.mark.parametrize("length", ["own", MEAN])
def test_every_route_of_the_product(route, simultaneous, heads, length):
    model = network()
    trunk, own = list(model.trunk.parameters()), list(model.heads.parameters())
    options = {"simultaneous": simultaneous, "length": length, "heads": heads}
    modo = trimol.MoDo(trunk, 3, gamma=0.1, weights=[0.5, 0.3, 0.2], **options)
    draws = [ROUTES[route](model.losses(batch(seed=seed))) for seed in (1, 2)]
    on_trunk, on_heads = (
        torch.stack([naive_jacobian(losses, params) for losses in draws]).mean(0)
        for params in (trunk, own)
    )
    weights = modo.weights
    modo(*draws).backward()
    assert modo.info.route == route
    weights = weights if simultaneous else modo.weights
    want = weights @ on_trunk
    if length == MEAN:
        want = want * (on_trunk.mean(0).norm() / want.norm())
    torch.testing.assert_close(flat_gradient(trunk), want)
    shares = weights if heads == "weighted" else torch.ones(3).double()
    torch.testing.assert_close(flat_gradient(own), shares @ on_heads)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_a_direction_that_grows_as_the_losses_shrink_is_held(alpha):
    """FairGrad's d is c^((1 − α)/(1 + α)) times as long for losses c times as large."""
    lengths = {}
    for scale in (1.0, 1e-4):
        for most in (None, 1.0):
            model = network()
            params = list(model.parameters())
            method = trimol.FairGrad(params, 3, alpha=alpha, max_norm=most)
            method(scale * model.losses(batch())).backward()
            lengths[scale, most] = flat_gradient(params).norm().item()
    growth = (1e-4) ** ((1 - alpha) / (1 + alpha))
    assert lengths[1e-4, None] / lengths[1.0, None] == pytest.approx(growth, rel=1e-9)
    for scale in (1.0, 1e-4):
        want = min(1.0, lengths[scale, None])
        assert lengths[scale, 1.0] == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_stationary_point_stays_one(dtype):
    """MGDA's direction is rounding there, however long the mean gradient is."""
    x = torch.zeros(6, dtype=dtype, requires_grad=True)
    row = torch.linspace(0.1, 1.7, 6, dtype=dtype)
    mgda = trimol.MGDA([x], 2, length=MEAN)
    mgda(torch.stack([row @ x, -7 * (row @ x)])).backward()
    assert x.grad.norm() <= 1e-6 * row.norm()
    assert mgda.info.scale == 1.0


@given(
    norm=st.floats(0, 1e100),
    mean=st.floats(0, 1e100),
    most=st.none() | st.floats(1e-12, 1e12),
    rounding=st.sampled_from([2.0**-52, 2.0**-23, 2.0**-7]),
)
def test_nothing_is_ever_longer_than_asked_for(norm, mean, most, rounding):
    delivery = Delivery(MEAN, most)
    factor = delivery.factor(*torch.tensor([norm, mean], dtype=torch.float64), rounding)
    assert factor.isfinite()
    length = factor.item() * norm
    noise = norm <= min(16 * rounding, 0.01) * mean
    want = min(norm if noise else mean, float("inf") if most is None else most)
    assert length == pytest.approx(want if norm else 0.0, rel=1e-12, abs=1e-200)


@pytest.mark.parametrize(
    ("name", "calls"), [("static", 0), ("famo", 2), ("modo", 3), ("sdmgrad", 3)]
)
def test_what_length_costs(monkeypatch, name, calls):
    """Counted: the backward of G λ, which ``backward()`` would do, and one of the mean gradient."""
    counted = []
    original = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *a, **k: (counted.append(1), original(*a, **k))[1]
    )
    model = network()
    method = TABLE[name].new(model.parameters(), 3, length=MEAN)
    method(*model.step(method.draws).losses)
    assert len(counted) == calls


@pytest.mark.parametrize("name", ["static", "mgda", "modo", "moco", "uw"])
@pytest.mark.parametrize("options", [{"length": MEAN}, {"max_norm": 0.01}])
def test_hooks_of_the_parameters_see_what_is_delivered_once(name, options):
    row, model, seen = TABLE[name], network(), []
    params = list(model.parameters())
    method = row.new(params, 3, **options)
    jacobian = model.step(method.draws).jacobian(params)
    for p in params:
        p.register_hook(lambda grad: (seen.append(1), 2 * grad)[1])
    before = method.weights
    scalar = method(*model.step(method.draws).losses)
    seen.clear()
    scalar.backward()
    want = row.direction(method, row.used(method, before), jacobian)
    torch.testing.assert_close(flat_gradient(params), 2 * want)
    assert len(seen) == len(params)


@pytest.mark.parametrize("name", ["mgda", "modo", "moco", "famo"])
def test_a_step_that_keeps_its_weights_is_delivered_alike(name):
    model = network()
    params = list(model.trunk.parameters())
    start = None if name in ("mgda", "famo") else [0.7, 0.2, 0.1]
    method = TABLE[name].new(params, 3, weights=start, length=MEAN, max_norm=0.2)
    losses = model.losses(batch(seed=3))
    jacobian = naive_jacobian(losses, params)
    method(losses, keep=True).backward()
    want = method.weights @ jacobian
    want = want / want.norm() * min(jacobian.mean(0).norm().item(), 0.2)
    torch.testing.assert_close(flat_gradient(params), want)


def test_what_is_not_usual_is_shown():
    x = torch.zeros(2, requires_grad=True)
    assert "length" not in repr(trimol.MGDA([x], 2))
    shown = repr(trimol.MGDA([x], 2, length=MEAN, max_norm=2.5, heads="weighted"))
    assert shown == (
        "MGDA(objectives=2, every=1, rho=0, normalize=none, solver=exact, length=mean gradient, "
        "max_norm=2.5, heads=weighted)"
    )
    assert repr(trimol.NashMTL([x], 2)) == "NashMTL(objectives=2, every=1, max_norm=1)"


@pytest.mark.parametrize("name", TABLE)
def test_every_method_has_them_and_checks_them(name):
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="length must be 'own' or 'mean gradient', found 'long'"):
        TABLE[name].new([x], 2, length="long")
    with pytest.raises(ValueError, match="heads must be 'plain' or 'weighted', found 'none'"):
        TABLE[name].new([x], 2, heads="none")
    with pytest.raises(ValueError, match="max_norm must be a finite number above 0, found 0"):
        TABLE[name].new([x], 2, max_norm=0)


@pytest.mark.parametrize("name", TABLE)
def test_flags_of_the_command_line(name):
    pytest.importorskip("tyro", reason="the command line is an extra")
    hyperparameters = importlib.import_module("trimol.cli._hyperparameters")
    flags = {"length": MEAN, "max_norm": "0.5", "heads": "weighted"}
    want = {"length": MEAN, "max_norm": 0.5, "heads": "weighted"}
    assert hyperparameters.read(name, flags) == want
    assert hyperparameters.of(name)["length"].default == "own"
