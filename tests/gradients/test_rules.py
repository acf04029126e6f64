"""Every rule for a single node, against the naive Jacobian of a graph in which that node occurs."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import naive
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from zoo import ATTENTION, FLASH, TORCH, fuses

from covering import in_turn
from python_functions import Doubled
from trimol.gradients import _rules
from trimol.gradients._graph import outputs, record
from trimol.gradients._product import directional
from trimol.gradients._rules import RULES, SYMMETRIC, Unsupported, carry, known
from trimol.gradients._tangents import push

aten = torch.ops.aten
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    node: str
    function: Callable[..., Tensor]
    shapes: tuple[Shape, ...]
    title: str = ""

    def __str__(self) -> str:
        return f"{self.node} {self.title}".strip()


CASES: list[Case] = []


def case(node: str, function: Callable[..., Tensor], *shapes: Shape, title: str = "") -> None:
    CASES.append(Case(node, function, shapes, title))


# -- products ------------------------------------------------------------------------------------

MATRICES = ((3, 4), (3, 2), (2, 4))
case("AddmmBackward0", torch.addmm, *MATRICES, title="matrix")
case("AddmmBackward0", torch.addmm, (4,), *MATRICES[1:], title="row")
case("AddmmBackward0", torch.addmm, (3, 1), *MATRICES[1:], title="column")
case("AddmmBackward0", torch.addmm, (), *MATRICES[1:], title="number")
case(
    "AddmmBackward0",
    lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=-2),
    *MATRICES,
    title="alpha, beta",
)
case("AddmmBackward0", lambda c, a: torch.addmm(c, a, a), (3, 3), (3, 3), title="square")
case("MmBackward0", torch.mm, (3, 2), (2, 4))
case("MmBackward0", lambda a: a @ a, (3, 3), title="square")
case("BmmBackward0", torch.bmm, (2, 3, 2), (2, 2, 4))
case("BmmBackward0", lambda a, b: a @ b, (2, 3, 2), (3, 2, 2, 4), title="broadcast")
case("ConvolutionBackward0", F.conv2d, (2, 3, 5, 4), (2, 3, 2, 2), (2,))
case("ConvolutionBackward0", lambda x, w: F.conv1d(x, w), (2, 3, 5), (2, 3, 2), title="no bias")
case(
    "ConvolutionBackward0",
    lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, dilation=2, groups=2),
    (2, 4, 6, 6),
    (2, 2, 2, 2),
    (2,),
    title="geometry",
)
case(
    "ConvolutionBackward0",
    lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
    (2, 3, 3, 3),
    (3, 2, 3, 3),
    (2,),
    title="transposed",
)
case("ConvolutionBackward0", F.conv3d, (1, 2, 3, 3, 3), (2, 2, 2, 2, 2), (2,), title="3d")

PAIRS: dict[str, tuple[Shape, Shape]] = {
    "same": ((3, 4), (3, 4)),
    "row": ((3, 4), (4,)),
    "column": ((3, 1), (3, 4)),
    "both": ((3, 1), (1, 4)),
    "number": ((), (3, 4)),
}
for _title, _shapes in PAIRS.items():
    case("MulBackward0", torch.mul, *_shapes, title=_title)
    case("DivBackward0", lambda a, b: a / (b.square() + 1), *_shapes, title=_title)
    case("AddBackward0", torch.add, *_shapes, title=_title)
    case("AddBackward0", lambda a, b: torch.add(a, b, alpha=-3), *_shapes, title=f"{_title} alpha")
    case("SubBackward0", torch.sub, *_shapes, title=_title)
    case("SubBackward0", lambda a, b: torch.sub(a, b, alpha=3), *_shapes, title=f"{_title} alpha")
for _title, _function in {
    "MulBackward0": lambda x: x * 3,
    "DivBackward0": lambda x: x / 3,
    "AddBackward0": lambda x: x + 3,
    "SubBackward0": lambda x: x - 3,
}.items():
    case(_title, _function, (3, 4), title="Python number")
case("MulBackward0", lambda x: x * x, (3,), title="with itself")
case("DivBackward0", lambda x: x / (x * x + 1), (3,), title="with itself")
case("AddBackward0", lambda x: x + x, (3,), title="with itself")
case("SubBackward0", lambda x: x - x.exp(), (3,), title="with itself")
case("MulBackward1", lambda x: aten.mul.Scalar(x, -2.5), (3, 4))

# -- normalisation, attention --------------------------------------------------------------------


def batch_norm(training: bool) -> Callable[..., Tensor]:
    def function(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        mean, var = torch.linspace(-1, 1, 3).to(x), torch.linspace(0.5, 2, 3).to(x)
        return F.batch_norm(x, mean, var, weight, bias, training)

    return function


for _training in (True, False):
    for _shape in ((5, 3), (4, 3, 2), (2, 3, 2, 2)):
        case(
            "NativeBatchNormBackward0",
            batch_norm(_training),
            _shape,
            (3,),
            (3,),
            title=f"training {_training} {_shape}",
        )
    case("NativeBatchNormBackward0", batch_norm(_training), (5, 3), title=f"plain {_training}")
case(
    "NativeLayerNormBackward0",
    lambda x, w, b: F.layer_norm(x, (4,), w, b),
    (2, 3, 4),
    (4,),
    (4,),
)
case(
    "NativeLayerNormBackward0",
    lambda x, w, b: F.layer_norm(x, (3, 4), w, b),
    (2, 3, 4),
    (3, 4),
    (3, 4),
    title="two dimensions",
)
case("NativeLayerNormBackward0", lambda x: F.layer_norm(x, (4,)), (3, 4), title="plain")
case(
    "NativeLayerNormBackward0",
    lambda x, w: F.layer_norm(x, (4,), w),
    (3, 4),
    (4,),
    title="no bias",
)
case("LogSoftmaxBackward0", lambda x: x.log_softmax(-1), (3, 4))
case("LogSoftmaxBackward0", lambda x: x.log_softmax(0), (3, 4), title="first dimension")
QKV = ((2, 4, 5, 4), (2, 4, 3, 4), (2, 4, 3, 4))
for _title, _options in {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bool mask": {"attn_mask": torch.ones(5, 3).tril(1).bool()},
    "float mask": {"attn_mask": torch.linspace(-1, 1, 15, dtype=torch.float64).view(5, 3)},
    "nowhere to look": {"attn_mask": torch.ones(5, 3).tril(-1).bool()},
}.items():
    case(
        FLASH,
        lambda q, k, v, options=_options: F.scaled_dot_product_attention(q, k, v, **options),
        *QKV,
        title=_title,
    )
case(
    FLASH if fuses(ATTENTION["grouped queries"]()) else "BmmBackward0",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    (2, 4, 5, 4),
    (2, 2, 3, 4),
    (2, 2, 3, 4),
    title="grouped queries",
)
case(
    FLASH,
    lambda x: F.scaled_dot_product_attention(x, x, x),
    (2, 4, 5, 4),
    title="of one tensor",
)

# -- shapes --------------------------------------------------------------------------------------

case("ViewBackward0", lambda x: x.view(2, -1), (3, 4))
case("UnsafeViewBackward0", lambda x: aten._unsafe_view(x, [2, 6]), (3, 4))
case("ReshapeAliasBackward0", lambda x: aten._reshape_alias(x, [2, 6], [6, 1]), (3, 4))
case("UnsqueezeBackward0", lambda x: x.unsqueeze(-1), (3, 4))
case("SqueezeBackward0", lambda x: x.squeeze(), (3, 1, 4, 1))
case("SqueezeBackward1", lambda x: x.squeeze(-1), (3, 4, 1))
case("SqueezeBackward1", lambda x: x.squeeze(0), (3, 4), title="nothing to do")
case("SqueezeBackward2", lambda x: x.squeeze((0, -1)), (1, 3, 4, 1))
case("ExpandBackward0", lambda x: x.expand(2, 3, 4), (3, 1))
case("ExpandBackward0", lambda x: x.expand(2, -1, -1), (3, 4), title="as it is")
case("TBackward0", lambda x: x.t(), (3, 4))
case("TransposeBackward1", lambda x: x.sin().transpose_(0, -1), (2, 3, 4), title="in place")
case("TransposeBackward0", lambda x: x.transpose(-1, 0), (2, 3, 4))
case("TransposeBackward0", lambda x: x.mT, (2, 3, 4), title="matrix")
case("PermuteBackward0", lambda x: x.permute(2, 0, 1), (2, 3, 4))
case("PermuteBackward0", lambda x: x.permute(-1, -3, -2), (2, 3, 4), title="negative")
case("SelectBackward0", lambda x: x[1], (3, 4))
case("SelectBackward0", lambda x: x.select(-1, -2), (3, 4), title="negative")
case("SliceBackward0", lambda x: x[1:], (3, 4))
case("SliceBackward0", lambda x: x[:, -3:-1], (3, 4), title="negative")
case("SliceBackward0", lambda x: x[..., ::2], (3, 4), title="step")
case("SliceBackward0", lambda x: x.narrow(-1, 1, 2), (3, 4), title="narrow")
case("SliceBackward0", lambda x: aten.slice(x, -1), (3, 4), title="no ends")
case("SliceBackward0", lambda x: x[:, 5:], (3, 7), title="beyond")
case("UnbindBackward0", lambda x: torch.cat([p * i for i, p in enumerate(x.unbind())]), (3, 4))
case("UnbindBackward0", lambda x: x.unbind(-1)[2], (3, 4), title="one of them")
case("SplitBackward0", lambda x: torch.cat([p.exp() for p in x.split(2)]), (5, 4))
case("SplitBackward0", lambda x: x.split(3, -1)[1], (3, 4), title="the last, shorter")
case("SplitBackward0", lambda x: x.chunk(3, 1)[0], (3, 4), title="chunk")
case("UnsafeSplitBackward0", lambda x: torch.unsafe_split(x, 2, -1)[1], (3, 5))
case("CatBackward0", lambda a, b: torch.cat([a, b, a], -1), (3, 2), (3, 4))
case("CatBackward0", lambda a: torch.cat([a, torch.ones_like(a)]), (3, 2), title="a constant")
case("CatBackward0", lambda a: torch.cat([a, a.new_empty(0)]), (3, 2), title="nothing")
case("StackBackward0", lambda a, b: torch.stack([a, b, a], -1), (3, 2), (3, 2))
case("StackBackward0", lambda a: torch.stack([torch.ones_like(a), a]), (3, 2), title="a constant")
case("ToCopyBackward0", lambda x: x.float().double(), (3, 4))


def _wider(number: Tensor) -> Tensor:
    """A product that insists on float64."""
    return number.view(1, 1) @ torch.ones(1, 2, dtype=torch.float64)


# -- reductions, look-ups ------------------------------------------------------------------------

for _node, _name in {"SumBackward": "sum", "MeanBackward": "mean"}.items():
    case(f"{_node}0", lambda x, name=_name: getattr(x, name)(), (3, 4))
    for _title, _arguments in {
        "dimension": (0,),
        "negative": (-1,),
        "keepdim": ((0, -1), True),
        "two": ((1, 2),),
        "all, kept": (None, True),
    }.items():
        case(
            f"{_node}1",
            lambda x, name=_name, arguments=_arguments: getattr(x, name)(*arguments),
            (2, 3, 4),
            title=_title,
        )
    case(
        f"{_node}0",
        lambda x, name=_name: _wider(getattr(x.float(), name)(dtype=torch.float64)),
        (3, 4),
        title="wider",
    )
case("MaxPool2DWithIndicesBackward0", lambda x: F.max_pool2d(x, 2), (2, 3, 4, 4))
case(
    "MaxPool2DWithIndicesBackward0",
    lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    (3, 6, 6),
    title="padding, unbatched",
)
WORDS = torch.tensor([[0, 2, 2], [1, 4, 0]])
LABELS = torch.tensor([0, 2, 1])
case("EmbeddingBackward0", lambda w: F.embedding(WORDS, w), (5, 3))
case("EmbeddingBackward0", lambda w: F.embedding(WORDS, w, padding_idx=2), (5, 3), title="padding")
case("EmbeddingBackward0", lambda w: F.embedding(WORDS, w, -1), (5, 3), title="padding -1")
case("IndexBackward0", lambda x: x[torch.tensor([2, 0, 0])], (3, 4))
case("IndexBackward0", lambda x: x[:, torch.tensor([[1, 0], [3, 3]])], (3, 4), title="second")
case("IndexBackward0", lambda x: x[[0, 1], :, [2, 2]], (2, 3, 4), title="around a slice")
case("IndexBackward0", lambda x: x[torch.eye(3, 4).bool()], (3, 4), title="mask")
NODES = torch.tensor([2, 0, 2])  # one twice, one not at all
PLACES = torch.tensor([[2, 0, 2, 1], [0, 0, 1, 1]])
case("IndexSelectBackward0", lambda x: x.index_select(0, NODES), (3, 4))
case("IndexSelectBackward0", lambda x: x.index_select(-1, NODES), (2, 4), title="last")
case("GatherBackward0", lambda x: x.gather(0, PLACES), (3, 4))
case("GatherBackward0", lambda x: x.gather(-1, PLACES), (2, 4), title="last")
case("IndexAddBackward0", lambda x, y: x.index_add(0, NODES, y), (3, 4), (3, 4))
case(
    "IndexAddBackward0",
    lambda x, y: (x * 1).index_add_(0, NODES, y),
    (3, 4),
    (3, 4),
    title="in place",
)
case("IndexAddBackward0", lambda x, y: x.index_add(-1, NODES, y), (2, 4), (2, 3), title="last")
case(
    "IndexAddBackward0",
    lambda x, y: x.index_add(0, NODES, y, alpha=-2),
    (3, 4),
    (3, 4),
    title="alpha",
)
case("ScatterAddBackward0", lambda x, y: x.scatter_add(0, PLACES, y), (3, 4), (2, 4))
case(
    "ScatterAddBackward0",
    lambda x, y: (x * 1).scatter_add_(-1, PLACES, y),
    (3, 5),
    (2, 4),
    title="last, in place, fewer rows",
)

case("EmbeddingBackward0", lambda w: F.embedding(WORDS, w, sparse=True), (5, 3), title="sparse")
case(
    "EmbeddingBackward0",
    lambda w: F.embedding(WORDS, w, 2, scale_grad_by_freq=True),
    (5, 3),
    title="by frequency",
)
BAGS = torch.tensor([2, 0, 2, 3, 4, 2, 1])
for _title, _options in {
    "plain": {"offsets": torch.tensor([0, 3, 5])},
    "an empty bag": {"offsets": torch.tensor([0, 3, 3, 5, 7])},
    "last offset": {"offsets": torch.tensor([0, 3, 5, 7]), "include_last_offset": True},
    "last offset, empty": {"offsets": torch.tensor([0, 3, 7, 7]), "include_last_offset": True},
    "padding": {"offsets": torch.tensor([0, 3, 5]), "padding_idx": 2},
    "padding -1": {"offsets": torch.tensor([0, 4, 5]), "padding_idx": -1},
    "all padding": {"offsets": torch.tensor([0, 5, 6]), "padding_idx": 2},
    "sparse": {"offsets": torch.tensor([0, 3, 5]), "sparse": True},
}.items():
    for _mode in ("sum", "mean", "max"):
        if _mode != "max" or _title != "sparse":
            case(
                "EmbeddingBagBackward0",
                lambda w, mode=_mode, options=_options: F.embedding_bag(
                    BAGS, w, mode=mode, **options
                ),
                (5, 3),
                title=f"{_mode} {_title}",
            )
    case(
        "EmbeddingBagBackward0",
        lambda w, s, options=_options: F.embedding_bag(
            BAGS, w, mode="sum", per_sample_weights=s, **options
        ),
        (5, 3),
        (7,),
        title=f"shares {_title}",
    )

# -- every input belongs to one output -----------------------------------------------------------

for _title, _options in {
    "plain": {},
    "blank last": {"blank": 3},
    "impossible": {"zero_infinity": True},
}.items():
    case(
        "CtcLossBackward0",
        lambda x, options=_options: F.ctc_loss(
            x.log_softmax(-1),
            torch.tensor([[1, 2, 0], [0, 0, 0], [2, 1, 2]]),
            torch.tensor([6, 4, 2]),
            torch.tensor([2, 0, 2]) if "zero_infinity" not in options else torch.tensor([2, 3, 3]),
            reduction="none",
            **{"blank": 3, **options},
        ),
        (6, 3, 4),
        title=_title,
    )
for _title, _options in {
    "lengths": {"lengths": torch.tensor([2, 1, 3])},
    "an empty segment": {"lengths": torch.tensor([2, 0, 4]), "initial": 0.5},
    "offsets": {"offsets": torch.tensor([0, 2, 6])},
    "second axis": {"lengths": torch.tensor([[2, 1], [1, 2]] * 3), "axis": 1},
}.items():
    for _mode in ("sum", "mean", "max", "min", "prod"):
        case(
            "SegmentReduceBackward0",
            lambda x, mode=_mode, options=_options: torch.segment_reduce(x, mode, **options),
            (6, 3, 2),
            title=f"{_mode} {_title}",
        )

# -- distances, recurrence, what does not move ---------------------------------------------------

for _p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf):
    case(
        "CdistBackward0",
        lambda a, b, p=_p: torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist"),
        (4, 3),
        (5, 3),
        title=f"p {_p}",
    )
    case("PdistBackward0", lambda a, p=_p: torch.pdist(a, p), (5, 3), title=f"p {_p}")
    case(
        "CdistBackward0",
        lambda a, p=_p: torch.cdist(a, a.detach()[1:3], p, "donot_use_mm_for_euclid_dist"),
        (4, 3),
        title=f"a distance of 0, p {_p}",
    )
QUANTIZED = (-3, 4, 0.5)
case(
    "FakeQuantizeLearnablePerTensorAffineBackward0",
    lambda x, s, z: torch._fake_quantize_learnable_per_tensor_affine(
        x.float(), (s.float() * 0.1 + 0.4).abs(), z.float() * 0.1 + 1.3, *QUANTIZED
    ),
    (5, 6),
    (1,),
    (1,),
    title="made wider",
)
case(
    "FakeQuantizeLearnablePerChannelAffineBackward0",
    lambda x, s, z: torch._fake_quantize_learnable_per_channel_affine(
        x.float(), (s.float() * 0.1 + 0.4).abs(), z.float() * 0.1 + 1.3, 1, *QUANTIZED
    ),
    (5, 6, 2),
    (6,),
    (6,),
    title="made wider",
)
case("CdistBackward0", torch.cdist, (2, 1, 4, 3), (3, 5, 3), title="broadcast")


def recurrent(*arguments: Tensor, size: int = 3, bias: bool = True, back: bool = False) -> Tensor:
    """One layer of an LSTM in float32: all its outputs."""
    x, w, u, b, b2, h, c = (a.float() for a in arguments)
    weights = [w, u, b, b2] if bias else [w, u]
    if back:  # the forward direction has weights of its own
        weights = [w.detach(), u.detach(), b.detach(), b2.detach()][: len(weights)] + weights
        h, c = (torch.stack([s.detach(), s]) for s in (h, c))
    states = (h, c) if back else (h[None], c[None])
    outputs, h, c = torch.lstm(x, states, weights, bias, 1, 0.0, True, back, False)
    return torch.cat([outputs.flatten(), h.flatten() * 2, c.flatten() * 3])


LSTM = ((4, 2, 5), (12, 5), (12, 3), (12,), (12,), (2, 3), (2, 3))
for _back in (False, True):
    case(
        "MkldnnRnnLayerBackward0",
        lambda *x, back=_back: recurrent(*x, back=back),
        *LSTM,
        title=f"wider, backwards {_back}",
    )
    case(
        "MkldnnRnnLayerBackward0",
        lambda x, w, u, h, c, back=_back: recurrent(
            x, w, u, w[:, 0].detach(), w[:, 0].detach(), h, c, bias=False, back=back
        ),
        *LSTM[:3],
        *LSTM[5:],
        title=f"wider, no bias, backwards {_back}",
    )
case("MkldnnRnnLayerBackward0", recurrent, (1, 2, 5), *LSTM[1:], title="wider, one time")

for _node, _function in {
    "RoundBackward0": torch.round,
    "RoundBackward1": lambda x: x.round(decimals=1),
    "FloorBackward0": torch.floor,
    "CeilBackward0": torch.ceil,
    "TruncBackward0": torch.trunc,
    "SignBackward0": torch.sign,
    "BernoulliBackward0": lambda x: torch.bernoulli(x.sigmoid()),
    "BernoulliBackward2": lambda x: (x * 1).bernoulli_(0.5),
    "PoissonBackward0": lambda x: torch.poisson(x.exp()),
    "NormalBackward0": lambda x: (x * 1).normal_(),
    "UniformBackward0": lambda x: (x * 1).uniform_(),
    "ZeroBackward0": lambda x: (x * 1).zero_(),
    "FillBackward0": lambda x: torch.fill(x * 1, 2.0),
    "FillBackward2": lambda x: (x * 1).fill_(2.0),
}.items():
    case(_node, _function, (3, 4), title="alone")
    case(_node, lambda x, function=_function: function(x * 2) * x, (3, 4), title="beside others")
for _mode in (None, "floor", "trunc"):
    case(
        "DivBackward2",
        lambda a, b, mode=_mode: torch.div(a, b.abs() + 0.5, rounding_mode=mode) + a,
        (3, 4),
        (4,),
        title=f"rounding {_mode}",
    )

# -- symmetric -----------------------------------------------------------------------------------

positive = torch.nn.Softplus()
ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Alias": aten.alias,
    "Clone": torch.clone,
    "Cos": torch.cos,
    "Elu": lambda x: F.elu(x, 0.7),
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Gelu": F.gelu,
    "Hardsigmoid": F.hardsigmoid,
    "Hardswish": F.hardswish,
    "Hardtanh": lambda x: F.hardtanh(x, -0.5, 0.8),
    "LeakyRelu": lambda x: F.leaky_relu(x, 0.2),
    "Log": lambda x: positive(x).log(),
    "Log1P": lambda x: positive(x).log1p(),
    "LogSigmoid": F.logsigmoid,
    "MaskedFill": lambda x: x.masked_fill(x > 0.3, 2.0),
    "Mish": F.mish,
    "NativeDropout": lambda x: torch.native_dropout(x, 0.4, True)[0],
    "Neg": torch.neg,
    "Pow": lambda x: x**3,
    "Reciprocal": lambda x: positive(x).reciprocal(),
    "Relu": torch.relu,
    "Rsqrt": lambda x: positive(x).rsqrt(),
    "SafeSoftmax": lambda x: aten._safe_softmax(x, -1),
    "Sigmoid": torch.sigmoid,
    "Silu": F.silu,
    "Sin": torch.sin,
    "Softmax": lambda x: x.softmax(0),
    "Softplus": lambda x: F.softplus(x, 2, 3),
    "Sqrt": lambda x: positive(x).sqrt(),
    "Tanh": torch.tanh,
    "Threshold": lambda x: F.threshold(x, 0.1, 5.0),
}
for _name, _function in ELEMENTWISE.items():
    case(f"{_name}Backward0", _function, (3, 4))
    if _name in ("Cos", "Gelu", "Pow", "LogSigmoid", "MaskedFill", "Softmax"):
        case(f"{_name}Backward0", _function, (1,), title="one entry")
case("GeluBackward0", lambda x: F.gelu(x, approximate="tanh"), (3, 4), title="tanh")
case("EluBackward0", F.selu, (3, 4), title="selu")
case("PowBackward0", lambda x: x**0, (3, 4), title="constant")
case(
    "MaskedFillBackward0", lambda x: x.masked_fill(torch.eye(3).bool(), 1.0), (3, 1), title="wider"
)
case("SoftmaxBackward0", lambda x: x.softmax(-2), (2, 3, 4), title="negative dimension")


# -- the tests -----------------------------------------------------------------------------------


def test_every_rule_has_a_case() -> None:
    missing = (set(RULES) | SYMMETRIC) - {case.node for case in CASES}
    assert not missing


def test_no_node_has_two_rules() -> None:
    assert not set(RULES) & SYMMETRIC


def projected(output: Tensor, count: int = 6) -> Tensor:
    """A few linear functions of ``output``, as losses."""
    matrix = torch.randn(count, output.numel(), dtype=torch.float64)
    return matrix @ output.reshape(-1).double()


def _check(losses: Tensor, moving: list[Tensor], rtol: float = 1e-12) -> None:
    direction = [torch.randn_like(x) for x in moving]
    got = push(record(losses, moving), direction)
    flat = torch.cat([d.reshape(-1).double() for d in direction])
    naive.assert_product(got, naive.jacobian(losses, moving), flat, rtol)


def _subsets(case: Case) -> list[tuple[int, ...]]:
    places = range(len(case.shapes))
    counts = places if len(places) < 5 else (0, len(places) - 1)  # of many: one, or all
    return [s for n in counts for s in combinations(places, n + 1)]


MOVES = [(case, subset) for case in CASES for subset in _subsets(case)]


@pytest.mark.parametrize(
    ("case", "moving", "others"),
    [(*move, others) for move, others in in_turn(MOVES, ["constant", "require grad"])],
    ids=str,
)
def test_rule(case: Case, moving: tuple[int, ...], others: str) -> None:
    """For each choice of inputs that move; the others have no tangent, with or without a graph."""
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in case.shapes]
    for i, x in enumerate(inputs):
        x.requires_grad_(i in moving or others == "require grad")
    losses = projected(case.function(*inputs))
    leaves = [inputs[i] for i in moving]
    assert case.node in {node.name() for node in record(losses, leaves).nodes}
    rtol = 1e-5 if "wider" in case.title or "ToCopy" in case.node else 1e-12
    _check(losses, leaves, rtol)


# What torch does not compute in half precision.
FULL = ("CdistBackward0", "PdistBackward0", "CtcLossBackward0")
LOWER = [case for case in CASES if case.title != "float mask"]
LOWERED = in_turn([c for c in LOWER if c.node not in FULL], [torch.bfloat16, torch.float32])
LOWERED += [(case, torch.float32) for case in LOWER if case.node in FULL]


@pytest.mark.parametrize(("case", "dtype"), LOWERED, ids=str)
def test_rule_in_a_lower_precision(case: Case, dtype: torch.dtype) -> None:
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in case.shapes]
    losses = projected(case.function(*inputs))
    _check(losses, inputs, 1e-4 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize(
    "name", [n for n in ELEMENTWISE if n in "Abs Cos Exp Log Pow Sin Sqrt Tanh"]
)
def test_a_symmetric_rule_is_not_used_for_complex_numbers(name: str) -> None:
    """There J is symmetric but the backward is its conjugate transpose."""
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    function = {"Log": torch.log, "Sqrt": torch.sqrt}.get(name, ELEMENTWISE[name])
    y = function(torch.complex(x, x.flip(0) + 0.3))
    losses = projected(y if name == "Abs" else torch.view_as_real(y))
    assert f"{name}Backward0" in {node.name() for node in record(losses, [x]).nodes}
    _check(losses, [x])


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: torch.maximum(a, b),
        lambda a, b: torch.lerp(a, b, 0.3),
        lambda a, b: torch.atan2(a, b),
        lambda a, b: torch.addcdiv(a, b, b.square() + 1),
        lambda a, b: a.masked_fill(a > 0, b.sum()),
        lambda a, b: torch.complex(a, b).abs(),
    ],
)
@pytest.mark.parametrize("moving", [(0,), (1,), (0, 1)])
def test_nodes_without_a_rule_broadcast(function: Callable[..., Tensor], moving: Any) -> None:
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in ((3, 1), (1, 4))]
    for i in moving:
        inputs[i].requires_grad_()
    _check(projected(function(*inputs)), [inputs[i] for i in moving])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.vector_norm(x),
        lambda x: x.prod(),
        lambda x: x.logsumexp((0, 1)),
        lambda x: F.mse_loss(x, x.flip(0) * 2),
        lambda x: x.max(),
        lambda x: x.std(),
        lambda x: torch.dot(x[0], x[1]),
        lambda x: x[:1, :1].logcumsumexp(0),
        lambda x: torch.linalg.vector_norm(torch.fft.fft(x)),
        lambda x: torch.fft.fft(x).prod().real,
        lambda x: torch.view_as_real(torch.complex(x[0, 0], x[1, 1])),
        lambda x: torch.view_as_real(torch.polar(x[0, 0].exp(), x[1, 1])),
    ],
)
def test_nodes_with_one_number_as_output(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    losses = projected(function(x))
    _check(losses, [x])


LEAF = torch.randn(3, 4, requires_grad=True)


def _has_gradient(output: Tensor, leaf: Tensor = LEAF) -> bool:
    try:
        torch.autograd.grad(output.sum(), leaf)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([p.exp() for p in x.split([1, 3], 1)], 1),
        lambda x: x.split([1, 3], 1)[1],
        lambda x: torch.var_mean(x, 0)[1],
        lambda x: sum(torch.var_mean(x, 0)),
        lambda x: x.sort(1)[0],
        lambda x: torch.linalg.qr(x.T)[1],
        lambda x: torch.linalg.eigh(x @ x.T)[0],
        lambda x: x.kthvalue(2)[0],
        pytest.param(
            lambda x: torch.aminmax(x, dim=0)[0],
            marks=pytest.mark.skipif(
                TORCH < (2, 13) and not _has_gradient(torch.aminmax(LEAF, dim=0)[0]),
                reason="this release of torch cannot differentiate it",
            ),
        ),
    ],
)
def test_nodes_without_a_rule_and_with_several_outputs(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    _check(projected(function(x)), [x], 1e-10)


def test_no_tangent_in_gives_none_out() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    assert carry(x.exp().grad_fn, (None,)) == (None,)
    assert carry(x.unbind()[0].grad_fn, (None,)) == (None,) * 3
    assert carry((x * x).grad_fn, (None, None)) == (None,)


def test_a_fused_layer_does_not_go_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are exact: only the cost would tell."""
    general, names = _rules._generic, []

    def watched(node: Any, *incoming: Tensor | None) -> Any:
        names.append(node.name())
        return general(node, *incoming)

    monkeypatch.setattr(_rules, "_generic", watched)
    inputs = [torch.randn(shape, requires_grad=True) for shape in LSTM]
    _check(projected(recurrent(*inputs)), inputs, 1e-4)
    assert "MkldnnRnnLayerBackward0" not in names


@pytest.mark.parametrize("entries", [1, 20, 2**20])
def test_distances_some_rows_at_a_time(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rules, "BLOCK", entries)
    x = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    losses = projected(torch.cdist(x, x[:, :4] + 1))
    assert "CdistBackward0" in {node.name() for node in record(losses, [x]).nodes}
    _check(losses, [x])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: Doubled.apply(x), "DoubledBackward"),
        (lambda x: F.multi_margin_loss(x, LABELS, reduction="none"), "MultiMarginLossBackward0"),
        (lambda x: x.sgn(), "SgnBackward0 has no second derivative"),
    ],
    ids=["Python", "no derivative", "flat"],
)
def test_what_cannot_carry_tangents_says_so(
    output: Callable[[Tensor], Tensor], message: str
) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    result = output(x)  # kept: before 2.7 a node written in Python lives no longer than its output
    node = result.grad_fn
    with pytest.raises(Unsupported, match=message):
        carry(node, tuple(None if n is None else torch.ones(3, 4) for n, _ in node.next_functions))


def test_a_rule_that_fails_is_unsupported_and_names_its_node() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot") as of_torch:
        torch.ones(3, 3) @ torch.ones(4, 2)
    with pytest.raises(Unsupported, match=f"^MmBackward0: {re.escape(str(of_torch.value))}$"):
        carry((x @ torch.ones(4, 2)).grad_fn, (torch.ones(3, 3), None))


@pytest.mark.parametrize("name", sorted(RULES))
def test_this_release_of_torch_builds_its_nodes_as_the_rules_expect(name: str) -> None:
    """Where it does not, answers are exact all the same, but a rule for speed is not used."""
    case = next(case for case in CASES if case.node == name)
    inputs = [torch.randn(shape, requires_grad=True) for shape in case.shapes]
    nodes = record(projected(case.function(*inputs)), inputs).nodes
    assert all(known(node) for node in nodes if node.name() == name)


@pytest.mark.parametrize("fields", ["other", "other self more", "another self"])
def test_a_node_of_another_layout_does_not_go_by_its_rule(
    fields: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule must not be used on a node that means more, less or something else."""
    monkeypatch.setitem(RULES, "MulBackward0", (fields, lambda node, a, b: a))
    a, b = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    _check(projected(a * b), [a, b])


FAILURES: dict[str, Callable[..., Any]] = {
    "no such field": lambda node, a, b: node._saved_gone,
    "another number of inputs": lambda node, a: a,
    "not a tensor": lambda node, a, b: a + "",
    "another number of outputs": lambda node, a, b: (a, b)[2],
    "outputs that cannot be told apart": lambda node, a, b: dict([a]),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_node_that_is_built_otherwise_leads_to_another_exact_route(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "MulBackward0", ("other self", FAILURES[failure]))
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    first, second = x * x.exp(), x.sin()
    vector = [second.detach().cos()]
    found = directional(record(first, [x]), vector)
    assert found.route == "double-vjp"
    assert found.reason.startswith("no tangents: MulBackward0: ")
    naive.assert_product(found.values, naive.jacobian(first, [x]), vector[0], 1e-12)


KINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "prelu at 0": lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
    "largest of equal entries": lambda x: torch.segment_reduce(
        x, "max", lengths=torch.tensor([2, 4])
    ),
}


@pytest.mark.parametrize("name", KINKS)
def test_where_a_backward_and_its_derivative_take_different_sides_of_a_kink(name: str) -> None:
    """What counts is what a backward of each loss gives."""
    x = torch.tensor([0.0, 0.0, -1.0, 2.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    losses, vector = projected(KINKS[name](x)), torch.randn(6, dtype=torch.float64)
    found = directional(record(losses, [x]), [vector])
    naive.assert_product(found.values, naive.jacobian(losses, [x]), vector, 1e-12)


def test_nodes_that_do_not_tell_their_outputs_lead_to_another_exact_route() -> None:
    class Hidden:
        """A node of a release of torch that hides what this one shows."""

        def name(self) -> str:
            return "ExpBackward0"

    assert outputs(Hidden()) == ()
    with pytest.raises(Unsupported, match=r"^ExpBackward0: .* has no attribute '_input_metadata'"):
        carry(Hidden(), (None,))


def test_the_rules_do_not_change_the_graph_or_its_tensors() -> None:
    """In-place steps inside rules touch only what the rules made themselves."""
    x, w, b = (torch.randn(s, requires_grad=True) for s in ((3, 3), (3, 3), (3,)))
    losses = torch.addmm(b, x, w).relu().sum(0)
    moving = [x, w, b]
    versions = [t._version for t in moving]
    direction = [torch.randn_like(t) for t in moving]
    copies = [d.clone() for d in direction]
    once = push(record(losses, moving), direction)
    again = push(record(losses, moving), direction)
    assert torch.equal(once, again)
    assert [t._version for t in moving] == versions
    assert all(torch.equal(d, c) for d, c in zip(direction, copies, strict=True))
    assert math.isfinite(once.sum().item())
