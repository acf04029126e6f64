"""The study of docs/steps-study.md at a tiny size, and what it rests on."""

import json
import math

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def steps(load_script):
    return load_script("benchmarks/steps.py")


@pytest.fixture(scope="module")
def burgers(load_script):
    return load_script("benchmarks/burgers.py")


@pytest.fixture
def plan(steps, tmp_path):
    return steps.Plan(tmp_path, seeds=2, trials=3, steps=6)


def test_derivatives_are_those_of_autograd(burgers):
    field, points = burgers.Field(6, 2).double(), torch.rand(5, 2, dtype=torch.float64)
    points.requires_grad_()
    u = field(points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), points)
    expected = torch.stack([u, first[:, 0], first[:, 1], second[:, 0]])
    torch.testing.assert_close(field.derivatives(points.detach()), expected)


def test_the_exact_solution_solves_the_equation(burgers):
    x, t, h = np.linspace(-0.9, 0.9, 8), np.full(8, 0.2), 1e-3

    def u(dx: float, dt: float):
        return burgers.solution(x + dx, t + dt)

    u_x, u_t = (u(h, 0) - u(-h, 0)) / (2 * h), (u(0, h) - u(0, -h)) / (2 * h)
    u_xx = (u(h, 0) - 2 * u(0, 0) + u(-h, 0)) / h**2
    np.testing.assert_allclose(u_t + u(0, 0) * u_x, burgers.VISCOSITY * u_xx, atol=2e-3)
    np.testing.assert_allclose(burgers.solution(x, np.full(8, 1e-9)), -np.sin(np.pi * x), atol=1e-4)


@pytest.mark.parametrize("count", [0, 3])
def test_every_search_has_as_many_trials(steps, count):
    for best in (-3.0, 0.0, 2.0):
        tried = []

        def score(setting, best=best, tried=tried):
            tried.append(setting)
            return abs(math.log10(setting.lr) - best)

        found = steps.searched(score, 1.0, count, 6)
        assert len(tried) == len(set(tried)) == 6
        assert found in tried
        assert sum(setting.weights is not None for setting in tried) == count


def test_combinations_leave_out_what_would_be_the_same(steps):
    found = steps.combinations(["toy"], ["sgd", "adam"], ["sum", "upgrad"])
    left_out = {("sum", "metric"), ("upgrad", "metric")}
    assert {(c.method, c.variant) for c in found if c.optimizer == "sgd"}.isdisjoint(left_out)
    assert steps.Combination("toy", "upgrad", "adam", "metric") in found


def test_a_tiny_study(steps, plan):
    todo = steps.combinations(["toy"], ["adam", "sgd"], ["mgda"])
    todo += steps.combinations(["burgers"], ["adam"], ["static"])
    for one in todo:
        steps.studied(plan, one)
    steps.cost(steps.Store(plan.folder), "toy", "adam", "mgda")
    found = steps.study(plan)
    assert {(r["task"], r["method"], r["optimizer"], r["variant"]) for r in found["rows"]} == {
        (c.task, c.method, c.optimizer, c.variant) for c in todo
    }
    for row in found["rows"]:
        assert (row["n"], row["diverged"]) == (2, 0)
        assert all(math.isfinite(row[name]) for name in steps.MEANS)
        assert ("difference" in row) == (row["variant"] != "published")
        if row["variant"] == "guarded":
            assert (row["batch step"], row["failed"]) == (0, 0)
    pooled = {(r["task"], r["optimizer"], r["variant"]): r["methods"] for r in found["pooled"]}
    assert pooled["toy", "adam", "metric"] == 1
    assert set(found["costs"][0]["ratios"]) == {"published", "metric", "guarded"}
    json.dumps(found)


def test_a_run_is_made_once(steps, plan, monkeypatch):
    one = steps.Combination("toy", "sum", "adam", "published")
    steps.studied(plan, one)
    (file,) = plan.folder.iterdir()
    lines = [line for line in file.read_text().splitlines() if line]
    assert len(lines) == plan.trials + plan.seeds
    file.write_text("\n".join([*lines[:-1], lines[-1][:20]]))  # stopped while it wrote
    steps.studied(plan, one)
    assert len(steps.Store(plan.folder).known) == len(lines)
    monkeypatch.setattr(steps, "trained", lambda *_: pytest.fail("run again"))
    steps.studied(plan, one)


def test_the_metric_of_sgd_is_the_identity(steps):
    looked = []
    for variant in ("published", "metric"):
        one = steps.Combination("toy", "mgda", "sgd", variant)
        looked.append(steps.trained(one, steps.Setting(0.1), 0, steps.Length(12))["losses"])
    assert looked[0] == pytest.approx(looked[1], rel=1e-9)
