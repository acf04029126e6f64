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
    gates = layer.x @ layer.w.T + before @ layer.u.T
    for bias in layer.biases:
        gates = gates + bias
    # What arrives at the gates, but for what h carries from one time to the next.
    arriving = torch.zeros_like(gates)
    for moved in (
        None if dx is None else dx @ layer.w.T,
        None if dw is None else layer.x @ dw.T,
        None if du is None else before @ du.T,
        db,
        db2,
    ):
        if moved is not None:
            arriving += moved
    slopes, keeps, opens = _slopes(gates, layer.c0)
    h = torch.zeros_like(layer.h0) if dh is None else dh
    c = torch.zeros_like(layer.c0) if dc is None else dc
    ut, size = layer.u.T, layer.c0.shape[-1]
    result = torch.empty_like(layer.h)
    for t, arrived in enumerate(arriving):
        change = torch.addmm(arrived, h, ut).mul_(slopes[t])
        to_c = change[:, : 3 * size].view(-1, 3, size).sum(1)
        c = to_c.addcmul_(keeps[t], c)
        h = torch.addcmul(change[:, 3 * size :], opens[t], c, out=result[t])
    return result, result[-1].clone(), c


def _slopes(gates: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What tangents are multiplied by, at all times.

    Those of the gates (the first three on their way to c, the last to h), that of c on its way to
    the next c, and that of c on its way to h.
    """
    i, f, g, o = gates.chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = i * g
    states = [c0]
    for keep, added in zip(f, new, strict=True):
        states.append(torch.addcmul(added, keep, states[-1]))
    before, c = torch.stack(states[:-1]), torch.stack(states[1:]).tanh()
    slopes = torch.cat([new * (1 - i), before * f * (1 - f), i * (1 - g * g), c * o * (1 - o)], -1)
    return slopes, f, o * (1 - c * c)
