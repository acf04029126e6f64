"""ResNet with output stride 8: the last two strides become dilations."""

from typing import Any, cast

from torch import Tensor, nn

from trimol.paper._backbones.resnet import RESNET50

STRIDED = (2, 2)


class DilatedResNet50(nn.Module):
    """ResNet-50 whose features are an eighth of the image's size, not a 32nd.

    Args:
        pretrained: Whether to start from ImageNet's weights, by their name on the hub; at random
            otherwise.
    """

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

    Args:
        resnet: A ``ResNetModel``.

    Returns:
        The same.
    """
    for stage, dilation in zip(resnet.encoder.stages[2:], (2, 4), strict=True):
        for module in stage.modules():
            if isinstance(module, nn.Conv2d):
                _dilate(module, dilation)
    return resnet


def _dilate(convolution: nn.Conv2d, dilation: int) -> None:
    reach = dilation // 2 if convolution.stride == STRIDED else dilation
    convolution.stride = (1, 1)
    if convolution.kernel_size == (3, 3):
        convolution.dilation = convolution.padding = (reach, reach)
