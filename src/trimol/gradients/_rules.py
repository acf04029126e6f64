"""How one node of a recorded graph carries tangents from its inputs to its outputs.

A node holds the tensors that its backward u ↦ Jᵀu needs. The forward t ↦ Jt is had from the same
tensors, in one of four ways:

- a rule in `RULES`, for the nodes that make up most networks;
- `SYMMETRIC` nodes have J = Jᵀ (element-wise functions, softmax): their backward *is* the answer;
- a node with one number as output (most losses) has one row of J: its backward of 1, times t;
- any other built-in node: u ↦ Jᵀu is linear, so differentiating it along t gives Jt, at the price
  of a backward and a double backward of that node alone.

A rule reads a saved tensor once, and does not call the node as well: of a checkpointed block, what
was read is gone.

Nodes written in Python (``autograd.Function``, module hooks) raise `Unsupported`, except torch's
own that hand their inputs on; for what ``torch.compile`` made, see `trimol.gradients._transposed`.
Node names and the saved tensors read here are those of PyTorch's ``derivatives.yaml``; the tests
hold every rule against a naive Jacobian.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from trimol.gradients._compiled import is_compiled
from trimol.gradients._params import as_real
from trimol.gradients._recurrent import Layer, lstm
from trimol.gradients._sinks import handed_on, passes
from trimol.gradients._transposed import carried as carried_compiled

Tangents = tuple[Tensor | None, ...]
# The saved tensors of a node are attributes that only the C++ side declares: for mypy, Any.
Rule = Callable[..., Tensor | Tangents | None]

_aten = torch.ops.aten
# Distances of many rows are differentiated so many entries at a time: 4 MB of float32.
BLOCK = 2**20
# How an EmbeddingBag and a fused layer note what they are.
_MAX, _LSTM = 2, 2
# What a node that is built otherwise than expected leads to: a field or an input that is not there.
_LAYOUT = (AttributeError, TypeError, ValueError, IndexError)


class Unsupported(Exception):
    """A node of the graph cannot carry tangents."""


class Opaque(Unsupported):
    """Python code that may do anything to a gradient: a loss needs a backward of its own."""


def carry(node: Any, incoming: Tangents) -> Tangents:
    """The tangents of a node's outputs, from those of its inputs (``None`` stands for zero).

    Raises `Unsupported` where that is not possible, also where a node is not built as expected.
    """
    name = node.name()
    try:
        for tangent in incoming:
            if tangent is not None:
                break
        else:
            return (None,) * len(node._input_metadata)
        if name in SYMMETRIC and len(incoming) == 1 and not _is_complex(node, tangent):
            outgoing = node(tangent)
            return outgoing[:1] if isinstance(outgoing, tuple) else (outgoing,)
        rule = _rule(node, name) or _generic
        outgoing = rule(node, *incoming)
        return outgoing if isinstance(outgoing, tuple) else (outgoing,)
    except (RuntimeError, *_LAYOUT) as error:
        raise Unsupported(f"{name}: {error}") from error


def _is_complex(node: Any, tangent: Tensor) -> bool:
    """Whether a node's input or output is: of real ones alone J = Jᵀ follows."""
    return tangent.is_complex() or node._input_metadata[0].dtype.is_complex


def known(node: Any) -> bool:
    """Whether a node saves what its rule was written for, no more and no less."""
    return _rule(node, node.name()) is not None


def _rule(node: Any, name: str) -> Rule | None:
    """The rule of a node that is built as it expects."""
    fields, rule = RULES.get(name, (None, None))
    kind: Any = type(node)
    return rule if fields is not None and _saves(kind, fields) else None


@functools.cache
def _saves(kind: type, fields: str) -> bool:
    """Whether nodes of a kind save just these fields; sizes apart, which rules do not read."""
    names = (name.removeprefix("_saved_") for name in dir(kind) if name.startswith("_saved_"))
    return {name for name in names if "_sym_" not in name} == set(fields.split())


def _generic(node: Any, *incoming: Tensor | None) -> Tangents:
    if isinstance(node, BackwardCFunction):
        if passes(node):
            return handed_on(node, incoming)
        if is_compiled(node):
            return carried_compiled(node, incoming)
        raise Opaque(f"{type(node).__name__} is written in Python")
    outputs = node._input_metadata
    if len(outputs) == 1 and math.prod(outputs[0].shape) == 1:
        types = [outputs[0].dtype, *(t.dtype for t in incoming if t is not None)]
        if not any(dtype.is_complex for dtype in types):
            return (_by_gradient(node, incoming),)
    return _by_double_vjp(node, incoming)


def _pull(node: Any, *cotangents: Tensor | None) -> Tangents:
    pulled = node(*cotangents)
    return pulled if isinstance(pulled, tuple) else (pulled,)


def _by_gradient(node: Any, incoming: Tangents) -> Tensor:
    """One output: J is a row, the gradient; Jt = Σᵢ⟨gᵢ, tᵢ⟩."""
    (output,) = node._input_metadata
    shape = output.shape
    one = _one(output.dtype, output.device)
    gradients = _pull(node, one.view(shape) if shape else one)
    total = None
    for g, t in zip(gradients, incoming, strict=True):
        if t is not None and g is not None:
            term = torch.dot(_flat(g), _flat(t))
            total = term if total is None else total + term
    if total is None:
        raise Unsupported(f"{node.name()} gave no gradient")
    return total.view(shape) if shape else total


def _flat(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 1 else tensor.reshape(-1)


@functools.cache
def _one(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones((), dtype=dtype, device=device)


def _by_double_vjp(node: Any, incoming: Tangents) -> Tangents:
    """Jt = ∂⟨Jᵀu, t⟩/∂u at any u, from the node's own backward u ↦ Jᵀu.

    Linear though it is, that backward may be written with a logarithm: it has no derivative at 0.
    And its derivative may take another side of a kink: so ⟨u, Jt⟩ is held against ⟨Jᵀu, t⟩.
    """
    with torch.enable_grad():
        probes = [_uneven(output).requires_grad_() for output in node._input_metadata]
        pulled = _pull(node, *probes)
        pairs = [(p, t) for p, t in zip(pulled, incoming, strict=True) if t is not None]
        outputs = [_like(p, t) for p, t in pairs if p is not None and p.requires_grad]
        tangents = [t for _, t in pairs]
        if len(outputs) < len(pairs):
            raise Unsupported(f"{node.name()} has no second derivative")
        found = torch.autograd.grad(outputs, probes, tangents, allow_unused=True)
    moved = [(f, u) for f, u in zip(found, probes, strict=True) if f is not None]
    (one, size), (two, _) = _inner(zip(outputs, tangents, strict=True)), _inner(moved)
    rounding = max(torch.finfo(x.dtype).eps for x in (*tangents, *probes))
    if size > 0 and abs(one - two) > size * rounding**0.6:
        raise Unsupported(f"{node.name()} has a second derivative of its own")
    return found


def _uneven(like: Any) -> Tensor:
    """Numbers from 1 to 2, no two alike."""
    flat = torch.linspace(1, 2, math.prod(like.shape), dtype=like.dtype, device=like.device)
    return flat.view(like.shape)


def _inner(pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """⟨a, b⟩ over pairs of tensors, and ‖a‖‖b‖, which rounding is relative to."""
    total = size = 0.0
    for a, b in pairs:
        one, other = _flat(as_real(a.detach())), _flat(as_real(b.detach()))
        total += torch.dot(one, other).item()
        size += one.norm().item() * other.norm().item()
    return total, size


def _like(gradient: Tensor, own: Tensor) -> Tensor:
    """As autograd does, give a gradient the shape and type of the input that it belongs to."""
    real = gradient.is_complex() and not own.is_complex()
    return (gradient.real if real else gradient).sum_to_size(own.shape).to(own.dtype)


def _shape(node: Any, number: int = 0) -> torch.Size:
    return torch.Size(node._input_metadata[number].shape)


def _dtype(node: Any) -> torch.dtype:
    dtype: torch.dtype = node._input_metadata[0].dtype
    return dtype


def signed(number: Any) -> Any:
    """Saved negative numbers read back as unsigned 64-bit ones (an absent end of a slice: None)."""
    return number if number is None or number < 2**63 else number - 2**64


def _signed_all(numbers: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(map(signed, numbers or ()))


def _plus(a: Tensor | None, b: Tensor | None, node: Any) -> Tensor | None:
    """a + b where either may be zero, with the shape and type of the node's output."""
    if a is not None and b is not None:
        return a + b
    one = b if a is None else a
    if one is None:
        return None
    output = node._input_metadata[0]
    shape = torch.Size(output.shape)
    fitted = one if one.shape == shape else one.expand(shape)
    return fitted if fitted.dtype == output.dtype else fitted.to(output.dtype)


# -- products ------------------------------------------------------------------------------------


def _matmul(add: Callable[..., Tensor], mul: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """d(AB) = dA·B + A·dB, without a temporary for the sum."""

    def rule(da: Tensor | None, b: Any, a: Any, db: Tensor | None) -> Tensor | None:
        if db is None:
            return None if da is None else mul(da, b)
        right = mul(a, db)
        return right if da is None else add(right, da, b)

    return rule


_mm = _matmul(torch.addmm, torch.mm)
_bmm = _matmul(torch.baddbmm, torch.bmm)


def _addmm(node: Any, bias: Tensor | None, a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """d(c + AB) = dc + dA·B + A·dB."""
    if node._saved_alpha != 1 or node._saved_beta != 1:
        return _generic(node, bias, a, b)[0]
    if bias is not None and b is not None:
        right = torch.addmm(bias, node._saved_mat1, b)
        return right if a is None else right.addmm_(a, node._saved_mat2)
    product = _mm(a, node._saved_mat2, node._saved_mat1, b)
    return _plus(product, bias, node)


def _convolution(
    node: Any, x: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """d(x ∗ W + b) = dx ∗ W + x ∗ dW + db."""
    geometry = (
        node._saved_stride,
        node._saved_padding,
        node._saved_dilation,
        node._saved_transposed,
        node._saved_output_padding,
        node._saved_groups,
    )
    result: Tensor | None = None
    if weight is not None:
        result = _aten.convolution(node._saved_input, weight, bias, *geometry)
        bias = None
    if x is not None:
        moved = _aten.convolution(x, node._saved_weight, bias, *geometry)
        return moved if result is None else result.add_(moved)
    if result is None and bias is not None:
        return bias.view(-1, *[1] * (len(_shape(node)) - 2)).expand(_shape(node))
    return result


def _mul(node: Any, a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """d(ab) = da·b + a·db."""
    left = None if a is None else a * node._saved_other
    right = None if b is None else b * node._saved_self
    return _plus(left, right, node)


def _div(node: Any, a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """d(a/b) = da/b − a·db/b²."""
    other = node._saved_other
    left = None if a is None else a / other
    if b is None:
        return _plus(left, None, node)
    right = b * (-node._saved_self / other**2)
    return _plus(left, right, node)


def _add(node: Any, a: Tensor | None, b: Tensor | None = None) -> Tensor | None:
    alpha = node._saved_alpha
    return _plus(a, b if b is None or alpha == 1 else b * alpha, node)


def _sub(node: Any, a: Tensor | None, b: Tensor | None = None) -> Tensor | None:
    return _plus(a, None if b is None else b * -node._saved_alpha, node)


# -- normalisation and attention -----------------------------------------------------------------


def _batch_norm(
    node: Any, x: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """y = w·x̂ + b; the Jacobian of y in x is symmetric, channel by channel."""
    inputs, training, eps = node._saved_input, node._saved_training, node._saved_eps
    running = node._saved_running_mean, node._saved_running_var
    mean, scale = batch = node._saved_result1, node._saved_result2
    along, result = (1, -1, *[1] * (inputs.dim() - 2)), None
    if x is not None:
        result = _aten.native_batch_norm_backward(
            x, inputs, node._saved_weight, *running, *batch, training, eps, [True, False, False]
        )[0]
    # x̂·dw + db = x·(s·dw) + (db − m·s·dw) with x̂ = s(x − m): one pass over x.
    if weight is not None:
        if not training:
            mean, scale = running[0], (running[1] + eps).rsqrt()
        slope = scale * weight
        shift = -mean * slope if bias is None else bias - mean * slope
        moved = torch.addcmul(shift.view(along), inputs, slope.view(along))
        return moved.to(inputs.dtype) if result is None else result + moved.to(result.dtype)
    return _plus(result, None if bias is None else bias.view(along), node)


def _layer_norm(
    node: Any, x: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """y = w·x̂ + b; x̂'s Jacobian is symmetric, and is had from the backward without weight."""
    inputs, mean, scale = node._saved_input, node._saved_result1, node._saved_result2
    result = None
    if x is not None:
        result = _aten.native_layer_norm_backward(
            x, inputs, node._saved_normalized_shape, mean, scale, None, None, [True, False, False]
        )[0]
        own = node._saved_weight
        result = result if own is None else result * own
    if weight is not None:
        normal = ((inputs - mean) * scale).to(inputs.dtype)
        bias = normal * weight if bias is None else torch.addcmul(bias, normal, weight)
    return _plus(result, bias, node)


def _log_softmax(node: Any, x: Tensor) -> Tensor:
    """d log softmax(x) = dx − Σ p·dx."""
    result, dim = node._saved_result, signed(node._saved_dim)
    mean: Tensor = (result.exp() * x).sum(dim, keepdim=True)
    return x - mean


def _attention(node: Any, q: Tensor | None, k: Tensor | None, v: Tensor | None) -> Tensor | None:
    """O = PV with P = softmax(S), S = QKᵀ·scale (+ mask): dO = dP·V + P·dV, dP = P∘(dS − ΣP∘dS).

    The fused kernel keeps Q, K, V; P is formed anew, as the mathematical kernel would.
    """
    query, key, value = node._saved_query, node._saved_key, node._saved_value
    if node._saved_dropout_p:
        raise Unsupported("fused attention with dropout")
    groups = query.shape[-3] // key.shape[-3]
    if groups > 1:  # grouped queries share the heads of keys and values
        key, value, k, v = (
            None if x is None else x.repeat_interleave(groups, -3) for x in (key, value, k, v)
        )
    # P, as in the forward pass.
    scale = node._saved_scale
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    mask = node._saved_attn_mask
    scores = scores if mask is None else scores + mask
    if node._saved_is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = _aten._safe_softmax(scores, -1)  # a row that may look nowhere is zero, not NaN
    # P·dV, then dS = dQ·Kᵀ + Q·dKᵀ, then dP·V.
    moved = None if v is None else weights @ v
    slope = None if q is None else q @ key.mT
    if k is not None:
        slope = query @ k.mT if slope is None else slope + query @ k.mT
    if slope is None:
        return moved
    change = weights * slope
    change = (change - weights * change.sum(-1, keepdim=True)) * scale
    result: Tensor = change @ value
    return result if moved is None else moved + result


# -- shapes, reductions, look-ups ----------------------------------------------------------------


def _reshape(node: Any, x: Tensor) -> Tensor:
    return x.reshape(_shape(node))


def _cast(node: Any, x: Tensor) -> Tensor:
    (output,) = node._input_metadata
    return x.to(device=output.device, dtype=output.dtype)


def _cat(node: Any, *parts: Tensor | None) -> Tensor | None:
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):  # the sizes of the absent parts are known to the node only
        return _generic(node, *parts)[0]
    return torch.cat(present, signed(node._saved_dim))


def _stack(node: Any, *parts: Tensor | None) -> Tensor:
    present = next(part for part in parts if part is not None)
    zero = torch.zeros_like(present)
    return torch.stack([zero if p is None else p for p in parts], signed(node._saved_dim))


def _max_pool(node: Any, x: Tensor) -> Tensor:
    """The tangents of the entries that were the largest."""
    where = node._saved_result1
    return x.flatten(-2).gather(-1, where.flatten(-2)).view_as(where)


def _embedding(node: Any, weight: Tensor) -> Tensor:
    indices, padding = node._saved_indices, signed(node._saved_padding_idx)
    rows = F.embedding(indices, weight)
    if node._saved_scale_grad_by_freq:  # autograd's gradient of a row is that much smaller
        counts = indices.reshape(-1).bincount()
        rows = rows / counts[indices].unsqueeze(-1).to(rows.dtype)
    if padding >= 0:  # autograd gives this row no gradient
        rows = rows.masked_fill((indices == padding).unsqueeze(-1), 0)
    return rows


def _index_add(node: Any, x: Tensor | None, source: Tensor | None) -> Tensor | None:
    if source is None:
        return x
    own = source.new_zeros(_shape(node)) if x is None else x
    return own.index_add(
        signed(node._saved_dim), node._saved_index, source, alpha=node._saved_alpha
    )


def _scatter_add(node: Any, x: Tensor | None, source: Tensor | None) -> Tensor | None:
    if source is None:
        return x
    own = source.new_zeros(_shape(node)) if x is None else x
    return own.scatter_add(signed(node._saved_dim), node._saved_index, source)


def _embedding_bag(node: Any, weight: Tensor | None, shares: Tensor | None) -> Tensor | None:
    """Σ sᵢ wᵢ over a bag is linear in the rows and in the shares; a maximum picks rows."""
    if node._saved_scale_grad_by_freq:  # torch divides by other counts than it says
        return _generic(node, weight, shares)[0]
    if node._saved_mode == _MAX:
        assert weight is not None  # a maximum has no shares
        present: Tensor = (node._saved_result2 > 0).unsqueeze(-1)
        return weight.gather(0, node._saved_result3.to(torch.int64)) * present
    offsets = node._saved_offsets
    settings = node._saved_indices, offsets, False, node._saved_mode, False
    last, padding = len(offsets) > _shape(node)[0], signed(node._saved_padding_idx)

    def bags(rows: Any, shares: Any) -> Tensor:
        result: Tensor = _aten._embedding_bag(rows, *settings, shares, last, padding)[0]
        return result

    result = None if weight is None else bags(weight, node._saved_per_sample_weights)
    if shares is None:
        return result
    moved = bags(node._saved_weight, shares)
    return moved if result is None else result + moved


# -- every input belongs to one output -----------------------------------------------------------


def _ctc(node: Any, x: Tensor) -> Tensor:
    """A sequence has a loss of its own: its gradient is that of the sum of all losses."""
    (output,) = node._input_metadata
    one = _one(output.dtype, output.device)
    gradient: Any = _pull(node, one.expand(output.shape).contiguous())[0]
    moved: Tensor = gradient * x
    return moved.sum((0, 2)).view(output.shape)


def _segments(node: Any, x: Tensor) -> Tensor:
    """An entry belongs to one segment: its slope is that of the sum of all results."""
    data, result = node._saved_data, node._saved_result
    where = {
        "lengths": node._saved_lengths,
        "offsets": node._saved_offsets,
        "axis": signed(node._saved_axis),
    }

    def pulled(u: Tensor) -> Tensor:
        gradient: Tensor = _aten._segment_reduce_backward(
            u, result, data, node._saved_reduce, initial=node._saved_initial, **where
        )
        return gradient

    slopes = pulled(torch.ones_like(result))
    if not torch.equal(slopes, -pulled(-torch.ones_like(result))):
        raise Unsupported("of equal entries torch shares positive gradients out, and no others")
    moved: Tensor = _aten.segment_reduce(slopes * x, "sum", initial=0, **where)
    return moved


# -- distances, recurrence -----------------------------------------------------------------------


def _cdist(node: Any, a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Distances of all rows of x from all rows of y, some rows of x at a time."""
    x, y, distance = node._saved_x1, node._saved_x2, node._saved_result
    other = y.unsqueeze(-3)
    moved = None if b is None else b.unsqueeze(-3)
    size = max(BLOCK // max(distance[..., :1, :].numel() * x.shape[-1], 1), 1)
    result = torch.empty_like(distance)
    for low in range(0, x.shape[-2], size):
        rows = (..., slice(low, low + size), None, slice(None))
        part = (..., slice(low, low + size), slice(None))
        change = _minus(None if a is None else a[rows], moved)
        result[part] = _slope(x[rows] - other, change, distance[part], node._saved_p)
    return result


def _pdist(node: Any, a: Tensor) -> Tensor:
    """Distances of all pairs of rows."""
    x = node._saved_self
    i, j = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return _slope(x[i] - x[j], a[i] - a[j], node._saved_result, node._saved_p)


def _minus(a: Tensor | None, b: Tensor | None) -> Tensor:
    if a is None or b is None:
        assert a is not None or b is not None
        return -b if a is None else a  # type: ignore[operator]
    return a - b


def _slope(gap: Tensor, change: Tensor, distance: Tensor, p: float) -> Tensor:
    """Of ‖g‖_p along dg: Σ sign(g)·(|g| / ‖g‖)^(p−1)·dg; 0 where autograd has 0, at g = 0."""
    length = distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(distance)
    if math.isinf(p):
        return ((gap.abs() == length) * gap.sign() * change).sum(-1)
    share = gap.sign() if p == 1 else gap.sign() * (gap.abs() / length) ** (p - 1)
    flat = (gap == 0) | (length == 0)
    return (share.masked_fill(flat, 0) * change).sum(-1)


def _fused_layer(node: Any, *incoming: Tensor | None) -> Tangents:
    """A layer of an LSTM, all times at once; another kind, or packed sequences, as they come."""
    if node._saved_mode != _LSTM or node._saved_batch_sizes:
        return _generic(node, *incoming)
    back = node._saved_reverse
    biases = (node._saved_weight2, node._saved_weight3) if node._saved_has_biases else ()
    layer = Layer(
        x=_turned(node._saved_input, back),
        w=node._saved_weight0,
        u=node._saved_weight1,
        biases=biases,
        h=_turned(node._saved_result0, back),
        h0=node._saved_hx_,
        c0=node._saved_cx_,
    )
    x, *others = incoming
    outputs, h, c = lstm(layer, [None if x is None else _turned(x, back), *others])
    return _turned(outputs, back), h, c


def _turned(times: Tensor, back: bool) -> Tensor:
    return times.flip(0) if back else times


def _learned_quantization(node: Any, *moves: Tensor | None) -> Tensor:
    """x is rounded to steps of a learned size: every entry has slopes of its own in all three.

    torch's backward adds them up over a channel. So each entry is made a channel.
    """
    data, axis = node._saved_self, getattr(node, "_saved_axis", None)
    along = [1] * data.dim()
    if axis is not None:
        along[signed(axis)] = -1

    def each(number: Any) -> Tensor:
        spread: Tensor = number.reshape(along).expand(data.shape)
        return spread

    slopes = _aten._fake_quantize_learnable_per_channel_affine_backward(
        torch.ones_like(data).reshape(-1, 1),  # of one dimension alone it adds all up
        data.reshape(-1, 1),
        each(node._saved_scale).reshape(-1),
        each(node._saved_zero_point).reshape(-1),
        0,
        signed(node._saved_quant_min),
        signed(node._saved_quant_max),
        node._saved_grad_factor,
    )
    total = torch.zeros_like(data)
    for slope, moved in zip(slopes, moves, strict=True):
        if moved is not None:
            total += slope.view(data.shape) * (moved if moved is moves[0] else each(moved))
    return total


def _div_rounded(node: Any, a: Tensor | None, b: Tensor | None = None) -> Tensor | None:
    """A quotient that is rounded does not move."""
    return _div(node, a, b) if node._saved_rounding_mode is None else None


# Nodes whose outputs do not move: what is rounded, drawn or written over.
FLAT: frozenset[str] = frozenset(
    f"{name}Backward{number}"
    for name, numbers in {
        "Round": "01",
        "Floor": "0",
        "Ceil": "0",
        "Trunc": "0",
        "Sign": "0",
        "Bernoulli": "02",
        "Poisson": "0",
        "Normal": "0",
        "Uniform": "0",
        "Zero": "0",
        "Fill": "02",
    }.items()
    for number in numbers
)

# How a node that saves these fields carries tangents. One that saves others is not the node that
# its rule was written for: it goes the general way.
RULES: dict[str, tuple[str, Rule]] = {
    "AddmmBackward0": ("alpha beta mat1 mat2", _addmm),
    "MmBackward0": ("mat2 self", lambda n, a, b: _mm(a, n._saved_mat2, n._saved_self, b)),
    "BmmBackward0": ("mat2 self", lambda n, a, b: _bmm(a, n._saved_mat2, n._saved_self, b)),
    "ConvolutionBackward0": (
        "dilation groups input output_padding padding stride transposed weight",
        _convolution,
    ),
    "MulBackward0": ("other self", _mul),
    "MulBackward1": ("other", lambda n, a: a * n._saved_other),
    "DivBackward0": ("other self", _div),
    "AddBackward0": ("alpha", _add),
    "SubBackward0": ("alpha", _sub),
    "NativeBatchNormBackward0": (
        "eps input result1 result2 running_mean running_var training weight",
        _batch_norm,
    ),
    "NativeLayerNormBackward0": ("bias input normalized_shape result1 result2 weight", _layer_norm),
    "LogSoftmaxBackward0": ("dim result", _log_softmax),
    "ScaledDotProductFlashAttentionForCpuBackward0": (
        "attn_mask dropout_p is_causal key logsumexp output query scale value",
        _attention,
    ),
    "ViewBackward0": ("", _reshape),
    "UnsafeViewBackward0": ("", _reshape),
    "ReshapeAliasBackward0": ("", _reshape),
    "UnsqueezeBackward0": ("dim", lambda n, x: x.unsqueeze(signed(n._saved_dim))),
    "SqueezeBackward0": ("", _reshape),
    "SqueezeBackward1": ("dim", lambda n, x: x.squeeze(signed(n._saved_dim))),
    "SqueezeBackward2": ("dim", _reshape),
    "ExpandBackward0": ("", lambda n, x: x.expand(_shape(n))),
    "TBackward0": ("", lambda n, x: x.t()),
    "TransposeBackward0": (
        "dim0 dim1",
        lambda n, x: x.transpose(signed(n._saved_dim0), signed(n._saved_dim1)),
    ),
    "TransposeBackward1": (  # in place
        "dim0 dim1",
        lambda n, x: x.transpose(signed(n._saved_dim0), signed(n._saved_dim1)),
    ),
    "PermuteBackward0": ("dims", lambda n, x: x.permute(_signed_all(n._saved_dims))),
    "SelectBackward0": (
        "dim index",
        lambda n, x: x.select(signed(n._saved_dim), signed(n._saved_index)),
    ),
    "SliceBackward0": (
        "dim end start step",
        lambda n, x: _aten.slice(
            x,
            signed(n._saved_dim),
            signed(n._saved_start),
            signed(n._saved_end),
            n._saved_step,
        ),
    ),
    "UnbindBackward0": ("dim", lambda n, x: x.unbind(signed(n._saved_dim))),
    "SplitBackward0": (
        "dim split_size",
        lambda n, x: x.split(n._saved_split_size, signed(n._saved_dim)),
    ),
    "UnsafeSplitBackward0": (
        "dim split_size",
        lambda n, x: x.split(n._saved_split_size, signed(n._saved_dim)),
    ),
    "ToCopyBackward0": ("", _cast),
    "CatBackward0": ("dim", _cat),
    "StackBackward0": ("dim", _stack),
    "SumBackward0": ("", lambda n, x: x.sum(dtype=_dtype(n))),
    "SumBackward1": (
        "dim keepdim",
        lambda n, x: x.sum(_signed_all(n._saved_dim), n._saved_keepdim, dtype=_dtype(n)),
    ),
    "MeanBackward0": ("", lambda n, x: x.mean(dtype=_dtype(n))),
    "MeanBackward1": (
        "dim keepdim",
        lambda n, x: x.mean(_signed_all(n._saved_dim), n._saved_keepdim, dtype=_dtype(n)),
    ),
    "MaxPool2DWithIndicesBackward0": (
        "ceil_mode dilation kernel_size padding result1 self stride",
        _max_pool,
    ),
    "EmbeddingBackward0": ("indices padding_idx scale_grad_by_freq sparse", _embedding),
    "EmbeddingBagBackward0": (
        "indices mode offsets padding_idx per_sample_weights result1 result2 result3 "
        "scale_grad_by_freq sparse weight",
        _embedding_bag,
    ),
    "CtcLossBackward0": (
        "blank input_lengths log_probs result0 result1 target_lengths targets zero_infinity",
        _ctc,
    ),
    "SegmentReduceBackward0": ("axis data initial lengths offsets reduce result", _segments),
    "CdistBackward0": ("p result x1 x2", _cdist),
    "PdistBackward0": ("p result self", _pdist),
    "MkldnnRnnLayerBackward0": (
        "batch_first batch_sizes bidirectional cx_ has_biases hidden_size hx_ input mode "
        "num_layers result0 result1 result2 result3 reverse train weight0 weight1 weight2 weight3",
        _fused_layer,
    ),
    "FakeQuantizeLearnablePerTensorAffineBackward0": (
        "grad_factor quant_max quant_min scale self zero_point",
        _learned_quantization,
    ),
    "FakeQuantizeLearnablePerChannelAffineBackward0": (
        "axis grad_factor quant_max quant_min scale self zero_point",
        _learned_quantization,
    ),
    "DivBackward2": ("other rounding_mode self", _div_rounded),
    **dict.fromkeys(FLAT, ("", lambda n, *_: None)),
    "IndexBackward0": ("indices", lambda n, x: _aten.index(x, n._saved_indices)),
    # What graph networks pass messages with.
    "IndexSelectBackward0": (
        "dim index",
        lambda n, x: x.index_select(signed(n._saved_dim), n._saved_index),
    ),
    "GatherBackward0": (
        "dim index self sparse_grad",
        lambda n, x: x.gather(signed(n._saved_dim), n._saved_index),
    ),
    "IndexAddBackward0": ("alpha dim index source source_dim", _index_add),
    "ScatterAddBackward0": ("dim index", _scatter_add),
}

# One differentiable input, J = Jᵀ: element-wise functions, copies, softmax.
SYMMETRIC: frozenset[str] = frozenset(
    f"{name}Backward0"
    for name in """
        Abs Alias Clone Cos Elu Erf Exp Expm1 Gelu Hardsigmoid Hardswish Hardtanh LeakyRelu Log
        Log1P LogSigmoid MaskedFill Mish NativeDropout Neg Pow Reciprocal Relu Rsqrt SafeSoftmax
        Sigmoid Silu Sin Softmax Softplus Sqrt Tanh Threshold
    """.split()  # noqa: SIM905
)
