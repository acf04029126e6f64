"""Tangents through a layer of an LSTM that the forward pass computed as one fused node.

With gates :math:`(a_i, a_f, a_g, a_o) = W x_t + b + U h_{t-1} + b'` the layer is

.. math::
    c_t = σ(a_f) c_{t-1} + σ(a_i) \\tanh(a_g), \\qquad h_t = σ(a_o) \\tanh(c_t).

The node keeps every h, so the gates of all times are had by one product; only what runs through c
and through the tangent of h goes step by step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Moves = Sequence[Tensor | None]


@dataclass(frozen=True)
class Layer:
    """One layer in one direction; times come first, in the order in which they are computed.

    Attributes:
        x: Inputs, T × B × I.
        w: Their weights W, 4H × I.
        u: The weights U of h, 4H × H.
        biases: b and b', 4H each, or none.
        h: The outputs h₁ … h_T, T × B × H.
        h0: The first h, B × H.
        c0: The first c, B × H.
    """

    x: Tensor
    w: Tensor
    u: Tensor
    biases: Sequence[Tensor]
    h: Tensor
    h0: Tensor
    c0: Tensor


def lstm(layer: Layer, moves: Moves) -> tuple[Tensor, Tensor, Tensor]:
    """The tangents of h₁ … h_T, h_T and c_T, from those of x, W, U, b, b', h₀ and c₀."""
    dx, dw, du, db, db2, dh, dc = moves
    before = torch.cat([layer.h0[None], layer.h[:-1]])
    read = torch.cat([layer.x, before], -1).flatten(0, 1)
    gates = _summed(layer.biases, read, torch.cat([layer.w, layer.u], 1).T)
    # What arrives at the gates, but for what h carries from one time to the next.
    weights = torch.cat([_or_zero(dw, layer.w), _or_zero(du, layer.u)], 1)
    arriving = _summed([b for b in (db, db2) if b is not None], read, weights.T)
    if dx is not None:
        arriving.addmm_(dx.flatten(0, 1), layer.w.T)
    times = *layer.h.shape[:2], -1
    slopes, keeps, opens = _slopes(gates.view(times), layer.c0)
    h, c = _or_zero(dh, layer.h0), _or_zero(dc, layer.c0)
    result, ut = torch.empty_like(layer.h), layer.u.T
    moved = gates[: len(h)]  # no longer read
    i, f, g, o = moved.chunk(4, -1)
    each = (arriving.view(times), slopes, keeps, opens, result)
    for arrived, slope, keep, opened, out in zip(*(t.unbind() for t in each), strict=True):
        torch.addmm(arrived, h, ut, out=moved).mul_(slope)
        c = torch.addcmul(i, keep, c).add_(f).add_(g)
        h = torch.addcmul(o, opened, c, out=out)
    return result, result[-1].clone(), c


def _or_zero(move: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if move is None else move


def _summed(biases: Sequence[Tensor], a: Tensor, b: Tensor) -> Tensor:
    """AB, with biases."""
    return torch.addmm(sum(biases[1:], start=biases[0]), a, b) if biases else a @ b


def _slopes(gates: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What tangents are multiplied by, at all times.

    Those of the gates (the first three on their way to c, the last to h), that of c on its way to
    the next c, and that of c on its way to h.
    """
    i, f, g, o = gates.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new, states = i * g, i.new_empty(len(i) + 1, *c0.shape)
    states[0] = before = c0
    for keep, added, state in zip(f.unbind(), new.unbind(), states[1:].unbind(), strict=True):
        before = torch.addcmul(added, keep, before, out=state)
    c, slopes = states[1:].tanh(), torch.empty_like(gates)
    at_i, at_f, at_g, at_o = slopes.chunk(4, -1)
    torch.addcmul(new, new, i, value=-1, out=at_i)  # i(1 − i)·g
    torch.addcmul(f, f, f, value=-1, out=at_f).mul_(states[:-1])  # f(1 − f)·c_{t−1}
    torch.addcmul(i, new, g, value=-1, out=at_g)  # i·(1 − g²)
    torch.addcmul(o, o, o, value=-1, out=at_o).mul_(c)  # o(1 − o)·tanh(c)
    opens = torch.addcmul(o, o * c, c, value=-1)  # o·(1 − tanh²(c))
    return slopes, f, opens
