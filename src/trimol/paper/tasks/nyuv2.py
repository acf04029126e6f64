"""NYU-v2: the paper's single-input task, indoor images with classes, depth and surface normals."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import torch

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.paper._data import nyuv2_files as nyuv2
from trimol.paper._dense.dense_task import DenseTask
from trimol.paper._dense.models import Backbone, checked_size
from trimol.tasks._classifier import parts
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Data, Settings


class NYUv2(DenseTask):
    """795 + 654 images of rooms: 13 classes, depth, normals; the paper's network and losses.

    A dilated ResNet-50 (output stride 8) with three DeepLab heads, trained by Adam. The published
    ``val`` images are the test set; validation images are held out of the published ``train``
    images (the authors chose the epoch on the test set). ``nyuv2_files`` says which files it
    reads; `trimol.paper.tasks.scenes.write` writes generated ones.

    In training, every draw needs two images or more: the heads normalise the mean of an image over
    the batch.

    Args:
        image_size: Height and width to resize to; as the files are by default.
        backbone: ``"resnet50"`` as in the paper, or ``"small"``, for one core.
        pretrained: Whether ResNet-50 starts from ImageNet's weights.
        validation: How many of the training images to hold out; a tenth of them by default.
        weight_decay: Of Adam.
        only: Train and measure this objective alone.
        seed: Names the split into training and validation images.
    """

    name: ClassVar[str] = "nyuv2"
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "nyuv2")
    at_once: int = 4
    classes: ClassVar[int] = nyuv2.CLASSES

    def __init__(
        self,
        *,
        image_size: Sequence[int] | None = None,
        backbone: Backbone = "resnet50",
        pretrained: bool = True,
        validation: int | None = None,
        weight_decay: float = 1e-5,
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
        self.image_size = None if image_size is None else checked_size(image_size)
        self.validation = (
            None if validation is None else whole_number("validation", validation, least=0)
        )

    def data(self) -> Data:
        """The images and labels, backed by files in the cache."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        train, test = nyuv2.folder("train"), nyuv2.folder("val")
        numbers = torch.tensor(nyuv2.numbers(train))
        ((rows,),) = parts((numbers,), [len(numbers)], seed=self.seed)
        order = rows[:].tolist()
        held = len(order) // 10 if self.validation is None else self.validation
        if held >= len(order):
            raise BadValue(
                f"validation must be below {len(order)}, the number of training images, found "
                f"{held}"
            )
        # Stacked in shuffled order, so that both parts are slices of the files: nothing is copied.
        samples = self.chosen(*nyuv2.stacked(train, order, self.image_size))
        held_out = tuple(tensor[:held] for tensor in samples)
        return Data(
            train=tuple(tensor[held:] for tensor in samples),
            test=self.chosen(*nyuv2.stacked(test, nyuv2.numbers(test), self.image_size)),
            validation=held_out if held else None,
        )
