"""`guard=True`: no step of the optimizer raises a loss of its batch, and it changes no more."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optimizer_steps import OPTIMIZERS, Problem, nearest, train, worst_cosine
from torch import nn, optim

import trimol
from trimol.gradients._stepping import Steps

# These optimizers have a history that the methods do not have.
pytestmark = pytest.mark.filterwarnings("ignore:.*at its first step:RuntimeWarning")

ALL = [n for n in trimol.methods.names() if trimol.methods.get(n).needs != "representation"]
# What is left of a conflict: the guard's 16 roundings, and those of the optimizer's own arithmetic.
LEFT = {torch.float64: 1e-11, torch.float32: 1e-5}


def made(name, problem, **options):
    kind = trimol.methods.get(name)
    options = {"optimizer": problem.optimizer, "guard": True} | options
    return kind(problem.params, problem.objectives, **options)


def moved(problem, method, batches):
    """What a step of the whole really subtracts."""
    before = torch.cat([p.detach().clone() for p in problem.params])
    problem.optimizer.zero_grad()
    method(*(problem.losses(i) for i in batches)).backward()
    problem.optimizer.step()
    return before - torch.cat([p.detach() for p in problem.params])


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    kind=st.sampled_from(["static", "mgda", "upgrad", "modo", "pcgrad", "moco"]),
    objectives=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    history=st.sampled_from([0, 1, 2, 20]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    metric=st.sampled_from(["step", "gradient"]),
)
def test_no_step_raises_a_loss(optimizer, kind, objectives, seed, history, dtype, metric):
    problem = Problem(optimizer, objectives, seed=seed, history=history, size=30, dtype=dtype)
    method = made(kind, problem, metric=metric)
    batches = range(2) if method.draws == 2 else [0]
    for _ in range(3):
        rows = torch.stack([problem.rows(i) for i in batches]).mean(0)
        step = moved(problem, method, batches)
        assert method.info.guarded in ("free", "changed")
        # Beside a large step (momentum) that was all but undone, what is left of it is rounding;
        # and the parameters themselves are rounded, which a short step sees.
        length = max(float(step.norm()), 1e-3 * float(problem.rates.max()))
        left = (rows @ step / rows.norm(dim=1).clamp_min(1e-30) / length).min()
        stored = torch.finfo(dtype).eps * float(torch.cat(problem.params).detach().norm()) / length
        assert float(left) >= -LEFT[dtype] - stored


@pytest.mark.parametrize("name", ALL)
def test_every_method_can_be_guarded(name):
    problem = Problem("adam", seed=2)
    method = made(name, problem)
    total = sum(problem.rows(i % 2) * (1 + i // 2) for i in range(method.draws)) / method.draws
    if method.draws == 3:
        total = problem.rows(0) * 2
    before = torch.cat([p.detach().clone() for p in problem.params])
    method(*(problem.losses(i % 2) * (1 + i // 2) for i in range(method.draws))).backward()
    problem.optimizer.step()
    step = before - torch.cat([p.detach() for p in problem.params])
    assert worst_cosine(total, step) >= -1e-11
    assert (method.info.effect <= 1e-12).all()


@pytest.mark.parametrize("optimizer", ["momentum", "nesterov", "sgd"])
@pytest.mark.parametrize("seed", range(4))
def test_the_change_is_the_smallest(optimizer, seed):
    """The nearest step without conflict, in the metric, by an independent solver in step space."""
    problem = Problem(optimizer, 3, seed=seed)
    rows = problem.rows()
    unguarded = problem.taken(rows.mean(0))
    _, scale = Steps(problem.optimizer).flat(problem.params)(rows.mean(0))
    expected = nearest(unguarded, rows, scale)
    step = moved(problem, made("static", problem), [0])
    torch.testing.assert_close(step, expected, rtol=0, atol=2e-6 * float(unguarded.abs().max()))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad", "nadam", "adamax"])
@pytest.mark.parametrize("seed", range(4))
def test_the_change_is_the_smallest_in_the_metric_of_the_step_itself(optimizer, seed):
    """At k and S of the gradient that is delivered, it solves that quadratic problem."""
    problem = Problem(optimizer, 3, seed=seed)
    rows, twin = problem.rows(), copy.deepcopy(problem)
    method = made("static", problem)
    step = moved(problem, method, [0])
    delivered = (method.weights + method.info.added) @ rows
    known, scale = Steps(twin.optimizer).flat(twin.params)(delivered)
    torch.testing.assert_close(step, known + scale * delivered, rtol=1e-8, atol=1e-12)
    expected = nearest(known + scale * rows.mean(0), rows, scale)
    torch.testing.assert_close(step, expected, rtol=0, atol=1e-4 * float(step.abs().max()))


def test_where_nothing_conflicts_nothing_changes():
    """Identical to the method without it, bit for bit."""
    gradients = {}
    for guard in (False, True):
        problem = Problem("adam", 2, history=0)
        A, b = problem.batches[0]
        problem.batches[0] = A[:1].expand_as(A).clone(), b[:1] + torch.tensor([[0.0], [0.1]])
        method = trimol.UPGrad(problem.params, 2, optimizer=problem.optimizer, guard=guard)
        method(problem.losses()).backward()
        gradients[guard] = torch.cat([p.grad for p in problem.params])
    assert method.info.guarded == "free"
    assert not method.info.added.any()
    assert torch.equal(gradients[True], gradients[False])


class Shared(nn.Module):
    """A trunk and a head for each of three tasks."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 10), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(10, 1) for _ in range(3)])

    def losses(self, x, y):
        seen = self.trunk(x)
        each = [(head(seen)[:, 0] - y[:, i]).square().mean() for i, head in enumerate(self.heads)]
        return torch.stack(each)


@pytest.mark.parametrize("heads", ["plain", "weighted"])
@pytest.mark.parametrize("kind", ["static", "mgda", "modo", "mgdaub"])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_heads_move_too(heads, kind, optimizer):
    """The promise is of the whole step, the heads' with their momentum included."""
    torch.manual_seed(0)
    model = Shared().double()
    optim_ = OPTIMIZERS[optimizer](model.parameters())
    shared = list(model.trunk.parameters())
    method = trimol.methods.get(kind)(shared, 3, optimizer=optim_, guard=True, heads=heads)
    outcomes = set()
    for step in range(12):
        data = [(torch.randn(8, 4).double(), torch.randn(8, 3).double()) for _ in range(2)]
        data = data[: method.draws]
        vectors = [model.losses(*batch) for batch in data]
        everything = list(model.parameters())
        mean = torch.stack(vectors).mean(0)
        rows = trimol.gradients.jacobian(mean, everything)
        more = {}
        if kind == "mgdaub":
            seen = model.trunk(data[0][0])
            vectors = [
                torch.stack(
                    [
                        (head(seen)[:, 0] - data[0][1][:, i]).square().mean()
                        for i, head in enumerate(model.heads)
                    ]
                )
            ]
            more = {"representation": seen}
        before = torch.cat([p.detach().flatten() for p in everything])
        optim_.zero_grad()
        method(*vectors, **more).backward()
        optim_.step()
        taken = before - torch.cat([p.detach().flatten() for p in everything])
        outcomes.add(method.info.guarded)
        assert worst_cosine(rows, taken) >= -1e-10, step
    assert outcomes == {"free", "changed"} or (kind == "mgda" and outcomes == {"free"})


def test_steps_that_keep_their_weights_are_guarded():
    problem = Problem("momentum", seed=1)
    method = made("modo", problem, every=2)
    train(problem, method, 1, losses=(0, 1))
    weights = method.weights
    rows = problem.rows()
    step = moved(problem, method, [0])  # between two updates
    assert torch.equal(method.weights, weights)
    assert worst_cosine(rows, step) >= -1e-11
    rows = problem.rows()
    before = torch.cat([p.detach().clone() for p in problem.params])
    problem.optimizer.zero_grad()
    method(problem.losses(), keep=True).backward()
    problem.optimizer.step()
    step = before - torch.cat([p.detach() for p in problem.params])
    assert worst_cosine(rows, step) >= -1e-11
    assert int(method.kept) == 1


def test_length_and_max_norm_come_before_the_guard():
    problem = Problem("momentum", seed=3)
    rows = problem.rows()
    method = made("mgda", problem, length="mean gradient", max_norm=0.5)
    step = moved(problem, method, [0])
    assert worst_cosine(rows, step) >= -1e-11


def test_a_gradient_scaler_changes_nothing():
    steps = {}
    for scaled in (False, True):
        problem = Problem("adam", seed=4, dtype=torch.float32)
        method = made("static", problem)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
        before = torch.cat([p.detach().clone() for p in problem.params])
        scaler.scale(method(problem.losses())).backward()
        scaler.step(problem.optimizer)
        steps[scaled] = before - torch.cat([p.detach() for p in problem.params])
    torch.testing.assert_close(steps[True], steps[False], rtol=1e-5, atol=1e-8)


def test_under_autocast_the_step_conflicts_with_no_gradient_that_was_computed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 4))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    method = trimol.Static(model.parameters(), 4, optimizer=optimizer, guard=True)
    x, y = torch.randn(16, 6), torch.randn(16, 4)
    for _ in range(5):
        with torch.autocast("cpu", torch.bfloat16):
            losses = (model(x) - y).square().mean(0)
        rows = trimol.gradients.jacobian(losses, model.parameters())
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        optimizer.zero_grad()
        method(losses).backward()
        optimizer.step()
        step = before - torch.cat([p.detach().flatten() for p in model.parameters()])
        assert worst_cosine(rows, step) >= -1e-5


def test_what_cannot_be_guarded_is_said_once():
    """A sparse embedding beside, whose momentum raises a loss that depends on nothing else."""
    x, table = torch.ones(2, requires_grad=True), nn.Embedding(3, 1, sparse=True)
    with torch.no_grad():
        table.weight.fill_(1.0)
    optimizer = optim.SGD([x, table.weight], lr=0.1, momentum=0.9)
    (-5 * table(torch.tensor([1]))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    method = trimol.Static([x], 2, optimizer=optimizer, guard=True)

    def losses():
        return [x.square().sum(), table(torch.tensor([1])).square().sum() + 0 * x.sum()]

    with pytest.warns(RuntimeWarning, match="no weights were found at step 0"):
        method(losses()).backward()
    assert method.info.guarded == "failed"
    assert method.info.effect[1] > 0
    assert table.weight.grad.is_sparse
    torch.testing.assert_close(x.grad, torch.ones(2))  # left as it was
    method(losses())  # said once


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
@pytest.mark.parametrize("size", [0.0, 0.01, 1.0])
def test_small_heads_do_not_make_the_trunk_run_away(optimizer, size):
    """What a head's momentum does is not for the trunk to make up for: no step gets longer."""
    torch.manual_seed(0)
    model = Shared().double()
    with torch.no_grad():
        for p in model.heads.parameters():
            p.mul_(size)
    own = OPTIMIZERS[optimizer](model.parameters())
    method = trimol.Static(model.trunk.parameters(), 3, optimizer=own, guard=True)
    steps = Steps(own)
    for _ in range(60):
        x, y = torch.randn(8, 4).double(), torch.randn(8, 3).double()
        own.zero_grad()
        model.losses(x, y).mean().backward()
        params = list(model.parameters())
        unguarded = steps.taken(params, [p.grad for p in params])
        own.zero_grad()
        method(model.losses(x, y)).backward()
        assert method.info.guarded != "failed"
        taken = steps.taken(params, [p.grad for p in params])
        longest = max(float(s.norm()) for s in unguarded) * 3 * len(params) ** 0.5
        assert max(float(s.norm()) for s in taken) <= longest + 1e-6
        own.step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_a_gradient_that_is_not_finite_is_left_to_the_scaler():
    problem = Problem("adam", history=1)
    method = made("static", problem)
    method(problem.losses() * torch.tensor([1.0, float("inf"), 1.0])).backward()
    assert method.info.guarded == "failed"
    assert not all(bool(p.grad.isfinite().all()) for p in problem.params)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_losses_of_any_size(scale, optimizer):
    """One loss is so much larger than the others; two are the same; one has no gradient at all."""
    problem = Problem(optimizer, 4, seed=5, size=12)
    A, b = problem.batches[0]
    A[2], b[2], A[3] = A[1], b[1], 0
    factors = torch.tensor([scale, 1.0, 1.0, 1.0], dtype=torch.float64)
    rows = problem.rows() * factors[:, None]
    before = torch.cat([p.detach().clone() for p in problem.params])
    method = made("static", problem)
    method(problem.losses() * factors).backward()
    problem.optimizer.step()
    step = before - torch.cat([p.detach() for p in problem.params])
    assert method.info.guarded in ("free", "changed")
    assert worst_cosine(rows, step) >= -1e-11


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_entries_that_never_have_a_gradient(name):
    """Dead units, unused embeddings: √0 has no slope."""
    data = torch.Generator().manual_seed(0)
    x = torch.zeros(8, requires_grad=True)
    optimizer = OPTIMIZERS[name]([x])
    method = trimol.UPGrad([x], 2, optimizer=optimizer, metric="gradient", guard=True)
    for _ in range(30):
        rows = torch.randn(2, 8, generator=data)
        rows[:, 2] = 0
        before = x.detach().clone()
        optimizer.zero_grad()
        method(rows @ x + 1).backward()
        optimizer.step()
        assert method.info.guarded in ("free", "changed")
        assert worst_cosine(rows, before - x.detach()) >= -2e-5


def test_hooks_on_parameters_are_refused():
    problem = Problem("adam")
    problem.params[0].register_hook(lambda g: g.clamp(-1, 1))
    with pytest.raises(ValueError, match="guard must be False where parameters have hooks"):
        made("static", problem)(problem.losses())


def test_a_stationary_point_is_left_by_momentum_alone_where_that_harms_nobody():
    """Two opposite gradients, and momentum across: it stays; along one of them: it goes."""
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for momentum, kept in (([0.0, 1.0], [0.0, 1.0]), ([1.0, 1.0], [0.0, 1.0])):
        optimizer = optim.SGD([x], lr=1.0, momentum=1.0)
        optimizer.state[x]["momentum_buffer"] = torch.tensor(momentum, dtype=torch.float64)
        method = trimol.MGDA([x], 2, optimizer=optimizer, guard=True)
        with torch.no_grad():
            x.zero_()
        x.grad = None
        method(torch.stack([x[0], -x[0]])).backward()
        optimizer.step()
        torch.testing.assert_close(-x.detach(), torch.tensor(kept, dtype=torch.float64))


def test_evaluation_touches_nothing():
    problem = Problem("adam")
    method = made("static", problem)
    with torch.no_grad():
        value = method(problem.losses())
    assert value == problem.losses().mean()
    assert method.info is None


def test_parameters_in_bfloat16_are_guarded_as_far_as_they_are_stored():
    """Cosines of the step before it is stored: no coarser than of float32."""
    problem = Problem("momentum", seed=3, size=60, dtype=torch.bfloat16)
    method = made("static", problem)
    rows = problem.rows().double()
    method(problem.losses()).backward()
    gradient = torch.cat([p.grad for p in problem.params])
    (known, scale) = Steps(problem.optimizer).flat(problem.params)(gradient)
    assert worst_cosine(rows, (known + scale * gradient).double()) >= -2e-2  # g itself is rounded
    assert (method.info.effect <= 1e-4).all()


def test_heads_in_another_optimizer_are_said_once():
    torch.manual_seed(0)
    model = Shared().double()
    trunk = list(model.trunk.parameters())
    optimizer = optim.SGD(trunk, lr=0.1, momentum=0.9)
    method = trimol.Static(trunk, 3, optimizer=optimizer, guard=True)
    x = torch.randn(8, 4).double().requires_grad_()  # a leaf that is no parameter may be beside
    with pytest.warns(RuntimeWarning, match="reach parameters that are not in the optimizer"):
        method(model.losses(x, torch.randn(8, 3).double()))
    method(model.losses(x, torch.randn(8, 3).double()))


def test_what_changes_gradients_later_is_refused():
    problem = Problem("adam")
    problem.params[0].register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1, 1))
    with pytest.raises(ValueError, match="guard must be False where parameters have hooks"):
        made("static", problem)(problem.losses())


def test_sparse_heads_stay_sparse():
    """Beside what is guarded: they move as they would, and the others make up for it."""
    torch.manual_seed(0)
    table, x = nn.Embedding(5, 4, sparse=True), torch.randn(4, requires_grad=True)
    optimizer = optim.SGD([x, table.weight], lr=0.1)
    for heads in ("plain", "weighted"):
        method = trimol.Static([x], 2, optimizer=optimizer, guard=True, heads=heads)
        for step in range(4):
            optimizer.zero_grad()
            seen = table(torch.tensor([step, 3])).sum(0)
            method([(x * seen).square().sum(), (x - seen - 1).square().sum()]).backward()
            assert table.weight.grad.is_sparse
            optimizer.step()


def test_a_guard_without_an_optimizer_is_refused_at_the_step():
    problem = Problem("adam")
    method = trimol.Static(problem.params, 3)
    method.guard = True
    with pytest.raises(ValueError, match="optimizer must be given with guard=True, found None"):
        method(problem.losses())


def test_an_optimizer_that_is_made_later_is_set():
    problem = Problem("momentum", history=2)
    rows, method = problem.rows(), trimol.Static(problem.params, 3)
    method.guard = True
    method.optimizer = problem.optimizer
    assert worst_cosine(rows, moved(problem, method, [0])) >= -1e-11
    method.guard = False
    method.optimizer = None
    train(problem, method, 1)
    assert method.info.guarded == ""
