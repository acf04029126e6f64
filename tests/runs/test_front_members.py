"""Fronts whose points are several in one run: many models at once, or one that is told which."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from trimol import tasks
from trimol.runs import front, store
from trimol.tasks.conditioned import Conditioned

LINE = '''
import torch
from torch import nn
from trimol.tasks import Data, Task


class Line(Task):
    """A line through points that a second loss wants to be flat."""

    name = "line"
    objectives = ("fit", "slope")

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), model(x).square().mean()]

    def metrics(self, model, batch):
        x, y = batch
        return {"off": (model(x) - y).abs().mean()}

    def data(self):
        x = torch.linspace(-1, 1, 192)[:, None]
        parts = [(x[i::3], 3 * x[i::3] + i) for i in range(3)]
        return Data(train=parts[0], test=parts[1], validation=parts[2])
'''


@pytest.fixture
def line(tmp_path: Path) -> str:
    (tmp_path / "line.py").write_text(LINE)
    return f"{tmp_path / 'line.py'}:Line"


def test_a_population_is_one_run_and_every_model_a_point(line: str, tmp_path: Path) -> None:
    found = front(line, ["hvgrad"], folder=tmp_path / "a", points=3, refine=2, steps=60, seeds=2)
    assert len(store.find(tmp_path / "a")) == 2
    assert [(p.seed, p.member) for p in found.points] == [(s, k) for s in (0, 1) for k in range(3)]
    assert {p.preference for p in found.points} == {()}  # nothing to refine by
    task = tasks.load(line)
    for point in found.points:
        state = store.load(point.folder).parameters
        own = task.model()
        member = point.member
        own.load_state_dict({k: state[f"{member}.{k}"] for k in ("weight", "bias")})
        for name in ("train", "validation", "test"):
            batch = getattr(task.data(), name)
            expected = [loss.item() for loss in task.losses(own, batch)]
            np.testing.assert_allclose(point.values[name], expected, rtol=1e-5)
        off = task.metrics(own, task.data().test)["off"].item()
        assert point.metrics["off"] == pytest.approx(off, rel=1e-5)


def test_one_model_is_told_every_preference(line: str, tmp_path: Path) -> None:
    asked = {"points": 3, "refine": 1, "steps": 200, "lr": 0.03}
    found = front(line, ["conditioned"], folder=tmp_path / "a", **asked)
    (run,) = store.find(tmp_path / "a")
    assert {p.folder for p in found.points} == {run.path}
    assert len(found.points) == 4
    assert [p.refined for p in found.points] == [False, False, False, True]
    for point in found.points:
        task = Conditioned(of=line, prefer=point.preference)
        model = task.model()
        model.load_state_dict(run.parameters)
        with torch.no_grad():
            expected = task.losses(model.eval(), task.data().test)
        np.testing.assert_allclose(point.values["test"], expected, rtol=1e-5)
    # The more a loss is preferred, the lower it is.
    fits = [p.values["train"][0] for p in found.of("conditioned")]
    assert fits == sorted(fits)
    assert fits[-1] > fits[0]


def test_all_kinds_are_compared_by_one_reference(line: str, tmp_path: Path) -> None:
    by = ["static", "conditioned", "hvgrad"]
    found = front(line, by, folder=tmp_path / "a", points=2, steps=20)
    assert found.methods == tuple(by)
    assert [len(found.of(name)) for name in by] == [2, 2, 2]
    test, *_ = found.spaces
    assert all(found.indicator("hypervolume", name, test)[0] > 0 for name in by)
    again = front(line, by, folder=tmp_path / "a", points=2, steps=20)
    assert again.points == found.points


def test_what_is_given_to_the_conditioned_task_is_its_own(line: str, tmp_path: Path) -> None:
    by, common = ["static", "conditioned"], {"folder": tmp_path / "a", "points": 2, "steps": 5}
    given = {"hyperparameters": {"conditioned": {"penalty": 2.0}}, "lr": {"conditioned": 0.03}}
    front(line, by, **common, **given)
    runs = {run.config.task: run.config for run in store.find(tmp_path / "a")}
    assert runs["conditioned"].lr == 0.03
    assert runs["conditioned"].task_options["penalty"] == 2.0
    assert runs[line].lr == 0.1
    with pytest.raises(ValueError, match="lr must be of static, conditioned, found 'stch'"):
        front(line, by, **common, lr={"stch": 1.0})


def test_a_corner_can_be_asked_of_a_conditioned_model(line: str, tmp_path: Path) -> None:
    corners = [[1.0, 0.0], [0.0, 1.0]]
    found = front(line, ["conditioned"], folder=tmp_path / "a", points=corners, steps=20)
    assert [p.preference for p in found.points] == [(1.0, 0.0), (0.0, 1.0)]
    assert found.points[0].values["train"] != found.points[1].values["train"]


def test_an_option_of_the_task_is_not_taken_for_one_of_the_task_around(tmp_path: Path) -> None:
    (tmp_path / "line.py").write_text(
        LINE.replace("    def model", "    def __init__(self, *, points=3): pass\n\n    def model")
    )
    task, options = f"{tmp_path / 'line.py'}:Line", {"points": 7}
    with pytest.raises(ValueError, match="task_options: points is an option of population, too"):
        front(task, ["hvgrad"], folder=tmp_path, points=2, steps=5, task_options=options)
    assert len(front(task, ["hvgrad"], folder=tmp_path, points=2, steps=5).points) == 2


def test_a_folder_that_is_used_again_has_its_new_models(tmp_path: Path) -> None:
    (tmp_path / "line.py").write_text(
        LINE.replace(
            "3 * x[i::3]", f"float(Path({str(tmp_path)!r}, 'slope').read_text()) * x[i::3]"
        ).replace("import torch", "from pathlib import Path\nimport torch", 1)
    )
    name = str(tmp_path / "line.py")
    for slope in ("3", "-3"):
        (tmp_path / "slope").write_text(slope)
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        found = front(name, ["hvgrad"], folder=tmp_path / "a", points=1, steps=50)
    (point,), task = found.points, tasks.load(name)
    model = torch.nn.ModuleList([task.model()])
    model.load_state_dict(store.load(point.folder).parameters)
    expected = [loss.item() for loss in task.losses(model[0], task.data().test)]
    np.testing.assert_allclose(point.values["test"], expected, rtol=1e-5)


def test_weights_whose_sum_is_negative_stop_no_front(line: str, tmp_path: Path) -> None:
    common = {"points": 6, "steps": 3, "lr": 0.01, "batch_size": 8}
    found = front(line, ["pbi"], folder=tmp_path / "a", **common)
    assert len(found.points) == 6
    records = [run.record for run in store.find(tmp_path / "a")]
    assert min(record["weight/fit"] + record["weight/slope"] for record in records) < 0
    assert all(np.isfinite(record["E_ca"]) for record in records)


def test_a_model_that_cannot_be_told_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of must be a task whose losses call its model"):
        front("concave", ["conditioned"], folder=tmp_path / "a", points=2, steps=5)


@pytest.mark.parametrize("method", ["tchebycheff", "pbi", "epo", "pmgda", "preference"])
def test_every_method_that_takes_a_preference_makes_a_front(method: str, tmp_path: Path) -> None:
    found = front("concave", [method], folder=tmp_path, points=2, steps=80)
    first, second = (p.values["test"] for p in found.points)
    assert first[0] < second[0]
    assert first[1] > second[1]
