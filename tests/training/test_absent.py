"""Objectives that a batch has no sample of: what a step does then, by definition."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from covering import one_of_each_kind
from pair import assert_as_one, join
from trimol import methods
from trimol.data import split
from trimol.tasks import Batch, Data, MultiTask, SingleInput
from trimol.training import Run, assess, next_weights, start, train
from trimol.training._checkpoint import restore, state
from trimol.training.stability import stability

NAMES = one_of_each_kind(name for name in methods.names() if not methods.growth(name))
CHANCE = {"often": 0.5, "seldom": 0.04, "always": 1.0}


class Rare(SingleInput):
    """Three curves through points, of which one is labelled rarely."""

    name = "rare"
    objectives = ("always", "often", "seldom")
    goals = {name: {f"{name} error": "lower"} for name in objectives}  # noqa: RUF012

    def __init__(self, *, only: str | None = None, seldom: float = 0.04) -> None:
        super().__init__(only=only)
        self.chance = {**CHANCE, "seldom": seldom}

    def model(self) -> MultiTask:
        heads = {name: nn.Linear(5, 1) for name in self.objectives}
        return MultiTask(nn.Sequential(nn.Linear(1, 5), nn.Tanh()), heads).double()

    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        return (output[:, 0] - y).square()

    def scores(self, objective: str, output: Any, y: Tensor) -> dict[str, Tensor]:
        return {f"{objective} error": (output[:, 0] - y).abs()}

    def data(self) -> Data:
        generator = torch.Generator().manual_seed(3)
        x = torch.rand(160, 1, generator=generator, dtype=torch.float64) * 4 - 2
        labels = {"always": x[:, 0], "often": x[:, 0] ** 2, "seldom": x[:, 0].cos()}
        for name in labels:
            missing = torch.rand(160, generator=generator) > self.chance[name]
            labels[name] = labels[name].masked_fill(missing, float("nan"))
        every = (x, *(labels[name] for name in self.objectives))
        return Data(tuple(t[:120] for t in every), tuple(t[120:] for t in every))


def begun(method: str, **options: Any) -> Run:
    return start(Rare(**options), method, lr=0.1, batch_size=8)


def counts(run: Run) -> Tensor:
    """Draws × objectives: how many labels the next step has."""
    (indices,) = run.sampler.indices(run.step)
    parts = split(indices, run.method.draws if run.method.due else 1)
    return torch.stack([run.task.counts(taken(run, part)) for part in parts])  # type: ignore[misc]


def taken(run: Run, indices: Tensor) -> Batch:
    return tuple(tensor[indices] for tensor in run.data.train)


def flat(run: Run) -> Tensor:
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def remembered(run: Run) -> dict[str, Tensor]:
    kept = {"step", "skipped", "kept"}
    return {k: v.clone() for k, v in run.method.state_dict().items() if k not in kept}


def by_hand(run: Run) -> dict[str, Tensor]:
    """The gradients that the definition gives: loops over samples, and no method."""
    model: Any = run.model
    (indices,) = run.sampler.indices(run.step)
    x, *labels = taken(run, indices)
    found = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    weights = run.method.weights
    for m, name in enumerate(run.task.objectives):
        each = [
            (model(x[i : i + 1], name)[0, 0] - labels[m][i]).square()
            for i in range(len(x))
            if labels[m][i].isfinite()
        ]
        if not each:
            continue
        own = dict(model.named_parameters())
        reached = [n for n in own if n.startswith(("trunk", f"heads.{name}."))]
        gradients = torch.autograd.grad(sum(each) / len(each), [own[n] for n in reached])  # type: ignore[arg-type]
        for n, gradient in zip(reached, gradients, strict=True):
            found[n] += gradient * (weights[m] if n.startswith("trunk") else 1)
    trunk = [n for n in found if n.startswith("trunk")]
    factor = clipped(run.method, torch.cat([found[n].flatten() for n in trunk]))
    return found | {n: found[n] * factor for n in trunk}


def clipped(method: Any, direction: Tensor) -> float:
    """What `max_norm` multiplies a direction by."""
    most = method.max_norm
    return 1.0 if most is None else min(1.0, most / direction.norm().item())


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_lacks_an_objective_keeps_the_weights(name: str) -> None:
    run = begun(name, seldom=0.1 * methods.get(name).draws)
    seen = []
    for _ in range(15):
        places = [run.task.objectives.index(str(each)) for each in run.method.wanted]
        lacking = bool((counts(run)[:, places] == 0).any())
        seen.append(lacking)
        if not lacking:
            train(run, steps=1)
            continue
        before, weights, expected = remembered(run), next_weights(run).clone(), by_hand(run)
        gradients: dict[str, Tensor] = {}

        def watch(run: Run, gradients: dict[str, Tensor] = gradients) -> None:
            found = {n: p.grad for n, p in run.model.named_parameters()}
            gradients.update({n: g.clone() for n, g in found.items() if g is not None})

        train(run, steps=1, watch=watch)
        after = remembered(run)
        assert all(torch.equal(before[key], after[key]) for key in before)
        assert torch.equal(weights, run.method.weights)
        assert run.method.info is not None
        assert not run.method.info.updated
        for key, value in expected.items():
            torch.testing.assert_close(gradients[key], value, rtol=1e-6, atol=1e-9)
    assert any(seen)
    assert not all(seen)  # the other branch was taken, too
    assert assess(run).record["kept"] == int(run.method.kept) == sum(seen)


class Counting(Rare):
    """All labels are there, and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = dict.fromkeys(CHANCE, 1.0)


class Trusting(Counting):
    """All labels are there, and trusted to be."""

    def counts(self, batch: Batch) -> Any:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_where_nothing_is_absent_counting_changes_nothing(name: str) -> None:
    counting, trusting = (
        train(start(task, name, lr=0.1, batch_size=8), steps=5) for task in (Counting(), Trusting())
    )
    assert torch.equal(flat(counting), flat(trusting))
    assert torch.equal(counting.method.weights, trusting.method.weights)
    assert assess(counting).record == pytest.approx(assess(trusting).record, rel=1e-12)


def test_an_objective_that_one_draw_lacks_and_another_has_still_moves_x() -> None:
    run = begun("modo")
    while not ((counts(run) == 0).any(0) & (counts(run) > 0).any(0)).any():
        train(run, steps=1)
    split_up = int(((counts(run) == 0).any(0) & (counts(run) > 0).any(0)).nonzero()[0])
    head = f"heads.{run.task.objectives[split_up]}."
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    train(run, steps=1)
    after = dict(run.model.named_parameters())
    assert all(not torch.equal(before[n], after[n]) for n in before if n.startswith(head))


def test_an_absent_objective_leaves_its_head_alone() -> None:
    run = begun("static")
    while counts(run)[0, 2]:
        train(run, steps=1)
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    train(run, steps=1)
    after = dict(run.model.named_parameters())
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert moved == {n for n in before if not n.startswith("heads.seldom.")}


def test_a_run_goes_on_where_it_stopped() -> None:
    whole = train(begun("moco"), steps=12)
    first = train(begun("moco"), steps=5)
    second = begun("moco")
    restore(second, state(first))
    train(second, steps=7)
    assert torch.equal(flat(whole), flat(second))
    assert torch.equal(whole.method.weights, second.method.weights)


class Careless(Rare):
    """Takes the mean of nothing."""

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        x, *labels = batch
        outputs = model(x)
        pairs = zip(self.objectives, labels, strict=True)
        known = [(outputs[name][:, 0] - y)[y.isfinite()] for name, y in pairs]
        return [each.square().mean() for each in known]


def test_a_loss_that_is_not_zero_where_it_is_absent_is_named() -> None:
    message = r"the loss 'seldom' must be 0 where a batch has no sample of it.*masked_mean"
    with pytest.raises(ValueError, match=message):
        train(start(Careless(), "static", batch_size=8), steps=20)


class Miscounting(Rare):
    def counts(self, batch: Batch) -> Tensor:
        return super().counts(batch)[:2]


def test_counts_are_one_for_each_objective() -> None:
    said = r"counts\(\) of Miscounting must return a tensor of 3 numbers, .* of shape \(2,\)$"
    with pytest.raises(ValueError, match=said):
        train(start(Miscounting(), "static", batch_size=8), steps=1)


def test_stability_needs_every_objective_of_every_sample() -> None:
    with pytest.raises(ValueError, match=r"every objective on every sample.* found 'rare'"):
        stability(Rare(), "static", steps=1)


def test_errors_are_of_means_over_what_has_a_label() -> None:
    run = train(begun("modo"), steps=6)
    run.task.at_once = 7  # batches in which "seldom" is absent
    assessed = assess(run)
    model: Any = run.model
    x, *labels = run.data.train
    rows = []
    for m, name in enumerate(run.task.objectives):
        known = labels[m].isfinite()
        loss = (model(x[known], name)[:, 0] - labels[m][known]).square().mean()
        assert assessed.errors.losses[m] == pytest.approx(loss.item())
        gradients = torch.autograd.grad(loss, list(model.trunk.parameters()))
        rows.append(torch.cat([g.flatten() for g in gradients]))
    jacobian = torch.stack(rows)
    torch.testing.assert_close(assessed.errors.gramian, jacobian @ jacobian.T)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_that_is_told_to_keep_takes_one_vector(name: str) -> None:
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    method = methods.get(name)([x], 3)
    method(torch.stack([x[0] ** 2 + 1, x[1] ** 2, x.square().sum()]), keep=True).backward()
    gradients = torch.tensor([[2.0, 0, 0], [0, -4, 0], [2, -4, 1]])
    direction = method.weights.float() @ gradients
    torch.testing.assert_close(x.grad, direction * clipped(method, direction))
    assert int(method.step) == 1
    fresh = methods.get(name)([x], 3).state_dict()
    now = method.state_dict()
    assert all(torch.equal(fresh[key], now[key]) for key in fresh if key not in ("step", "kept"))
    assert method.info.kept == int(method.kept) == 1


SHARED = ("static", "modo", "mgda", "moco")


def outcome(name: str) -> dict[str, Any]:
    run = train(start(Rare(seldom=0.2), name, lr=0.1, batch_size=10), steps=8)
    run.task.at_once = 9
    return {"params": flat(run), "record": assess(run).record}


def work(rank: int, port: int, folder: str) -> None:
    join(rank, port)
    found = {name: outcome(name) for name in SHARED}
    with pytest.raises(ValueError, match="the loss 'seldom' must be 0"):  # on both, without waiting
        train(start(Careless(), "static", batch_size=8), steps=20)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Shares of 5 samples, 3 and 2 for each draw: one process often lacks what the other has."""
    assert_as_one(work, outcome, SHARED, tmp_path)
