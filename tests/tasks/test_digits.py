"""The digits task: the data, the paper's losses, the split."""

import pytest
import torch
from torch import nn

from trimol import _extras
from trimol.tasks.digits import Digits


class Fixed(nn.Module):
    """A model that answers what it is told."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits[: len(images)]


def test_data_is_all_of_the_digits_once() -> None:
    data = Digits().data()
    assert data.train[0].shape == (1437, 64)
    assert data.test[0].shape == (360, 64)
    images = torch.cat([data.train[0], data.test[0]])
    assert (images.min(), images.max()) == (0, 1)
    # Each of scikit-learn's images is there; the sum over all would miss none and count none twice.
    assert images.mul(16).sum().item() == 561718
    labels = torch.cat([data.train[1], data.test[1]])
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_split_is_named_by_the_seed() -> None:
    first, again, other = Digits(), Digits(), Digits(seed=1)
    assert torch.equal(first.data().train[0], again.data().train[0])
    assert not torch.equal(first.data().train[0], other.data().train[0])
    assert len(Digits(test=500).data().test[0]) == 500


def test_validation_images_come_from_the_training_images() -> None:
    whole, held = Digits().data(), Digits(validation=287).data()
    assert whole.validation is None
    assert held.validation is not None
    assert torch.equal(held.test[0], whole.test[0])
    both = torch.cat([held.validation[0], held.train[0]])
    assert torch.equal(both, whole.train[0])
    assert len(held.train[0]) == 1150


def test_split_mixes_the_classes() -> None:
    counts = Digits().data().test[1].bincount(minlength=10)
    assert counts.min() >= 20


def test_losses_by_hand() -> None:
    chances = torch.full((2, 10), 0.05, dtype=torch.float64)
    chances[:, 3] = 0.55
    batch = (torch.zeros(2, 64), torch.tensor([3, 0]))
    found = Digits().losses(Fixed(chances.log()), batch)

    def mse(errors: list[float]) -> float:
        return sum(e**2 for e in errors) / len(errors)

    def huber(errors: list[float]) -> float:
        quadratic = (0.5 * e**2 if abs(e) <= 0.1 else 0.1 * (abs(e) - 0.05) for e in errors)
        return sum(quadratic) / len(errors)

    errors = [0.45, *[0.05] * 9, 0.95, 0.55, *[0.05] * 8]
    cross_entropy = -torch.tensor([0.55, 0.05]).double().log().mean().item()
    assert found.tolist() == pytest.approx([cross_entropy, mse(errors), huber(errors)], rel=1e-6)
    assert Digits().metrics(Fixed(chances.log()), batch)["accuracy"] == 0.5


def test_one_loss_per_objective() -> None:
    task = Digits()
    assert len(task.losses(task.model(), task.data().test)) == len(task.objectives)


def test_model_comes_from_the_random_state() -> None:
    task = Digits(hidden=7)
    torch.manual_seed(5)
    first = task.model()
    torch.manual_seed(5)
    second = task.model()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert sum(p.numel() for p in first.parameters()) == 64 * 7 + 7 + 7 * 10 + 10


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(_extras, "import_module", absent)
    with pytest.raises(ImportError) as error:
        Digits().data()
    assert str(error.value) == "the task digits needs scikit-learn: pip install 'trimol[studies]'"
