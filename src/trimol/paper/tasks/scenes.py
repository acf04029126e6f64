"""Scenes: generated rooms with exact depth and normals, three objectives that share a geometry."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol._checks import nonnegative, whole_number
from trimol._failures import BadValue
from trimol.paper._data import nyuv2_files as nyuv2
from trimol.paper._dense.dense_task import DenseTask
from trimol.paper._dense.models import Backbone, checked_size
from trimol.paper._dense.pixels import UNLABELLED
from trimol.paper._dense.rooms import CLASSES, View, view
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings

_TRAIN, _VALIDATION, _TEST = range(3)  # rooms are named by (seed, split, number)


class Scenes(DenseTask):
    """Rooms with boxes, seen by a camera: segmentation, depth and normals, without a download.

    Every image is another room. Class, depth and normal of a pixel are those of the surface that
    its ray hits; the image is the surface's colour, shaded by its normal
    (`trimol.paper._dense.rooms`). A part of the labels of the training images is withheld;
    validation and test images have all.

    `settings` has one step size of Adam, 3e-3, for every method, and the methods' own defaults. It
    is where each of them learns, not where each is best: after 150 steps of 16 on 96 rooms of
    24 × 32, every method was below 0.54, 0.68 and 0.22 in the three test losses, from 1.85, 2.94
    and 0.51 (one seed).

    Args:
        image_size: Height and width in pixels.
        train: How many rooms to train on.
        validation: How many to choose settings on.
        test: How many to test on.
        missing: Share of training images that lack all labels of an objective, drawn for each
            objective on its own.
        holes: Share of training pixels that lack the label of an objective, likewise.
        noise: Standard deviation of the images' noise.
        backbone: ``"small"``, or ``"resnet50"`` as for NYU-v2.
        pretrained: Whether ResNet-50 starts from ImageNet's weights.
        weight_decay: Of Adam.
        only: Train and measure this objective alone.
        seed: Names the rooms.

    Example:
        >>> task = Scenes(image_size=(12, 16), train=4, validation=2, test=2)
        >>> [tuple(tensor.shape) for tensor in task.data().train]
        [(4, 3, 12, 16), (4, 12, 16), (4, 12, 16), (4, 3, 12, 16)]
        >>> task.counts(task.data().test).tolist()  # pixels with a label
        [384, 384, 384]
    """

    name: ClassVar[str] = "scenes"
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "scenes")
    classes: ClassVar[int] = len(CLASSES)

    def __init__(
        self,
        *,
        image_size: Sequence[int] = (40, 56),
        train: int = 128,
        validation: int = 32,
        test: int = 32,
        missing: float = 0.1,
        holes: float = 0.02,
        noise: float = 0.02,
        backbone: Backbone = "small",
        pretrained: bool = False,
        weight_decay: float = 0.0,
        only: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            backbone=backbone,
            pretrained=pretrained,
            weight_decay=weight_decay,
            only=only,
            seed=seed,
        )
        self.image_size = checked_size(image_size)
        self.train = whole_number("train", train, least=1)
        self.validation = whole_number("validation", validation, least=0)
        self.test = whole_number("test", test, least=1)
        self.missing, self.holes = _share("missing", missing), _share("holes", holes)
        self.noise = nonnegative("noise", noise)

    def data(self) -> Data:
        """The rooms, each split its own."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        train = self._withheld(self._rooms(_TRAIN, self.train))
        test = self._rooms(_TEST, self.test)
        held_out = self._rooms(_VALIDATION, self.validation) if self.validation else None
        return Data(
            train=self.chosen(*train),
            test=self.chosen(*test),
            validation=None if held_out is None else self.chosen(*held_out),
        )

    def _rooms(self, split: int, count: int) -> Batch:
        height, width = self.image_size
        views = [
            view((self.seed, split, number), height, width, noise=self.noise)
            for number in range(count)
        ]
        image, label, depth, normal = map(torch.from_numpy, stacked(views))
        return image.movedim(-1, 1).contiguous(), label, depth, normal.movedim(-1, 1).contiguous()

    def _withheld(self, rooms: Batch) -> Batch:
        """The training rooms without some of their labels."""
        image, label, depth, normal = rooms
        random = np.random.default_rng((self.seed, _TRAIN))
        # Drawn for all three, so that an objective alone sees what it sees among the others.
        lacks = [self._lacks(random, label.shape) for _ in range(3)]
        return (
            image,
            label.masked_fill(lacks[0], UNLABELLED),
            depth.masked_fill(lacks[1], 0),
            normal.masked_fill(lacks[2][:, None], 0),
        )

    def _lacks(self, random: np.random.Generator, shape: Sequence[int]) -> Tensor:
        """Which pixels lose a label: all of some images, some of all."""
        images = random.random((shape[0], 1, 1)) < self.missing
        return torch.from_numpy(images | (random.random(shape) < self.holes))


def stacked(views: Sequence[View]) -> tuple[NDArray[Any], ...]:
    """Images, labels, depths and normals of several views, channels last, in single precision."""
    return (
        np.stack([seen.image for seen in views]).astype(np.float32),
        np.stack([seen.label for seen in views]),
        np.stack([seen.depth for seen in views]).astype(np.float32),
        np.stack([seen.normal for seen in views]).astype(np.float32),
    )


def write(
    folder: Path,
    *,
    train: int = 40,
    test: int = 10,
    image_size: Sequence[int] = (48, 64),
    seed: int = 0,
) -> None:
    """Write rooms in the layout of NYU-v2, for the task `nyuv2` to be tried without its data.

    Args:
        folder: What is to be ``$TRIMOL_DATA/nyuv2``; made if it is not there.
        train: How many rooms to put into ``train/``, of which `nyuv2` holds some out.
        test: How many to put into ``val/``, which is NYU-v2's test set.
        image_size: Height and width in pixels.
        seed: Names the rooms.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> write(place, train=2, test=1, image_size=(12, 16))
        >>> sorted(path.relative_to(place).as_posix() for path in place.rglob("1.npy"))
        ['train/depth/1.npy', 'train/image/1.npy', 'train/label/1.npy', 'train/normal/1.npy']
    """
    height, width = checked_size(image_size)
    for part, split, count in (("train", _TRAIN, train), ("val", _TEST, test)):
        views = [view((seed, split, n), height, width) for n in range(count)]
        nyuv2.write(folder / part, *stacked(views))


def _share(name: str, value: float) -> float:
    if not 0 <= value < 1:
        raise BadValue(f"{name} must be at least 0 and below 1, found {value}")
    return float(value)
