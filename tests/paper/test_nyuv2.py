"""NYU-v2's reader and task, on generated scenes written in its layout."""

from pathlib import Path

import numpy as np
import pytest
import torch

from trimol.data._files.datasets import BadData, MissingData
from trimol.paper._data import nyuv2_files as nyuv2
from trimol.paper.tasks.nyuv2 import NYUv2
from trimol.paper.tasks.scenes import Scenes, write
from trimol.tasks import load
from trimol.training import assess, start, train

TRAIN, TEST, SIZE = 12, 5, (24, 32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "data" / "nyuv2", train=TRAIN, test=TEST, image_size=SIZE)
    return tmp_path / "data" / "nyuv2"


def small(**options) -> NYUv2:
    return NYUv2(**{"backbone": "small", "validation": 3, **options})


def test_every_image_once_with_its_labels(folder: Path) -> None:
    data = small().data()
    assert data.validation is not None
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [9, 3, 5]
    rooms = Scenes(image_size=SIZE, train=TRAIN, test=TEST, missing=0.0, holes=0.0).data()
    for found, expected in zip(data.test, rooms.test, strict=True):
        torch.testing.assert_close(found.to(expected.dtype), expected)
    both = [torch.cat(pair) for pair in zip(data.validation, data.train, strict=True)]
    order = [
        next(i for i in range(TRAIN) if torch.equal(image, rooms.train[0][i])) for image in both[0]
    ]
    assert sorted(order) == list(range(TRAIN))
    assert order != list(range(TRAIN))  # shuffled
    for found, expected in zip(both, rooms.train, strict=True):
        torch.testing.assert_close(found.to(expected.dtype), expected[order])


def test_split_is_named_by_the_seed(folder: Path) -> None:
    def images(**options) -> torch.Tensor:
        return small(**options).data().train[0]

    assert torch.equal(images(seed=3), images(seed=3))
    assert not torch.equal(images(seed=3), images(seed=4))
    assert len(images(validation=0)) == TRAIN
    assert small(validation=0).data().validation is None
    tenth = small(validation=None).data().validation
    assert tenth is not None
    assert len(tenth[0]) == 1


def test_files_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small().data()
    monkeypatch.setattr(nyuv2, "_read", lambda *_: pytest.fail("read again"))
    again = small(validation=4, only="depth").data()  # another cut of the same stack
    assert torch.equal(again.test[1], first.test[2])
    cached = sorted(path.name for path in (folder.parent.parent / "cache").rglob("*.npy"))
    assert cached == sorted([f"{kind}.npy" for kind in nyuv2.KINDS] * 2)


def test_a_changed_file_is_read_again(folder: Path) -> None:
    before = small().data().test[2].clone()
    path = folder / "val" / "depth" / "0.npy"
    np.save(path, np.zeros((*SIZE, 2))[..., :1])
    after = small().data().test[2]
    assert (after[0] == 0).all()
    assert torch.equal(after[1:], before[1:])


def test_depth_without_a_channel_and_labels_in_floats(folder: Path) -> None:
    expected = small().data().test
    for number in range(TEST):
        depth, label = (folder / "val" / kind / f"{number}.npy" for kind in ("depth", "label"))
        np.save(depth, np.load(depth)[..., 0].astype(np.float64))
        np.save(label, np.load(label).astype(np.float32))
    found = small().data().test
    assert found[1].dtype == torch.int8
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_what_was_not_measured_is_unlabelled(folder: Path) -> None:
    path = folder / "val" / "depth" / "0.npy"
    depth = np.load(path)
    depth[0, 0], depth[0, 1] = np.nan, np.inf
    np.save(path, depth)
    data = small().data()
    assert data.test[2][0, 0, :2].tolist() == [0, 0]
    assert small().counts(data.test).tolist()[1] == TEST * SIZE[0] * SIZE[1] - 2


def test_smaller_images(folder: Path) -> None:
    whole, half = small().data().test, small(image_size=(12, 16)).data().test
    assert half[0].shape == (TEST, 3, 12, 16)
    torch.testing.assert_close(half[0], torch.nn.functional.avg_pool2d(whole[0], 2))
    # A label is that of one of the four pixels; classes and depths are never mixed.
    four = whole[2].unfold(1, 2, 2).unfold(2, 2, 2).flatten(-2)
    assert (four == half[2][..., None]).any(-1).all()
    torch.testing.assert_close(half[3].norm(dim=1), torch.ones(TEST, 12, 16))


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "train" / "normal" / "7.npy").unlink()
    with pytest.raises(MissingData, match=r"train/normal/7\.npy is missing: image 7") as error:
        small().data()
    assert "\n" not in str(error.value)
    (folder / "val" / "image" / "0.npy").unlink()
    with pytest.raises(MissingData, match=r"nyuv2/val/image/0\.npy is not in"):
        small().data()


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        ("label", np.full(SIZE, 13), "must hold classes from −1 to 12, found 13"),
        ("label", np.full(SIZE, 0.5), "must hold classes from −1 to 12, found 0.5"),
        ("depth", np.ones((24, 31)), r"shape \(24, 32\), found \(24, 31\)"),
        ("normal", np.ones(SIZE), r"shape \(24, 32, 3\), found \(24, 32\)"),
        ("image", np.full((*SIZE, 3), np.nan), "must hold finite numbers"),
        ("image", np.ones((*SIZE, 4)), r"found \(24, 32, 4\)"),
        ("image", np.array(["text"]), "must hold pixels"),
    ],
)
def test_damaged_files_are_named(folder: Path, kind: str, array: np.ndarray, message: str) -> None:
    path = folder / "train" / kind / "2.npy"
    np.save(path, array)
    with pytest.raises(BadData, match=message) as error:
        small().data()
    assert str(error.value).startswith(str(path))


def test_truncated_and_foreign_files_are_named(folder: Path) -> None:
    path = folder / "train" / "depth" / "2.npy"
    whole = path.read_bytes()
    for content in (whole[:-9], whole[:5], b"", b"no array at all"):
        path.write_bytes(content)
        with pytest.raises(BadData, match=r"depth/2\.npy cannot be read") as error:
            small().data()
        assert "\n" not in str(error.value)
    path.write_bytes(whole)
    assert len(small().data().train[0]) == TRAIN - 3


def test_end_to_end(folder: Path) -> None:
    task = load("nyuv2", {"backbone": "small", "validation": 3})
    run = start(task, "modo", lr=3e-3, hyperparameters={"gamma": 1e-3}, batch_size=4)
    before = assess(run).losses
    found = assess(train(run, 40))
    assert all(found.losses[name] < before[name] for name in task.objectives)
    assert set(found.metrics) == {metric for own in task.goals.values() for metric in own}


@pytest.mark.slow
def test_the_paper_s_network_takes_a_step(folder: Path) -> None:
    pytest.importorskip("transformers")
    task = NYUv2(pretrained=False, validation=3)
    run = train(start(task, "modo", lr=1e-4, batch_size=4), 1)
    assert all(p.isfinite().all() for p in run.model.parameters())
    assert len(run.method.params) == len(list(run.model.trunk.parameters()))


def test_bad_options(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"validation must be below 12, .* found 12"):
        small(validation=12).data()
    with pytest.raises(ValueError, match="backbone must be"):
        small(backbone="vgg")
    with pytest.raises(ValueError, match="image_size must be"):
        small(image_size=(288,))
