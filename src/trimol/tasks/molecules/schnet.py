"""A small network for molecules in plain torch, after SchNet: atoms that hear their neighbours.

An input is N × atoms × 4 numbers: the atomic number (0 is no atom) and the place in ångström.
"""

import math

import torch
from torch import Tensor, nn

ELEMENTS = 10  # atomic numbers up to fluorine's, 9


class SchNet(nn.Module):
    r"""What all heads see of a molecule: the sum and the mean over its atoms.

    .. math::
        h_i \leftarrow h_i + B\, s\Big(\sum_{j \ne i} W(d_{ij}) \odot A h_j\Big), \qquad
        W(d) = c(d)\, V e(d)

    with :math:`e(d)` Gaussians at even distances, :math:`c(d) = \tfrac12(\cos(\pi d/r) + 1)` up to
    the cutoff r, and s the shifted softplus. It depends on distances only: turned, moved and
    renumbered molecules give the same. Filters are one linear map of e(d) here, two layers in the
    paper.

    Args:
        width: Numbers of an atom.
        blocks: How often atoms hear their neighbours.
        gaussians: How many distances are told apart.
        cutoff: r, in ångström.

    Example:
        >>> net = SchNet(width=8)
        >>> net(torch.tensor([[[6.0, 0, 0, 0], [8, 1.2, 0, 0], [0, 0, 0, 0]]])).shape
        torch.Size([1, 16])

    Reference:
        K. T. Schütt et al., *SchNet: A continuous-filter convolutional neural network for modeling
        quantum interactions*, NeurIPS 2017.
    """

    centres: Tensor

    def __init__(
        self, width: int = 64, *, blocks: int = 3, gaussians: int = 20, cutoff: float = 5.0
    ) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.atoms = nn.Embedding(ELEMENTS, width)
        self.blocks = nn.ModuleList(_Block(width, gaussians) for _ in range(blocks))
        self.register_buffer("centres", torch.linspace(0, cutoff, gaussians))

    def forward(self, x: Tensor) -> Tensor:
        """N × 2·width: sums over atoms (a tenth of them), and means."""
        there = x[..., 0] > 0
        x = x[:, : int(there.sum(1).max())]  # no atoms that no molecule of the batch has
        there = x[..., 0] > 0
        heard, smooth = self._edges(x[..., 1:], there)
        h = self.atoms(x[..., 0].long()) * there[..., None]
        for block in self.blocks:
            h = h + block(h, heard, smooth) * there[..., None]
        total = h.sum(1)
        return torch.cat([total / 10, total / there.sum(1, keepdim=True)], 1)

    def _edges(self, place: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """e(d) of every pair, and c(d): 0 for an atom with itself and for what is no atom."""
        apart = (place[:, :, None] - place[:, None]).square().sum(-1)
        d = apart.clamp_min(1e-12).sqrt()
        step = self.cutoff / max(1, len(self.centres) - 1)
        heard = torch.exp(-((d[..., None] - self.centres) / step).square() / 2)
        near = there[:, :, None] & there[:, None] & (d < self.cutoff)
        near = near & ~torch.eye(d.shape[1], dtype=torch.bool, device=d.device)
        return heard, torch.where(near, (torch.cos(math.pi * d / self.cutoff) + 1) / 2, 0)


class _Block(nn.Module):
    """One round of hearing."""

    def __init__(self, width: int, gaussians: int) -> None:
        super().__init__()
        self.filters = nn.Linear(gaussians, width, bias=False)
        self.spoken = nn.Linear(width, width, bias=False)
        self.after = nn.Sequential(nn.Linear(width, width), _Shifted(), nn.Linear(width, width))

    def forward(self, h: Tensor, heard: Tensor, smooth: Tensor) -> Tensor:
        weights = self.filters(heard) * smooth[..., None]
        told: Tensor = self.after((weights * self.spoken(h)[:, None]).sum(2))
        return told


class _Shifted(nn.Module):
    """log(½eˣ + ½)."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(x) - math.log(2)
