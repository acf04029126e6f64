"""The study of fairness: its rays, its batches, and a small one that goes on where it stopped."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from trimol.tasks.fairness.people import Adult


@pytest.fixture(scope="module")
def study(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/fairness.py")


def test_rays_are_at_equal_angles_between_the_published_ends(study: ModuleType) -> None:
    found = study.rays(10)
    slopes = [b / a for a, b in found]
    assert slopes[0] == pytest.approx(0.01 / 0.6)
    assert slopes[-1] == pytest.approx(0.12 / 0.3)
    angles = torch.tensor(slopes).atan().diff()
    torch.testing.assert_close(angles, angles[:1].expand(9))
    assert all(sum(ray) == pytest.approx(1) for ray in found)


@pytest.mark.data
@pytest.mark.slow
def test_a_small_study_and_that_it_goes_on(study: ModuleType, tmp_path: Path, capsys) -> None:
    Adult().data()
    plan = study.Plan(tmp_path, ("static", "stch"), steps=20, points=2)
    first = study.study(plan)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    again = study.study(plan)
    assert written
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    assert first["rows"] == again["rows"]
    assert [r["metric"] for r in first["rows"][:3]] == [
        "hypervolume, batches", "hypervolume, train", "hypervolume, test",
    ]  # fmt: skip
    assert all(0 < r["mean"] < 1 for r in first["rows"])
    assert [r["paper"] for r in first["rows"]] == [0.636, None, None, 0.675, None, None]


def test_a_mean_over_batches_is_not_the_gap_of_all_rows(study: ModuleType) -> None:
    """Chance makes a gap in a batch, where the two groups are alike."""
    task = Adult(fairness="parity")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
    data = torch.randn(4096, 3), torch.randint(2, (4096,)), torch.randint(2, (4096,))
    whole = task.gap(model(data[0]), *data[1:]).item()
    found = study.over_batches(task, model, data)[1]
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(0))
    parts = [tensor[order].split(128) for tensor in data]
    told = [task.gap(model(x), y, g).item() for x, y, g in zip(*parts, strict=True)]
    assert found == pytest.approx(sum(told) / len(told), rel=1e-5)
    assert found > whole
    assert task.at_once == Adult.at_once
