"""What the methods have in common that look for the point of the front that a preference names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.methods.base import Method, Objectives, Options


class PreferringOptions(Options, total=False):
    """The keywords that these methods share."""

    prefer: Tensor | Sequence[float] | Mapping[str, float] | None
    ideal: Tensor | Sequence[float] | None


class GramianPreferringOptions(PreferringOptions, total=False):
    """These, and that of the methods among them that need a Gramian."""

    chunk: int | None


class PreferringMethod(Method):
    """A method with a preference p and an ideal point z: its ray is f_m − z_m ∝ 1/p_m.

    Args:
        prefer: p, all above zero; ones by default. The larger p_m, the smaller is f_m to be.
        ideal: z, at most the least value of each loss; zero by default.
        weights: λ before the first step; matters only where that step's evidence is not finite.
    """

    prefers: ClassVar[str | None] = "prefer"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        prefer: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        ideal: Tensor | Sequence[float] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        ones, zeros = [1.0] * self.objectives, [0.0] * self.objectives
        given = checks.vector("prefer", ones if prefer is None else prefer, objectives)
        self.prefer = checks.above_zero("prefer", given)
        self.ideal = checks.vector("ideal", zeros if ideal is None else ideal, objectives)

    def above_ideal(self, evidence: Evidence) -> Tensor:
        """f − z, of this batch.

        Where all of it is below zero, p (f − z) is the lowest for what is preferred most: p would
        mean its opposite.
        """
        above = evidence.values().to(self.weights) - self.ideal.to(self.weights)
        uneven = (self.prefer != self.prefer[..., :1]).any(-1)
        if ((above < 0).all(-1) & uneven).any():
            raise BadValue(
                "ideal must be below the losses for prefer to mean what it says, found losses that "
                f"are all below {self.ideal.tolist()}"
            )
        return above


class GramianPreferringMethod(PreferringMethod):
    """Such a method that needs the Gramian, too.

    Args:
        chunk: How many gradients to hold at once; see :func:`trimol.gradients.gramian`.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        chunk: int | None = None,
        **options: Unpack[PreferringOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.chunk = None if chunk is None else checks.count("chunk", chunk)


def off_the_ray(above: Tensor, prefer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Along which unit vector u the ray goes, how far y = f − z is from it, and in which direction.

    Returns:
        u ∝ 1/p; d₂ = ‖y − (uᵀy)u‖, (…, 1); and (y − (uᵀy)u)/d₂, the gradient of d₂, which is zero
        on the ray (d₂ no more than rounding).
    """
    ray = prefer.amin(-1, keepdim=True) / prefer
    ray = ray / ray.norm(dim=-1, keepdim=True)
    size = above.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(above.dtype).tiny)
    y = above / size
    off = y - (ray * y).sum(-1, keepdim=True) * ray
    distance = off.norm(dim=-1, keepdim=True)
    there = distance > 8 * torch.finfo(above.dtype).eps * y.norm(dim=-1, keepdim=True)
    towards = torch.where(there, off / torch.where(there, distance, 1), 0)
    return ray, torch.where(there, distance, 0) * size, towards
