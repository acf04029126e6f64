"""The loop: learns with every method, the same samples for all, deterministic, resumable."""

from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covering import one_of_each_kind
from trimol import methods
from trimol._failures import BadValue
from trimol.methods import Method
from trimol.tasks import Batch, Data, Settings, Task, get
from trimol.training import Diverged, Run, assess, start, train
from trimol.training.loop import decay


class Points(Task):
    """Means of points under two pulls; remembers which samples it saw. Has dropout."""

    name = "points"
    objectives = ("left", "right")

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        (x,) = batch
        self.seen.append(x.flatten().int().tolist())
        out = model(x / 100)
        return torch.stack([(out - 1).square().mean(), (out + 1).square().mean()])

    def data(self) -> Data:
        points = torch.arange(200.0)[:, None]
        return Data(train=(points[:150],), test=(points[150:],))


def run_digits(name: str, *, seed: int = 0) -> Run:
    task = get("digits")()
    settings = task.settings.get(name, Settings())
    return start(task, name, lr=settings.lr, hyperparameters=settings.method, seed=seed)


def parameters(run: Run) -> Tensor:
    return nn.utils.parameters_to_vector(run.model.parameters()).detach()


STEADY = {"lr": 0.01}  # for all methods: one that may raise a loss soon raises it without end
CONSTANT = [name for name in methods.names() if not methods.growth(name)]


@pytest.mark.parametrize("name", methods.names())
def test_every_method_lowers_the_mean_loss_and_learns_digits(name: str) -> None:
    """The second with step sizes that are known to be good."""
    run = run_digits(name)
    before = sum(assess(run).losses.values())
    after = sum(assess(train(run, steps=60)).losses.values())
    assert after < before
    if name in run.task.settings:
        assert assess(train(run, steps=90)).metrics["accuracy"] > 0.8


@pytest.mark.parametrize("name", one_of_each_kind(methods.names()))
def test_same_seed_same_run(name: str) -> None:
    first, again = (train(run_digits(name, seed=1), steps=5) for _ in range(2))
    assert torch.equal(parameters(first), parameters(again))
    other = train(run_digits(name, seed=2), steps=5)
    assert not torch.equal(parameters(first), parameters(other))


def test_every_method_starts_from_the_same_parameters() -> None:
    first, *others = (parameters(run_digits(name, seed=3)) for name in methods.names())
    assert all(torch.equal(first, other) for other in others)


def samples_per_step(run: Run, steps: int) -> list[list[int]]:
    task: Any = run.task
    found = []
    for _ in range(steps):
        task.seen.clear()
        train(run, steps=1)
        found.append(sorted(chain.from_iterable(task.seen)))
    return found


@pytest.mark.parametrize("hyperparameters", [{}, {"every": 3}])
@pytest.mark.parametrize("batch_size", [16, 15])
def test_every_method_sees_the_same_samples(
    batch_size: int, hyperparameters: dict[str, Any]
) -> None:
    common: dict[str, Any] = {"hyperparameters": hyperparameters, "batch_size": batch_size}
    seen = {
        name: samples_per_step(start(Points(), name, **STEADY, **common), steps=7)
        for name in CONSTANT
    }
    first, *others = seen.values()
    assert all(other == first for other in others)
    assert all(len(set(samples)) == batch_size for samples in first)
    assert len({tuple(samples) for samples in first}) == 7  # a fresh batch every time


def test_batches_are_uniform_over_the_training_data() -> None:
    run = start(Points(), "static", batch_size=30)
    drawn = torch.tensor(samples_per_step(run, 400)).flatten()
    counts = drawn.bincount(minlength=150)
    assert len(counts) == 150  # no test sample
    # 400 steps, each sample with chance 1/5: 80 ± 8 times.
    assert counts.min() > 45
    assert counts.max() < 115


def test_a_batch_is_split_only_when_weights_are_due() -> None:
    run = start(Points(), "modo", batch_size=10, hyperparameters={"every": 2})
    task: Any = run.task
    train(run, steps=3)
    assert [len(samples) for samples in task.seen] == [5, 5, 10, 5, 5]


@pytest.mark.parametrize("name", methods.names())
def test_steps_add_up(name: str) -> None:
    whole = train(start(Points(), name, **STEADY), steps=9)
    parts = start(Points(), name, **STEADY)
    assess(parts)
    for steps in (1, 5, 0, 3):
        train(parts, steps)
        torch.rand(3)  # what others draw in between does not matter, with dropout too
        assess(parts)
    assert torch.equal(parameters(whole), parameters(parts))
    assert torch.equal(whole.method.weights, parts.method.weights)
    assert parts.step == 9
    assert parts.samples == whole.samples


def test_the_callers_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    train(start(Points(), "static"), steps=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_watch_sees_the_point_before_the_step_and_the_weights_after() -> None:
    seen: list[tuple[int, Tensor, Tensor]] = []
    run = start(Points(), "modo", hyperparameters={"gamma": 0.5})

    def watch(run: Run) -> None:
        seen.append((run.step, parameters(run).clone(), run.method.weights.clone()))

    points, weights = [parameters(run).clone()], []
    for _ in range(3):
        train(run, 1, watch=watch)
        points.append(parameters(run).clone())
        weights.append(run.method.weights.clone())
    assert [step for step, _, _ in seen] == [0, 1, 2]
    for (_, point, weight), before, after in zip(seen, points[:-1], weights, strict=True):
        assert torch.equal(point, before)
        assert torch.equal(weight, after)
    assert not torch.equal(weights[0], weights[1])


def test_watching_changes_nothing() -> None:
    watched = train(start(Points(), "modo"), steps=5, watch=lambda run: void(assess(run)))
    assert torch.equal(parameters(watched), parameters(train(start(Points(), "modo"), steps=5)))


def void(_: object) -> None:
    """Drop a result."""


def test_stop_is_asked_after_every_step() -> None:
    run = train(start(Points(), "static"), steps=9, stop=lambda run: run.step == 4)
    assert run.step == 4
    whole = train(train(run, steps=5), steps=0)
    assert torch.equal(parameters(whole), parameters(train(start(Points(), "static"), steps=9)))


def test_batches_of_a_growing_method_grow() -> None:
    run = start(Points(), "smg", batch_size=10)
    task: Any = run.task
    train(run, steps=4)
    assert [len(samples) for samples in task.seen] == [10, 11, 12, 13]
    assert run.samples == 46
    assert [name for name in methods.names() if methods.growth(name)] == ["smg"]


class Breaking(Points):
    """A task whose second loss is not finite from the third step on."""

    value = float("nan")

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        found = super().losses(model, batch)
        scale = torch.tensor([1.0, self.value if len(self.seen) > 2 else 1.0])
        return found * scale


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["static", "mgda"])
def test_a_loss_that_is_not_finite_is_named(name: str, value: float) -> None:
    task = Breaking()
    task.value = value
    run = start(task, name)
    with pytest.raises(Diverged, match=f"the loss 'right' is {value:g} at step 2: try a smaller"):
        train(run, steps=5)
    assert run.step == 2
    assert parameters(run).isfinite().all()


class Heads(Task):
    """A trunk and a head for each of two tasks; Adam."""

    name = "heads"
    objectives = ("one", "two")

    def model(self) -> nn.Module:
        return nn.ModuleDict(
            {"trunk": nn.Linear(2, 3), "one": nn.Linear(3, 1), "two": nn.Linear(3, 1)}
        )

    def shared(self, model: nn.Module) -> Any:
        assert isinstance(model, nn.ModuleDict)
        return model["trunk"].parameters()

    def optimizer(self, params: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(params, lr=lr, betas=(0.8, 0.9))

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        assert isinstance(model, nn.ModuleDict)
        x, y = batch
        inside = model["trunk"](x).tanh()
        return [(model[name](inside)[:, 0] - y).square().mean() for name in self.objectives]

    def data(self) -> Data:
        x = torch.linspace(-1, 1, 400).view(200, 2)
        return Data(train=(x[:150], x[:150, 0]), test=(x[150:], x[150:, 0]))


def test_the_method_weighs_what_the_task_shares() -> None:
    run = start(Heads(), "modo", lr=1e-3)
    assert isinstance(run.model, nn.ModuleDict)
    assert {id(p) for p in run.method.params} == {id(p) for p in run.model["trunk"].parameters()}
    assert isinstance(run.optimizer, torch.optim.Adam)
    assert run.optimizer.defaults["betas"] == (0.8, 0.9)
    assert sum(len(group["params"]) for group in run.optimizer.param_groups) == 6

    gradients: dict[str, Tensor] = {}

    def watch(run: Run) -> None:
        (indices,) = run.sampler.indices(run.step)
        batch = tuple(tensor[indices] for tensor in run.data.train)
        loss = run.task.losses(run.model, batch)
        (gradients["want"],) = torch.autograd.grad(loss[0], [run.model["one"].weight])
        gradients["found"] = run.model["one"].weight.grad.clone()

    train(run, 1, watch=watch)
    torch.testing.assert_close(gradients["found"], gradients["want"])  # not weighed by λ


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision(precision: str) -> None:
    run, plain = start(Heads(), "modo", precision=precision), start(Heads(), "modo")
    for _ in range(3):  # side by side
        train(run, 1)
        train(plain, 1)
    assert all(p.dtype == torch.float32 for p in run.model.parameters())
    assert not torch.equal(parameters(run), parameters(plain))
    torch.testing.assert_close(parameters(run), parameters(plain), rtol=0.2, atol=0.05)


def test_knows_no_method_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alternating(Method):
        """One that the library has never heard of: three draws, losses only."""

        needs = "losses"
        draws = 3

        def weigh(self, evidence: Any) -> Tensor:
            return self.weights.flip(0)

    monkeypatch.setattr(methods, "get", lambda name: Alternating)
    run = start(Points(), "alternating", batch_size=12)
    task: Any = run.task
    train(run, steps=2)
    assert [len(samples) for samples in task.seen] == [4] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "adam"}, "^method must be one of .*, found 'adam'"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, found 0"),
        (
            {"batch_size": 151},
            r"batch_size \(--batch-size\) must be at most 150, the .*, found 151",
        ),
        ({"seed": -1}, "seed must be a whole number of at least 0, found -1"),
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"precision": "fp8"}, "precision must be one of no, bf16, fp16, found 'fp8'"),
    ],
)
def test_bad_settings(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        start(Points(), **{"method": "static", **change})


def test_bad_steps() -> None:
    with pytest.raises(ValueError, match="steps must be a whole number of at least 0, found -1"):
        train(start(Points(), "static"), steps=-1)


def test_a_falling_step_size_multiplies_that_of_every_group() -> None:
    rates = []
    run = start(Points(), "static", lr=0.5, schedule=decay("linear", 4))
    train(run, 4, watch=lambda now: rates.append(now.optimizer.param_groups[0]["lr"]))
    assert rates == [0.5, 0.375, 0.25, 0.125]
    halfway = decay("cosine", 8)
    assert halfway is not None
    assert [halfway(0), halfway(4)] == [1.0, pytest.approx(0.5)]
    assert decay(None, 4) is None
    with pytest.raises(BadValue, match="schedule must be 'linear' or 'cosine', found 'steep'"):
        decay("steep", 4)  # type: ignore[arg-type]
