"""MNIST and Fashion-MNIST: files of our own making, and the real ones where they are."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from trimol.data._files import datasets
from trimol.data._files.datasets import BadData, MissingData
from trimol.data._lookup import Rows
from trimol.paper.tasks.mnist import MNIST, Fashion
from trimol.training import Replicas, assess, start, train
from trimol.training._replica_data import Sets

TRAIN, TEST = 60, 20


def write(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def images(count: int, first: int = 0) -> np.ndarray:
    """Images that can be told apart: the number in the first pixel, white in the last."""
    made = np.zeros((count, 28, 28))
    made[:, 0, 0] = np.arange(first, first + count)
    made[:, -1, -1] = 255
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    for name in ("mnist", "fashion"):
        home = tmp_path / name
        write(home / "train-images-idx3-ubyte.gz", images(TRAIN))
        write(home / "train-labels-idx1-ubyte.gz", np.arange(TRAIN) % 10)
        write(home / "t10k-images-idx3-ubyte.gz", images(TEST, first=100))
        write(home / "t10k-labels-idx1-ubyte.gz", np.arange(TEST) % 10)
    return tmp_path


def number(inputs: torch.Tensor) -> list[int]:
    return (inputs[:, 0] * 0.5 * 255).round().int().tolist()


def test_every_image_once_with_its_label(folder: Path) -> None:
    data = MNIST(validation=10).data()
    assert data.validation is not None
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [50, 10, 20]
    found = number(data.train[0]) + number(data.validation[0])
    assert sorted(found) == list(range(TRAIN))
    assert found != list(range(TRAIN))  # shuffled
    assert [n % 10 for n in found] == torch.cat([data.train[1], data.validation[1]]).tolist()
    assert number(data.test[0]) == list(range(100, 120))
    assert data.train[1].dtype == torch.int64


def test_pixels_are_between_zero_and_two(folder: Path) -> None:
    train = MNIST(validation=10).data().train[0]
    assert train.shape == (50, 784)
    assert train.dtype == torch.float32
    assert (train[:, -1] == 2).all()
    assert train.min() == 0


def test_split_is_named_by_the_seed(folder: Path) -> None:
    def order(seed: int) -> list[int]:
        return number(MNIST(validation=10, seed=seed).data().train[0])

    assert order(3) == order(3) != order(4)


def test_each_run_splits_by_its_own_seed(folder: Path) -> None:
    task = MNIST(validation=10)
    orders = {seed: number(task.data_for(seed).train[0][:]) for seed in (0, 3, 4)}
    assert orders[3] == number(MNIST(validation=10, seed=3).data().train[0])
    assert set(orders[3]) != set(orders[4])  # other images, not only another order
    assert orders[0] == number(task.data().train[0])
    for seed in (3, 4):  # the run of a seed trains on it, and so does its replica
        assert (
            number(start(task, "static", seed=seed, batch_size=8).data.train[0][:]) == orders[seed]
        )
    replicas = Replicas(task, "static", seeds=[4, 3], batch_size=8)
    assert number(replicas.data[0].train[0][:]) == orders[4]
    assert number(replicas.data[0].test[0]) == list(range(100, 120))
    named = MNIST(validation=10, seed=3)
    assert named.data_for(4) is named.data()


def test_splits_hold_the_images_once(folder: Path) -> None:
    task = MNIST(validation=10)
    parts = [task.data_for(seed) for seed in range(3)]
    held = {id(data.train[0].tensor) for data in parts}  # type: ignore[attr-defined]
    assert held == {id(task._train[0])}
    replicas = Replicas(task, "static", seeds=[0, 1, 2], batch_size=8)
    assert isinstance(replicas.data, Sets)
    images, labels = replicas.data._stacked
    assert isinstance(images, Rows)
    assert images.tensor is task._train[0]
    places = torch.tensor([[0, 7], [1, 1], [49, 0]])
    for found, part, own in zip(replicas.data.batch(places)[0], parts, places, strict=True):
        assert torch.equal(found, part.train[0][own])
    assert labels[torch.tensor(1), 5] == parts[1].train[1][5]


@pytest.mark.parametrize("method", ["static", "modo"])
def test_replicas_of_other_splits_are_the_runs_of_their_seeds(folder: Path, method: str) -> None:
    task = MNIST(validation=10, hidden=4)
    replicas = Replicas(task, method, seeds=[2, 5], lr=0.3, batch_size=8).train(10)
    for place, seed in enumerate((2, 5)):
        run = train(start(task, method, seed=seed, lr=0.3, batch_size=8), 10)
        own = replicas.module(place).state_dict()
        for name, tensor in run.model.state_dict().items():
            torch.testing.assert_close(own[name], tensor, atol=1e-6, rtol=1e-4)
        expected, found = assess(run).errors, replicas.measure()[place]
        assert found.opt == pytest.approx(expected.opt, rel=1e-4)
        assert found.pop == pytest.approx(expected.pop, rel=1e-4)


def test_no_validation_images_wanted(folder: Path) -> None:
    data = MNIST(validation=0).data()
    assert data.validation is None
    assert len(data.train[0]) == TRAIN


def test_the_paper_s_network_is_affine() -> None:
    task = MNIST()
    model = task.model()
    assert sum(p.numel() for p in model.parameters()) == 407_050
    x, y = torch.randn(2, 5, 784)
    middle = (model(x) + model(y)) / 2
    torch.testing.assert_close(model((x + y) / 2), middle, atol=1e-5, rtol=1e-4)


def test_the_variant_with_relu_is_not() -> None:
    model = MNIST(activation="relu", hidden=32).model()
    x, y = torch.randn(2, 5, 784)
    assert ((model(x) + model(y)) / 2 - model((x + y) / 2)).abs().max() > 0.01


class Fixed(nn.Module):
    """A model that answers what it is told."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.logits


def test_losses_and_accuracy_by_hand() -> None:
    logits = torch.randn(4, 10, dtype=torch.float64) * 3
    labels = torch.tensor([1, 7, 7, 0])
    chances = logits.exp() / logits.exp().sum(1, keepdim=True)
    entropy = mse = huber = 0.0
    for row, label in zip(chances.tolist(), labels.tolist(), strict=True):
        entropy -= np.log(row[label]) / 4
        for place, chance in enumerate(row):
            error = abs(chance - (place == label))
            mse += error**2 / 40
            huber += (error**2 / 2 if error <= 0.1 else 0.1 * (error - 0.05)) / 40
    batch = (torch.zeros(4, 784), labels)
    found = MNIST().losses(Fixed(logits), batch)
    assert found.tolist() == pytest.approx([entropy, mse, huber], rel=1e-12)
    right = sum(int(row.argmax()) == label for row, label in zip(logits, labels, strict=True))
    assert MNIST().metrics(Fixed(logits), batch)["accuracy"] == right / 4


def test_fashion_has_files_of_its_own(folder: Path) -> None:
    write(folder / "fashion" / "t10k-images-idx3-ubyte.gz", images(TEST, first=7))
    assert number(Fashion(validation=10).data().test[0])[0] == 7
    assert number(MNIST(validation=10).data().test[0])[0] == 100


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("t10k-images-idx3-ubyte.gz", np.zeros((20, 28)), "must hold N images of 28 × 28 pixels"),
        ("t10k-images-idx3-ubyte.gz", np.zeros((20, 8, 8)), r"found \(20, 8, 8\)"),
        ("t10k-images-idx3-ubyte.gz", np.zeros((0, 28, 28)), r"found \(0, 28, 28\)"),
        ("t10k-labels-idx1-ubyte.gz", np.zeros(19), "one label for each of 20 images"),
        ("t10k-labels-idx1-ubyte.gz", np.full(20, 10), "must hold labels below 10, found 10"),
    ],
)
def test_files_that_do_not_fit(folder: Path, file: str, array: np.ndarray, message: str) -> None:
    write(folder / "mnist" / file, array)
    with pytest.raises(BadData, match=message) as error:
        MNIST(validation=10).data()
    assert str(error.value).startswith(str(folder / "mnist" / file))


def test_missing_and_truncated_files_are_named(folder: Path) -> None:
    path = folder / "mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadData, match=r"train-labels-idx1-ubyte\.gz is truncated"):
        MNIST(validation=10).data()
    path.unlink()
    with pytest.raises(MissingData, match="`trimol data get mnist`"):
        MNIST(validation=10).data()


def test_bad_options(folder: Path) -> None:
    with pytest.raises(ValueError, match="activation must be 'none' or 'relu', found 'tanh'"):
        MNIST(activation="tanh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hidden"):
        MNIST(hidden=0)
    with pytest.raises(ValueError, match=r"validation must be below 60, .* found 60"):
        MNIST(validation=60).data()


@pytest.mark.data
def test_the_real_files_where_they_are() -> None:
    source = datasets.source("mnist")
    paths = [datasets.locate("mnist", file.name) for file in source.files]
    for path, file in zip(paths, source.files, strict=True):
        datasets.verify(path, file)
    data = MNIST().data()
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [  # type: ignore[index]
        50_000,
        10_000,
        10_000,
    ]
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.test[1].bincount().tolist() == counts
