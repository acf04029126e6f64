"""Physics-informed tasks: their solutions solve the equations, their derivatives are autograd's."""

import numpy as np
import pytest
import torch

from trimol import tasks
from trimol.cli import main
from trimol.tasks._shapes import fixing
from trimol.tasks.pinn import burgers, schroedinger
from trimol.tasks.pinn._field import Field
from trimol.tasks.pinn.schroedinger import Schroedinger

NAMES = ["burgers", "poisson", "schroedinger", "kovasznay", "helmholtz"]


class Exact(Field):
    """The solution in the place of the network, its derivatives by central differences."""

    def __init__(self, task, step=1e-3):
        super().__init__(1, 1, task.outputs, task.twice)
        self.task, self.step = task, step

    def forward(self, points):
        return torch.from_numpy(self.task.solution(points.numpy()))

    def derivatives(self, points):
        """Of the fourth order."""
        e = self.step * torch.eye(2, dtype=torch.float64)
        at = {k: [self(points + k * e[v]) for v in (0, 1)] for k in (-2, -1, 0, 1, 2)}
        first = [
            (at[-2][v] - 8 * at[-1][v] + 8 * at[1][v] - at[2][v]) / (12 * self.step) for v in (0, 1)
        ]
        second = [
            (-at[-2][v] + 16 * at[-1][v] - 30 * at[0][v] + 16 * at[1][v] - at[2][v])
            / (12 * self.step**2)
            for v in self.task.twice
        ]
        return torch.stack([at[0][0], *first, *second])


def points_of(task, size=40, seed=0):
    """Points of each loss, a little inside so that differences stay in the rectangle."""
    drawn = task.drawn(np.random.default_rng(seed), size)
    low, high = np.array(task.low), np.array(task.high)
    within = [np.clip(part, low + 5e-3, high - 5e-3) for part in drawn[: task.within]]
    return [torch.from_numpy(p) for p in (*within, *drawn[task.within :])]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("burgers", 1e-2), ("poisson", 1e-7), ("kovasznay", 1e-7), ("helmholtz", 1e-5)],
)
def test_the_solution_leaves_nothing_over(name, allowed):
    """In the equation, at the start and on the border; worst at the shock of Burgers."""
    task = tasks.get(name)()
    parts = task.left_over(Exact(task), points_of(task))
    for objective, part in zip(task.objectives, parts, strict=True):
        worst = part.abs().max().item()
        assert worst <= allowed, f"{objective}: {worst:.1e}"


def test_a_wrong_solution_leaves_something_over():
    """The test above can fail."""
    for name in ("burgers", "poisson", "kovasznay", "helmholtz"):
        task = tasks.get(name)()
        exact = task.solution
        task.solution = lambda points, exact=exact: 1.1 * exact(points)
        parts = task.left_over(Exact(task), points_of(task))
        assert max(part.abs().max().item() for part in parts) > 0.05


@pytest.mark.parametrize("twice", [(0,), (0, 1)])
def test_derivatives_are_those_of_autograd(twice):
    torch.manual_seed(0)
    field = Field(6, 3, outputs=2, twice=twice).double()
    points = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    found = field.derivatives(points)
    torch.testing.assert_close(found[0], field(points))
    for output in range(2):
        total = field(points)[:, output].sum()
        (first,) = torch.autograd.grad(total, points, create_graph=True)
        torch.testing.assert_close(found[1:3, :, output], first.T)
        for place, variable in enumerate(twice):
            (second,) = torch.autograd.grad(first[:, variable].sum(), points, retain_graph=True)
            torch.testing.assert_close(found[3 + place, :, output], second[:, variable])


def test_burgers_by_quadrature_is_exact_to_rounding(monkeypatch):
    random = np.random.default_rng(0)
    x, t = random.uniform(-1, 1, 30), random.uniform(0, 1, 30)
    coarse = burgers.solution(x, t)
    monkeypatch.setattr(burgers, "_NODES", np.linspace(-30, 30, 6001))
    np.testing.assert_allclose(coarse, burgers.solution(x, t), atol=1e-13)
    np.testing.assert_allclose(burgers.solution(x, 0 * t), -np.sin(np.pi * x), atol=1e-13)
    np.testing.assert_allclose(burgers.solution(np.array([-1.0, 1.0]), np.ones(2)), 0, atol=1e-13)


def test_schroedinger_is_the_bound_state_of_two_solitons_far_from_the_ends():
    """Satsuma and Yajima's formula, on the whole line: the ring differs where its ends meet."""
    x, t = np.meshgrid(np.linspace(-2, 2, 9), np.linspace(0, np.pi / 2, 5))
    x, t = x.ravel(), t.ravel()
    found = Schroedinger().solution(np.stack([x, t], 1))
    turned = np.cosh(3 * x) + 3 * np.exp(4j * t) * np.cosh(x)
    exact = (
        4 * turned * np.exp(0.5j * t) / (np.cosh(4 * x) + 4 * np.cosh(2 * x) + 3 * np.cos(4 * t))
    )
    np.testing.assert_allclose(found[:, 0] + 1j * found[:, 1], exact, atol=1e-2)
    with pytest.raises(ValueError, match=r"t must be a multiple of 0\.00785398, found"):
        Schroedinger().solution(np.array([[0.0, 0.1]]))


def test_schroedingers_reference_satisfies_the_equation_mode_by_mode():
    """i ∂ₜĥ = k²ĥ/2 − (|h|²h)^ for the modes whose turns a difference in time can follow."""
    for number in (20, 100, 180):
        h = np.fft.ifft(schroedinger._reference()[number] * 1024)
        e = 1e-5
        later, earlier = (np.fft.fft(schroedinger._step(h, s * e)) for s in (1, -1))
        slope = 1j * (later - earlier) / (2 * e) / 1024
        k = schroedinger._numbers()
        right = np.fft.fft(h) / 1024 * k**2 / 2 - np.fft.fft(np.abs(h) ** 2 * h) / 1024
        low = np.abs(k) < 30
        assert np.abs(slope - right)[low].max() < 1e-6
        assert np.abs(right)[low].max() > 0.05


def test_schroedingers_reference_has_converged_and_conserves_the_norm():
    coarse, fine = (schroedinger._reference(steps)[::50] for steps in (4, 8))
    assert np.abs(np.fft.ifft(coarse - fine) * 1024).max() < 1e-4  # 3e-5; a 16th of it for fine
    norms = (np.abs(schroedinger._reference()) ** 2).sum(1) * 10
    np.testing.assert_allclose(norms, 8 * np.tanh(5), rtol=1e-6)


def test_every_loss_is_over_its_own_points():
    task = tasks.get("burgers")(points=30, conditions=7, held_out=11)
    data = task.data()
    assert task.counts(data.train).tolist() == [30, 7, 7]
    assert task.counts(data.test).tolist() == [11] * 3
    model = task.model()
    moved = tuple(part.clone() for part in data.train)
    moved[1][7:] += 3  # points that do not count
    torch.testing.assert_close(task.losses(model, data.train), task.losses(model, moved))
    start = data.train[1][:7]
    initial = (model(start)[:, 0] + torch.sin(torch.pi * start[:, 0])).square().mean()
    torch.testing.assert_close(task.losses(model, data.train)[1], initial)


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_fixed_shapes_are_the_same(name):
    task = tasks.get(name)(points=30, conditions=7, held_out=11, width=8, depth=2)
    model, data = task.model().double(), task.data()
    chance = torch.randperm(30)[:9]
    few = torch.arange(20, 30)  # no point of any other loss
    for rows in (slice(None), chance, few):
        batch = tuple(part[rows].double() for part in data.train)
        own = task.losses(model, batch)
        with fixing():
            torch.testing.assert_close(task.losses(model, batch), own)


@pytest.mark.parametrize("name", NAMES)
def test_points_are_where_they_are_said_to_be(name):
    task = tasks.get(name)()
    low, high = np.array(task.low), np.array(task.high)
    drawn = task.drawn(np.random.default_rng(0), 200)
    assert len(drawn) == len(task.objectives)
    for points in drawn:
        assert (points >= low - 1e-12).all()
        assert (points <= high + 1e-12).all()
    at_an_end = (np.isclose(drawn[-1], low) | np.isclose(drawn[-1], high)).any(1)
    assert at_an_end.all()


def test_full_batches_train(tmp_path):
    """Through the command that a user types; one step of M-ConFIG is one loss's backward."""
    folder = tmp_path / "run"
    options = ["points=40", "conditions=10", "held_out=20", "width=8", "depth=2"]
    given = [word for option in options for word in ("--option", option)]
    command = ["run", "burgers", "--method", "config", "--steps", "4", "--batch-size", "40"]
    assert main([*command, *given, "--out", str(folder), "--quiet"]) == 0


@pytest.mark.parametrize("options", [{"width": 0}, {"points": 0}, {"points_seed": -1}])
def test_bad_options(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name.removeprefix('points_')} must be .*, found"):
        tasks.get("burgers")(**options)
