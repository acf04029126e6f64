"""Toy functions with a backward in Python, for which there is no rule of tangents."""

from typing import Any

import torch
from torch import Tensor


class Doubled(torch.autograd.Function):
    """2x, with a backward that is differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class Tripled(torch.autograd.Function):
    """3x, with a backward that is differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 3 * g


class Stopped(torch.autograd.Function):
    """x, with a backward that gives no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        return None
