"""A step held to plain backwards: `Method.verify` and ``TRIMOL_CHECK=1``."""

import dataclasses

import pytest
import torch
from problems import batch, network
from torch import nn

import trimol
from trimol.gradients import evidence
from trimol.methods import names
from trimol.methods._verification import WrongGradient


def losses_of(model, objectives=3, dtype=torch.float64):
    return model(torch.randn(6, 8, dtype=dtype)).square().mean(0)[:objectives]


def mlp(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", names())
def test_every_method_is_exact_and_stays_as_it_is(name, dtype):
    trunk, head = mlp(dtype), nn.Linear(3, 3).to(dtype)
    method = trimol.methods.get(name)(trunk.parameters(), 3)
    shared = [trunk(torch.randn(6, 8, dtype=dtype)) for _ in range(method.draws)]
    losses = [(head(h) - 1).square().mean(0) for h in shared]
    more = {"representation": shared} if method.needs == "representation" else {}
    before = {key: value.clone() for key, value in method.state_dict().items()}
    found = method.verify(*losses, **more)
    assert found.exact
    assert found.backwards == 3 * method.draws
    assert method.info is None
    after = method.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert all(p.grad is None for p in (*trunk.parameters(), *head.parameters()))
    method(*losses, **more).backward()  # the graphs are still there


@pytest.mark.parametrize(
    "options",
    [
        {"length": "mean gradient"},
        {"max_norm": 0.1},
        {"heads": "weighted"},
        {"every": 3},
        {"cost": 0.5},
    ],
)
def test_options_are_verified_too(options):
    model = mlp()
    assert trimol.MGDA(model.parameters(), 3, **options).verify(losses_of(model)).exact


@pytest.mark.parametrize("options", [{"metric": "step"}, {"guard": True, "metric": "gradient"}])
def test_steps_of_an_optimizer_are_verified_too(options):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses_of(model).sum().backward()
    optimizer.step()
    method = trimol.MGDA(model.parameters(), 3, optimizer=optimizer, **options)
    assert method.verify(losses_of(model)).exact


@pytest.mark.parametrize("simultaneous", [False, True])
def test_a_step_follows_a_check_that_needed_the_same_graph(simultaneous):
    model = mlp()
    modo = trimol.MoDo(model.parameters(), 3, simultaneous=simultaneous)
    losses = losses_of(model), losses_of(model)
    assert modo.verify(*losses).exact
    modo(*losses).backward()
    assert modo.verify(losses_of(model), losses_of(model)).exact


def spoil(monkeypatch, name):
    """Make what the engine computes a thousandth too large."""
    if name == "gramian":
        right = evidence.spread_gram
        monkeypatch.setattr(evidence, "spread_gram", lambda *given: 1.001 * right(*given))
    else:
        directional = evidence.directional

        def wrong(*given):
            found = directional(*given)
            return dataclasses.replace(found, values=1.001 * found.values)

        monkeypatch.setattr(evidence, "directional", wrong)


@pytest.mark.parametrize(("name", "make"), [("gramian", "mgda"), ("product", "modo")])
def test_an_engine_that_is_wrong_is_found(name, make, monkeypatch):
    spoil(monkeypatch, name)
    model = mlp()
    method = trimol.methods.get(make)(model.parameters(), 3)
    found = method.verify(*[losses_of(model) for _ in range(method.draws)])
    assert not found.exact
    assert found.where == f"the {name}"
    assert found.difference == pytest.approx(1e-3, rel=1e-3)
    assert "WRONG" in str(found)


def test_one_wrong_entry_of_a_small_parameter_is_found():
    """A temperature of one entry beside a layer whose gradient is a million times as long."""
    model, scale = mlp(), nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    params = [*model.parameters(), scale]

    class Doubled(torch.autograd.Function):
        """Its backward is another one the second time: as a wrong route would be."""

        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, upstream):
            Doubled.calls += 1
            return upstream * (1 + 1e-3 * (Doubled.calls == 1))

    found = trimol.Static(params, 3).verify(1e6 * losses_of(model) + Doubled.apply(scale))
    assert not found.exact
    assert found.where == "parameter 4 of shape ()"


def test_a_gradient_that_cancels_to_rounding_is_no_error():
    """The bias before a batch normalisation has a gradient of rounding alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 3))
    for make in (trimol.MGDA, trimol.MoDo, trimol.UPGrad):
        method = make(model.parameters(), 3)
        given = [losses_of(model, dtype=torch.float32) for _ in range(method.draws)]
        assert method.verify(*given).exact


def test_the_environment_asks_for_a_check_before_the_first_step(monkeypatch, capsys):
    monkeypatch.setenv("TRIMOL_CHECK", "1")
    model = mlp()
    mgda = trimol.MGDA(model.parameters(), 3)
    mgda(losses_of(model)).backward()
    said = capsys.readouterr().err
    assert said.startswith("MGDA: exact. Largest relative difference to 3 plain backwards: ")
    mgda(losses_of(model)).backward()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TRIMOL_CHECK", "0")
    trimol.MGDA(model.parameters(), 3)(losses_of(model))
    assert capsys.readouterr().err == ""


def test_a_wrong_first_step_raises(monkeypatch):
    monkeypatch.setenv("TRIMOL_CHECK", "1")
    spoil(monkeypatch, "product")
    model = network()
    modo = trimol.MoDo(model.parameters(), 3)
    with pytest.raises(WrongGradient, match=r"MoDo: WRONG.*: please report this"):
        modo(model.losses(batch(seed=1)), model.losses(batch(seed=2)))


def test_absent_objectives_and_counts_are_verified():
    model = mlp()
    method = trimol.MGDA(model.parameters(), ["a", "b", "c"])
    a, b, _ = losses_of(model)
    assert method.verify({"a": a, "b": b, "c": None}).exact
    assert method.verify(losses_of(model), counts=[4, 0, 2]).exact
