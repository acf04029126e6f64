"""The batched program equals a plain loop; its samples depend on seed and step alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trimol
from trimol.errors._conflict import conflict_of_sets as conflict
from trimol.paper import _simulation as simulation
from trimol.paper._simulation import Arm, measure, sample_indices, simulate
from trimol.paper.tasks.toy import Toy
from trimol.tasks.quadratic import Quadratic

QUADRATIC = Quadratic(eigenvalues=[[2.0, 0.5], [0.5, 1.0]], samples=7)


def plain(task, arm, z, start, seed, steps, optimizer, decay):
    """One run with the ordinary method, autograd and optimizer, sample by sample."""
    x = start.clone().requires_grad_()
    method = trimol.methods.get(arm.method)([x], len(task.objectives), **arm.hyperparameters)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    moved = kind([x], lr=arm.lr)
    for step in range(steps + 1):
        block, row = divmod(step, simulation.BLOCK)
        if arm.batch is None:
            batches = [z] * method.draws
        else:
            chosen = z[torch.from_numpy(sample_indices(seed, block, arm.batch, len(z))[row])]
            batches = trimol.data.split(chosen, method.draws)
        losses = [torch.stack([task.values(x, s) for s in batch]).mean(0) for batch in batches]
        loss = method(*losses) if method.due else method(torch.stack(losses).mean(0))
        if step == steps:
            break
        moved.param_groups[0]["lr"] = arm.lr * (step + 1) ** -decay
        moved.zero_grad()
        loss.backward()
        moved.step()
    return x.detach(), method.weights


@pytest.mark.parametrize(
    "arm",
    [
        Arm("static", 0.1, batch=3),
        Arm("mgda", 0.1),
        Arm("mgda", 0.1, {"rho": 0.1}, batch=4),
        Arm("modo", 0.05, {"gamma": 0.05}, batch=5),
        Arm("modo", 0.05, {"gamma": 0.05, "rho": 0.2, "draws": 3}, batch=3),
        Arm("moco", 0.05, {"beta": 0.5}, batch=2),
    ],
    ids=lambda arm: f"{arm.method}-{arm.batch}",
)
def test_a_run_is_what_the_ordinary_loop_gives(arm):
    data = QUADRATIC.draw([0, 1])
    trace = simulate(QUADRATIC, [arm], data=data, start=QUADRATIC.start, seeds=[5, 6], steps=12)
    for trial, seed in enumerate((5, 6)):
        x, weights = plain(QUADRATIC, arm, data[trial], QUADRATIC.start, seed, 12, "sgd", 0.0)
        assert torch.allclose(trace.x[0, 0, trial], x, rtol=1e-10, atol=1e-12)
        assert torch.allclose(trace.weights[0, 0, trial], weights, rtol=1e-8, atol=1e-10)


def test_adam_with_decay_is_torchs():
    task, arm = Toy(data="drawn"), Arm("modo", 5e-3, {"gamma": 1e-4}, batch=16)
    (z,) = task.data().train
    start = torch.tensor([-10.0, -3.0]).double()
    trace = simulate(task, [arm], data=z[None], start=start, seeds=[3], steps=30,
                     decay=0.05)  # fmt: skip
    x, weights = plain(task, arm, z, start, 3, 30, "adam", 0.05)
    assert torch.allclose(trace.x[0, 0, 0], x, rtol=1e-10)
    assert torch.allclose(trace.weights[0, 0, 0], weights, rtol=1e-9)


def test_how_arms_are_batched_changes_nothing():
    arms = [
        Arm("modo", 0.05, {"gamma": 0.1}, batch=4),
        Arm("static", 0.02, batch=2),
        Arm("modo", 0.01, {"gamma": 0.0}, batch=4),
        Arm("mgda", 0.05),
    ]
    data = QUADRATIC.draw(range(3))
    options = {"data": data, "start": QUADRATIC.start, "seeds": [4, 9, 2], "steps": 20}
    together = simulate(QUADRATIC, arms, snapshots=[0, 7, 20], **options)
    for i, arm in enumerate(arms):
        alone = simulate(QUADRATIC, [arm], snapshots=[0, 7, 20], **options)
        assert torch.allclose(together.x[:, i], alone.x[:, 0], rtol=1e-12, atol=1e-14)
    one = simulate(QUADRATIC, arms, data=data[1:2], start=QUADRATIC.start, seeds=[9],
                   steps=20)  # fmt: skip
    assert torch.allclose(together.x[-1, :, 1], one.x[-1, :, 0], rtol=1e-12, atol=1e-14)


def test_gamma_zero_is_static_on_the_same_samples():
    arms = [Arm("modo", 0.05, {"gamma": 0.0}, batch=4), Arm("static", 0.05, batch=4)]
    trace = simulate(QUADRATIC, arms, data=QUADRATIC.draw(range(2)), start=QUADRATIC.start,
                     seeds=range(2), steps=300)  # fmt: skip
    assert torch.allclose(trace.x[0, 0], trace.x[0, 1], rtol=1e-12)


def test_twins_with_the_same_data_stay_together():
    data = QUADRATIC.draw([3])
    other = data.clone()
    other[0, 0] += 1
    arm = Arm("modo", 0.1, {"gamma": 0.1}, batch=2)
    trace = simulate(QUADRATIC, [arm], data=torch.cat([data, data, other]), start=QUADRATIC.start,
                     seeds=[1, 1, 1], steps=40)  # fmt: skip
    assert torch.equal(trace.x[0, 0, 0], trace.x[0, 0, 1])
    assert not torch.allclose(trace.x[0, 0, 0], trace.x[0, 0, 2])


def test_snapshots_are_moments_of_one_run():
    arm = Arm("modo", 0.1, {"gamma": 0.1}, batch=2)
    options = {"data": QUADRATIC.draw([0]), "start": QUADRATIC.start, "seeds": [0]}
    long = simulate(QUADRATIC, [arm], steps=9, snapshots=[9, 0, 4], **options)
    assert long.steps == (0, 4, 9)
    assert torch.equal(long.x[0, 0, 0], QUADRATIC.start)
    short = simulate(QUADRATIC, [arm], steps=4, **options)
    assert torch.equal(long.x[1], short.x[0])
    assert torch.equal(long.weights[1], short.weights[0])


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 1000))
@settings(deadline=None, max_examples=30)
def test_samples_are_indices_and_more_of_them_do_not_change_the_first(seed, block, count, size):
    found = sample_indices(seed, block, count, size)
    assert found.shape == (simulation.BLOCK, count)
    assert found.min() >= 0
    assert found.max() < size
    assert np.array_equal(sample_indices(seed, block, count + 3, size)[:, :count], found)


def test_samples_are_uniform_and_seeds_and_blocks_differ():
    found = sample_indices(1, 0, 200, 10).ravel()
    counts = np.bincount(found, minlength=10)
    assert ((counts - 5120) ** 2 / 5120).sum() < 27.9  # χ² with 9 degrees of freedom, 0.999
    assert not np.array_equal(sample_indices(1, 0, 2, 10), sample_indices(2, 0, 2, 10))
    assert not np.array_equal(sample_indices(1, 0, 2, 10), sample_indices(1, 1, 2, 10))


def test_measure_is_trimols():
    data = QUADRATIC.draw(range(2))
    x = torch.tensor([[0.3, -1.0], [2.0, 1.0]]).double()
    weights = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]).double()
    found = measure(QUADRATIC, x, weights, data, QUADRATIC.population, rho=0.3)
    for i in range(2):
        point = x[i].clone().requires_grad_()
        errors = trimol.measure(
            lambda z, p=point: QUADRATIC.values(p, z.mean(0)), [point],
            train=[data[i]], test=[QUADRATIC.population[None]], weights=weights[i], rho=0.3,
        )  # fmt: skip
        expected = {"R_opt": errors.opt, "R_pop": errors.pop, "R_gen": errors.gen,
                    "E_ca": errors.conflict, "E_caw": errors.conflict_weight}  # fmt: skip
        for name, value in expected.items():
            assert float(found[name][i]) == pytest.approx(value, rel=1e-9), name
    assert (found["R_gen"].abs() <= found["gen_bound"]).all()


def test_conflict_is_the_mean_over_pairs_of_runs():
    v = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    definition, squares = conflict(v)
    pairs = [v[:, i] * v[:, j] for i in range(5) for j in range(5) if i != j]
    assert torch.allclose(definition, torch.stack(pairs).sum(-1).mean(0))
    assert torch.allclose(squares, v.square().sum(-1).mean(1))
    with pytest.raises(ValueError, match="at least 2 runs, found 1"):
        conflict(v[:, :1])


def test_conflict_is_unbiased():
    generator = torch.Generator().manual_seed(1)
    truth = torch.tensor([0.3, -0.4]).double()
    noise = torch.randn(20_000, 3, 2, dtype=torch.float64, generator=generator)
    definition, squares = conflict(truth + noise)
    assert float(definition.mean()) == pytest.approx(0.25, abs=0.03)
    assert float(squares.mean()) == pytest.approx(2.25, abs=0.05)


def test_watch_is_told_the_end():
    seen = []
    simulate(QUADRATIC, [Arm("static", 0.1)], data=QUADRATIC.draw([0]), start=QUADRATIC.start,
             seeds=[0], steps=3, watch=lambda *now: seen.append(now))  # fmt: skip
    assert seen[-1] == (3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arms": []}, "arms must not be empty"),
        ({"data": torch.zeros(3, 2)}, "data must have shape trials × n × d"),
        ({"seeds": [1, 2]}, "seeds must be 1, one a trial, found 2"),
        ({"steps": -1}, "steps must be at least 0, found -1"),
        ({"snapshots": [5]}, "snapshots must be steps from 0 to 3"),
    ],
)
def test_bad_input_is_one_clear_line(options, message):
    given = {"arms": [Arm("static", 0.1)], "data": QUADRATIC.draw([0]), "seeds": [0], "steps": 3}
    given |= {"start": QUADRATIC.start, **options}
    with pytest.raises(ValueError, match=message):
        simulate(QUADRATIC, given.pop("arms"), **given)


class WithAdam(Quadratic):
    def optimizer(self, params, lr):
        return torch.optim.Adam(params, lr)


def test_adam_takes_the_step_size_of_every_arm():
    task = WithAdam(samples=7)
    arms = [Arm("static", 0.1, batch=2), Arm("static", 0.2, batch=2)]
    trace = simulate(task, arms, data=task.draw([0]), start=task.start, seeds=[4], steps=9)
    for i, arm in enumerate(arms):
        x, _ = plain(task, arm, task.draw([0])[0], task.start, 4, 9, "adam", 0.0)
        assert torch.allclose(trace.x[0, i, 0], x, rtol=1e-10)


@pytest.mark.parametrize("kind", [Quadratic, WithAdam])
def test_a_stopped_simulation_goes_on_bit_for_bit(tmp_path, monkeypatch, kind):
    task = kind(samples=7)
    monkeypatch.setattr(simulation, "KEPT", 10)
    arms = [Arm("mgda", 0.1), *(Arm("modo", 0.1, {"gamma": g}, batch=2) for g in (0.0, 0.1))]
    arms.append(Arm("moco", 0.1, {"beta": 0.5}, batch=2))
    options = {
        "data": QUADRATIC.draw(range(2)),
        "start": QUADRATIC.start,
        "seeds": [1, 2],
        "steps": 35,
        "snapshots": [0, 12, 33],
    }
    whole = simulate(task, arms, **options)
    kept, draw = tmp_path / "state.pt", simulation.Blocks.batch

    def stopped(self, step):
        if step == 27:
            raise KeyboardInterrupt
        return draw(self, step)

    monkeypatch.setattr(simulation.Blocks, "batch", stopped)
    with pytest.raises(KeyboardInterrupt):
        simulate(task, arms, kept=kept, **options)
    monkeypatch.setattr(simulation.Blocks, "batch", draw)
    assert kept.is_file()
    content = bytearray(kept.read_bytes())
    resumed = simulate(task, arms, kept=kept, **options)
    assert torch.equal(resumed.x, whole.x)
    assert torch.equal(resumed.weights, whole.weights)
    content[len(content) // 2] ^= 1  # damaged: the one before it is as good
    kept.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"state\.pt is damaged: .* before it, of step \d0$"):
        again = simulate(task, arms, kept=kept, **options)
    assert torch.equal(again.x, whole.x)
    assert torch.equal(again.weights, whole.weights)


# --- batches that grow ----------------------------------------------------------------------------


def test_growing_batches_are_means_of_as_many_samples():
    """With samples 0 and 1 the mean of k draws is a multiple of 1/k, and ½ on average."""
    data = np.array([[0.0], [1.0], [0.0], [1.0], [0.0], [1.0]])
    means = np.stack([simulation.growing_mean(seed, 0, 2, 3, data)[:, 0] for seed in range(400)])
    counts = 2 + 3 * np.arange(simulation.BLOCK)
    assert np.allclose(means * counts, np.round(means * counts), atol=1e-9)
    assert means.mean(0) == pytest.approx(0.5, abs=0.11)
    # A mean of k draws of variance ¼, few (as indices) or many (as a multinomial law) alike.
    assert 4 * counts * means.var(0) == pytest.approx(1.0, abs=0.35)
    assert (4 * counts * means.var(0)).mean() == pytest.approx(1.0, abs=0.02)


def test_a_growing_run_is_what_the_ordinary_loop_gives():
    arm = Arm("smg", 0.05, batch=1, growth=2)
    data = QUADRATIC.draw([0])
    trace = simulate(QUADRATIC, [arm], data=data, start=QUADRATIC.start, seeds=[5], steps=12)
    means = torch.from_numpy(simulation.growing_mean(5, 0, 1, 2, data[0].numpy()))
    x = QUADRATIC.start.clone().requires_grad_()
    smg, sgd = trimol.SMG([x], 3), torch.optim.SGD([x], lr=0.05)
    for z in means[:12]:
        sgd.zero_grad()
        smg(QUADRATIC.values(x, z)).backward()
        sgd.step()
    assert torch.allclose(trace.x[0, 0, 0], x.detach(), rtol=1e-10)


def test_growth_needs_a_batch():
    with pytest.raises(ValueError, match="growth must be at least 0, and 0 without a batch"):
        simulate(QUADRATIC, [Arm("smg", 0.1, growth=1)], data=QUADRATIC.draw([0]),
                 start=QUADRATIC.start, seeds=[0], steps=1)  # fmt: skip
