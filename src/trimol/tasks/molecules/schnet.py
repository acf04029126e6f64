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
        atoms, molecule = x[there], there.nonzero()[:, 0]
        to, of, heard = self._neighbours(atoms[:, 1:], there)
        h = self.atoms(atoms[:, 0].long())
        for block in self.blocks:
            h = h + block(h, to, of, heard)
        total = h.new_zeros(len(x), h.shape[1]).index_add(0, molecule, h)
        return torch.cat([total / 10, total / there.sum(1, keepdim=True)], 1)

    def _neighbours(self, place: Tensor, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Who hears whom, among the atoms of all molecules, and c(d) e(d) of each pair."""
        number = (there.flatten().cumsum(0) - 1).view_as(there)
        pairs = there[:, :, None] & there[:, None]
        pairs &= ~torch.eye(there.shape[1], dtype=torch.bool, device=there.device)
        molecule, i, j = pairs.nonzero(as_tuple=True)
        to, of = number[molecule, i], number[molecule, j]
        d = (place[to] - place[of]).square().sum(1).clamp_min(1e-12).sqrt()
        near = d < self.cutoff
        to, of, d = to[near], of[near], d[near, None]
        smooth = (torch.cos(math.pi * d / self.cutoff) + 1) / 2
        step = self.cutoff / max(1, len(self.centres) - 1)
        power = ((d - self.centres) / step).square() / 2
        # Beyond eight widths it is rounding; and processors are slow with numbers like 1e-40.
        return to, of, torch.where(power < 32, smooth * torch.exp(-power), 0)


class _Block(nn.Module):
    """One round of hearing."""

    def __init__(self, width: int, gaussians: int) -> None:
        super().__init__()
        self.filters = nn.Linear(gaussians, width, bias=False)
        self.spoken = nn.Linear(width, width, bias=False)
        self.after = nn.Sequential(nn.Linear(width, width), _Shifted(), nn.Linear(width, width))

    def forward(self, h: Tensor, to: Tensor, of: Tensor, heard: Tensor) -> Tensor:
        told = self.filters(heard) * self.spoken(h).index_select(0, of)
        after: Tensor = self.after(torch.zeros_like(h).index_add(0, to, told))
        return after


class _Shifted(nn.Module):
    """log(½eˣ + ½)."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(x) - math.log(2)
