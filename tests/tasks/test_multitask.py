"""Trunk and heads, means over what is there, and tasks with several inputs or several labels."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trimol.tasks import (
    Batch,
    Data,
    MultiInput,
    MultiTask,
    SingleInput,
    Task,
    concatenated,
    load,
    masked_mean,
)
from trimol.training import Diverged, assess, start, train
from trimol.training.assessment import metrics

NASTY = st.sampled_from([0.0, 1.0, -2.5, 1e30, -1e30, float("inf"), float("nan")])


class Clouds(MultiInput):
    """Three clouds of points, of different sizes, each with classes of its own."""

    name = "clouds"
    objectives = ("a", "b", "c")
    classes = {"a": 2, "b": 3, "c": 2}  # noqa: RUF012
    sizes = {"a": 40, "b": 12, "c": 25}  # noqa: RUF012

    def __init__(self, *, only: str | None = None, normalise: bool = False) -> None:
        super().__init__(only=only)
        self.normalise = normalise

    def model(self) -> MultiTask:
        norm = [nn.BatchNorm1d(6)] if self.normalise else []
        heads = {name: nn.Linear(6, self.classes[name]) for name in self.objectives}
        return MultiTask(nn.Sequential(nn.Linear(2, 6), *norm, nn.Tanh()), heads).double()

    def data(self) -> Data:
        halves = [self._cloud(name) for name in self.objectives]
        train, test = zip(*halves, strict=True)
        return Data(concatenated(train), concatenated(test), concatenated(test))

    def _cloud(self, name: str) -> list[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(ord(name))
        x = torch.randn(2 * self.sizes[name], 2, generator=generator).double()
        x[:, 0] += 2 * ("abc".index(name) - 1)
        y = (x[:, 0].argsort().argsort() * self.classes[name] // len(x)).long()
        return [(x[::2], y[::2]), (x[1::2], y[1::2])]


class Labels(SingleInput):
    """One point: its sum and its quadrant; labels may be missing."""

    name = "labels"
    objectives = ("sum", "quadrant")
    goals = {"sum": {"error": "lower"}, "quadrant": {"accuracy": "higher"}}  # noqa: RUF012

    def __init__(self, *, only: str | None = None, missing: str = "some") -> None:
        super().__init__(only=only)
        self.missing = missing

    def model(self) -> MultiTask:
        heads = {"sum": nn.Linear(8, 1), "quadrant": nn.Linear(8, 4)}
        trunk = nn.Sequential(nn.Linear(2, 8), nn.Tanh())
        return MultiTask(trunk, {name: heads[name] for name in self.objectives}).double()

    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        if objective == "sum":
            return (output[:, 0] - y).square()
        return F.cross_entropy(output, y, reduction="none")

    def scores(self, objective: str, output: Any, y: Tensor) -> dict[str, Tensor]:
        if objective == "sum":
            return {"error": (output[:, 0] - y).abs()}
        return {"accuracy": output.argmax(1) == y}

    def data(self) -> Data:
        x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)).double()
        labels = {"sum": x.sum(1), "quadrant": 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0)}
        if self.missing != "none":
            labels["sum"][::3] = float("nan")
            labels["quadrant"][1::3] = -1
        if self.missing == "all":
            labels["sum"][:] = float("nan")
        every = (x, *(labels[name] for name in self.objectives))
        return Data(tuple(t[:200] for t in every), tuple(t[200:] for t in every))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(NASTY, st.booleans()), min_size=1, max_size=8))
def test_a_masked_mean_sees_nothing_of_what_is_masked(entries: list[tuple[float, bool]]) -> None:
    values = torch.tensor([v for v, _ in entries], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([kept for _, kept in entries])
    mean = masked_mean(values, mask)
    (gradient,) = torch.autograd.grad(mean, values)
    kept = [v for v, keep in entries if keep]
    expected = torch.tensor(kept, dtype=torch.float64).mean() if kept else torch.tensor(0.0)
    # Sums of 1e30, 1 and −1e30 depend on their order.
    rounding = 1e-14 * max((abs(v) for v in kept if math.isfinite(v)), default=0.0)
    torch.testing.assert_close(
        mean.detach(), expected.double(), rtol=1e-9, atol=rounding, equal_nan=True
    )
    assert gradient.tolist() == [(1 / len(kept)) if keep else 0.0 for _, keep in entries]


def test_a_mask_is_broadcast_and_of_booleans() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert masked_mean(values, torch.tensor([[True], [False]])) == 1.0
    with pytest.raises(TypeError, match=r"mask must be of booleans, found torch.float32"):
        masked_mean(values, torch.ones(2, 3))


def test_one_pass_through_the_trunk_serves_all_heads() -> None:
    calls = []
    trunk = nn.Linear(2, 3)
    trunk.register_forward_hook(lambda *_: calls.append(1))
    model = MultiTask(trunk, {"one": nn.Linear(3, 1), "two": nn.Linear(3, 4)})
    x = torch.randn(5, 2)
    found = model(x)
    assert calls == [1]
    assert {name: value.shape[1] for name, value in found.items()} == {"one": 1, "two": 4}
    assert torch.equal(model(x, "two"), found["two"])


def test_parts_are_put_in_a_row() -> None:
    x, y, domain = concatenated([(torch.zeros(2, 1), torch.ones(2)), (torch.ones(3, 1), y3())])
    assert x[:, 0].tolist() == [0, 0, 1, 1, 1]
    assert domain.tolist() == [0, 0, 1, 1, 1]
    assert y.tolist() == [1, 1, 7, 8, 9]
    with pytest.raises(ValueError, match="found 2 and 3 in part 1"):
        concatenated([(torch.zeros(1), torch.zeros(1)), (torch.zeros(2), torch.zeros(3))])
    with pytest.raises(ValueError, match="at least one objective"):
        concatenated([])


def y3() -> Tensor:
    return torch.tensor([7.0, 8.0, 9.0])


def own(batch: Batch, number: int) -> tuple[Tensor, Tensor]:
    x, y, domain = batch
    return x[domain == number], y[domain == number]


def test_losses_are_means_over_the_domains_own_samples() -> None:
    task = Clouds()
    model, train_data = task.model(), task.data().train
    found = task.losses(model, train_data)
    for number, name in enumerate(task.objectives):
        x, y = own(train_data, number)
        torch.testing.assert_close(found[number], F.cross_entropy(model(x, name), y))
    assert task.counts(train_data).tolist() == list(task.sizes.values())


def test_batch_normalisation_sees_one_domain_at_a_time() -> None:
    task = Clouds(normalise=True)
    model, train_data = task.model().train(), task.data().train
    x, _ = own(train_data, 1)
    shown = model.trunk[:2](x)  # type: ignore[index]
    torch.testing.assert_close(shown.mean(0), torch.zeros(6).double(), atol=1e-6, rtol=0)
    seen = []
    model.trunk[1].register_forward_hook(lambda *args: seen.append(len(args[2])))  # type: ignore[index]
    task.losses(model, train_data)
    assert seen == list(task.sizes.values())


def test_an_absent_domain_has_a_zero_loss_with_zero_gradients() -> None:
    task = Clouds(normalise=True)
    model, (x, y, domain) = task.model().train(), task.data().train
    batch = tuple(t[domain != 1] for t in (x, y, domain))
    loss = task.losses(model, batch)[1]
    assert loss.item() == 0
    reached = [*model.trunk.parameters(), *model.heads["b"].parameters()]
    assert all((g == 0).all() for g in torch.autograd.grad(loss, reached))
    assert task.counts(batch).tolist() == [40, 0, 25]


def test_the_trunk_is_what_the_method_weighs() -> None:
    for task in (Clouds(), Labels()):
        model = task.model()
        assert list(task.shared(model)) == list(model.trunk.parameters())
        with pytest.raises(TypeError, match="model must be a MultiTask, found Linear"):
            task.shared(nn.Linear(1, 1))


def naive(task: Clouds, model: MultiTask, batch: Batch) -> dict[str, float]:
    found = {}
    for number, name in enumerate(task.objectives):
        x, y = own(batch, number)
        right = [int(model(x[i : i + 1], name).argmax()) == int(y[i]) for i in range(len(y))]
        found[f"{name} accuracy"] = sum(right) / len(right)
    return found


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_metrics_are_means_over_each_domain(at_once: int) -> None:
    task = Clouds(normalise=True)
    task.at_once = at_once
    torch.manual_seed(0)
    model = task.model()
    found = metrics(task, model, task.data().test)
    assert found == naive(task, model.eval(), task.data().test)
    shown = {name: float(value) for name, value in task.metrics(model, task.data().test).items()}
    assert shown == pytest.approx(found)


def test_goals_are_those_of_the_scores() -> None:
    assert Clouds().goals == {name: {f"{name} accuracy": "higher"} for name in "abc"}
    assert Clouds(only="b").goals == {"b": {"b accuracy": "higher"}}
    assert Labels(only="sum").goals == {"sum": {"error": "lower"}}


class Distances(Clouds):
    metric, better = "distance", "lower"

    def loss(self, output: Any, y: Tensor) -> Tensor:
        return (output[:, 0] - y).square()

    def score(self, output: Any, y: Tensor) -> Tensor:
        return (output[:, 0] - y).abs()


def test_another_loss_and_another_score() -> None:
    task = Distances()
    model, data = task.model(), task.data()
    x, y = own(data.test, 2)
    found = metrics(task, model, data.test)
    assert found["c distance"] == pytest.approx((model(x, "c")[:, 0] - y).abs().mean().item())
    assert task.goals["c"] == {"c distance": "lower"}


@pytest.mark.parametrize("kind", [Clouds, Labels])
def test_one_objective_alone(kind: type[Task]) -> None:
    for name in kind.objectives:
        task: Any = kind(only=name)  # type: ignore[call-arg]
        assert task.objectives == (name,)
        run = train(start(task, "static", batch_size=8), steps=3)
        assert list(run.model.heads) == [name]
        assert list(assess(run).losses) == [name]
        assert set(assess(run).metrics) == set(task.goals[name])
    assert kind.objectives == kind().objectives  # the class is as it was
    with pytest.raises(ValueError, match=r"only must be one of .*, found 'z'"):
        kind(only="z")  # type: ignore[call-arg]


@pytest.mark.parametrize("method", ["static", "modo", "moco"])
@pytest.mark.parametrize("kind", [Clouds, Labels])
def test_both_kinds_learn(kind: type[Task], method: str) -> None:
    run = start(kind(), method, lr=0.3, batch_size=8)
    before = assess(run)
    after = assess(train(run, steps=60))
    assert all(after.losses[name] < before.losses[name] for name in kind.objectives)
    assert after.errors.opt > 0


def test_steps_take_every_domain() -> None:
    run = start(Clouds(), "modo", batch_size=4)
    assert run.sampler.steps_per_epoch == 10
    assert train(run, steps=2).samples == 24
    with pytest.raises(ValueError, match="growth must be 0 with several domains"):
        start(Clouds(), "smg")


class Gap(Clouds):
    def data(self) -> Data:
        found = super().data()
        x, y, domain = found.train
        return Data((x, y, domain.clamp_max(1)), found.test)


def test_an_objective_without_training_data_is_named() -> None:
    with pytest.raises(ValueError, match="train must have samples of 'c', found none"):
        start(Gap(), "static")


def test_an_objective_without_test_data_is_named() -> None:
    task = Clouds()
    x, y, domain = task.data().test
    with pytest.raises(ValueError, match="data must have samples of 'c' to measure, found none"):
        metrics(task, task.model(), tuple(t[domain < 2] for t in (x, y, domain)))


def test_missing_labels_are_left_out() -> None:
    task = Labels()
    model, batch = task.model(), task.data().train
    x, total, quadrant = batch
    found = task.losses(model, batch)
    known = total.isfinite()
    expected = (model(x[known], "sum")[:, 0] - total[known]).square().mean()
    torch.testing.assert_close(found[0], expected)
    known = quadrant >= 0
    expected = F.cross_entropy(model(x[known], "quadrant"), quadrant[known])
    torch.testing.assert_close(found[1], expected)
    assert task.counts(batch).tolist() == [int(total.isfinite().sum()), int(known.sum())]
    gradients = torch.autograd.grad(found[0] + found[1], list(model.parameters()))
    assert all(g.isfinite().all() for g in gradients)  # NaN labels have no derivative


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_metrics_are_means_over_what_has_a_label(at_once: int) -> None:
    task = Labels()
    task.at_once = at_once
    model, (x, total, quadrant) = task.model(), task.data().test
    known, labelled = total.isfinite(), quadrant >= 0
    found = metrics(task, model, task.data().test)
    error = (model(x, "sum")[:, 0] - total).abs()[known].mean()
    right = (model(x, "quadrant").argmax(1) == quadrant)[labelled].double().mean()
    assert found == pytest.approx({"error": error.item(), "accuracy": right.item()})


def test_metrics_of_a_batch_are_of_what_is_in_it() -> None:
    task = Clouds()
    x, y, domain = task.data().test
    found = task.metrics(task.model(), tuple(t[domain == 1] for t in (x, y, domain)))
    assert list(found) == ["b accuracy"]


def test_a_metric_without_any_label_is_named() -> None:
    task = Labels(missing="all")
    with pytest.raises(ValueError, match="labels to measure 'error', found none"):
        metrics(task, task.model(), task.data().test)


def test_a_label_of_several_numbers_is_missing_if_one_is() -> None:
    y = torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])
    assert Labels().known("sum", y).tolist() == [True, False]


class Pixels(Labels):
    """Labels for each pixel of a row, with a mask of their own."""

    name = "pixels"
    objectives = ("sum",)

    def model(self) -> MultiTask:
        return MultiTask(nn.Linear(3, 4), {"sum": nn.Linear(4, 3)})

    def known(self, objective: str, y: Tensor) -> Tensor:
        return y[:, 0] > 0  # y has channels, the mask has none

    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        return (output[:, None] - y).abs().sum(1)


def test_a_mask_of_pixels() -> None:
    task = Pixels()
    model = task.model()
    x, y = torch.randn(2, 3), torch.tensor([[[1.0, 0.0, 2.0]] * 2, [[0.0, 0.0, 3.0]] * 2])
    assert task.counts((x, y)).tolist() == [3]
    each = task.loss("sum", model(x, "sum"), y)
    expected = (each[0, 0] + each[0, 2] + each[1, 2]) / 3
    torch.testing.assert_close(task.losses(model, (x, y))[0], expected)


def test_what_diverges_is_named() -> None:
    with pytest.raises(Diverged, match="the loss 'sum' is"):
        train(start(Labels(), "static", lr=1e12), steps=200)


def test_a_method_that_asks_for_it_is_given_what_the_heads_see() -> None:
    """With an input for each task the gradients of the representations have nothing in common."""
    run = train(start(Clouds(), "mgdaub", batch_size=8, seed=3), steps=1)
    assert run.method.info is not None
    assert run.method.info.reason == ""
    gramian = run.method.info.gramian
    assert gramian is not None
    assert gramian.count_nonzero() == len(Clouds.objectives)
    model = start(Clouds(), "static", batch_size=8, seed=3).model.train()
    (indices,) = run.sampler.indices(0)
    batch = tuple(tensor[indices] for tensor in run.data.train)
    for number, name in enumerate(Clouds.objectives):
        x, y = own(batch, number)
        z = model.trunk(x).detach().requires_grad_()
        F.cross_entropy(model.heads[name](z), y).backward()
        assert z.grad is not None
        torch.testing.assert_close(gramian[number, number], z.grad.square().sum())
    assert not run.model.trunk._forward_hooks


def test_with_one_input_the_representation_is_one() -> None:
    run = train(start(Labels(), "mgdaub", batch_size=8), steps=1)
    assert run.method.info is not None
    gramian = run.method.info.gramian
    assert gramian is not None
    assert gramian.count_nonzero() == len(Labels.objectives) ** 2


ROOT = Path(__file__).parents[2]


def test_the_page_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "howto" / "multitask.md"
    space: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page.name, "exec"), space)
    assert min(assess(space["run"]).metrics.values()) > 0.8
    both, shown, alone = capsys.readouterr().out.splitlines()
    assert list(eval(both)) == ["left accuracy", "right accuracy"]
    assert shown == "('right',) {'right': {'right accuracy': 'higher'}}"
    assert list(eval(alone)) == ["right accuracy"]


@pytest.mark.parametrize("name", ["multi_input", "single_input"])
def test_the_examples_learn(name: str) -> None:
    task = load(str(ROOT / "examples" / f"{name}.py"))
    run = start(task, "modo", lr=3e-3, batch_size=16, hyperparameters={"gamma": 0.1})
    before = assess(run)
    after = assess(train(run, steps=40))
    assert all(after.losses[name] < before.losses[name] for name in task.objectives)
    assert {m for own in task.goals.values() for m in own} == set(after.metrics)
    for objective in task.objectives:
        alone = load(str(ROOT / "examples" / f"{name}.py"), {"only": objective})
        assert train(start(alone, "static", batch_size=16), steps=1).step == 1
        assert set(metrics(alone, alone.model(), alone.data().validation or ())) == set(
            task.goals[objective]
        )


class Tables(Labels):
    """The slip that broadcasts: n × 1 against n gives n × n."""

    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        return (output[:, :1] - y).square()


class Means(Labels):
    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        return (output[:, 0] - y).square().mean()


@pytest.mark.parametrize(("kind", "found"), [(Tables, r"\(64, 64\)"), (Means, r"\(\)")])
def test_a_loss_of_another_shape_is_refused(kind: type[Labels], found: str) -> None:
    with pytest.raises(ValueError, match=rf"loss of 'sum' must be .* shape \(64,\), found {found}"):
        train(start(kind(), "static"), steps=1)


def test_a_head_that_is_missing_is_named() -> None:
    model = MultiTask(nn.Linear(2, 8), {"sum": nn.Linear(8, 1)}).double()
    with pytest.raises(ValueError, match="heads must have one for 'quadrant', found sum"):
        Labels().losses(model, Labels().data().test)


@pytest.mark.parametrize("wrong", [lambda y: y[:, None], lambda y: y.float()])
def test_labels_that_are_no_classes_are_refused(wrong: Any) -> None:
    task = Clouds()
    x, y, domain = task.data().test
    with pytest.raises(ValueError, match="labels must be the number of a class for each sample"):
        task.losses(task.model(), (x, wrong(y), domain))


def test_a_batch_has_a_sample_for_every_draw() -> None:
    with pytest.raises(ValueError, match=r"batch_size must be at least 2, as modo .* found 1"):
        start(Clouds(), "modo", batch_size=1)
