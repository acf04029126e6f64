"""Weights in the metric of an optimizer's step, against slow references in float64."""

import numpy as np
import pytest
import torch
from optimizer_steps import OPTIMIZERS, Problem, nearest, shortest
from torch import optim

import trimol
from trimol.gradients._stepping import Steps

MOVING = ["momentum", "nesterov", "adam", "adamw", "nadam", "rmsprop"]
METRIC = [
    name
    for name in trimol.methods.names()
    if trimol.methods.get(name).needs in ("gramian", "product", "jacobian")
    and not trimol.methods.get(name).no_metric
    and name != "torchjd"
]
BESIDE = [name for name in trimol.methods.names() if name not in METRIC and name != "torchjd"]


def made(name, problem, **options):
    kind = trimol.methods.get(name)
    return kind(problem.params, problem.objectives, optimizer=problem.optimizer, **options)


def called(method, problem):
    return method(*(problem.losses(i % 2) for i in range(method.draws)))


def metric_of(problem, weights):
    """k and S, per unit of the largest lr, at the gradient with these weights."""
    at = weights @ problem.rows()
    known, scale = Steps(problem.optimizer).flat(problem.params)(at)
    unit = float(problem.rates.max())
    torch.testing.assert_close(known + scale * at, problem.taken(at), rtol=1e-8, atol=1e-12)
    return known / unit, scale / unit


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_modo_s_product_is_along_the_step_that_is_taken(name):
    problem = Problem(name)
    method = made("modo", problem, weights=[0.5, 0.3, 0.2], gamma=0.1)
    method(problem.losses(0), problem.losses(1)).backward()
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    step = problem.taken(weights @ problem.rows(1)) / problem.rates.max()
    torch.testing.assert_close(method.info.product, problem.rows(0) @ step, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_adam_s_gramian_is_that_of_its_formula(beta):
    """J D⁻¹ Jᵀ with D = √v̂ + ε, v the mean of squares that the gradient is about to join."""
    problem = Problem("adam")
    for group in problem.optimizer.param_groups:
        group["betas"] = (beta, 0.999)
    method = made("mgda", problem)
    method(problem.losses()).backward()
    rows, t = problem.rows(), 5
    at = rows.mean(0)
    squares = 0.999 * problem.state("exp_avg_sq") + 0.001 * at**2
    inverse = 1 / ((squares / (1 - 0.999**t)).sqrt() + 1e-8)
    scale = problem.rates / problem.rates.max() * inverse * (1 - beta) / (1 - beta**t)
    expected = rows * scale @ rows.T
    torch.testing.assert_close(method.info.gramian, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("kind", ["mgda", "smg"])
def test_mgda_is_the_shortest_step(name, kind):
    problem = Problem(name, seed=2)
    method = made(kind, problem)
    known, scale = metric_of(problem, method.weights)
    method(problem.losses()).backward()
    expected = shortest(known + scale * problem.rows(), scale)
    torch.testing.assert_close(method.weights, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", MOVING)
def test_upgrad_is_the_mean_of_the_steps_each_without_conflict(name):
    problem = Problem(name, seed=3)
    method = made("upgrad", problem)
    rows = problem.rows()
    known, scale = metric_of(problem, method.weights)
    method(problem.losses()).backward()
    projected = torch.stack([nearest(known + scale * row, rows, scale) for row in rows]).mean(0)
    step = known + scale * (method.weights @ rows)
    torch.testing.assert_close(step, projected, rtol=0, atol=1e-5 * float(step.abs().max()))
    assert (rows @ step >= -1e-10).all()


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("c", [0.4, 1.5])
def test_cagrad_is_the_best_step_for_the_worst_off_near_the_mean_step(name, c):
    """KKT: within the radius, all of it used, worst-off objectives alike, weights there alone."""
    problem = Problem(name, seed=1)
    method = made("cagrad", problem, c=c)
    rows = problem.rows()
    known, scale = metric_of(problem, method.weights)
    method(problem.losses()).backward()
    centre = known + scale * rows.mean(0)
    step = known + scale * (method.weights @ rows)
    distance = ((step - centre).square() / scale).sum().sqrt()
    radius = c * (centre.square() / scale).sum().sqrt()
    assert float(distance) == pytest.approx(float(radius), rel=1e-8)
    falls, extra = rows @ step, method.weights - 1 / 3
    assert (extra >= -1e-12).all()
    inside = extra > 1e-9
    torch.testing.assert_close(
        falls[inside], falls.min().expand(int(inside.sum())), rtol=0, atol=1e-8 * falls.abs().max()
    )


@pytest.mark.parametrize("name", MOVING)
def test_pcgrad_removes_what_opposes_from_steps(name):
    """By hand, in step space: each gradient's step has its share of the momentum."""
    problem = Problem(name, seed=4)
    method = made("pcgrad", problem)
    rows, order = problem.rows(), method.order()
    known, scale = metric_of(problem, method.weights)
    method(problem.losses()).backward()
    total = torch.zeros_like(known)
    for i in range(3):
        step = known / 3 + scale * rows[i]
        for j in order[i]:
            if j != i and rows[j] @ step < 0:
                step = step - (rows[j] @ step) / (rows[j] @ (scale * rows[j])) * scale * rows[j]
        total += step
    torch.testing.assert_close(known + scale * (method.weights @ rows), total)


@pytest.mark.parametrize("name", MOVING)
def test_imtlg_projects_the_step_alike_on_all(name):
    problem = Problem(name, seed=5)
    method = made("imtlg", problem)
    rows = problem.rows()
    known, scale = metric_of(problem, method.weights)
    method(problem.losses()).backward()
    step = known + scale * (method.weights @ rows)
    lengths = (rows.square() * scale).sum(1).sqrt()
    seen = rows @ step / lengths
    torch.testing.assert_close(seen, seen.mean().expand(3), rtol=0, atol=1e-9 * seen.abs().max())
    assert float(method.weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize("name", METRIC)
def test_sgd_is_the_identity(name):
    """One learning rate, no momentum: all is as published, to the bit or to rounding."""
    weights = {}
    for metric in (False, True):
        problem = Problem("sgd", seed=6)
        for group in problem.optimizer.param_groups:
            group["lr"] = 0.25
        more = {"optimizer": problem.optimizer} if metric else {}
        method = trimol.methods.get(name)(problem.params, 3, **more)
        for _ in range(2):
            method(*[problem.losses(i % 2) * (1 + i) for i in range(method.draws)]).backward()
        weights[metric] = method.weights
    torch.testing.assert_close(weights[True], weights[False], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["mgda", "upgrad", "gradnorm"])
def test_gradients_that_are_not_all_held_give_the_same(kind):
    weights = {}
    for option in (None, 1):
        problem = Problem("adam", seed=7)
        more = {"chunk": option}
        if kind == "gradnorm":
            more = {"layer": problem.params[1:]} if option else {}
        method = made(kind, problem, **more)
        method(problem.losses()).backward()
        weights[option] = method.weights
        lengths = (problem.rows()[:, -6:].square()).sum()
        assert lengths > 0
    if kind != "gradnorm":
        torch.testing.assert_close(weights[1], weights[None], rtol=1e-9, atol=1e-12)
    else:
        assert not torch.equal(weights[1], weights[None])  # of fewer parameters


@pytest.mark.parametrize(
    ("kind", "guard"),
    [
        *((kind, False) for kind in ("modo", "mgda", "moco")),
        *((kind, True) for kind in ("modo", "mgda", "moco", "static")),
    ],
)
def test_accumulated_micro_batches_are_one_batch(kind, guard):
    gradients = {}
    for parts in (1, 4):
        problem = Problem("adam", seed=8)
        method = made(kind, problem, guard=guard)
        A, b = problem.batches[0]

        def losses(places, A=A, b=b, problem=problem):
            x = torch.cat(problem.params)
            return (A[:, places] @ x - b[:, places]).square().mean(1)

        rows = torch.arange(4).split(4 // parts)
        draws = [[r] if method.draws == 1 else [r, (r + 1) % 4] for r in rows]
        if parts == 1:
            method(*map(losses, draws[0])).backward()
        else:
            method.accumulate(losses, draws).backward()
        gradients[parts] = torch.cat([p.grad for p in problem.params])
    torch.testing.assert_close(gradients[4], gradients[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["modo", "mgda", "upgrad", "moco", "static"])
@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_a_resumed_run_goes_on_bit_for_bit(kind, name):
    def run(save_at=None):
        problem = Problem(name, seed=9, history=0)
        method = made(kind, problem, guard=True)
        for step in range(6):
            if step == save_at:
                saved = [p.detach().clone() for p in problem.params]
                states = problem.optimizer.state_dict(), method.state_dict()
                problem = Problem(name, seed=9, history=0)
                with torch.no_grad():
                    for p, old in zip(problem.params, saved, strict=True):
                        p.copy_(old)
                problem.optimizer.load_state_dict(states[0])
                method = made(kind, problem, guard=True)
                method.load_state_dict(states[1])
            problem.optimizer.zero_grad()
            called(method, problem).backward()
            problem.optimizer.step()
        return torch.cat([p.detach() for p in problem.params])

    assert torch.equal(run(), run(save_at=3))


def test_a_whole_float32_step_agrees_with_float64():
    steps = {}
    for dtype in (torch.float32, torch.float64):
        problem = Problem("adam", seed=10, dtype=dtype)
        method = made("upgrad", problem)
        method(problem.losses()).backward()
        steps[dtype] = torch.cat([p.grad for p in problem.params]).double()
    torch.testing.assert_close(steps[torch.float32], steps[torch.float64], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", BESIDE)
def test_methods_whose_weights_have_no_metric_say_so(kind):
    with pytest.raises(ValueError, match="optimizer must be None, or guard True, for"):
        made(kind, Problem("adam"))


def test_what_has_no_meaning_is_one_line():
    problem = Problem("adam")
    with pytest.raises(ValueError, match="optimizer must be given with guard=True, found None"):
        trimol.MGDA(problem.params, 3, guard=True)
    with pytest.raises(ValueError, match="metric must be 'step', or guard True"):
        made("mgda", problem, metric="gradient")
    with pytest.raises(ValueError, match="metric must be 'step' or 'gradient', found 'adam'"):
        made("mgda", problem, metric="adam")
    with pytest.raises(ValueError, match="optimizer must hold the method's parameters"):
        trimol.MGDA([torch.ones(1, requires_grad=True)], 3, optimizer=problem.optimizer)
    sdmgrad = made("sdmgrad", problem, normalize=True)
    with pytest.raises(ValueError, match="whose momentum would count M times"):
        sdmgrad(*(problem.losses(i % 2) * (1 + i) for i in range(3)))
    representation = problem.params[0] * 2
    gradnorm = trimol.GradNorm(
        problem.params, 2, optimizer=problem.optimizer, layer=[representation]
    )
    with pytest.raises(ValueError, match="a representation, which no optimizer moves"):
        gradnorm(torch.stack([representation.square().sum(), (1 + representation).square().sum()]))


def test_print_says_what_the_weights_are_for():
    problem = Problem("adam")
    assert "optimizer=Adam" in repr(made("mgda", problem))
    assert "guard=True" in repr(made("static", problem, guard=True))
    assert "optimizer" not in repr(trimol.MGDA(problem.params, 3))


def test_a_learning_rate_of_zero_leaves_nothing_to_choose():
    problem = Problem("adam")
    for group in problem.optimizer.param_groups:
        group["lr"] = 0.0
    method = made("mgda", problem)
    method(problem.losses()).backward()
    assert method.weights.isfinite().all()
    assert all(bool(p.grad.isfinite().all()) for p in problem.params)


def test_wrapped_optimizers_are_seen_through():
    accelerate = pytest.importorskip("accelerate")
    problem = Problem("adam")
    prepared = accelerate.Accelerator(cpu=True).prepare(problem.optimizer)
    method = trimol.MGDA(problem.params, 3, optimizer=prepared)
    assert type(method.optimizer) is optim.Adam


def test_weights_follow_a_learning_rate_that_changes():
    """A group whose lr falls to zero no longer has a say."""
    problem = Problem("momentum", history=0)
    method = made("mgda", problem)
    problem.optimizer.param_groups[1]["lr"] = 0.0
    method(problem.losses()).backward()
    first = problem.rows()[:, : len(problem.params[0])]
    expected = trimol.simplex.min_norm(first @ first.T)
    np.testing.assert_allclose(method.weights.numpy(), expected.numpy(), atol=1e-9)
