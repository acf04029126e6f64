"""Networks for dense prediction: a trunk, and one head for each objective."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.paper._dense.dilated import DilatedResNet50
from trimol.paper._dense.pixel_losses import unit
from trimol.tasks.multitask import MultiTask

Backbone = Literal["resnet50", "small"]
RATES = (12, 24, 36)
DIRECTIONS = ("normals",)


def convolution(
    inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU; of the same size but for the stride."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=padding, dilation=dilation, bias=False
        ),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class ImagePooling(nn.Module):
    """The mean over the whole image, at every pixel.

    In training it needs two images or more: batch normalisation of one number is none.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mix = convolution(inputs, outputs, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        """The same numbers everywhere."""
        mean: Tensor = self.mix(x.mean((2, 3), keepdim=True))
        return mean.expand(-1, -1, *x.shape[2:])


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: one feature map seen at several scales, side by side.

    A 1×1 convolution, one dilated 3×3 convolution for each rate, and the mean of the image; joined
    by a 1×1 convolution and dropout.

    Args:
        inputs: Channels of the trunk.
        width: Channels of each branch and of the result.
        rates: Dilations of the 3×3 convolutions.
        dropout: Of the result.

    Reference:
        L.-C. Chen, G. Papandreou, F. Schroff, H. Adam, *Rethinking Atrous Convolution for Semantic
        Image Segmentation*, arXiv:1706.05587 (DeepLabv3).
    """

    def __init__(
        self, inputs: int, width: int = 256, rates: Sequence[int] = RATES, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                convolution(inputs, width, kernel=1),
                *(convolution(inputs, width, dilation=rate) for rate in rates),
                ImagePooling(inputs, width),
            ]
        )
        self.project = nn.Sequential(
            convolution(width * len(self.branches), width, kernel=1), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        """``width`` channels of the same size."""
        joined: Tensor = self.project(torch.cat([branch(x) for branch in self.branches], dim=1))
        return joined


def deeplab_head(
    inputs: int, outputs: int, *, width: int = 256, rates: Sequence[int] = RATES
) -> nn.Sequential:
    """DeepLabv3's head, layer by layer as torchvision's: ASPP, 3×3 convolution, 1×1 convolution.

    Args:
        inputs: Channels of the trunk.
        outputs: Channels of the prediction.
        width: Channels between.
        rates: Dilations of `ASPP`.
    """
    return nn.Sequential(
        ASPP(inputs, width, rates), convolution(width, width), nn.Conv2d(width, outputs, 1)
    )


def small_head(inputs: int, outputs: int) -> nn.Sequential:
    """A 3×3 convolution and a 1×1 convolution: a head for one core, that takes single images."""
    return nn.Sequential(convolution(inputs, inputs), nn.Conv2d(inputs, outputs, 1))


class SmallTrunk(nn.Sequential):
    """Five convolutions at a quarter of the image's size: enough for images of 40 × 56.

    Args:
        width: Channels of the result.
    """

    def __init__(self, width: int = 24) -> None:
        super().__init__(
            convolution(3, width // 2, stride=2),
            convolution(width // 2, width, stride=2),
            convolution(width, width, dilation=1),
            convolution(width, width, dilation=2),
            convolution(width, width, dilation=4),
        )
        self.channels = width


class Dense(MultiTask):
    """A multi-task network whose outputs have the size of the image.

    The heads' outputs are enlarged by bilinear interpolation; those that are directions are given
    unit length at every pixel.

    Args:
        trunk: What all objectives share.
        heads: One for each objective, by its name.
        directions: The names of the heads whose outputs are directions.
    """

    def __init__(
        self,
        trunk: nn.Module,
        heads: Mapping[str, nn.Module],
        *,
        directions: Collection[str] = DIRECTIONS,
    ) -> None:
        super().__init__(trunk, heads)
        self.directions = frozenset(directions)

    def forward(self, x: Tensor, task: str | None = None) -> Any:
        """The output of one head, or of all by name."""
        found = super().forward(x, task)
        if task is not None:
            return self._finished(task, found, x)
        return {name: self._finished(name, output, x) for name, output in found.items()}

    def _finished(self, name: str, output: Tensor, image: Tensor) -> Tensor:
        whole = F.interpolate(output, image.shape[2:], mode="bilinear", align_corners=False)
        return unit(whole) if name in self.directions else whole


def dense_model(
    objectives: Sequence[str], classes: int, backbone: Backbone, *, pretrained: bool
) -> Dense:
    """The network of a dense task.

    Args:
        objectives: Which of segmentation, depth and normals it predicts.
        classes: Of the segmentation.
        backbone: ``"resnet50"``: dilated, with DeepLab heads; ``"small"``: for one core.
        pretrained: Whether ResNet-50 starts from ImageNet's weights.

    Example:
        >>> model = dense_model(["depth", "normals"], 13, "small", pretrained=False)
        >>> {name: tuple(out.shape) for name, out in model(torch.rand(2, 3, 30, 40)).items()}
        {'depth': (2, 1, 30, 40), 'normals': (2, 3, 30, 40)}
    """
    channels = {"segmentation": classes, "depth": 1, "normals": 3}
    outputs = {name: channels[name] for name in objectives}
    if backbone == "small":
        trunk = SmallTrunk()
        return Dense(trunk, {name: small_head(trunk.channels, n) for name, n in outputs.items()})
    resnet = DilatedResNet50(pretrained=pretrained)
    return Dense(resnet, {name: deeplab_head(resnet.channels, n) for name, n in outputs.items()})


def check_backbone(backbone: str) -> None:
    """Refuse a backbone that there is none of."""
    if backbone not in get_args(Backbone):
        known = " or ".join(map(repr, get_args(Backbone)))
        raise BadValue(f"backbone must be {known}, found {backbone!r}")


def checked_size(image_size: Sequence[int]) -> tuple[int, int]:
    """Height and width, as given by an option."""
    if isinstance(image_size, str | int) or len(image_size) != 2:
        raise BadValue(f"image_size must be height and width, found {image_size!r}")
    height, width = (whole_number("image_size", side, least=8) for side in image_size)
    return height, width
