"""Tasks by name, and the promises that each built-in one keeps."""

import pytest
import torch

from trimol import methods, tasks
from trimol.gradients.losses import as_vector
from trimol.tasks import Batch, Data, Task

# The features of these take minutes: test_office.py has the same tests on a small folder.
NAMES = [name for name in tasks.names() if not name.startswith("office")]
# A gap between two groups is none: their docstring says so, and they are measured in one batch.
NO_MEANS = ("adult", "compas", "german", "credit")


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_whole(name: str) -> None:
    task = tasks.get(name)()
    assert task.name == name
    assert set(task.settings) <= set(methods.names())
    data = task.data()
    assert len(data.train) == len(data.test)
    assert len({len(tensor) for tensor in data.train}) == 1
    batch = tuple(tensor[:8] for tensor in data.train)
    model = task.model()
    losses = as_vector(task.losses(model, batch))
    assert len(losses) == len(task.objectives) == len(set(task.objectives))
    assert all(value.dim() == 0 for value in task.metrics(model, batch).values())


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NO_MEANS])
def test_losses_are_means_over_samples(name: str) -> None:
    task = tasks.get(name)()
    data = task.data().train
    model = task.model().double().eval()
    batch = tuple(t[:6].double() if t.is_floating_point() else t[:6] for t in data)
    whole = as_vector(task.losses(model, batch))
    singles = [tuple(t[i : i + 1] for t in batch) for i in range(6)]
    parts = torch.stack([as_vector(task.losses(model, single)) for single in singles])
    counts = torch.stack([_counts(task, single) for single in singles])
    torch.testing.assert_close(whole, (parts * counts).sum(0) / counts.sum(0).clamp_min(1))


def _counts(task: Task, batch: Batch) -> torch.Tensor:
    found = task.counts(batch)
    return torch.ones(len(task.objectives)) if found is None else found


def test_unknown_task() -> None:
    with pytest.raises(ValueError, match=r"name must be one of digits, .*, found 'mnist8'"):
        tasks.get("mnist8")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (torch.utils.data.DataLoader([1, 2]), "train must be a tuple of tensors, .* DataLoader"),
        (torch.zeros(3), "train must be a tuple of tensors, .* Tensor"),
        ((), "train must be a tuple of tensors, .* tuple"),
        ((torch.zeros(3), torch.zeros(4)), "train must hold tensors with as many .* found 3, 4"),
    ],
    ids=range(4),
)
def test_data_that_is_none_is_refused(train, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Data(train=train, test=(torch.zeros(2),))
