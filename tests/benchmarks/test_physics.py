"""The study of physics-informed networks: its protocol is the published one, and it goes on."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study(load_script):
    return load_script("benchmarks/physics.py")


class Published(nn.Module):
    """The network of ConFIG's example, module by module."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(2, 50), nn.Tanh())
        self.hidden = nn.Sequential(
            *[nn.Sequential(nn.Linear(50, 50), nn.Tanh()) for _ in range(4)]
        )
        self.last = nn.Linear(50, 1)

    def forward(self, x, t):
        return self.last(self.hidden(self.first(torch.stack([x, t], -1))))[:, 0]


def test_network_points_and_losses_are_those_of_the_example(study):
    """By autograd's derivatives, from the same random numbers."""
    from scipy.stats.qmc import LatinHypercube

    torch.manual_seed(study.SEED)
    theirs = Published()

    def begin(layer):
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight, 1)
            layer.bias.data.fill_(0.001)

    theirs.apply(begin)
    ours, drawn = study.network(study.SEED), study.Sampled(study.SEED)
    random = [LatinHypercube(d, seed=study.SEED) for d in (1, 2)]
    x = torch.from_numpy(random[0].random(50)[:, 0]).float() * 2 - 1
    initial = (theirs(x, 0 * x) + torch.sin(torch.pi * x)).square().mean()
    torch.testing.assert_close(drawn.initial(ours), initial)
    t = torch.from_numpy(random[0].random(50)[:, 0]).float()
    walls = torch.cat([-torch.ones(25), torch.ones(25)])
    torch.testing.assert_close(drawn.boundary(ours), theirs(walls, t).square().mean())
    sample = torch.from_numpy(random[1].random(2000)).float()
    x, t = (sample[:, 0] * 2 - 1).requires_grad_(), sample[:, 1].clone().requires_grad_()
    u = theirs(x, t)
    u_x, u_t = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    equation = (u_t + u * u_x - 0.01 / torch.pi * u_xx).square().mean()
    torch.testing.assert_close(drawn.equation(ours), equation, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_the_published_protocol_by_the_command(study, monkeypatch, tmp_path):
    path = tmp_path / "pinn.json"
    monkeypatch.setattr(study, "POINTS", 100)
    for _ in range(2):  # the second time nothing is left to do
        monkeypatch.setattr("sys.argv", ["physics.py", "published", "--quick", "--json", str(path)])
        study.main()
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["method"] for row in rows] == ["static", "config", "mconfig"]
    assert all(0 < row["best"] <= row["last"] for row in rows)
    assert all(row["paper"] is None for row in rows)  # no number of 5000 steps beside 20


def test_equal_time_by_the_command_and_after_a_kill(study, monkeypatch, tmp_path, capsys):
    path = tmp_path / "pinn.json"
    # As the published protocol leaves it: a row that is of no method.
    kept = {"rows": [{"protocol": "reference", "MSE": 1e-4}], "command": "before"}
    path.write_text(json.dumps(kept), encoding="utf-8")
    command = ["physics.py", "equal-time", "--quick", "--json", str(path)]
    monkeypatch.setattr("sys.argv", [*command, "--methods", "static", "mconfig"])
    monkeypatch.setattr(study, "LADDER", study.RATES)
    study.main()
    found = json.loads(path.read_text(encoding="utf-8"))
    # Costs, the settings of both and the best of them again, then seeds.
    assert len(found["rows"]) == 1 + 2 + 18 + 6 + 2 * 4 + 2 * 2
    capsys.readouterr()
    found["rows"] = found["rows"][:-3]  # as if it had been killed
    path.write_text(json.dumps(found), encoding="utf-8")
    study.main()
    assert len(capsys.readouterr().out.splitlines()) == 3
    again = json.loads(path.read_text(encoding="utf-8"))
    costs = {row["method"]: row["cost"] for row in again["rows"] if "cost" in row}
    runs = [row for row in again["rows"] if "steps" in row]
    assert all(row["steps"] == max(round(10 / costs[row["method"]]), 1) for row in runs)
    assert all(np.isfinite(row["MSE"]) for row in runs)
    assert again["rows"][0] == kept["rows"][0]


def test_step_sizes_go_on_until_the_best_is_inside(study, monkeypatch):
    """Scores that fall with the step size down to 1e-4; runs of another size are no guide."""
    task = study.burgers.Burgers(points=40, conditions=8, held_out=10, width=6, depth=2)
    kept = study.Kept(None)
    other = {**study.size_of(task), "points": 41, "lr": 1e-1, "schedule": None, "held out": 0.0}
    kept.rows.append({"protocol": "tuning", "method": "config", "steps": 5, **other})

    def together(task, name, steps, seeds, settings):
        return [{"held out": abs(own["lr"] - 1e-4)} for own in settings]

    monkeypatch.setattr(study, "together", together)
    assert study.choose_setting(kept, task, "config", 5)["lr"] == 1e-4
    tried = sorted({row["lr"] for row in kept.rows[1:]})
    assert tried == [3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
    assert len([row for row in kept.rows if row.get("seed") in study.AGAIN]) == 4


def test_luck_with_one_seed_does_not_choose(study, monkeypatch):
    """A constant step size is best with the first seed, and far worse with the others."""
    task = study.burgers.Burgers(points=40, conditions=8, held_out=10, width=6, depth=2)

    def together(task, name, steps, seeds, settings):
        first = [seed == study.TUNED_ON for seed in seeds]
        left = {
            (None, True): 0.1,
            (None, False): 1.0,
            ("cosine", True): 0.2,
            ("cosine", False): 0.2,
        }
        return [
            {"held out": left[own["schedule"], at] + abs(own["lr"] - 3e-3)}
            for own, at in zip(settings, first, strict=True)
        ]

    monkeypatch.setattr(study, "together", together)
    monkeypatch.setattr(study, "RATES", (1e-3, 3e-3, 1e-2))
    monkeypatch.setattr(study, "FINALISTS", 6)
    kept = study.Kept(None)
    chosen = study.choose_setting(kept, task, "config", 5)
    assert chosen == {"lr": 3e-3, "schedule": "cosine"}
    of = {"protocol": "equal-time", "method": "config"}
    kept.rows += [{**of, **chosen}, {**of, "lr": 1e-3, "schedule": None}]
    kept.drop(chosen, **of)
    assert kept.of(**of) == [{**of, **chosen}]


def test_the_published_choices_are_those_of_the_published_trials(study, monkeypatch):
    """Nothing is trained again, and the seeds of every method have the setting that is chosen."""
    kept = study.Kept(ROOT / "results" / "physics.json")
    kept.path = None
    for kind in ("together", "apart"):
        monkeypatch.setattr(study, kind, lambda *_: pytest.fail("run again"))
    ended = [row for row in kept.rows if row["protocol"] == "equal-time"]
    assert ended
    for row in {(row["method"], row["steps"], row["points"]): row for row in ended}.values():
        task = SimpleNamespace(**{name: row[name] for name in ("points", "width", "depth")})
        chosen = study.choose_setting(kept, task, row["method"], row["steps"])
        assert study._as_read(chosen) == study._setting(row)


def test_costs_of_another_size_are_not_taken(study, monkeypatch):
    kept = study.Kept(None)
    monkeypatch.setattr(study, "costs", lambda task, names, n: dict.fromkeys(names, task.points))
    for points in (40, 41):
        task = study.burgers.Burgers(points=points, width=6, depth=2)
        assert kept.costs(task, ["static"]) == {"static": points}
        assert kept.costs(task, ["static", "config"]) == {"static": points, "config": points}


def test_a_step_is_the_tasks_own(study):
    """A training that leaves out points of losses that are not wanted trains on the same losses."""
    task = study.burgers.Burgers(points=40, conditions=8, held_out=10, width=6, depth=2)
    one = study.Training(task, "static", 1e-3, 3).run(5)
    torch.manual_seed(3)
    model = task.model()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(5):
        adam.zero_grad()
        task.losses(model, task.data().train).mean().backward()
        adam.step()
    for ours, plain in zip(one.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["static", "config", "mconfig"])
def test_runs_together_are_the_runs_apart(study, name):
    task = study.burgers.Burgers(points=40, conditions=8, held_out=10, width=6, depth=2)
    weights = {"weights": (0.1, 1.0, 1.0)} if name == "static" else {}
    settings = [{"lr": 1e-3, "schedule": None}, {"lr": 3e-3, "schedule": "cosine"}]
    settings = [own | weights for own in settings]
    found = study.together(task, name, 6, [3, 4], settings)
    for seed, own, ended in zip([3, 4], settings, found, strict=True):
        assert ended == pytest.approx(study.apart(task, name, 6, seed, own), rel=1e-3)


def test_a_disturbed_start_is_near_the_start(study):
    plain, moved = study.network(1), study.network(1)
    study._disturb(moved, seed=2)
    for before, after in zip(plain.parameters(), moved.parameters(), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-5, atol=0)
    assert not torch.equal(moved.last.weight, plain.last.weight)
