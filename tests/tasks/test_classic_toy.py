"""The classic toy: its gradients, its front, and the study that runs all methods on it."""

import json

import pytest
import torch

from trimol import tasks
from trimol.tasks.classic_toy import STARTS, ClassicToy

NOTHING = torch.zeros(1, dtype=torch.float64)


def published(x, y):
    """The landscape as ConFIG's example states it, times 0.1 for the first."""
    least = 0.000005
    first = (0.5 * (-x - 7) - torch.tanh(-y)).abs().clamp(least).log() + 6
    second = (0.5 * (-x + 3) + torch.tanh(-y) + 2).abs().clamp(least).log() + 6
    bowls = [((-x + s).pow(2) + 0.1 * (-y - 8).pow(2)) / 10 - 20 for s in (7, -7)]
    up, down = torch.tanh(y * 0.5).clamp(0), torch.tanh(-y * 0.5).clamp(0)
    return torch.stack([0.1 * (first * up + bowls[0] * down), second * up + bowls[1] * down], -1)


def points(size=400):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(size, 2, generator=generator, dtype=torch.float64) * 22 - 11
    return torch.cat([drawn, torch.tensor(STARTS, dtype=torch.float64)])


def test_values_and_gradients_are_those_of_the_published_landscape():
    x = points().requires_grad_()
    task = ClassicToy()
    want = published(*x.unbind(-1))
    torch.testing.assert_close(task.values(x, NOTHING), want)
    found = task.jacobian(x.detach(), NOTHING)
    for m in range(2):
        (gradient,) = torch.autograd.grad(want[:, m].sum(), x, retain_graph=True)
        torch.testing.assert_close(found[:, m], gradient)


def test_the_front_is_stationary_and_nothing_lies_below_it():
    task, share = ClassicToy(), torch.linspace(0, 1, 21, dtype=torch.float64)
    on = task.on_front(share)
    rows = task.jacobian(on, NOTHING) / torch.tensor([[0.1], [1.0]], dtype=torch.float64)
    weighed = share[:, None] * rows[:, 0] + (1 - share)[:, None] * rows[:, 1]
    assert weighed.abs().max() < 1e-12
    front, grid = task.values(on, NOTHING), torch.linspace(-11, 11, 221, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    values = task.values(plane, NOTHING)
    below = (values[:, None] < front - 1e-9).all(-1)
    assert not below.any()
    assert task.distance(on[3]).item() == pytest.approx(0, abs=1e-9)
    assert task.distance(torch.tensor([0.0, 0.0])).item() == pytest.approx(8.4, abs=0.1)
    assert task.distance(torch.tensor([float("nan"), 0.0])).item() == float("inf")


def test_starts_are_options():
    for number, start in enumerate(STARTS):
        assert tasks.get("classic-toy")(start=number).model()().tolist() == list(start)
    with pytest.raises(ValueError, match="start must be from 0 to 4, found 5"):
        ClassicToy(start=5)


def test_the_study_runs_goes_on_and_draws(load_script, tmp_path, monkeypatch, capsys):
    study = load_script("benchmarks/classic_toy.py")
    path, figure = tmp_path / "toy.json", tmp_path / "toy.svg"
    command = ["classic_toy.py", "--steps", "20", "--json", str(path), "--figure", str(figure)]
    for chosen in (["static"], ["static", "config", "mconfig", "modo"]):
        monkeypatch.setattr("sys.argv", [*command, "--methods", *chosen])
        study.main()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [row["method"] for row in found["rows"]] == ["static", "config", "mconfig", "modo"]
    assert "| config | 0 |" in capsys.readouterr().out
    assert figure.read_text(encoding="utf-8").startswith("<?xml")
    # The replicas of plain training are plain Adam.
    x = torch.tensor(STARTS[3], dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([x], lr=study.LR)
    for _ in range(20):
        adam.zero_grad()
        published(*x).mean().backward()
        adam.step()
    end = found["rows"][0]["ends"][3]
    assert end == pytest.approx(x.tolist(), abs=2e-3)
