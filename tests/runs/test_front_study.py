"""A front of runs: it is where it must be, nothing is run twice, and the numbers are right."""

import json
import math
from pathlib import Path

import numpy as np
import polars
import pytest
import torch

from trimol.maths import fronts
from trimol.runs import Front, Interrupted, front, store
from trimol.runs import study as results
from trimol.runs._front_points import FrontPoint, Space, derived, judged, lowered
from trimol.runs._front_tables import front_differences, front_rows
from trimol.runs._variants import Variant
from trimol.tasks.quadratic import Quadratic
from trimol.training import Diverged

TWO = {"b1": [1.0, 2.0], "b2": [1.0, 3.0], "std": 0.5}
GOALS = '''
import torch
from torch import nn
from trimol.tasks import Data, Task


class Judged(Task):
    """Two losses that pull a number apart, judged by metrics of which one is better if higher."""

    name = "judged"
    objectives = ("low", "high")
    goals = {"low": {"score": "higher"}, "high": {"error": "lower"}}

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        shift = batch[0].mean()
        return [(model.bias + shift).square().sum(), (model.bias - 1).square().sum()]

    def metrics(self, model, batch):
        low, high = self.losses(model, batch)
        return {"score": -low, "error": high}

    def data(self):
        return Data(*((torch.full((64, 1), shift),) for shift in (0.0, 0.1, 0.2)))


class Single(Judged):
    name = "single"
    objectives = ("low",)
    goals = {}


'''


@pytest.fixture(scope="module")
def concave(tmp_path_factory: pytest.TempPathFactory) -> tuple[Front, Path]:
    folder = tmp_path_factory.mktemp("concave")
    by = ["static", "stch"]
    found = front("concave", by, folder=folder, points=5, refine=2, seeds=2, steps=120)
    return found, folder


@pytest.fixture
def judged_task(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(GOALS)
    return f"{tmp_path / 'own.py'}:Judged"


def test_every_point_of_the_quadratic_is_the_minimiser_of_its_weighted_sum(tmp_path: Path) -> None:
    settings = {"steps": 120, "points": 3, "batch_size": 20, "lr": 0.3}
    found = front("quadratic", ["static"], folder=tmp_path, task_options=TWO, **settings)
    task = Quadratic(**TWO)
    mean = task.data().train[0].mean(0)
    for point in found.points:
        weights = torch.tensor(point.preference, dtype=torch.float64)
        x = task.minimiser(weights, mean)
        np.testing.assert_allclose(point.values["train"], task.values(x, mean), rtol=1e-9)
        np.testing.assert_allclose(point.values["test"], task.values(x, task.population), rtol=1e-9)
        assert not point.dominated["train"]
    # On the front of the training data, and so not on that of the population.
    exact = task.true_front(task.data().train, 20_001).numpy()
    reached = np.array([point.values["train"] for point in found.points])
    assert np.linalg.norm(reached[:, None] - exact, axis=-1).min(1).max() < 1e-4
    (train,) = (space for space in found.spaces if space.name == "train")
    known = task.true_front(task.data().train, len(found.known["train"]))
    assert found.indicator("igd", "static", train) == [fronts.igd(reached, known)]


@pytest.mark.slow
def test_weighted_sums_end_at_the_ends_and_the_smooth_maximum_fills_a_concave_front(
    concave: tuple[Front, Path],
) -> None:
    found, _ = concave
    middle = [0.2, 0.8]
    for seed in range(2):
        ends = [min(point.values["test"]) for point in found.of("static", seed)]
        assert max(ends) < 0.05
        inside = [p for p in found.of("stch", seed) if min(p.values["test"]) > middle[0]]
        assert len(inside) >= 3
        exact = found.known["test"]
        for p in inside:
            assert np.linalg.norm(exact - p.values["test"], axis=1).min() < 5e-3
    rows = {(r["method"], r["metric"], r["data"]): r for r in front_rows(found)}
    better, worse = (rows[name, "hypervolume", "test"]["mean"] for name in ("stch", "static"))
    assert better > 1.5 * worse
    assert rows["stch", "igd", "test"]["mean"] < rows["static", "igd", "test"]["mean"] / 3
    (difference,) = front_differences(found)
    assert difference.baseline == "static"
    assert difference.mean == pytest.approx(better - worse)


def test_refined_points_are_where_neighbours_were_farthest_apart(
    concave: tuple[Front, Path],
) -> None:
    found, _ = concave
    for method in ("static", "stch"):
        own = found.of(method)
        first = sorted({p.preference for p in own if not p.refined})
        added = sorted({p.preference for p in own if p.refined})
        assert (len(first), len(added)) == (5, 2)
        at = {q: [p.values["train"] for p in own if p.preference == q] for q in first}
        means = np.array([np.mean(at[q], 0) for q in first])
        gaps = np.linalg.norm(np.diff(means / np.ptp(means, 0), axis=0), axis=1)
        widest = int(gaps.argmax())
        assert any(first[widest] < q < first[widest + 1] for q in added)
        # Every preference is run with every seed.
        assert {len([p for p in own if p.preference == q]) for q in added} == {2}


def test_the_study_says_what_the_front_does(concave: tuple[Front, Path]) -> None:
    found, folder = concave
    study = results.load(folder)
    table = study.tables["points"]
    assert len(table) == len(found.points) == 28
    for point, row in zip(found.points, table.to_dicts(), strict=True):
        run = store.load(folder / row["folder"])
        assert run.path == point.folder
        assert run.config.seed == row["seed"]
        assert run.record["test_loss/f1"] == row["test/f1"]
        assert run.record["loss/f2"] == row["train/f2"] == point.values["train"][1]
        (steer,) = (v for k, v in run.config.hyperparameters.items() if k in ("weights", "prefer"))
        assert steer == [row["weight/f1"], row["weight/f2"]] == list(point.preference)
    # The same number for every seed of a preference, in the order of the front.
    assert table.group_by("method", "point").len()["len"].unique().to_list() == [2]
    json.dumps(study.summary(), allow_nan=False)


def test_the_model_of_a_point_can_be_had(concave: tuple[Front, Path]) -> None:
    from trimol import tasks

    found, _ = concave
    point = found.of("stch", 1)[3]
    run = store.load(point.folder)
    task = tasks.load(run.config.task, run.config.task_options)
    model = task.model()
    model.load_state_dict(run.parameters)
    losses = task.losses(model, task.data().test)
    np.testing.assert_allclose(losses.detach(), point.values["test"], rtol=1e-12)


def test_nothing_is_run_again_and_more_can_be_asked_for(concave: tuple[Front, Path]) -> None:
    found, folder = concave
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("model.pt")}
    told: list[tuple[str, int]] = []
    again = front(
        "concave",
        ["static", "stch"],
        folder=folder,
        points=5,
        refine=2,
        seeds=2,
        steps=120,
        watch=lambda config, step, record: told.append((config.key, step)),
    )
    assert again.points == found.points
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("model.pt")}
    assert {step for _, step in told} == {120}  # those that are there are told of
    assert len({key for key, _ in told}) == 28


def test_an_interrupted_front_goes_on_to_the_same_points(tmp_path: Path) -> None:
    asked = {"points": 3, "refine": 2, "steps": 60}
    whole = front("concave", ["stch"], folder=tmp_path / "whole", **asked)

    def run(stop: int) -> Front:
        steps = 0

        def watch(config, step, record) -> None:
            nonlocal steps
            steps += 1
            if steps == stop:
                raise Interrupted("stopped", 130)

        return front("concave", ["stch"], folder=tmp_path / "broken", watch=watch, **asked)

    for stop in (40, 90, 100):
        with pytest.raises(Interrupted):
            run(stop)
        assert not (tmp_path / "broken" / "study.json").exists()
    broken = run(0)
    for ours, theirs in zip(broken.points, whole.points, strict=True):
        assert ours.preference == theirs.preference
        assert ours.values == theirs.values
        for name in ("model.pt", "metrics.parquet"):
            assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes()
    tables = [results.load(tmp_path / name).tables["points"] for name in ("broken", "whole")]
    assert tables[0].equals(tables[1])


def test_goals_count_the_way_they_are_meant(judged_task: str, tmp_path: Path) -> None:
    found = front(judged_task, ["static"], folder=tmp_path / "a", points=4, steps=60)
    assert [space.name for space in found.spaces] == ["test", "validation", "train", "goals"]
    goals = found.spaces[-1]
    assert (goals.axes, goals.signs) == (("score", "error"), (-1, 1))
    for point in found.points:
        assert point.values["goals"] == (point.metrics["score"], point.metrics["error"])
        assert point.values["goals"] == (-point.values["test"][0], point.values["test"][1])
        assert not point.dominated["goals"]
        bias = store.load(point.folder).parameters["bias"].item()
        for name, shift in (("test", 0.1), ("validation", 0.2), ("train", 0.0)):
            expected = [(bias + shift) ** 2, (bias - 1) ** 2]
            np.testing.assert_allclose(point.values[name], expected, rtol=1e-4)
    # Losses and goals are the same numbers here, but for the sign.
    test, *_ = found.spaces
    volumes = [found.indicator("hypervolume", "static", space) for space in (test, goals)]
    assert volumes[0] == pytest.approx(volumes[1])
    assert found.references["goals"][0] == pytest.approx(-found.references["test"][0])


def test_variants_of_one_method_are_fronts_of_their_own(tmp_path: Path) -> None:
    by = ["stch", Variant("stch", "smooth", hyperparameters={"mu": 1.0})]
    found = front("concave", by, folder=tmp_path, points=3, steps=40)
    assert found.methods == ("stch", "smooth")
    configs = {p.method: store.load(p.folder).config for p in found.points}
    assert configs["smooth"].hyperparameters["mu"] == 1.0
    assert configs["stch"].hyperparameters["mu"] == 0.02


def test_a_reference_that_is_given_is_taken(tmp_path: Path) -> None:
    asked = {"points": 3, "steps": 40, "folder": tmp_path}
    found = front("concave", ["stch"], reference=[2.0, 3.0], **asked)
    assert found.given
    assert found.references["test"] == (2.0, 3.0)
    at = np.array([p.values["test"] for p in found.points])
    (row,) = (r for r in front_rows(found) if (r["metric"], r["data"]) == ("hypervolume", "test"))
    assert row["mean"] == pytest.approx(fronts.hypervolume(at, [2.0, 3.0]))
    assert (row["reference"], row["reference_from"]) == ([2.0, 3.0], "user")


@pytest.mark.slow
def test_runs_that_diverge_are_left_out_and_said(judged_task: str, tmp_path: Path) -> None:
    # Steps of 1.5 (w₁ + w₂ = 1): x moves on by a factor of −2 for ever.
    with pytest.raises(Diverged, match="every run diverged"):
        front(judged_task, ["static"], folder=tmp_path / "a", points=2, steps=400, lr=2.0)
    lr = {"static": 2.0}
    found = front(
        judged_task, ["stch", "static"], folder=tmp_path / "b", points=2, steps=400, lr=lr
    )
    assert {config.method for config, _ in found.failed} == {"static"}
    assert found.of("static") == []
    (test, *_) = found.spaces
    assert found.indicator("hypervolume", "static", test) == [0.0]  # nothing was reached
    assert math.isnan(found.indicator("igd", "stch", test)[0])  # nobody knows the front


def points_at(*places: tuple[float, ...], method: str = "a", seed: int = 0) -> list[FrontPoint]:
    return [
        FrontPoint(method, seed, (i, 0.0), None, False, Path(), {"test": at}, {}, {})
        for i, at in enumerate(places)
    ]


TEST = Space("test", ("f", "g"), (1, 1))


def test_only_points_of_the_same_method_and_seed_dominate() -> None:
    low, high = (1.0, 1.0), (2.0, 2.0)
    together = judged([*points_at(low, high)], [TEST])
    assert [p.dominated["test"] for p in together] == [False, True]
    apart = judged(
        [*points_at(low), *points_at(high, seed=1), *points_at(high, method="b")], [TEST]
    )
    assert not any(p.dominated["test"] for p in apart)


def test_points_that_are_not_finite_are_never_on_the_front() -> None:
    found = judged(points_at((math.nan, 0.0), (-math.inf, 0.0), (1.0, 1.0)), [TEST])
    assert [p.dominated["test"] for p in found] == [True, True, False]
    assert derived(found, TEST) == (1.1, 1.1)


def test_the_derived_reference_is_beyond_all_nondominated_points() -> None:
    found = judged(points_at((0.0, 4.0), (2.0, 0.0), (50.0, 50.0)), [TEST])
    assert derived(found, TEST) == pytest.approx((2.2, 4.4))
    signs = Space("test", ("f", "g"), (-1, 1))
    turned = judged(points_at((0.0, 4.0), (2.0, 8.0)), [signs])
    assert derived(turned, signs) == pytest.approx((-0.2, 8.4))
    assert derived(judged(points_at((0.0, -3.0)), [TEST]), TEST) == pytest.approx((1.0, -2.7))
    assert lowered(turned, signs).tolist() == [[0.0, 4.0], [-2.0, 8.0]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"by": ["mgda"]},
            "by must be of static, .*, conditioned, which make a front, found 'mgda'",
        ),
        ({"by": []}, "one or more different names"),
        ({"by": ["stch", "stch"]}, "one or more different names"),
        ({"by": ["nobody"]}, "method must be one of .* found 'nobody'"),
        ({"points": 0}, "points must be a whole number of at least 1, found 0"),
        ({"points": [[0.5, 0.6]]}, r"points must sum to 1, found a sum of 1.1"),
        ({"points": [[0.5, 0.5], [0.5, 0.5]]}, "points must be one or more different preferences"),
        ({"points": []}, "points must be one or more different preferences"),
        ({"refine": -1}, "refine must be a whole number of at least 0, found -1"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, found 0"),
        (
            {"reference": [1.0]},
            r"reference must be 2 finite numbers, one for each of f1, f2, found",
        ),
        ({"reference": [1.0, math.nan]}, "reference must be 2 finite numbers"),
        (
            {"hyperparameters": {"stch": {"prefer": [1, 1]}}},
            "stch: prefer says which points of the front are meant: do not set it",
        ),
    ],
)
def test_what_does_not_fit_is_said_before_anything_runs(changed, said, tmp_path: Path) -> None:
    asked = {"by": ["stch"], "folder": tmp_path / "none", "steps": 10, "points": 2, **changed}
    with pytest.raises(ValueError, match=said):
        front("concave", **asked)
    assert not (tmp_path / "none").exists()


def test_one_objective_has_no_front(judged_task: str, tmp_path: Path) -> None:
    task = judged_task.replace("Judged", "Single")
    with pytest.raises(ValueError, match="a front needs at least two objectives, found one, low"):
        front(task, ["static"], folder=tmp_path / "a", steps=5)


def test_preferences_can_be_given(tmp_path: Path) -> None:
    wanted = [[1.0, 0.0], [0.25, 0.75]]
    found = front("concave", ["static"], folder=tmp_path, points=wanted, steps=20)
    assert [p.preference for p in found.points] == [(1.0, 0.0), (0.25, 0.75)]
    assert isinstance(results.load(tmp_path).tables["points"], polars.DataFrame)
