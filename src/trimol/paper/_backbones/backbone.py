"""What a backbone is: images in, one row of features out."""

from typing import Any

import torch
from torch import Tensor, nn

# Of ImageNet's training images, with pixels between 0 and 1: what the official weights expect.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """A network of transformers, with the preprocessing of its pixels in front.

    Args:
        network: Maps normalised images to an output whose ``pooler_output`` is the average over
            all places of the last feature maps.
        width: Features of an image.

    Attributes:
        width: Features of an image.
        network: The network.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, width: int) -> None:
        super().__init__()
        self.network, self.width = network, width
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """The features, (N, width), of images, (N, 3, S, S), with pixels between 0 and 255."""
        pixels = (images.to(self.mean.dtype) / 255 - self.mean) / self.std
        output: Any = self.network(pixels)
        features: Tensor = output.pooler_output
        return features.flatten(1)
