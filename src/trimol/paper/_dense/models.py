"""Networks for dense prediction: a trunk, and one head for each objective."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.paper._backbones import RESNET50
from trimol.paper._dense.pixels import unit
from trimol.tasks.multitask import MultiTask

Backbone = Literal["resnet50", "small"]
RATES = (12, 24, 36)


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
    by a 1×1 convolution and dropout. All have ``width`` channels.

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
    """DeepLabv3's head, layer by layer as torchvision's: ASPP, 3×3 convolution, 1×1 convolution."""
    return nn.Sequential(
        ASPP(inputs, width, rates), convolution(width, width), nn.Conv2d(width, outputs, 1)
    )


def small_head(inputs: int, outputs: int) -> nn.Sequential:
    """A 3×3 convolution and a 1×1 convolution: a head for one core, that takes single images."""
    return nn.Sequential(convolution(inputs, inputs), nn.Conv2d(inputs, outputs, 1))


class DilatedResNet50(nn.Module):
    """ResNet-50 whose features are an eighth of the image's size, not a 32nd."""

    channels = RESNET50.widths[-1]

    def __init__(self, *, pretrained: bool = True) -> None:
        super().__init__()
        self.resnet = dilate(RESNET50.build(pretrained=pretrained))

    def forward(self, x: Tensor) -> Tensor:
        """Features of N × 3 × H × W: N × 2048 × ⌈H/8⌉ × ⌈W/8⌉."""
        return cast(Tensor, self.resnet(x).last_hidden_state)


def dilate(resnet: Any) -> Any:
    """Turn a ResNet of `transformers` into one of output stride 8, in place.

    In the third and the fourth stage no convolution strides any more. What came after a stride of 2
    now lies twice as far apart, so that 3×3 convolutions reach twice as far: by 2 in the third
    stage, by 4 in the fourth; the convolution that did stride itself still sees the spacing of the
    stage before. Every fourth pixel of the result is then, exactly, a pixel of the network as it
    was. Parameters keep their names and shapes.
    """
    for stage, dilation in zip(resnet.encoder.stages[2:], (2, 4), strict=True):
        for module in stage.modules():
            if isinstance(module, nn.Conv2d):
                _dilate(module, dilation)
    return resnet


def _dilate(convolution: nn.Conv2d, dilation: int) -> None:
    reach = dilation // 2 if convolution.stride == (2, 2) else dilation
    convolution.stride = (1, 1)
    if convolution.kernel_size == (3, 3):
        convolution.dilation = convolution.padding = (reach, reach)


class SmallTrunk(nn.Sequential):
    """Five convolutions at a quarter of the image's size: enough for images of 40 × 56."""

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

    The heads' outputs are enlarged by bilinear interpolation; normals, which are directions, are
    given unit length at every pixel.
    """

    def forward(self, x: Tensor, task: str | None = None) -> Any:
        """The output of one head, or of all by name."""
        outputs = super().forward(x, task)
        if task is not None:
            return self._finished(task, outputs, x)
        return {name: self._finished(name, output, x) for name, output in outputs.items()}

    def _finished(self, name: str, output: Tensor, image: Tensor) -> Tensor:
        whole = F.interpolate(output, image.shape[2:], mode="bilinear", align_corners=False)
        return unit(whole) if name == "normals" else whole


def dense_model(
    objectives: Sequence[str], classes: int, backbone: Backbone, *, pretrained: bool
) -> Dense:
    """The network of a dense task: a dilated ResNet-50 with DeepLab heads, or one for one core.

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


def checked_size(image_size: Sequence[int]) -> tuple[int, int]:
    """Height and width, as given by an option."""
    if isinstance(image_size, str | int) or len(image_size) != 2:
        raise BadValue(f"image_size must be height and width, found {image_size!r}")
    height, width = (whole_number("image_size", side, least=8) for side in image_size)
    return height, width
