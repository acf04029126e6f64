"""Uniform stability by twin runs, against closed forms and against the paper's lower bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trimol.data import GrowingBatches
from trimol.paper.tasks.lower_bound import StabilityLowerBound
from trimol.runs.statistics import quantile
from trimol.tasks import Data, Task, get
from trimol.training import start, train
from trimol.training._twins import chosen_mean, interval_of_chosen, interval_of_mean, largest_mean
from trimol.training.stability import stability

N, STEPS, BATCH, LR = 12, 8, 3, 0.1
CURVATURES, CENTRES = torch.tensor([1.0, 3.0]).double(), torch.tensor([1.0, -2.0]).double()


class Point(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start, dtype=torch.float64))


class Means(Task):
    """f_{z,m}(x) = ½ a_m ‖x − c_m z‖²: x_T is linear in the samples."""

    name = "means"
    objectives = ("one", "two")

    def model(self):
        return Point([0.5, -1.0])

    def losses(self, model, batch):
        (z,) = batch
        apart = model.x - CENTRES[:, None, None] * z
        return CURVATURES / 2 * apart.square().sum(2).mean(1)

    def data(self):
        z = torch.randn(2 * N, 2, generator=torch.Generator().manual_seed(0)).double()
        return Data(train=(z[:N],), test=(z[N:],))


class Noisy(Means):
    """The same with a model that replicas cannot share the random numbers of."""

    def losses(self, model, batch):
        (z,) = batch
        return super().losses(model, (nn.functional.dropout(z, 0.2, model.training),))


class Remembering(Means):
    """The same with random numbers and a counter of the task's own."""

    def __init__(self):
        self.own, self.calls = torch.Generator().manual_seed(0), 0

    def losses(self, model, batch):
        self.calls += model.training
        scale = 1 + torch.rand((), generator=self.own) + self.calls
        return super().losses(model, batch) / scale


RUN = {"steps": STEPS, "batch_size": BATCH, "lr": LR}


def pull():
    """a = Σ λ a and b = Σ λ a c, with uniform weights."""
    return CURVATURES.mean().item(), (CURVATURES * CENTRES).mean().item()


def shares():
    """What a batch of step t weighs in x_T: (1 − αa)^{T−1−t}."""
    a, _ = pull()
    return (1 - LR * a) ** torch.arange(STEPS - 1, -1, -1).double()


def test_both_runs_of_a_twin_draw_and_count_alike():
    same = Means().data().train[0][:1]
    found = stability(Remembering(), "static", twins=4, pool=2, place=0, substitute=(same,), **RUN)
    assert not found.batched
    assert found.distances.eq(0).all()


def test_every_twin_follows_the_closed_form():
    """x_T − x'_T = αb Σ_t (1 − αa)^{T−1−t} 1[i drawn at t] (z_i − z') / B."""
    substitute = torch.tensor([[3.0, -1.0]]).double()
    found = stability(
        Means(), "static", twins=6, pool=5, seed=4, place=2, substitute=(substitute,), **RUN
    )
    _, b = pull()
    length = (Means().data().train[0][2] - substitute[0]).norm()
    for k in range(6):
        sampler = GrowingBatches(N, BATCH, growth=0.0, seed=4 + k)
        hit = torch.tensor([float(2 in sampler.indices(t)[0]) for t in range(STEPS)]).double()
        distance = LR * abs(b) / BATCH * (shares() * hit).sum() * length
        assert found.distances[k] == pytest.approx(float(distance), rel=1e-10, abs=1e-14)
        squared = CURVATURES.square().sum() * distance**2
        torch.testing.assert_close(found.squared[k], squared.expand(5), rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_epsilon_is_the_expectation_over_the_algorithm():
    """E(Σ w_t 1_t)² with independent hits of probability p = B/n, in closed form."""
    substitute = torch.tensor([[3.0, -1.0]]).double()
    found = stability(
        Means(), "static", twins=600, pool=2, seed=1, place=0, substitute=(substitute,), **RUN
    )
    (_, b), w, p = pull(), shares(), BATCH / N
    second = p * (1 - p) * w.square().sum() + p**2 * w.sum() ** 2
    length = (Means().data().train[0][0] - substitute[0]).norm()
    expected = CURVATURES.square().sum() * (LR * b / BATCH * length) ** 2 * second
    error = found.squared[:, 0].std() / math.sqrt(600)
    assert abs(found.epsilon**2 - expected) < 4 * error
    assert error < 0.1 * expected
    low, high = found.epsilon_interval
    assert low < math.sqrt(expected) < high
    assert found.epsilon == pytest.approx(found.epsilon_max)  # here all z are alike


def test_variance_and_gap_in_closed_form():
    found = stability(Means(), "static", twins=4, pool=N, **RUN)
    data = Means().data()
    z = data.test[0]
    scale = (CURVATURES * CENTRES).square().sum()  # ∇f_{z,m} = a_m (x − c_m z)
    assert found.variance == pytest.approx(float(scale * z.var(0).sum()), rel=1e-9)
    gap = scale.sqrt() * (z.mean(0) - data.train[0].mean(0)).norm()
    assert found.gap == pytest.approx(float(gap), rel=1e-9)
    assert found.gap_interval == pytest.approx((float(gap), float(gap)))
    assert found.bound == 4 * found.epsilon_max + math.sqrt(found.variance / N)
    assert found.gen <= found.gap
    assert (found.samples, found.twins, found.pool) == (N, 4, N)


@pytest.mark.parametrize(
    ("method", "hyperparameters"), [("static", {}), ("mgda", {}), ("modo", {"gamma": 0.1})]
)
def test_together_and_one_by_one_are_the_same(method, hyperparameters):
    given = {"twins": 5, "pool": 6, "hyperparameters": hyperparameters, **RUN}
    together = stability(Means(), method, batched=True, **given)
    apart = stability(Means(), method, batched=False, **given)
    assert together.batched
    assert not apart.batched
    for name in ("epsilon", "epsilon_max", "argument", "variance", "gap", "gen", "bound"):
        assert getattr(together, name) == pytest.approx(getattr(apart, name), rel=1e-9), name
    torch.testing.assert_close(together.squared, apart.squared, rtol=1e-8, atol=1e-14)
    assert together.epsilon_interval == pytest.approx(apart.epsilon_interval)


def test_groups_of_twins_are_all_twins(monkeypatch):
    whole = stability(Means(), "modo", twins=5, pool=3, **RUN)
    monkeypatch.setattr("trimol.training._twins._HELD", 20)
    parts = stability(Means(), "modo", twins=5, pool=3, **RUN)
    torch.testing.assert_close(parts.squared, whole.squared, rtol=1e-10, atol=1e-15)


def test_digits():
    found = stability(get("digits")(hidden=8), "mgda", steps=30, twins=4, pool=4, lr=10.0)
    assert found.batched
    assert found.squared.shape == (4, 4)
    assert found.gen <= found.gap <= found.bound


def test_a_training_of_ones_own():
    def algorithm(data, seed):
        run = start(Means(), "static", lr=LR, batch_size=BATCH, seed=seed, data=data)
        return train(run, STEPS).model

    own = stability(Means(), algorithm, twins=4, pool=3)
    named = stability(Means(), "static", twins=4, pool=3, **RUN)
    torch.testing.assert_close(own.squared, named.squared, rtol=1e-9, atol=1e-15)
    assert not own.batched


def test_what_cannot_run_together_runs_one_by_one():
    found = stability(Noisy(), "static", twins=4, pool=3, **RUN)
    assert not found.batched
    with pytest.raises(ValueError, match="cannot be computed for many replicas at once"):
        stability(Noisy(), "static", twins=4, pool=3, batched=True, **RUN)
    assert not stability(Means(), "mgdaub", twins=4, pool=3, **RUN).batched


class Sine(Task):
    """The paper's example of the non-convex lower bound: f_{z,1} = f_{z,2} = sin(x + z)."""

    name = "sine"
    objectives = ("one", "two")

    def model(self):
        return Point([math.pi / 4])

    def losses(self, model, batch):
        value = torch.sin(model.x + batch[0]).mean()
        return torch.stack([value, value.clone()])

    def data(self):
        return Data(train=(torch.zeros(20, 1).double(),), test=(torch.zeros(5, 1).double(),))


def test_the_lower_bound_of_the_nonconvex_case():
    """A drawn sample parts the twins by at least 0.076 α/2 (the mean of two draws), for good."""
    alpha, steps, twins = math.pi / 80, 10, 40
    found = stability(
        Sine(),
        "modo",
        steps=steps,
        twins=twins,
        pool=2,
        lr=alpha,
        batch_size=2,
        place=19,
        substitute=(torch.full((1, 1), -math.pi / 8).double(),),
    )
    hit = torch.tensor(
        [
            any(19 in GrowingBatches(20, 2, growth=0.0, seed=k).indices(t)[0] for t in range(steps))
            for k in range(twins)
        ]
    )
    assert 0 < hit.sum() < twins
    assert not found.squared[~hit].any()  # sampling-determined: not drawn, not seen
    assert (found.distances[hit] >= 0.076 * alpha / 2).all()
    least = 2 * (math.sin(math.pi / 8) * 0.076 * alpha / 2) ** 2
    assert (found.squared[hit] >= least).all()
    assert found.epsilon_max**2 >= least * float(hit.double().mean())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_the_lower_bound_of_the_strongly_convex_case(share):
    """E‖x_T − x'_T‖ ≥ γT/(2n²) + 1/(16n), Theorem "lower bound"."""
    task, n = StabilityLowerBound(samples=64), 64
    steps = task.longest
    gamma = share * task.gamma_limit(steps)
    found = stability(
        task,
        "modo",
        steps=steps,
        twins=200,
        pool=2,
        lr=task.step_size(steps),
        hyperparameters={"gamma": gamma, "draws": 3},
        batch_size=3,
        held=(task.data().train[0],),
        place=0,
        substitute=(task.neighbour()[:1],),
    )
    assert found.batched
    assert found.argument_interval[0] >= gamma * steps / (2 * n**2) + 1 / (16 * n)


@pytest.mark.slow
def test_the_estimate_of_the_largest_mean_is_bracketed():
    """The plain maximum is too large on average, the chosen mean is not."""
    generator = torch.Generator().manual_seed(0)
    plain, chosen, covered = [], [], 0
    for trial in range(60):
        squared = torch.randn(10, 20, generator=generator).double() + 5.0  # every mean is 5
        plain.append(largest_mean(squared))
        chosen.append(chosen_mean(squared))
        low, high = interval_of_chosen(squared, seed=trial) if trial < 20 else (0.0, 0.0)
        covered += low <= 5 <= high
    assert sum(plain) / 60 > 5.4
    assert abs(sum(chosen) / 60 - 5.0) < 0.15
    assert covered >= 12


@settings(deadline=None, max_examples=50)
@given(
    st.integers(2, 9), st.integers(1, 5), st.integers(0, 1000), st.sampled_from([0.0, 1e-9, 1.0])
)
def test_chosen_is_never_above_what_the_twins_can_give(twins, pool, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    squared = scale * torch.rand(twins, pool, generator=generator).double()
    halves = (largest_mean(squared[0::2]), largest_mean(squared[1::2]))
    assert 0 <= chosen_mean(squared) <= sum(halves) / 2 + 1e-12
    assert largest_mean(squared) <= max(halves) + 1e-12


def test_interval_of_a_mean_has_the_normal_width():
    values = torch.randn(400, generator=torch.Generator().manual_seed(1)).double()
    low, high = interval_of_mean(values)
    width = 2 * quantile(len(values) - 1) * float(values.std()) / 20
    assert high - low == pytest.approx(width, rel=0.15)
    assert low < float(values.mean()) < high


def test_prints_one_line():
    line = str(stability(Means(), "static", twins=4, pool=3, **RUN))
    assert line.startswith("epsilon 0.")
    assert "· argument" in line
    assert ", bound" in line
    assert "\n" not in line


def test_bad_arguments():
    given = {"twins": 4, "pool": 3, **RUN}
    with pytest.raises(ValueError, match="twins must be a whole number of at least 4, found 3"):
        stability(Means(), "static", **{**given, "twins": 3})
    with pytest.raises(ValueError, match="pool must be at most the 12 held-out samples, found 13"):
        stability(Means(), "static", **{**given, "pool": 13})
    with pytest.raises(ValueError, match="place must be from 0 to 11, found 12"):
        stability(Means(), "static", place=12, **given)
    with pytest.raises(ValueError, match="steps must be given with a method's name, found None"):
        stability(Means(), "static", twins=4, pool=3)
    with pytest.raises(ValueError, match="steps must be left out with a training of your own"):
        stability(Means(), lambda data, seed: Point([0.0]), **given)
    with pytest.raises(TypeError, match="method must return a model, found NoneType"):
        stability(Means(), lambda data, seed: None, twins=4, pool=3)
    same = Means().model()
    with pytest.raises(ValueError, match="a new model for every run, found the same twice"):
        stability(Means(), lambda data, seed: same, twins=4, pool=3)
