"""A look at a training: what it measures, that it disturbs nothing, and what it says of tasks."""

import json
import math
from itertools import combinations

import pytest
import torch
from torch import nn

from trimol import Data, Task, measure
from trimol._failures import BadValue, Diverged
from trimol.gradients import jacobian
from trimol.runs._moments import CONFIDENCE
from trimol.runs.look import examine, look, revised
from trimol.tasks import _answers as answers
from trimol.tasks import get
from trimol.training import batches, evaluating, mean_losses, start, train


class Pair(Task):
    """Two linear losses of one layer, each with a head; their angle is an option."""

    name = "pair"
    objectives = ("one", "two")

    def __init__(self, *, samples=64, noise=0.0, pull=(1.0, -1.0), adam=False):
        self.samples, self.noise, self.pull, self.adam = samples, noise, pull, adam

    def model(self):
        return nn.ModuleDict({"trunk": nn.Linear(3, 2), "heads": nn.Linear(2, 2)})

    def losses(self, model, batch):
        x, pull = batch
        out = model["heads"](torch.tanh(model["trunk"](x)))
        return ((out - pull) ** 2).mean(0)

    def data(self):
        random = torch.Generator().manual_seed(0)
        x = torch.randn(self.samples, 3, generator=random)
        pull = torch.tensor(self.pull) + self.noise * torch.randn(self.samples, 2, generator=random)
        return Data(train=(x, pull), test=(x, pull))

    def shared(self, model):
        return model["trunk"].parameters()

    def optimizer(self, params, lr):
        kind = torch.optim.Adam if self.adam else torch.optim.SGD
        return kind(params, lr=lr)


class Point(Task):
    """Two bowls of a point, their minima a distance apart; no noise but what is asked for."""

    name = "point"
    objectives = ("left", "right")

    def __init__(self, *, apart=1.0, scale=1.0, noise=0.0, samples=64, begin=(0.0, 3.0)):
        self.apart, self.scale, self.noise = apart, scale, noise
        self.samples, self.begin = samples, begin

    def model(self):
        model = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([self.begin]))
        return model

    def losses(self, model, batch):
        (z,) = batch
        x = model.weight[0]
        ends = torch.tensor([[self.apart, 0.0], [-self.apart, 0.0]])
        noise = self.noise * (z.mean(0) * x).sum(-1)
        return ((x - ends).square().sum(-1) / 2 + noise) * torch.tensor([self.scale, 1.0])

    def data(self):
        z = torch.randn(self.samples, 2, 2, generator=torch.Generator().manual_seed(1))
        return Data(train=(z - z.mean(0),), test=(z[:1],))


def slow_rows(task, model):
    """The gradients of all training data, of the shared parameters."""
    with evaluating(model):
        vector = answers.losses(task, model, task.data().train)
        return jacobian(vector, answers.shared(task, model)).double()


def test_a_moment_has_the_numbers_of_measure():
    task = get("digits")()
    torch.manual_seed(0)
    model = task.model()
    moment = examine(task, model, weights=[0.2, 0.3, 0.5])
    exact = measure(
        lambda batch: task.losses(model, batch),
        model.parameters(),
        train=batches(task.data().train),
        weights=[0.2, 0.3, 0.5],
    )
    assert list(moment.losses.values()) == pytest.approx(list(exact.losses), rel=1e-5)
    assert list(moment.plain.min_norm.values()) == pytest.approx(list(exact.min_norm), abs=1e-6)
    for place, (i, j) in enumerate(combinations(range(3), 2)):
        bracket = list(moment.plain.cosines.values())[place]
        assert bracket.low <= float(exact.cosines[i, j]) <= bracket.high
    for bracket, norm in zip(moment.plain.norms.values(), exact.norms, strict=True):
        assert bracket.covers(norm)
    assert moment.plain.opt.covers(exact.opt)
    assert moment.plain.conflict.covers(exact.conflict)
    assert moment.samples == len(task.data().train[0])


def test_only_what_is_shared_counts():
    task = Pair()
    torch.manual_seed(0)
    model = task.model()
    rows = slow_rows(task, model)
    (cosine,) = examine(task, model).plain.cosines.values()
    assert rows.shape[1] == 8
    assert cosine.covers(float(torch.cosine_similarity(*rows, dim=0)))


def test_the_metric_is_that_of_the_optimizers_next_step():
    task = Pair(adam=True, samples=6)  # so few that all are taken, and nothing is uncertain
    run = train(start(task, "static", lr=0.01, batch_size=3), steps=30)
    moment = examine(task, run.model, optimizer=run.optimizer, batch_size=3)
    rows = slow_rows(task, run.model)
    mean, scales = rows.mean(0), []
    for p, part in zip(task.shared(run.model), mean.split([6, 2]), strict=True):
        state = run.optimizer.state[p]
        second = 0.999 * state["exp_avg_sq"].reshape(-1) + 0.001 * part.square()
        scales.append(1 / ((second / (1 - 0.999**31)).sqrt() + 1e-8))
    scaled = rows * torch.cat(scales).sqrt()
    (cosine,) = moment.metric.cosines.values()
    assert cosine.value == pytest.approx(float(torch.cosine_similarity(*scaled, dim=0)), abs=1e-4)
    (plain,) = moment.plain.cosines.values()
    assert abs(plain.value - cosine.value) > 0.01  # or this test would say nothing


def test_sgd_has_no_metric_of_its_own():
    run = start(Pair(), "static")
    assert examine(Pair(), run.model, optimizer=run.optimizer).metric is None


def test_an_optimizer_without_a_known_metric_is_said():
    model = Pair().model()
    odd = torch.optim.LBFGS(model.parameters())
    (note,) = examine(Pair(), model, optimizer=odd).notes
    assert note.startswith("the optimizer's metric is not known")


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_the_noise_is_that_of_a_batch_of_this_size(noise):
    """Of the sum of two numbers with variance σ², and a gradient that is known."""
    task = Point(noise=noise, samples=4096)
    found = examine(task, task.model(), batch_size=32, batches=128).plain
    expected = 2 * noise**2 / 32 / (1.0 + 9.0)
    assert found.noise["left"].covers(expected)
    assert found.noise["left"].high < 10 * found.noise["left"].low


@pytest.mark.slow
def test_looking_disturbs_nothing():
    task = get("digits")()
    found = look(task, steps=25, looks=4, optimizer="adam", lr=0.01, seed=3)
    run = train(start(task, "static", optimizer="adam", lr=0.01, seed=3), steps=25)
    exact = mean_losses(task, run.model, task.data().train)
    assert found.moments[-1].losses == pytest.approx(exact, rel=1e-6)


@pytest.mark.slow
def test_a_look_is_the_same_again():
    first, again = (look("digits", steps=12, looks=3, seed=5) for _ in range(2))
    assert first.evidence == again.evidence
    assert first.reason == again.reason
    assert look("digits", steps=12, looks=3, seed=6).evidence != first.evidence


def test_the_evidence_is_ready_for_json():
    found = look(Point(noise=3.0), steps=6, looks=3, batch_size=8)
    told = json.loads(json.dumps(found.evidence, allow_nan=False))
    assert [moment["step"] for moment in told["moments"]] == [0, 1, 6]
    assert found.cost == {"steps": 6, "seconds": found.seconds}


def test_each_moment_is_told_when_it_is_known():
    told = []
    found = look(Point(), steps=30, looks=4, batch_size=8, watch=told.append)
    assert told == list(found.moments)
    assert [moment.name for moment in told] == ["step 0", "step 1", "step 5", "step 30"]


def test_a_look_stops_when_its_time_is_up(monkeypatch):
    ticks = iter(range(10**6))
    monkeypatch.setattr("trimol.runs.look.time.monotonic", lambda: float(next(ticks)))
    found = look(Point(), steps=1000, looks=3, batch_size=8, seconds=20)
    assert 0 < found.steps < 1000
    assert found.moments[-1].step == found.steps


def test_conflict_between_two_bowls_is_seen_and_the_front_too():
    assert look(Point(), steps=20, lr=0.1, batch_size=8).regime == "direction"
    on_front = look(Point(begin=(0.3, 0.0)), steps=20, lr=0.1, batch_size=8)
    assert on_front.regime == "stationary"


def test_a_factor_between_losses_is_seen():
    task = Point(scale=100.0, apart=3.0)
    assert look(task, steps=20, lr=0.0005, batch_size=8).regime == "scales"


def test_one_minimum_is_no_conflict():
    assert look(Point(apart=0.0), steps=20, lr=0.1, batch_size=8).regime == "none"


@pytest.mark.slow
def test_noise_is_not_taken_for_conflict():
    task = Point(apart=0.0, noise=60.0, samples=512)
    regimes = {look(task, steps=20, lr=0.01, batch_size=8, seed=s).regime for s in range(4)}
    assert regimes == {"noise"}


def test_a_conflict_at_the_end_revises_the_regime():
    task = Point(begin=(0.0, 40.0), apart=1.0)
    first = look(task, steps=5, looks=3, lr=0.01, batch_size=8)
    assert first.regime == "none"
    end = Point(begin=(0.0, 0.5)).model()
    found = revised(first, [examine(task, end, step=2000, name="the end of seed 7")])
    assert found.regime == "direction"
    assert found.reason.startswith("conflict appears late (none up to step 5)")
    assert "the end of seed 7" in found.reason
    assert found.reason.endswith("(the first 5 steps alone: none)")
    assert len(found.evidence["moments"]) == 4
    assert revised(first, []).reason == first.reason


def test_too_few_samples_are_said():
    found = look(Point(samples=3), steps=5, batch_size=2)
    assert found.warnings == (
        "only 3 training samples: they are taken as all there is, and bounds leave out their noise",
    )
    (cosine,) = found.moments[0].plain.cosines.values()
    assert cosine.high - cosine.low < 1e-6


def test_a_training_that_diverges_is_told_in_one_line():
    with pytest.raises(Diverged, match="try a smaller lr"):
        look(Point(), steps=400, lr=1e3, batch_size=8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be"),
        ({"steps": 5, "looks": 1}, "looks must be"),
        ({"steps": 5, "seconds": -1.0}, "seconds must be"),
        ({"steps": 5, "batches": 0}, "batches must be"),
        ({"steps": 5, "task_options": {"apart": 2}}, "task_options go with a task's name"),
    ],
)
def test_bad_input_is_one_clear_line(given, message):
    with pytest.raises(BadValue, match=message) as failure:
        look(Point(), **given)
    assert "\n" not in str(failure.value)


def test_a_single_objective_has_no_conflict_to_look_for():
    class Alone(Point):
        objectives = ("left",)

    with pytest.raises(BadValue, match="at least 2 objectives, found 1"):
        look(Alone(), steps=5)


def test_the_brackets_are_wide_enough_for_all_pairs_together():
    assert CONFIDENCE == 0.99
    assert math.isclose(1 - (1 - CONFIDENCE) / 3, 0.99666, rel_tol=1e-4)
