"""Replicas in one program against the ordinary runs of the same seeds."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from trimol import simplex
from trimol.gradients._stacked import gramians, jacobians
from trimol.tasks import Data, Task, get, masked_mean
from trimol.training import Neighbours, NotReplicable, Replicas, assess, start, train

SEEDS = [0, 3, 5]


class Small(Task):
    """Two losses of a small network, in float64."""

    name = "small"
    objectives = ("first", "second")

    def __init__(self, net=None, optimizer=None, data=None, heads=False):
        self.net, self.make, self.given, self.heads = net, optimizer, data, heads

    def model(self):
        net = self.net or (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
        return net().double()

    def losses(self, model, batch):
        x, y = batch
        error = model(x) - y
        return [error[:, 0].square().mean(), error[:, 1].abs().add(1).log().mean()]

    def data(self):
        return self.given or data(0)

    def optimizer(self, params, lr):
        return self.make(params, lr) if self.make else super().optimizer(params, lr)

    def shared(self, model):
        return model[0].parameters() if self.heads else super().shared(model)


def data(seed, count=40):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(count, 2, generator=generator, dtype=torch.float64) + x[:, :2]
    half = count // 2
    return Data(train=(x[:half], y[:half]), test=(x[half:], y[half:]))


def alone(task, method, seed, steps, **settings):
    return train(start(task, method, seed=seed, **settings), steps)


def assert_same(replicas, number, run, **tolerance):
    own = replicas.module(number)
    for found, expected in zip(
        own.state_dict().values(), run.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(found, expected, **tolerance)
    torch.testing.assert_close(replicas.method.weights[number], run.method.weights, **tolerance)


TIGHT = {"rtol": 1e-11, "atol": 1e-11}


@pytest.mark.parametrize(
    ("method", "hyperparameters"),
    [
        ("static", {}),
        ("mgda", {}),
        ("modo", {"gamma": 0.5}),
        ("modo", {"gamma": 0.5, "draws": 3}),
        ("modo", {"gamma": 0.5, "every": 3}),
        ("sdmgrad", {"gamma": 0.5, "inner": 2}),
        ("gradnorm", {"lr": 0.1}),
        ("preference", {"bounds": {0: 0.5}}),
        ("famo", {"beta": 0.1}),
        ("dwa", {"period": 3}),
        ("uw", {"lr": 0.1}),
        ("stch", {}),
        ("rgw", {"seed": 5}),
        ("smg", {}),
        ("moco", {}),
        ("crmogm", {"rho": 0.1}),
        ("upgrad", {}),
        ("fairgrad", {"length": "mean gradient", "heads": "weighted"}),
        ("modo", {"gamma": 0.5, "every": 2, "length": "mean gradient", "heads": "weighted"}),
        ("modo", {"gamma": 0.5, "draws": 3, "max_norm": 0.1, "heads": "weighted"}),
        ("moco", {"length": "mean gradient", "heads": "weighted"}),
        ("nashmtl", {}),
    ],
)
@pytest.mark.parametrize(("heads", "batch_size"), [(False, 6), (True, 7)])
def test_a_replica_is_the_run_of_its_seed(method, hyperparameters, heads, batch_size):
    settings = {"lr": 0.2, "hyperparameters": hyperparameters, "batch_size": batch_size}
    replicas = Replicas(Small(heads=heads), method, seeds=SEEDS, **settings).train(12)
    for number, seed in enumerate(SEEDS):
        run = alone(Small(heads=heads), method, seed, steps=12, **settings)
        assert_same(replicas, number, run, **TIGHT)
        assert (replicas.step, replicas.samples) == (run.step, run.samples)


@pytest.mark.parametrize("method", ["static", "mgda", "modo"])
def test_digits_in_float32(method):
    settings = get("digits").settings[method]
    given = {"lr": settings.lr, "hyperparameters": dict(settings.method)}
    replicas = Replicas(get("digits")(), method, seeds=[1, 2], **given).train(10)
    for number, seed in enumerate([1, 2]):
        run = alone(get("digits")(), method, seed, steps=10, **given)
        assert_same(replicas, number, run, rtol=1e-3, atol=1e-5)


SMALL_FIELD = {"width": 8, "depth": 2, "points": 20, "conditions": 6, "held_out": 10}
SMALL_FUNNEL = {"rows": 300, "users": 20, "items": 10, "hidden": 8, "sparse": False}


@pytest.mark.parametrize(
    ("name", "options", "batch_size"),
    [(name, SMALL_FIELD, 20) for name in ("burgers", "poisson", "schroedinger", "kovasznay")]
    + [("helmholtz", SMALL_FIELD, 3)]  # many a batch has no point of the border
    + [("funnel", SMALL_FUNNEL | {"network": network}, 32) for network in ("shared", "mmoe")],
)
@pytest.mark.parametrize("method", ["static", "mgda"])
def test_built_in_tasks_that_select_samples(name, options, batch_size, method):
    settings = {"lr": 1e-3, "batch_size": batch_size}
    replicas = Replicas(get(name)(**options), method, seeds=SEEDS, **settings).train(6)
    for number, errors in enumerate(replicas.measure()):
        run = alone(get(name)(**options), method, SEEDS[number], steps=6, **settings)
        assert_same(replicas, number, run, rtol=1e-3, atol=1e-4)
        assert errors.losses == pytest.approx(assess(run).errors.losses, rel=1e-3)


def adam(params, lr):
    return torch.optim.Adam(params, lr=lr)


def momentum(params, lr):
    return torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=0.01)


@pytest.mark.parametrize("make", [None, adam, momentum])
def test_step_sizes_and_hyperparameters_of_each_replica(make):
    lr, gamma = [0.0, 0.01, 0.05], [0.0, 0.3, 1.0]
    replicas = Replicas(
        Small(optimizer=make),
        "modo",
        seeds=SEEDS,
        lr=torch.tensor(lr, dtype=torch.float64),
        hyperparameters={"gamma": torch.tensor(gamma, dtype=torch.float64)},
        batch_size=6,
    ).train(15)
    for i, seed in enumerate(SEEDS):
        own = {"lr": lr[i], "hyperparameters": {"gamma": gamma[i]}, "batch_size": 6}
        run = alone(Small(optimizer=make), "modo", seed, steps=15, **own)
        assert_same(replicas, i, run, **TIGHT)


@pytest.mark.parametrize("make", [adam, momentum])
def test_one_step_size_with_an_optimizer_that_has_state(make):
    replicas = Replicas(Small(optimizer=make), "mgda", seeds=SEEDS, lr=0.05, batch_size=6).train(9)
    for i, seed in enumerate(SEEDS):
        run = alone(Small(optimizer=make), "mgda", seed, steps=9, lr=0.05, batch_size=6)
        assert_same(replicas, i, run, **TIGHT)


@pytest.mark.parametrize("method", ["mgda", "modo"])
def test_a_formula_needs_no_graph_and_is_the_run_of_its_seed(method, monkeypatch):
    task = get("quadratic")()
    runs = [alone(task, method, seed, steps=12, lr=0.05, batch_size=5) for seed in SEEDS]
    monkeypatch.setattr(type(task), "losses", None)  # would fail if called
    replicas = Replicas(task, method, seeds=SEEDS, lr=0.05, batch_size=5).train(12)
    for i, run in enumerate(runs):
        assert_same(replicas, i, run, **TIGHT)


def test_a_formula_that_diverges_says_when():
    lr = torch.tensor([0.1, 1e200, 0.1], dtype=torch.float64)
    replicas = Replicas(get("quadratic")(), "static", seeds=SEEDS, lr=lr, batch_size=5).train(6)
    assert replicas.diverged.tolist()[::2] == [-1, -1]
    assert 0 < replicas.diverged[1] < 6


@pytest.mark.parametrize("lr", [0.2, torch.tensor([0.2, 0.1, 0.05], dtype=torch.float64)])
def test_a_schedule_multiplies_the_step_size(lr):
    given = {"seeds": SEEDS, "batch_size": 6}
    falling = Replicas(Small(), "modo", lr=lr, schedule=lambda t: 0.5 * (t < 4), **given).train(7)
    shorter = Replicas(Small(), "modo", lr=lr / 2, **given).train(4)
    for name, tensor in falling.params.items():
        torch.testing.assert_close(tensor, shorter.params[name], **TIGHT)


def test_every_replica_may_have_a_schedule_of_its_own():
    given = {"batch_size": 6, "seeds": SEEDS}
    falls = [None, lambda t: 1 - t / 7, lambda t: 0.5]
    mixed = Replicas(Small(), "modo", lr=0.2, schedule=falls, **given).train(7)
    for place, fall in enumerate(falls):
        own = Replicas(Small(), "modo", lr=0.2, schedule=fall, **given).train(7)
        for name, tensor in mixed.params.items():
            torch.testing.assert_close(tensor[place], own.params[name][place], **TIGHT)
    with pytest.raises(ValueError, match="schedule must be one, or one for each of 3, found 2"):
        Replicas(Small(), "modo", lr=0.2, schedule=falls[:2], **given)


def test_a_formula_tells_its_losses_to_the_methods_that_ask():
    """Each replica with a preference of its own, as a single run has it."""
    task, prefers = get("concave")(), [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]
    own = {"prefer": torch.tensor(prefers, dtype=torch.float64), "mu": 0.1}
    together = Replicas(task, "stch", seeds=SEEDS, lr=0.05, hyperparameters=own, batch_size=4)
    together.train(9)
    for place, (seed, prefer) in enumerate(zip(SEEDS, prefers, strict=True)):
        run = start(
            task, "stch", lr=0.05, batch_size=4, seed=seed,
            hyperparameters={"prefer": prefer, "mu": 0.1},
        )  # fmt: skip
        assert_same(together, place, train(run, 9), **TIGHT)


class Constant:
    """Every step takes the same samples."""

    def __init__(self, samples):
        self.samples = samples

    def batch(self, step):
        return tuple(tensor[:4].expand(len(SEEDS), *tensor[:4].shape) for tensor in self.samples)

    def budget(self, step):
        return 4


def test_samples_may_come_for_all_replicas_at_once():
    task = Small()
    found = Replicas(task, "modo", seeds=SEEDS, sampler=Constant(task.data().train)).train(5)
    small = Data(*(tuple(tensor[:4] for tensor in part) for part in (data(0).train, data(0).test)))
    whole = Replicas(task, "static", seeds=SEEDS, data=small, batch_size=4)
    steady = Replicas(task, "static", seeds=SEEDS, sampler=Constant(small.train))
    for name, tensor in whole.train(3).params.items():  # a permutation of all samples
        torch.testing.assert_close(tensor, steady.train(3 - steady.step).params[name], **TIGHT)
    assert found.samples == 20


def test_data_of_each_replica():
    each = [data(i) for i in range(3)]
    replicas = Replicas(Small(), "modo", seeds=SEEDS, batch_size=6, data=each).train(10)
    errors = replicas.measure()
    for i, seed in enumerate(SEEDS):
        run = alone(Small(data=each[i]), "modo", seed, steps=10, batch_size=6)
        assert_same(replicas, i, run, **TIGHT)
        assert errors[i].opt == pytest.approx(assess(run).errors.opt, rel=1e-9)


def test_neighbours_are_data_sets_with_one_sample_replaced():
    base, other = data(0), data(7)
    neighbours = Neighbours(
        base, torch.tensor([-1, 4, 19]), tuple(tensor[:3] for tensor in other.train)
    )
    held = Replicas(Small(), "mgda", seeds=[1] * 3, batch_size=6, data=neighbours).train(12)
    explicit = [neighbours[i] for i in range(3)]
    apart = Replicas(Small(), "mgda", seeds=[1] * 3, batch_size=6, data=explicit).train(12)
    for name, tensor in held.params.items():
        assert torch.equal(tensor, apart.params[name])
    changed = [
        (a != b).any(1).nonzero() for a, b in zip(explicit[1].train, base.train, strict=True)
    ]
    assert [c.tolist() for c in changed] == [[[4]], [[4]]]
    assert not torch.equal(held.params["0.weight"][0], held.params["0.weight"][1])


def test_measure_is_that_of_the_single_runs():
    replicas = Replicas(Small(), "modo", seeds=SEEDS, batch_size=6).train(10)
    for seed, found in zip(SEEDS, replicas.measure(rho=0.2), strict=True):
        run = alone(Small(), "modo", seed, steps=10, batch_size=6)
        expected = assess(run, rho=0.2).errors
        for name in ("opt", "pop", "gen", "conflict", "conflict_weight", "bound"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-8), name
        torch.testing.assert_close(found.direction, expected.direction, **TIGHT)
        torch.testing.assert_close(found.gramian, expected.gramian, **TIGHT)


def test_measuring_changes_nothing():
    whole = Replicas(Small(), "moco", seeds=SEEDS, batch_size=6).train(9)
    parts = Replicas(Small(), "moco", seeds=SEEDS, batch_size=6).train(4)
    parts.measure()
    parts.train(5)
    for name, tensor in parts.params.items():
        assert torch.equal(tensor, whole.params[name])
    assert torch.equal(parts.method.weights, whole.method.weights)


def test_measuring_in_groups_is_measuring_at_once(monkeypatch):
    replicas = Replicas(Small(), "static", seeds=SEEDS, batch_size=6).train(3)
    whole = replicas.measure()
    monkeypatch.setattr("trimol.training.replicas._HELD", 1)
    for found, expected in zip(replicas.measure(), whole, strict=True):
        assert found.opt == pytest.approx(expected.opt, rel=1e-12)


def test_resuming_is_exact():
    whole = Replicas(Small(optimizer=adam), "moco", seeds=SEEDS, batch_size=6).train(12)
    first = Replicas(Small(optimizer=adam), "moco", seeds=SEEDS, batch_size=6).train(5)
    state = first.state_dict()
    first.train(3)  # the state is a copy
    second = Replicas(Small(optimizer=adam), "moco", seeds=SEEDS, batch_size=6)
    second.load_state_dict(state)
    second.train(7)
    assert (second.step, second.samples) == (12, 72)
    for name, tensor in second.params.items():
        assert torch.equal(tensor, whole.params[name])
    assert torch.equal(second.method.weights, whole.method.weights)


@pytest.mark.parametrize("method", ["mgda", "modo"])
def test_batch_normalisation_is_each_replica_s_own(method):
    def net():
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    replicas = Replicas(Small(net), method, seeds=SEEDS, batch_size=6).train(8)
    for i, seed in enumerate(SEEDS):
        run = alone(Small(net), method, seed, steps=8, batch_size=6)
        assert_same(replicas, i, run, **TIGHT)
    before = {name: buffer.clone() for name, buffer in replicas._buffers.items()}
    replicas.measure()
    assert all(torch.equal(before[name], buffer) for name, buffer in replicas._buffers.items())


def test_dropout_cannot_be_that_of_the_single_runs():
    task = Small(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2)))
    with pytest.raises(NotReplicable, match=r"task 'small' cannot .* one by one"):
        Replicas(task, "static", seeds=SEEDS, batch_size=6).train(1)


class Drawing(Small):
    """Draws, counts, or replaces a buffer: what replicas would share, or lose."""

    def __init__(self, kind):
        super().__init__(lambda: nn.Sequential(nn.Linear(4, 8), Centred(kind), nn.Linear(8, 2)))
        self.kind, self.own, self.calls = kind, np.random.default_rng(0), 0

    def losses(self, model, batch):
        draws = {"python": random.random, "numpy": np.random.rand, "own": self.own.random}
        draws |= {"counter": lambda: self.calls}
        self.calls += self.kind == "counter" and model.training
        scale = draws[self.kind]() if self.kind in draws else 1.0
        return [(1 + scale) * loss for loss in super().losses(model, batch)]


class Centred(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        if self.kind == "buffer" and self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        if self.kind == "tensor":
            self.kept = getattr(self, "kept", 0) + x.detach().mean()
        return x - self.mean


@pytest.mark.parametrize("kind", ["python", "numpy", "own", "counter", "buffer", "tensor"])
def test_what_a_task_draws_or_remembers_is_one_run_s(kind):
    with pytest.raises(NotReplicable, match="one by one"):
        Replicas(Drawing(kind), "static", seeds=SEEDS, batch_size=6).train(1)
    Replicas(Drawing("nothing"), "static", seeds=SEEDS, batch_size=6).train(1)


def test_a_replica_that_diverges_leaves_the_others_alone():
    lr = torch.tensor([0.1, 1e300, 0.1], dtype=torch.float64)
    replicas = Replicas(Small(), "static", seeds=SEEDS, lr=lr, batch_size=6).train(6)
    assert replicas.diverged.tolist()[::2] == [-1, -1]
    assert 0 < replicas.diverged[1] < 6
    assert_same(replicas, 2, alone(Small(), "static", 5, steps=6, lr=0.1, batch_size=6), **TIGHT)


def test_watch_sees_the_new_weights_before_x_moves():
    seen = []

    def watch(replicas):
        seen.append((replicas.step, replicas.params["0.bias"].clone(), replicas.method.weights))

    replicas = Replicas(Small(), "modo", seeds=SEEDS, batch_size=6)
    start_bias = replicas.params["0.bias"].detach().clone()
    replicas.train(2, watch=watch)
    assert [step for step, _, _ in seen] == [0, 1]
    assert torch.equal(seen[0][1], start_bias)
    assert torch.equal(seen[1][2], replicas.method.weights)


class Twice(nn.Module):
    """A weight that is used twice, and one that is turned the other way."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(30, 30), nn.Linear(30, 20)

    def forward(self, x):
        h = self.first(torch.tanh(self.first(x)))
        return torch.sigmoid(self.second(h)) @ self.second.weight


@pytest.mark.parametrize(
    "net",
    [
        lambda: nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 25)),
        lambda: nn.Sequential(nn.Linear(30, 40, bias=False), nn.Tanh(), nn.Linear(40, 2)),
        lambda: nn.Sequential(nn.Unflatten(1, (1, 30)), nn.Conv1d(1, 3, 5), nn.Flatten()),
        lambda: nn.Sequential(nn.Unflatten(1, (5, 6)), nn.Linear(6, 40), nn.Flatten()),
        Twice,
    ],
)
@pytest.mark.parametrize("batch", [2, 50])
def test_gramians_without_gradients_are_those_of_the_gradients(net, batch):
    torch.manual_seed(0)
    models = [net().double() for _ in range(3)]
    names = dict(models[0].named_parameters())
    params = {n: torch.stack([dict(m.named_parameters())[n] for m in models]) for n in names}
    params = {n: p.detach().requires_grad_() for n, p in params.items()}
    x = torch.randn(3, batch, 30, dtype=torch.float64)

    def one(own, z):
        y = torch.func.functional_call(models[0], own, (z,))
        return torch.stack([y.square().mean(), y.sin().mean(), y.abs().mean()])

    losses = torch.func.vmap(one)(params, x)
    rows = jacobians(losses, list(params.values()))
    torch.testing.assert_close(gramians(losses, list(params.values())), rows @ rows.mT, **TIGHT)
    for r in range(3):
        own = one(dict(models[r].named_parameters()), x[r])
        single = torch.autograd.grad(own[1], list(models[r].parameters()))
        torch.testing.assert_close(rows[r, 1], torch.cat([g.flatten() for g in single]), **TIGHT)


def test_gramians_of_gradients_whose_squares_vanish():
    weight = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    losses = torch.stack([weight.sum(1), 1e-200 * weight.sum(1)], dim=1)  # 1e-400 is 0
    found = gramians(losses, [weight])
    assert found[:, 1, 1].tolist() == [0, 0]
    assert simplex.min_norm(found).tolist() == [[0, 1]] * 2


def test_gramians_of_float32_gradients_whose_squares_need_float64():
    weight = torch.ones(2, 3, requires_grad=True)
    losses = torch.stack([weight.sum(1), 1e-25 * weight.sum(1)], dim=1)  # 1e-50 is 0 in float32
    found = gramians(losses, [weight])
    assert found[:, 1, 1].tolist() == pytest.approx([3e-50] * 2, rel=1e-6)
    assert simplex.min_norm(found).tolist() == [[0, 1]] * 2


def test_bad_arguments():
    with pytest.raises(ValueError, match="seeds must hold at least one seed, found none"):
        Replicas(Small(), "static", seeds=[])
    with pytest.raises(ValueError, match="data must be one for each of 3 seeds, found 2"):
        Replicas(Small(), "static", seeds=SEEDS, data=[data(0), data(1)])
    with pytest.raises(ValueError, match=r"as many training samples .* found \[10, 20\]"):
        Replicas(Small(), "static", seeds=[0, 1], data=[data(0), data(1, 20)])
    with pytest.raises(ValueError, match=r"lr must be one number, or 3 of at least 0, found \[1"):
        Replicas(Small(), "static", seeds=SEEDS, lr=torch.ones(2))
    with pytest.raises(NotReplicable, match=r"optimizer must treat every entry .* found Rprop"):
        Replicas(Small(optimizer=lambda p, lr: torch.optim.Rprop(p)), "static", seeds=SEEDS)
    with pytest.raises(ValueError, match=r"must return one that steps without a .* found LBFGS"):
        Replicas(Small(optimizer=lambda p, lr: torch.optim.LBFGS(p)), "static", seeds=SEEDS)


class Partial(Small):
    """Two thirds of the samples have no second loss: many a batch of three has none at all."""

    def data(self):
        whole = super().data()
        parts = (whole.train, whole.test)
        return Data(*((*part, torch.arange(len(part[0])) % 3 == 0) for part in parts))

    def losses(self, model, batch):
        x, y, has = batch
        error = model(x) - y
        return [error[:, 0].square().mean(), masked_mean(error[:, 1].abs().add(1).log(), has)]

    def counts(self, batch):
        return torch.stack([torch.tensor(len(batch[2])), batch[2].sum()])


class Hinged(Small):
    """The second loss is 0, without a gradient, where no sample is far off."""

    def losses(self, model, batch):
        x, y = batch
        error = model(x) - y
        return [error[:, 0].square().mean(), (error[:, 1].abs() - 1.2).relu().mean()]


@pytest.mark.filterwarnings("ignore:.*is 0 without a gradient:RuntimeWarning")
@pytest.mark.parametrize("kind", [Partial, Hinged])
@pytest.mark.parametrize(
    "method", ["static", "mgda", "upgrad", "pcgrad", "config", "famo", "dwa", "gradnorm", "moco"]
)
def test_a_batch_that_lacks_an_objective_keeps_the_weights_of_its_replica(kind, method):
    settings = {"lr": 0.05, "batch_size": 3}
    replicas = Replicas(kind(), method, seeds=SEEDS, **settings)
    if replicas.method.draws > 1:
        with pytest.raises(NotReplicable, match="several draws"):
            replicas.train(15)
        return
    replicas.train(15)
    runs = [alone(kind(), method, seed, steps=15, **settings) for seed in SEEDS]
    kept = [int(run.method.kept) for run in runs]
    if method != "static":  # whose weights are kept at every step
        assert all(0 < steps < 15 for steps in kept)
        assert len(set(kept)) > 1  # at other steps, each
    for number, run in enumerate(runs):
        assert_same(replicas, number, run, **TIGHT)
    assert replicas.method.kept.tolist() == kept
    assert not replicas.method.skipped.any()


@pytest.mark.parametrize("method", ["modo", "sdmgrad"])
def test_of_several_draws_one_that_lacks_an_objective_is_for_single_runs(method):
    with pytest.raises(NotReplicable, match="no sample of an objective"):
        Replicas(Partial(), method, seeds=SEEDS, batch_size=6).train(15)
    large = {"lr": 0.05, "batch_size": 90}
    replicas = Replicas(Partial(data=data(0, 400)), method, seeds=SEEDS, **large)
    replicas.train(3)
    for number, seed in enumerate(SEEDS):
        run = alone(Partial(data=data(0, 400)), method, seed, steps=3, **large)
        assert not int(run.method.kept)
        assert_same(replicas, number, run, **TIGHT)


def test_a_loss_without_a_gradient_is_said_once():
    with pytest.warns(RuntimeWarning, match="MGDA: the loss of objective 'second' is 0") as said:
        Replicas(Hinged(), "mgda", seeds=SEEDS, lr=0.05, batch_size=3).train(15)
    assert len(said) == 1


def test_counted_objectives_are_measured_over_their_own_samples(monkeypatch):
    monkeypatch.setattr("trimol.training.replicas._AT_ONCE", 7)  # parts with more and with fewer
    settings = {"lr": 0.05, "batch_size": 9}
    replicas = Replicas(Partial(), "mgda", seeds=SEEDS, **settings).train(4)
    for number, errors in enumerate(replicas.measure()):
        run = alone(Partial(), "mgda", SEEDS[number], steps=4, **settings)
        expected = assess(run).errors
        for name in ("opt", "pop", "gen", "conflict", "bound", "losses", "test_losses"):
            found = getattr(errors, name)
            assert found == pytest.approx(getattr(expected, name), rel=1e-9), name


def test_losses_that_are_no_means_are_measured_on_all_samples_at_once(monkeypatch):
    monkeypatch.setattr("trimol.training.replicas._AT_ONCE", 7)

    class Peak(Small):
        at_once = 1 << 20

        def losses(self, model, batch):
            error = model(batch[0]) - batch[1]
            return [error[:, 0].abs().max(), error[:, 1].square().mean().sqrt()]

    replicas = Replicas(Peak(), "mgda", seeds=SEEDS, lr=0.05, batch_size=9).train(2)
    for number, errors in enumerate(replicas.measure()):
        run = alone(Peak(), "mgda", SEEDS[number], steps=2, lr=0.05, batch_size=9)
        assert errors.losses == pytest.approx(assess(run).errors.losses, rel=1e-9)


def test_gramians_of_weights_that_multiply_each_other():
    """W2 W1 x: the gradients of W1 are not formed, and those of W2, which enters twice, are."""
    torch.manual_seed(3)
    first = torch.randn(2, 30, 40, dtype=torch.float64, requires_grad=True)
    second = torch.randn(2, 5, 30, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 30, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 7, 40, dtype=torch.float64)
    logits = x @ (second @ first).mT + (second @ bias[..., None]).mT
    losses = torch.stack([logits.square().mean((1, 2)), logits.exp().mean((1, 2))], 1)
    params = [first, second, bias]
    rows = torch.stack(
        [
            torch.stack(
                [
                    torch.cat([g[r].flatten() for g in torch.autograd.grad(
                        losses[r, m], params, retain_graph=True)])
                    for m in range(2)
                ]
            )
            for r in range(2)
        ]
    )  # fmt: skip
    assert torch.allclose(gramians(losses, params), rows @ rows.mT, rtol=1e-10)


class Projected(nn.Module):
    """A projection drawn with the seed, which is no buffer."""

    def __init__(self):
        super().__init__()
        self.projection = torch.randn(4, 4)
        self.net = nn.Linear(4, 2)

    def forward(self, x):
        return self.net(x @ self.projection.to(x))


def test_what_a_model_hides_from_its_state_is_not_the_first_ones():
    with pytest.raises(NotReplicable, match="must differ in parameters"):
        Replicas(Small(Projected), "static", seeds=SEEDS, batch_size=8)
    Replicas(Small(Projected), "static", seeds=[3, 3], batch_size=8)  # one model


def clamped():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    for p in net.parameters():
        p.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return net


def watched():
    net = nn.Linear(4, 2)
    net.register_full_backward_hook(lambda module, before, after: None)
    return net


@pytest.mark.parametrize("net", [clamped, watched])
def test_hooks_see_one_run_and_not_many(net):
    with pytest.raises(NotReplicable, match="hook"):
        Replicas(Small(net), "static", seeds=SEEDS, batch_size=8)


class Looked(nn.Module):
    """Word 0 is skipped: by a module that says so, or by a function of which nothing tells."""

    def __init__(self, padding=None):
        super().__init__()
        self.table, self.last = nn.Embedding(5, 2, padding_idx=padding), nn.Linear(2, 2)

    def forward(self, x):
        words = x.abs().long() % 5
        found = nn.functional.embedding(words, self.table.weight, padding_idx=0)
        return self.last(found.sum(1))


@pytest.mark.parametrize(
    ("padding", "reason"), [(0, "padding_idx"), (None, "other losses or gradients")]
)
def test_gradients_that_vmap_has_wrong_are_noticed(padding, reason):
    """torch 2.13 leaves the padding word out for the first replica, and not for the others."""
    task = Small(net=lambda: Looked(padding))
    with pytest.raises(NotReplicable, match=reason):
        Replicas(task, "static", seeds=SEEDS, batch_size=5)


def decayed(params, lr):
    """Weights decay, biases do not: told apart by their dimensions, of which replicas have more."""
    params = list(params)
    weights = {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.5}
    return torch.optim.SGD([weights, {"params": [p for p in params if p.ndim < 2]}], lr=lr)


def clipping(params, lr):
    params = list(params)
    made = torch.optim.SGD(params, lr=lr)
    made.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(params, 0.01) and None)
    return made


@pytest.mark.parametrize("make", [decayed, clipping])
def test_an_optimizer_that_would_not_be_that_of_one_run(make):
    with pytest.raises(NotReplicable, match="optimizer"):
        Replicas(Small(optimizer=make), "static", seeds=SEEDS, batch_size=8)


@pytest.mark.parametrize(
    "make",
    [
        lambda params, lr: torch.optim.SGD(params, lr=min(lr, 0.2)),
        lambda params, lr: torch.optim.SGD([{"params": list(params), "lr": 0.01}], lr=lr),
        lambda params, lr: torch.optim.SGD(params, lr=lr, weight_decay=lr / 10),
    ],
)
def test_step_sizes_of_each_need_steps_in_proportion(make):
    Replicas(Small(optimizer=make), "static", seeds=SEEDS, batch_size=8, lr=0.1)
    lr = torch.tensor([0.1, 0.1, 0.5], dtype=torch.float64)
    with pytest.raises(NotReplicable, match="optimizer"):
        Replicas(Small(optimizer=make), "static", seeds=SEEDS, batch_size=8, lr=lr)
