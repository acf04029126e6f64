"""The examples that need no other library: missing labels, point sets, shards."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import trimol
from pair import forked
from trimol.methods import Method


@pytest.fixture
def load(load_script: Callable[[str], ModuleType]) -> Callable[[str], ModuleType]:
    return lambda name: load_script(f"examples/{name}.py")


def rows(losses: list[torch.Tensor], params: list[torch.Tensor]) -> torch.Tensor:
    """The Jacobian, an objective a row, by one backward each."""
    found = [
        torch.autograd.grad(loss, params, retain_graph=True, materialize_grads=True)
        for loss in losses
    ]
    return torch.stack([torch.cat([g.to_dense().flatten() for g in row]) for row in found])


def test_the_recommender(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    method = load("recommender").main(epochs=1)
    assert int(method.step) == 128
    assert 20 < int(method.kept) < 100  # steps of which a half has no click
    assert abs(method.weights[0].item() - 0.5) > 1e-4
    told = r"^epoch 1  λ click 0\.\d+, conversion 0\.\d+  \d+ steps without a conversion so far$"
    assert re.search(told, capsys.readouterr().out, re.M)


@pytest.mark.parametrize("clicks", [True, False])
@pytest.mark.parametrize("make", [trimol.FAMO, trimol.MGDA])
def test_the_recommenders_tables_get_the_gradient_by_hand(
    load: Callable[[str], ModuleType], make: type[Method], clicks: bool
) -> None:
    """A sparse one for SparseAdam, of methods that compute with gradients too."""
    example = load("recommender")
    model, (user, item, clicked, bought) = example.Recommender(), example.data(64)
    batch = user, item, clicked & clicks, bought & clicks
    tables = [model.users.weight, model.items.weight]
    method = make([*tables, *model.trunk.parameters()], ["click", "conversion"])
    method(example.losses(model, batch)).backward()
    assert all(table.grad.is_sparse for table in tables)
    given = [loss for loss in example.losses(model, batch).values() if loss is not None]
    by_hand = rows(given, tables)
    weights = method.weights[: len(given)].float()
    found = torch.cat([table.grad.to_dense().flatten() for table in tables])
    torch.testing.assert_close(found, weights @ by_hand, rtol=1e-4, atol=1e-7)
    assert int(method.kept) == (not clicks)


def test_the_pinn(load: Callable[[str], ModuleType]) -> None:
    example = load("pinn")
    assert example.main(steps=120, method="upgrad") < 0.5
    model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    places = torch.rand(5, 1)
    measured = places, example.solution(places)
    losses, params = example.losses(model, measured), list(model.parameters())
    by_hand = rows(list(losses.values()), params).double()
    modo = trimol.MoDo(params, list(losses), draws=1, gamma=1e-6)
    modo(example.losses(model, measured)).backward()
    start = torch.full((3,), 1 / 3).double()
    expected = trimol.simplex.project(start - 1e-6 * by_hand @ (by_hand.T @ start))
    torch.testing.assert_close(modo.weights, expected, rtol=1e-5, atol=1e-8)
    assert modo.info.route == "rows"  # of losses with points of their own
    gradient = torch.cat([p.grad.flatten() for p in params]).double()
    torch.testing.assert_close(gradient, expected @ by_hand, rtol=1e-4, atol=1e-5)


def sharded(example: ModuleType, folder: str) -> None:
    dist.init_process_group("gloo")
    example.main(folder)
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fsdp2_equals_one_process(
    load: Callable[[str], ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    example = load("fsdp2")
    forked(sharded, example, str(tmp_path))
    assert re.search(r"^2 processes  weights 0\.\d+, 0\.\d+$", capfd.readouterr().out, re.M)
    alone = {name: value.detach() for name, value in example.main().items()}
    state = {
        "model": {n: torch.empty_like(v) for n, v in alone.items() if "modo." not in n},
        "modo": {n[5:]: torch.empty_like(v) for n, v in alone.items() if "modo." in n},
    }
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        dcp.load(state, checkpoint_id=str(tmp_path))
    found = {**state["model"], **{f"modo.{name}": value for name, value in state["modo"].items()}}
    for name, value in alone.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
