"""Toy functions with a backward in Python, for which there is no rule of tangents."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Doubled(torch.autograd.Function):
    """2x, with a backward that is differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class DoubledOnce(Doubled):
    """2x, with a backward that is not."""

    backward = staticmethod(once_differentiable(Doubled.backward))


class Tripled(torch.autograd.Function):
    """3x, with a backward that is differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 3 * g
