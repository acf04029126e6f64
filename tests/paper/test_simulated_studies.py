"""The synthetic studies, small: what they measure, and that finished parts are not run again."""

import numpy as np
import polars
import pytest
import torch

from trimol.paper import _simulation as simulation
from trimol.paper import _theory_runs as theory_runs
from trimol.paper import _toy_runs as toy_runs
from trimol.paper import fig2, fig3
from trimol.paper._nonconvex_runs import EXAMPLES, drawn_samples, nonconvex, over_groups
from trimol.paper._region_runs import GROWTHS, grown
from trimol.paper._simulation import Arm, simulate
from trimol.paper._theory_runs import (
    COURSES,
    RHO_STATIC,
    below,
    constants,
    courses,
    problem,
    static_weights,
    twins,
)
from trimol.paper._toy_runs import ARMS, toy
from trimol.paper.fig3 import Sweep, sweep, sweeps
from trimol.paper.tasks.toy import STARTS, Toy


@pytest.fixture(autouse=True, scope="module")
def no_data_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIMOL_DATA", str(tmp_path_factory.mktemp("no-data")))
        yield


def never(*_, **__):
    raise AssertionError("a finished part was run again")


# --- the toy --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_toy(tmp_path_factory):
    return toy(tmp_path_factory.mktemp("parts"), seeds=2, steps=60)


def test_the_toy_has_every_arm_start_and_seed(small_toy):
    assert small_toy.ends.height == len(ARMS) * len(STARTS) * 2
    assert small_toy.trajectories["seed"].unique().to_list() == [0]
    assert "N(0, I)" in small_toy.source
    first = small_toy.trajectories.filter(polars.col("step") == 0)
    for start, point in enumerate(STARTS):
        rows = first.filter(polars.col("start") == start)
        assert set(zip(rows["x1"], rows["x2"], strict=True)) == {point}


def test_other_seeds_start_nearby(small_toy):
    rows = small_toy.progress.filter(polars.col("step") == 0, polars.col("seed") == 1)
    away = rows["x1"].to_numpy() - np.array(STARTS)[rows["start"].to_numpy(), 0]
    assert 0 < np.abs(away).min() < np.abs(away).max() < 0.1


def test_the_toys_last_rows_are_its_ends(small_toy):
    last = small_toy.trajectories.filter(polars.col("step") == 60).sort("method", "gamma", "start")
    ends = small_toy.ends.filter(polars.col("seed") == 0).sort("method", "gamma", "start")
    assert last.equals(ends.select(last.columns))


def test_arrival_and_leaving_are_told_by_the_path():
    task = Toy(data="drawn")
    (data,) = task.data().train
    answer = task.answer(data.mean(0))
    above, near = torch.tensor([0.0, 3.0]).double(), answer.of_mean
    path = torch.stack([above, near, above, near, near])[:, None, None]
    trace = toy_runs.Trace((0, 10, 20, 30, 40), path, torch.full((5, 1, 1, 2), 0.5).double())
    ends = toy_runs._ends(task, data, trace, [(0, 0)])
    assert ends["arrival"].to_list() == [10]
    assert ends["left"].to_list() == [30]
    assert ends["from_mean"].to_list() == pytest.approx([0], abs=1e-12)
    stays = toy_runs.Trace((0,), path[:1], trace.weights[:1])
    ends = toy_runs._ends(task, data, stays, [(0, 0)])
    assert ends["arrival"].to_list() == ends["left"].to_list() == [None]


def test_the_distance_from_a_polygon():
    curve = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0]]).double()
    x = torch.tensor([[1.0, -1.0], [3.0, 3.0], [2.0, 1.0], [-3.0, 4.0]]).double()
    assert toy_runs._away(x, curve).tolist() == pytest.approx([1, 2**0.5, 0, 5])


def test_a_finished_toy_is_read(small_toy, tmp_path, monkeypatch):
    first = toy(tmp_path, seeds=1, steps=20)
    monkeypatch.setattr(toy_runs, "simulate", never)
    assert toy(tmp_path, seeds=1, steps=20).ends.equals(first.ends)
    with pytest.raises(AssertionError, match="run again"):
        toy(tmp_path, seeds=1, steps=21)
    with pytest.raises(ValueError, match="seeds must be at least 1, found 0"):
        toy(tmp_path, seeds=0)


# --- sweeps ---------------------------------------------------------------------------------------


def test_a_sweep_over_steps_is_the_runs_at_their_defaults(tmp_path):
    table = sweep(tmp_path, "d=2, n=20", Sweep("T", (10.0, 100.0)), datasets=3, runs=4)
    alpha = sweep(tmp_path, "d=2, n=20", Sweep("alpha", (0.01, 0.1)), datasets=3, runs=4)
    gamma = sweep(tmp_path, "d=2, n=20", Sweep("gamma", (0.001,)), datasets=3, runs=4)
    at = [
        t.filter(polars.col("value") == v) for t, v in ((table, 100), (alpha, 0.01), (gamma, 1e-3))
    ]
    for name in ("R_opt", "R_pop", "R_gen", "E_ca", "E_ca_unbiased"):
        first, *others = (rows.sort("dataset")[name].to_numpy() for rows in at)
        for other in others:
            assert first == pytest.approx(other, rel=1e-9), name
    assert table["value"].unique().sort().to_list() == [10, 100]
    assert (table["R_gen_signed"] <= table["gen_bound"]).all()
    assert (table["E_ca_unbiased"] <= table["E_ca"]).all()


def test_a_finished_sweep_is_read(tmp_path, monkeypatch):
    chosen = Sweep("gamma", (0.01,))
    first = sweep(tmp_path, "d=2, n=20", chosen, datasets=2, runs=2)
    monkeypatch.setattr(fig3, "simulate", never)
    assert sweep(tmp_path, "d=2, n=20", chosen, datasets=2, runs=2).equals(first)


def test_sweeps_have_the_papers_defaults_inside():
    for varied, default in zip(sweeps(), (100, 0.01, 0.001), strict=True):
        assert varied.values[0] < default < varied.values[-1]


# --- theory ---------------------------------------------------------------------------------------


def test_constants_are_true_of_what_a_run_sees():
    task = problem(10)
    z = task.draw([0])[0]
    known = constants(task, z)
    arm = Arm("modo", 0.4, {"gamma": 0.1}, batch=2)
    trace = simulate(task, [arm], data=z.expand(50, -1, -1), start=task.start, seeds=range(50),
                     steps=40, snapshots=range(41))  # fmt: skip
    gradients = task.jacobian(trace.x[..., None, :], z)
    assert float(gradients.norm(dim=-1).max()) <= known.ell_f
    weights = torch.distributions.Dirichlet(torch.ones(3).double()).sample((200,))
    at_best = task.values(task.minimiser(weights, z.mean(0)), z.mean(0))
    gains = -(at_best * weights).sum(-1)  # F is zero at x_0 = 0
    assert float(gains.max()) <= known.c_F
    assert (known.mu, known.ell_f1, known.M, known.n) == (task.mu, task.smoothness, 3, 10)


def test_courses_measure_what_is_promised_and_stay_under_the_bounds(tmp_path):
    table = courses(tmp_path, steps=(16, 32), datasets=2, runs=3)
    for course in COURSES:
        rows = table.filter(polars.col("course") == course.name)
        assert set(course.promised) <= set(rows["error"].unique())
    known = table.drop_nulls("bound")
    assert (known["measured"] < known["bound"]).all()
    assert set(known["course"].unique()) == {each.name for each in COURSES} - {"MoCo"}
    runs = {name: table.filter(polars.col("error") == name)["measured"] for name in
            ("E_ca", "E_ca_unbiased")}  # fmt: skip
    assert (runs["E_ca_unbiased"] <= runs["E_ca"]).all()


def test_twins_are_zero_without_a_difference_and_fall_with_n(tmp_path, monkeypatch):
    table = twins(tmp_path, samples=(8, 16), pairs=4, runs=10)
    means = table.group_by("n").agg(polars.col("measured").mean()).sort("n")["measured"]
    assert means[0] > means[1] > 0
    assert (table["measured"] < table["bound"]).all()
    task = problem(8)
    z = task.draw([0])
    same = theory_runs._apart(task, z, z, Arm("modo", 0.1, {"gamma": 0.1}, 2), 20, 3)
    assert not same.any()
    monkeypatch.setattr(theory_runs, "simulate", never)
    assert twins(tmp_path, samples=(8, 16), pairs=4, runs=10).equals(table)


def test_the_example_is_above_the_printed_bound(tmp_path):
    line = below(tmp_path, samples=(64,), runs=400).to_dicts()[0]
    assert line["measured"] - 3 * line["error"] > line["printed"]
    assert line["measured"] + 4 * line["error"] > line["bound"]


def test_courses_take_the_methods_of_their_theorems():
    arms = {course.name: course.arm(64) for course in COURSES}
    assert arms["SMG"] == Arm("smg", 0.125, {}, batch=1, growth=1)
    assert arms["MoCo"] == Arm("moco", 2 * 64**-0.75, {"beta": 0.125}, batch=1)
    assert arms["optimization"].hyperparameters["draws"] == 3


# --- static weights -------------------------------------------------------------------------------


def test_static_weights_end_where_theory_says(tmp_path):
    """With two bowls a distance D apart, λ = e_1 ends at the first: λ*_2 = ρ/(D² + 2ρ)."""
    table = static_weights(tmp_path, steps=(1024,), datasets=3, runs=4)
    task = problem(20, b1=(1.0, 1.0), b2=(1.0, 2.0))
    rows = table.filter(polars.col("problem") == "M = 2", polars.col("weights") == "(1, 0)")
    for number, measured in rows.select("dataset", "measured").iter_rows():
        apart = float(task.draw([number])[0].mean(0).square().sum())
        share = RHO_STATIC / (apart + 2 * RHO_STATIC)
        assert measured == pytest.approx(2 * share**2, rel=0.5)
    worst = table.filter(polars.col("problem") == "M = 3").group_by("weights")
    means = dict(worst.agg(polars.col("measured").mean()).iter_rows())
    assert max(means, key=means.get) == "(0, 1, 0)"
    assert means["(0, 1, 0)"] > 4 / 9
    assert table["lower"].unique().sort().to_list() == pytest.approx([1 / 4, 4 / 9])


# --- stability without convexity ------------------------------------------------------------------


def by_hand(example, draws):
    """MoDo with equal objectives (λ has nothing to choose), one run, sample by sample."""
    data = [each[:, 0].numpy() for each in example.pair(100)]
    ends = []
    for z in data:
        x = np.pi / 4
        for pair in draws:
            x = x - np.pi / 80 * np.cos(x + z[pair]).mean()
        ends.append(x)
    return 2 * max((np.cos(ends[0] + at) - np.cos(ends[1] + at)) ** 2 for at in (0, -np.pi / 8))


def test_the_papers_example_is_run_as_its_proof_says(tmp_path):
    """Against a plain loop over the same samples, many runs at once; above the derived bound."""
    table = nonconvex(tmp_path, samples=(10,), steps=(2,), runs=100)
    sine = over_groups(table).filter(polars.col("example") == "sine")
    last = sine.filter(polars.col("T") == 10).to_dicts()[0]
    draws = [simulation.sample_indices(seed, 0, 2, 100)[:10] for seed in range(100)]
    wanted = np.mean([by_hand(EXAMPLES["sine"], own) for own in draws])
    assert last["measured"] == pytest.approx(wanted, rel=1e-6)
    assert (sine["measured"] > sine["lower"]).all()
    assert (sine["measured"] < sine["bound"]).all()


@pytest.mark.slow
def test_runs_of_the_steep_example_have_nothing_in_common_once_they_differ(tmp_path):
    """ε_F² is the chance that the sample was drawn, times E‖∇F(x) − ∇F(x')‖² = 2."""
    table = nonconvex(tmp_path, samples=(20,), steps=(4, 16), runs=200)
    found = over_groups(table).filter(polars.col("example") == "steep")
    for line in found.to_dicts():
        chance = 1 - (1 - 1 / 20) ** drawn_samples(line["method"], line["T"])
        assert line["measured"] == pytest.approx(2 * chance, abs=4 * line["error"] + 0.05), line
        assert line["runs"] == 20
    smg = found.filter(polars.col("method") == "smg", polars.col("T") == 16).to_dicts()[0]
    assert smg["bound"] == pytest.approx(4 * 4.5)  # 136 samples of 20: surely drawn
    assert smg["printed"] == pytest.approx(4 * 4.5 * 16 / 20)
    assert smg["rate"] == 16 / 20


def test_gradients_of_the_examples_are_their_derivatives():
    x, z = torch.tensor([[0.3]]).double(), torch.tensor([[-0.2]]).double()
    for example, step in (("sine", 1e-6), ("steep", 1e-9)):
        task = EXAMPLES[example]
        rise = (task.values(x + step, z) - task.values(x - step, z)) / (2 * step)
        assert torch.allclose(task.jacobian(x, z)[..., 0], rise, rtol=1e-4, atol=1e-5)
        bound = task.second_moment()
        assert float(task.jacobian(x, z).square().sum()) <= bound


# --- the regions of Figure 2 ----------------------------------------------------------------------


def test_schedules_lie_in_the_regions_that_they_are_named_after():
    named = {name: fig2.as_printed(own.schedule) for name, own in GROWTHS.items()}
    assert {name: where for name, where in named.items() if name in ("I", "II", "III", "IV")} == {
        name: name for name in ("I", "II", "III", "IV")
    }
    assert GROWTHS["IV"].derived == pytest.approx({"R_opt": 0.1, "R_gen": 0.1, "E_ca": 0.1})
    alpha, gamma, steps = GROWTHS["II"].at(256)
    assert (alpha, gamma, steps) == (pytest.approx(1 / 32), pytest.approx(0.05 * 1024**-0.25), 1024)


@pytest.mark.slow
def test_errors_over_n_are_those_of_the_last_step(tmp_path):
    table = grown(tmp_path, largest=16, datasets=2, runs=3)
    assert set(table["error"]) == {"R_opt", "R_gen", "R_pop", "E_ca"}
    own = table.filter(polars.col("region") == "resting")
    assert own["n"].unique().sort().to_list() == [8, 16]
    assert own["T"].unique().sort().to_list() == [64, 256]
    by_error = {name: own.filter(polars.col("error") == name)["measured"] for name in
                ("R_opt", "R_gen", "R_pop")}  # fmt: skip
    assert ((by_error["R_pop"] - by_error["R_opt"]).abs() <= by_error["R_gen"] + 1e-12).all()
    assert grown(tmp_path, largest=16, datasets=2, runs=3).equals(table)
