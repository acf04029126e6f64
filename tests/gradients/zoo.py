"""Models to differentiate: what people train, and what has no easy derivative.

A `Case` makes a model that maps an input to its losses, and two inputs. It says which way `product`
takes by itself, and which ways the graph does not allow.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Model = tuple[nn.Module, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    make: Callable[[], Model]
    route: str = "tangents"
    impossible: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float64
    rtol: float = 1e-10

    def build(self) -> Model:
        model, inputs = self.make()
        return model.to(self.dtype), _as(inputs, self.dtype)

    def build_with_copy(self) -> tuple[Model, Model]:
        """The case, and the same in float64."""
        model, inputs = self.build()
        return (model, inputs), (copy.deepcopy(model).double(), _as(inputs, torch.float64))


def _as(inputs: tuple[Tensor, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    first, second = (x.to(dtype) if x.is_floating_point() else x for x in inputs)
    return first, second


ZOO: dict[str, Case] = {}


def add(name: str, make: Callable[[], Model], **facts: Any) -> None:
    assert name not in ZOO, name
    ZOO[name] = Case(make, **facts)


def several(y: Tensor) -> Tensor:
    """Five different losses of one output."""
    y = y.reshape(-1)
    target = torch.linspace(-1, 1, len(y), dtype=torch.float64).to(y)
    return torch.stack(
        [
            F.mse_loss(y, target),
            (y * target).sum(),
            F.huber_loss(y, target, delta=0.3),
            y.sigmoid().mean(),
            y[::2].logsumexp(0),
        ]
    )


class Net(nn.Module):
    """Layers in a row, and losses at the end. Of a layer that returns a tuple, the first part."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return several(x)


class Of(nn.Module):
    """A function of the input and of free parameters of the given shapes."""

    def __init__(self, function: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([torch.randn(shape) for shape in shapes])

    def forward(self, x: Tensor) -> Tensor | Sequence[Tensor]:
        y = self.function(x, *self.weights)
        return several(y) if isinstance(y, Tensor) and y.dim() != 1 else y


def draw(*shape: int) -> tuple[Tensor, Tensor]:
    return torch.randn(shape), torch.randn(shape)


def behind_linear(
    layer: Callable[[], nn.Module], shape: Sequence[int], train: bool = True
) -> Model:
    """The layer behind a linear map, so that its input moves with the parameters too."""
    return Net(nn.Linear(shape[-1], shape[-1]), layer()).train(train), draw(*shape)


def of(function: Callable[..., Any], *shapes: tuple[int, ...], x: Sequence[int] = (5, 4)) -> Model:
    return Of(function, shapes or [(4, 4)]), draw(*x)


# -- layers --------------------------------------------------------------------------------------

add("mlp", lambda: (Net(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), draw(6, 4)))
add(
    "mlp, layer norm, gelu, dropout",
    lambda: (
        Net(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 3)),
        draw(6, 4),
    ),
)

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv 1d, no bias": (lambda: nn.Conv1d(3, 4, 3, bias=False), (2, 3, 8)),
    "conv 2d": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 5, 5)),
    "conv 2d, unbatched": (lambda: nn.Conv2d(3, 4, 3), (3, 5, 5)),
    "conv 2d, stride, dilation, groups": (
        lambda: nn.Conv2d(4, 4, 3, 2, 1, 2, groups=2),
        (2, 4, 9, 9),
    ),
    "conv 2d, depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (2, 4, 5, 5)),
    "conv 2d, circular": (
        lambda: nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular"),
        (2, 3, 5, 5),
    ),
    "conv 3d": (lambda: nn.Conv3d(2, 3, 2), (2, 2, 3, 3, 4)),
    "conv 1d, transposed": (lambda: nn.ConvTranspose1d(4, 3, 3), (2, 4, 5)),
    "conv 2d, transposed": (
        lambda: nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1, groups=2),
        (2, 4, 5, 5),
    ),
    "layer norm": (lambda: nn.LayerNorm(6), (3, 6)),
    "layer norm, two dimensions": (lambda: nn.LayerNorm((4, 6)), (3, 4, 6)),
    "layer norm, plain": (lambda: nn.LayerNorm(6, elementwise_affine=False), (3, 6)),
    "layer norm, no bias": (lambda: nn.LayerNorm(6, bias=False), (2, 3, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "group norm, plain": (lambda: nn.GroupNorm(1, 4, affine=False), (3, 4, 5)),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(3), (2, 3, 5)),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 5, 5)),
    "rms norm": (lambda: nn.RMSNorm(6), (3, 6)),
    "lstm": (lambda: nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True), (2, 4, 6)),
    "lstm, projected": (lambda: nn.LSTM(6, 5, proj_size=3), (4, 2, 6)),
    "lstm, cell": (lambda: nn.LSTMCell(6, 5), (3, 6)),
    "gru": (lambda: nn.GRU(6, 5, 2), (4, 2, 6)),
    "gru, cell": (lambda: nn.GRUCell(6, 5), (3, 6)),
    "rnn": (lambda: nn.RNN(6, 5, nonlinearity="relu"), (4, 2, 6)),
    "dropout 2d": (lambda: nn.Dropout2d(0.4), (4, 5, 3, 3)),
    "dropout, alpha": (lambda: nn.AlphaDropout(0.4), (8, 6)),
    "max pool 2d": (lambda: nn.MaxPool2d(3, 2, padding=1), (2, 3, 7, 7)),
    "max pool 2d, dilation": (lambda: nn.MaxPool2d(2, 1, dilation=2), (3, 7, 7)),
    "max pool 1d": (lambda: nn.MaxPool1d(2), (2, 3, 8)),
    "max pool 3d": (lambda: nn.MaxPool3d(2), (2, 3, 4, 4, 4)),
    "max pool 2d, adaptive": (lambda: nn.AdaptiveMaxPool2d(2), (2, 3, 5, 5)),
    "average pool 2d": (lambda: nn.AvgPool2d(2), (2, 3, 4, 4)),
    "average pool 2d, adaptive": (lambda: nn.AdaptiveAvgPool2d(2), (2, 3, 5, 5)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), (2, 4, 3, 3)),
    "reflection pad": (lambda: nn.ReflectionPad2d(1), (2, 3, 4, 4)),
    "prelu": (lambda: nn.PReLU(3), (2, 3, 4)),
    "glu": (nn.GLU, (3, 6)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(6, 5)), (3, 6)),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(6, 5)), (3, 6)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(6, 6)), (3, 6)),
    "attention, with weights": (lambda: SelfAttention(need_weights=True), (2, 5, 8)),
}
for _name, (_layer, _shape) in LAYERS.items():
    add(_name, partial(behind_linear, _layer, _shape))

BATCH_NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.BatchNorm1d(3), (5, 3)),
    "1d, sequence": (lambda: nn.BatchNorm1d(3), (5, 3, 4)),
    "2d, after conv": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.ReLU()),
        (3, 3, 4, 4),
    ),
    "2d, plain": (lambda: nn.BatchNorm2d(3, affine=False), (3, 3, 4, 4)),
    "2d, no running": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (3, 3, 4, 4)),
    "3d": (lambda: nn.BatchNorm3d(3), (2, 3, 2, 2, 4)),
    "instance": (
        lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        (2, 3, 4, 4),
    ),
}
for (_name, (_layer, _shape)), _train in product(BATCH_NORMS.items(), (True, False)):
    _mode = "train" if _train else "eval"
    add(f"batch norm {_name}, {_mode}", partial(behind_linear, _layer, _shape, _train))


# -- attention: the fused kernel has no second derivative ----------------------------------------

FUSED = ("double-vjp",)
PRECISIONS = {"float64": (torch.float64, 1e-10), "float32": (torch.float32, 3e-5)}


class SelfAttention(nn.Module):
    def __init__(self, need_weights: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x, x, x[:, :5], need_weights=self.need_weights)
        return y if weights is None else torch.cat([y.flatten(), weights.flatten()])


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x[:, :3])


def encoder(dropout: float, norm_first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(
        8, 2, 16, dropout, "gelu", batch_first=True, norm_first=norm_first
    )


class Attention(nn.Module):
    """Raw scaled dot-product attention of linear maps of one input."""

    def __init__(self, queries: int = 5, keys: int = 5, heads: int = 4, **options: Any) -> None:
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.sizes = (queries, keys, heads)
        mask = options.pop("attn_mask", None)
        self.register_buffer("mask", mask)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, heads = self.sizes
        q, k, v = (layer(x) for layer in self.maps)
        return F.scaled_dot_product_attention(
            q[:, :, :queries],
            k[:, :heads, :keys],
            v[:, :heads, :keys],
            attn_mask=self.mask,
            **self.options,
        )


TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
FLASH = "ScaledDotProductFlashAttentionForCpuBackward0"


def fuses(layer: nn.Module) -> bool:
    """Whether the CPU's fused kernel takes this attention, as it does from 2.13 on at the latest.

    Before, some is recorded as products and a softmax: of grouped queries, of an expanded mask.
    """
    node = layer(torch.randn(3, 4, 7, 4)).grad_fn
    return TORCH >= (2, 13) or node.name() == FLASH


ATTENTION: dict[str, Callable[[], nn.Module]] = {
    "plain": Attention,
    "causal": lambda: Attention(is_causal=True),
    "causal, few queries": lambda: Attention(queries=4, keys=7, is_causal=True),
    "causal, few keys": lambda: Attention(queries=7, keys=4, is_causal=True),
    "other lengths, scale": lambda: Attention(queries=4, keys=6, scale=0.7),
    "bool mask": lambda: Attention(attn_mask=torch.ones(5, 5).tril(1).bool()),
    "bool mask, a row may look nowhere": lambda: Attention(
        attn_mask=(torch.arange(5) != 2)[:, None].expand(5, 5)
    ),
    "float mask": lambda: Attention(attn_mask=torch.randn(5, 5)),
    "float mask, every head": lambda: Attention(attn_mask=torch.randn(3, 4, 5, 5)),
    "float mask, a row may look nowhere": lambda: Attention(
        attn_mask=torch.zeros(5, 5).index_fill(0, torch.tensor(1), -torch.inf)
    ),
    "grouped queries": lambda: Attention(heads=2, enable_gqa=True),
}


class Packed(nn.Module):
    """A recurrent network of sequences of different lengths."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.layers = kind(6, 5, 2, **options)

    def forward(self, x: Tensor) -> Tensor:
        first = self.layers.batch_first
        lengths = [x.shape[first]] + [2] * (x.shape[not first] - 1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=first)
        return self.layers(packed)[0].data


RECURRENT: dict[str, dict[str, Any]] = {
    "": {},
    " both ways": {"bidirectional": True, "batch_first": True},
    " no bias": {"bias": False},
}
for _tag, (_dtype, _rtol) in PRECISIONS.items():
    _facts: dict[str, Any] = {"dtype": _dtype, "rtol": _rtol}
    for _name, _layer in ATTENTION.items():
        add(
            f"attention, {_name}, {_tag}",
            partial(behind_linear, _layer, (3, 4, 7, 4)),
            impossible=FUSED if fuses(_layer()) else (),
            **_facts,
        )
    _made = {
        "encoder, train, dropout": (partial(encoder, 0.2, False), True, ()),
        "encoder, train": (partial(encoder, 0.0, False), True, FUSED),
        "encoder, eval": (partial(encoder, 0.2, True), False, FUSED),
        "decoder": (Decoder, True, FUSED),
        "attention module": (SelfAttention, True, FUSED),
    }
    for _name, (_layer, _train, _impossible) in _made.items():
        _make = partial(behind_linear, _layer, (2, 5, 8), _train)
        add(f"{_name}, {_tag}", _make, impossible=_impossible, **_facts)
    for _layer in (nn.LSTM, nn.GRU):  # a float32 LSTM is one fused node on a CPU (mkldnn)
        for _name, _options in RECURRENT.items() if _dtype == torch.float32 else ():
            _make = partial(behind_linear, partial(_layer, 6, 5, 2, **_options), (4, 2, 6))
            add(f"{_layer.__name__}{_name}, {_tag}", _make, **_facts)
            _make = partial(behind_linear, partial(Packed, _layer, **_options), (4, 2, 6))
            add(f"{_layer.__name__}{_name} packed, {_tag}", _make, **_facts)


# -- embeddings ----------------------------------------------------------------------------------


class Words(nn.Module):
    """An embedding, and a linear map on it (``tie``: the embedding's own weight)."""

    def __init__(self, embedding: nn.Module, tie: bool = False) -> None:
        super().__init__()
        self.embedding = embedding
        self.out = nn.Linear(4, 7, bias=False)
        if tie:
            self.out.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return several(self.out(self.embedding(x)))


def words(embedding: Callable[[], nn.Module], tie: bool = False) -> Model:
    model = Words(embedding(), tie).double()
    batches = torch.randint(7, (3, 4)), torch.randint(7, (3, 4))
    for batch in batches:  # max_norm scales the rows in place, in the forward pass: once is enough
        model(batch)
    return model, batches


add("embedding", lambda: words(lambda: nn.Embedding(7, 4)))
add("embedding, padding", lambda: words(lambda: nn.Embedding(7, 4, padding_idx=2)))
add("embedding, padding from the end", lambda: words(lambda: nn.Embedding(7, 4, padding_idx=-1)))
add("embedding, max norm", lambda: words(lambda: nn.Embedding(7, 4, max_norm=1.0)))
add("embedding, tied", lambda: words(lambda: nn.Embedding(7, 4), tie=True))
add("embedding, sparse", lambda: words(lambda: nn.Embedding(7, 4, sparse=True)))
add(
    "embedding, scaled by frequency",
    lambda: words(lambda: nn.Embedding(7, 4, scale_grad_by_freq=True)),
    impossible=("double-vjp",),
)
for _mode, _options in product(("sum", "mean", "max"), ({}, {"padding_idx": 1}, {"sparse": True})):
    if _mode != "max" or "sparse" not in _options:
        add(
            f"embedding bag, {_mode} {_options}",
            partial(words, partial(nn.EmbeddingBag, 7, 4, mode=_mode, **_options)),
            impossible=("double-vjp",),
        )
add(
    "embedding bag, scaled by frequency",
    lambda: words(lambda: nn.EmbeddingBag(7, 4, mode="sum", scale_grad_by_freq=True)),
    route="backwards",
    impossible=("tangents", "double-vjp"),
)


# -- functions -----------------------------------------------------------------------------------


def written_in_place(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).relu_() * 1
    y[:, 0] = y[:, 1] * 2
    y[1] += w[0]
    y.add_(1).mul_(w[1])
    return y


def written_into_zeros(x: Tensor, w: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:] = x @ w
    y[2].zero_()
    return y


def put_at_indices(x: Tensor, w: Tensor) -> Tensor:
    y, once, twice = x @ w, torch.tensor([0, 1]), torch.tensor([0, 0])
    return y.index_put((once,), w[:2] * 3) + y.index_put((twice,), w[:2], accumulate=True)


def physics(x: Tensor, w: Tensor) -> Tensor:
    """A loss that differentiates inside, twice."""
    x = x.clone().requires_grad_()
    u = (x @ w).tanh().sum(1, keepdim=True)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
    return torch.cat([u, slope, bend], 1)


def partly_reached(x: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    """Losses that reach one parameter each, both, and a loss that is an entry of a parameter."""
    return [(x @ a).tanh().sum(), (x @ b).square().mean(), (x @ a @ b).sum(), a[1, 2], b.sum()]


def written_into_a_vector(x: Tensor, w: Tensor) -> Tensor:
    losses = torch.zeros(4, dtype=x.dtype)
    for i, column in enumerate((x @ w).sin().T):
        losses[i] = column.sum()
    return losses


def mixed_by_fourier(x: Tensor, w: Tensor) -> Tensor:
    z = torch.fft.rfft(x @ w)
    return torch.stack(
        [z.exp().real, z.abs(), (z * z.conj()).real, (z / (z + 3j)).imag, (z**2).real]
    )


def transforms_expanded() -> bool:
    """Whether an FFT takes one number, expanded, as a sum's gradient is: 2.6 with MKL does not."""
    try:
        torch.fft.fft(torch.ones((), dtype=torch.complex128).expand(5, 4))
    except RuntimeError:
        return TORCH >= (2, 13)
    return True


def complex_numbers(x: Tensor, w: Tensor) -> list[Tensor]:
    z = torch.fft.fft(x @ w)
    summed = z if transforms_expanded() else z * 1
    return [
        torch.linalg.vector_norm(z),
        z.prod().real,
        z.mean().imag,
        summed.sum().abs(),
        z.angle().sum(),
    ]


def misc(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    parts = [
        y.cumsum(0),
        y.logcumsumexp(0),
        y.cummax(0)[0],
        y.sort(0)[0],
        y.topk(2, 0)[0],
        y.roll(1, 0).flip(1),
        y.max(0, keepdim=True)[0],
        y.var(0, keepdim=True),
        y.prod(0, keepdim=True),
        torch.einsum("ij,jk,kl->il", x, w, w),
        y.repeat(2, 1).repeat_interleave(2, 0),
        torch.linalg.solve(w, x.T).T,
        y.gather(0, torch.zeros(1, 4, dtype=torch.int64)),
        y.index_select(0, torch.tensor([0, 0, 1])),
        y.scatter(0, torch.tensor([[0, 1, 2, 3]]), w[:1]),
        y.as_strided((3, 4), (1, 2)),
        F.pad(y, (0, 0, 1, 1)),
    ]
    return torch.cat(parts)


def broadcast(x: Tensor, row: Tensor, column: Tensor, number: Tensor) -> Tensor:
    return torch.stack(
        [
            torch.where(x > 0, row, number),
            torch.maximum(row, column),
            torch.addcmul(row, x, column),
            torch.lerp(row, column, number),
            (x * column).masked_fill(x > 0.5, 0.0),
            column.masked_fill(x > 0.5, number),
            torch.atan2(row, column),
            row / column - number,
        ]
    )


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "physics": (physics, ((4, 4),)),
    "fourier": (mixed_by_fourier, ((4, 4),)),
    "complex": (complex_numbers, ((4, 4),)),
    "misc": (misc, ((4, 4),)),
    "broadcast": (broadcast, ((4,), (5, 1), ())),
    "written in place": (written_in_place, ((4, 4),)),
    "written into zeros": (written_into_zeros, ((4, 4),)),
    "put at indices": (put_at_indices, ((4, 4),)),
    "losses as a sequence": (partly_reached, ((4, 4), (4, 4))),
    "losses as one vector": (lambda x, w: (x @ w).tanh().mean(0), ((4, 4),)),
    "losses written into a vector": (written_into_a_vector, ((4, 4),)),
    "losses of a matrix-vector product": (lambda x, w: x @ w, ((4,),)),
    "one loss": (lambda x, w: [(x @ w).sin().sum()], ((4, 4),)),
    "a number as parameter": (
        lambda x, c: [c, c.exp() * x.sum(), (x * c).sin().sum(), c * c * c],
        ((),),
    ),
    "the losses are the parameter": (lambda x, w: w * x[0], ((4,),)),
    "a parameter many times": (
        lambda x, w: sum((x @ w @ w).sin() * w[0] for _ in range(3)) + w.sum() * w,
        ((5, 5),),
    ),
    "sum of parameters": (lambda x, a, b: x @ (a + b), ((4, 4), (4, 4))),
    "gradient of 1e-12": (lambda x, w: (x @ w).sin() * 1e-12, ((4, 4),)),
    "gradient of 1e+12": (lambda x, w: (x @ w).sin() * 1e12, ((4, 4),)),
    "gradients of 1e±12": (
        lambda x, w: [(x @ w).sin().sum() * 1e-12, (x @ w).cos().sum() * 1e12, w.sum()],
        ((4, 4),),
    ),
}
for _name, (_function, _shapes) in FUNCTIONS.items():
    _x = (5, 5) if _shapes == ((5, 5),) else (5, 4)
    add(_name, partial(of, _function, *_shapes, x=_x))


# -- nodes written in Python ---------------------------------------------------------------------


class Reversed(torch.autograd.Function):
    """A gradient reversal layer: its backward is not the transpose of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return -0.5 * g


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class CubedOnce(Cubed):
    backward = staticmethod(once_differentiable(Cubed.backward))


class CubedDetached(Cubed):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Cubed.backward(ctx, g.detach())


class CubedByNumPy(Cubed):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(3 * np.square(x.detach().numpy()) * g.detach().numpy())


def through(kind: type[torch.autograd.Function], x: Tensor, w: Tensor) -> Tensor:
    return kind.apply(x @ w) + (x @ w).sin()


def beside_a_large_loss(kind: type[torch.autograd.Function], x: Tensor, w: Tensor) -> list[Tensor]:
    """Only the small losses pass through the Python node: an error there is easy to miss."""
    y = kind.apply(x @ w)
    return [1e12 * (x @ w).sin().sum(), y.mean(), y.sin().mean(), w.square().sum()]


for _kind, _use in product(
    (Reversed, Cubed, CubedOnce, CubedDetached, CubedByNumPy), (through, beside_a_large_loss)
):
    add(
        f"{_kind.__name__} {_use.__name__}",
        partial(of, partial(_use, _kind)),
        route="backwards",
        impossible=("tangents", "double-vjp"),
    )


def doubling(gradient: Tensor) -> Tensor:
    return 2 * gradient


def hooked_tensor(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    y.register_hook(doubling)
    return y.sin() + y


def hooked_node(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).sin()
    y.grad_fn.register_hook(lambda arrived, _: tuple(2 * g for g in arrived))
    return y + x @ w


def hooked_small_loss(x: Tensor, w: Tensor) -> list[Tensor]:
    small = (x @ w).cos().mean()
    small.register_hook(doubling)
    return [1e12 * (x @ w).sin().sum(), small, w.square().sum()]


def hook_that_detaches(x: Tensor, w: Tensor) -> list[Tensor]:
    small = (x @ w).cos().mean()
    small.register_hook(lambda g: 2 * g.detach())
    return [1e12 * (x @ w).sin().sum(), small, w.square().sum()]


class HookedModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.register_full_backward_hook(
            lambda module, arrived, _: tuple(None if g is None else 2 * g for g in arrived)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).sin()


for _function in (hooked_tensor, hooked_node, hooked_small_loss, hook_that_detaches):
    add(
        _function.__name__.replace("_", " "),
        partial(of, _function),
        route="backwards",
        impossible=("tangents", "double-vjp"),
    )
add(
    "hooked module",
    partial(behind_linear, HookedModule, (5, 4)),
    route="backwards",
    impossible=("tangents", "double-vjp"),
)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


class CalledWith(nn.Module):
    """``torch.func``: the weights of one module, given to another."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.Linear(4, 4, dtype=x.dtype)
        y = torch.func.functional_call(inner, dict(self.outer.named_parameters()), x)
        slope = torch.func.vmap(torch.func.grad(lambda z: self.outer(z).tanh().sum()))(x)
        return y + slope


add("checkpointed", partial(behind_linear, Checkpointed, (5, 4)))
add("functional call, vmap, grad", partial(behind_linear, CalledWith, (5, 4)))
