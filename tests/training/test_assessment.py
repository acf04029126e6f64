"""What a run has come to: measured in eval mode, on all data, the run left as it was."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from covering import in_turn
from trimol import measure, methods
from trimol.tasks import Batch, Data, Task, get, masked_mean
from trimol.training import assess, batches, evaluating, start, train
from trimol.training.assessment import mean_losses, metrics, scored


class Noisy(Task):
    """A network whose training mode must not be measured: dropout and batch normalisation."""

    name = "noisy"
    objectives = ("square", "absolute")

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x, y = batch
        return torch.stack([F.mse_loss(model(x), y), F.l1_loss(model(x), y)])

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"mean": model(batch[0]).mean()}

    def data(self) -> Data:
        x = torch.linspace(-1, 1, 2 * 3000).view(3000, 2)
        y = x.sum(1, keepdim=True)
        return Data(train=(x[::2], y[::2]), test=(x[1::2], y[1::2]))


def test_measures_in_eval_mode_and_changes_nothing() -> None:
    run = train(start(Noisy(), "modo", batch_size=16), steps=3)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    weights = run.method.weights.clone()
    first = assess(run)
    assert assess(run) == first
    assert all(module.training for module in run.model.modules())
    assert all(torch.equal(v, before[name]) for name, v in run.model.state_dict().items())
    assert torch.equal(run.method.weights, weights)


def test_numbers_are_those_of_the_whole_data() -> None:
    run = train(start(Noisy(), "static", batch_size=16), steps=3)
    found = assess(run, rho=0.1)
    run.model.eval()
    data = run.data
    direct = measure(
        lambda batch: run.task.losses(run.model, batch),
        run.model.parameters(),
        train=[data.train],
        test=[data.test],
        weights=run.method.weights,
        rho=0.1,
    )
    assert found.errors.opt == pytest.approx(direct.opt, rel=1e-5)
    assert found.errors.pop == pytest.approx(direct.pop, rel=1e-5)
    assert found.errors.conflict == pytest.approx(direct.conflict, rel=1e-5)
    assert found.errors.conflict_weight == pytest.approx(direct.conflict_weight, rel=1e-5)
    assert list(found.losses) == ["square", "absolute"]
    assert list(found.losses.values()) == pytest.approx(direct.test_losses, rel=1e-5)
    assert found.weights == {"square": 0.5, "absolute": 0.5}
    # 1500 test samples come in batches of 1024 and 476.
    mean = run.model(data.test[0]).mean().item()
    assert found.metrics["mean"] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(("name", "steps"), in_turn(methods.names(), [3, 0]))
def test_weights_are_those_of_the_next_step(name: str, steps: int) -> None:
    run = train(start(Noisy(), name, batch_size=16), steps=steps)
    mode = [module.training for module in run.model.eval().modules()]
    found = assess(run)
    again = assess(run)
    assert found == again
    assert found.weights == again.weights
    assert [module.training for module in run.model.modules()] == mode
    inside = []
    train(run, 1, watch=lambda run: inside.append(assess(run)))
    assert inside[0].weights == found.weights


class Masked(Noisy):
    """With dropout alone: batch normalisation would have seen one batch more inside the step."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))


@pytest.mark.parametrize("name", ["static", "modo", "moco"])
def test_between_steps_and_inside_the_next_the_record_is_the_same(name: str) -> None:
    run = train(start(Masked(), name, batch_size=16), steps=3)
    found = assess(run)
    inside = []
    train(run, 1, watch=lambda run: inside.append(assess(run)))
    assert inside[0].record == found.record


def test_the_record_of_an_assessment() -> None:
    record = assess(train(start(Noisy(), "static", batch_size=16), steps=3)).record
    assert (record["step"], record["samples"]) == (3, 48)
    assert record["weight/square"] == 0.5
    assert "metric/mean" in record


def test_a_task_without_metrics() -> None:
    class Plain(Noisy):
        def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            return {}

    assert assess(start(Plain(), "static")).metrics == {}


def test_digits_at_the_start_are_guessed() -> None:
    found = assess(start(get("digits")(), "static"))
    assert found.metrics["accuracy"] < 0.3
    assert found.losses["cross-entropy"] == pytest.approx(2.3, abs=0.1)


def test_evaluating_puts_modes_back_after_an_error() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    modes: list[bool] = []
    with contextlib.suppress(RuntimeError), evaluating(model):
        modes += [module.training for module in model.modules()]
        raise RuntimeError
    assert not any(modes)
    assert [module.training for module in model.modules()] == [True, True, False]


def test_batches_are_views() -> None:
    x, y = torch.zeros(10, 2), torch.zeros(10)
    found = batches((x, y), size=4)
    assert [len(a) for a, _ in found] == [4, 3, 3]
    found[0][0].fill_(1)
    assert x[0, 0] == 1


def test_mean_losses_weigh_every_objective_by_its_own_samples() -> None:
    task = _Uneven()
    found = mean_losses(task, task.model(), task.data().test)
    values, domain = task.data().test
    assert found == {
        "a": pytest.approx(values[domain == 0].mean().item()),
        "b": pytest.approx(values[domain == 1].mean().item()),
    }


def test_one_pass_scores_losses_and_metrics() -> None:
    for task in (_Uneven(), Noisy(), get("digits")()):
        asked = task, task.model(), task.data().test
        assert scored(*asked) == (mean_losses(*asked), metrics(*asked))


class _Uneven(Task):
    """Means of numbers of two kinds, in batches of two that may lack one."""

    name = "uneven"
    objectives = ("a", "b")
    at_once = 2

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        values, domain = batch
        return [masked_mean(values, domain == m) for m in (0, 1)]

    def counts(self, batch: Batch) -> Tensor:
        return torch.stack([(batch[1] == m).sum() for m in (0, 1)])

    def data(self) -> Data:
        both = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]), torch.tensor([0, 0, 0, 1, 0])
        return Data(train=both, test=both)
