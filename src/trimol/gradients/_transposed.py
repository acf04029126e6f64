"""Tangents through what ``torch.compile`` made: its backward, transposed, and compiled in turn.

A compiled graph stands in autograd's as one node, whose backward u ↦ Jᵀu is a program: torch keeps
it, operator by operator, beside the compiled one. It is linear in u, so its derivative along t is
Jt and does not depend on u: one pass forward, of the very tensors that the compiled forward pass
left (the same dropout, the same statistics of a batch). It is compiled as the graph was.

What is read here of torch is not documented. Where a release is built otherwise, an error is
raised, which `trimol.gradients._rules` takes as "no tangents"; and what a program gives for the
first time is held against plain backwards before it is used (`trial`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx
from torch.autograd.graph import Node

Tangents = tuple[Tensor | None, ...]
# What a backward reads, its u, and the tangents of its results.
Inputs = tuple[Sequence[Any], Sequence[Tensor], Sequence[Tensor]]
Transposed = Callable[[Sequence[Any], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]

_aten = torch.ops.aten
_INDUCTOR = "CompiledFxGraph"  # what torch's own compiler makes of a graph


@dataclass
class Program:
    """Jt of a compiled graph, for tangents of some of its arguments.

    Attributes:
        run: From what the backward reads, any u, and the tangents, to Jt.
        refused: Why it is not to be used; empty if it is.
        proven: Whether backwards have confirmed what it gives.
    """

    run: Transposed
    refused: str = ""
    proven: bool = False


@dataclass
class Compiled:
    """What a compiled graph's backward is.

    Attributes:
        backward: The program, from what it reads and u to a gradient for each argument.
        places: The outputs that have an entry of u.
        backend: What compiled it.
        sizes_vary: Whether it is for more than one size of its arguments.
        programs: For tangents of these arguments.
    """

    backward: fx.GraphModule
    places: list[int]
    backend: str
    sizes_vary: bool
    programs: dict[tuple[int, ...], Program] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[type, Compiled] = WeakKeyDictionary()


def carried(node: Any, incoming: Tangents) -> Tangents:
    """The tangents of a compiled graph's outputs, from those of its inputs."""
    compiled = _compiled(node)
    given = _arguments(node, incoming)
    results: Any = compiled.backward.graph.output_node().args[0]
    tangents = {i: tangent for i, tangent in given.items() if results[i] is not None}
    outgoing: list[Tensor | None] = [None] * len(node._input_metadata)
    if tangents:
        moved = _moved(node, compiled, tangents)
        for place, tangent in zip(compiled.places, moved, strict=True):
            outgoing[place] = tangent
    return tuple(outgoing)


def _arguments(node: Any, incoming: Tangents) -> dict[int, Tensor]:
    """The tangents by the number of the argument (sizes are arguments, too, without an edge)."""
    places = [i for i, needed in enumerate(node.needs_input_grad) if needed]
    edges = zip(incoming, node.next_functions, strict=True)
    present = [tangent for tangent, (source, _) in edges if source is not None]
    pairs = zip(places, present, strict=True)
    return {place: tangent for place, tangent in pairs if tangent is not None}


def _compiled(node: Any) -> Compiled:
    made: Any = node._forward_cls
    if made not in _KNOWN:
        metadata = made.metadata
        if made.maybe_subclass_metadata is not None or any(
            getattr(metadata, name, 0)
            for name in ("num_backward_tokens", "num_graphsafe_rng_states")
        ):
            raise RuntimeError("tensors of a subclass, side effects or states of a generator")
        kept = made._lazy_backward_info
        backward = kept.bw_module if hasattr(kept, "bw_module") else kept.bw_module_fn()
        # torch itself tells which outputs have a u: what is no tensor is handed on as it is.
        places = made._bw_prologue_fn((), (), (), list(range(len(node._input_metadata))))
        inductor = type(made.compiled_fw).__name__ == _INDUCTOR
        backend = "inductor" if inductor else "aot_eager"
        sizes_vary = len(node.needs_input_grad) > len(node.next_functions)
        _KNOWN[made] = Compiled(_differentiable(backward), places, backend, sizes_vary)
    return _KNOWN[made]


def _moved(node: Any, compiled: Compiled, tangents: dict[int, Tensor]) -> Sequence[Tensor]:
    """Jt, one entry for each of the places."""
    wanted = tuple(tangents)
    read, at = _inputs(node, compiled)
    inputs = read, at, [tangents[i].contiguous() for i in wanted]
    with torch.no_grad():
        if wanted not in compiled.programs:
            compiled.programs[wanted] = _program(compiled, wanted, inputs)
        program = compiled.programs[wanted]
        if program.refused:
            raise RuntimeError(program.refused)
        try:
            return _run(compiled, wanted, inputs)
        except RuntimeError as error:
            if not program.proven:  # not to be compiled in vain at every step
                program.refused = _first_line(error)
            raise


def _run(compiled: Compiled, wanted: tuple[int, ...], inputs: Inputs) -> Sequence[Tensor]:
    from torch._dynamo.exc import FailOnRecompileLimitHit  # loaded by who compiles

    program = compiled.programs[wanted]
    try:
        return program.run(*inputs)
    except FailOnRecompileLimitHit:  # a size of its own each time: forget those before
        program.run = _recompiled(compiled, wanted)
        return program.run(*inputs)


def _inputs(node: Any, compiled: Compiled) -> tuple[list[Any], list[Tensor]]:
    """What the backward reads, and a u of zeros, as torch gives them to it."""
    zeros: list[Any] = [
        torch.zeros(o.shape, dtype=o.dtype, device=o.device) for o in node._input_metadata
    ]
    saved = [*node.saved_tensors, *getattr(node, "_tensors_no_vc_check", ())]
    saved = [x if x.is_leaf else x.detach() for x in saved]
    inputs = node._forward_cls._bw_prologue_fn(saved, node.symints, node.opaque_objects, zeros)
    count = len(inputs) - len(compiled.places)
    return inputs[:count], inputs[count:]


def _program(compiled: Compiled, wanted: tuple[int, ...], inputs: Inputs) -> Program:
    program, run = Program(_recompiled(compiled, wanted)), _transposed(compiled.backward, wanted)
    try:
        if not _is_linear(run, inputs) or not _is_adjoint(compiled.backward, wanted, run, inputs):
            program.refused = "its backward is not linear"
    except Exception as error:  # noqa: BLE001  (of a tracer, and of operators without derivative)
        program.refused = _first_line(error)
    return program


def _recompiled(compiled: Compiled, wanted: tuple[int, ...]) -> Transposed:
    """The transposed backward, to be compiled when it is called."""
    run: Any = _transposed(compiled.backward, wanted)
    # The compiler counts how often it compiles a code, and at last gives up: to each its own.
    own: Any = FunctionType(run.__code__.replace(), globals(), closure=run.__closure__)
    settings: Any = {"backend": compiled.backend, "dynamic": compiled.sizes_vary}
    result: Transposed = torch.compile(own, fullgraph=True, **settings)
    return result


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _transposed(backward: fx.GraphModule, wanted: tuple[int, ...]) -> Transposed:
    def run(read: Sequence[Any], at: Sequence[Tensor], tangents: Sequence[Tensor]) -> Any:
        def gradients(*cotangents: Tensor) -> tuple[Tensor, ...]:
            everything = backward(*read, *cotangents)
            return tuple([everything[i] for i in wanted])

        return torch.func.vjp(gradients, *at)[1](tuple(tangents))

    return run


def _is_linear(run: Transposed, inputs: Inputs) -> bool:
    """Whether Jt does not depend on u: the derivative of u ↦ Jᵀu is the same everywhere."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to load

    flat = [*inputs[0], *inputs[1], *inputs[2]]
    first, last = len(inputs[0]), len(inputs[0]) + len(inputs[1])

    def flattened(*given: Any) -> Sequence[Tensor]:
        return run(given[:first], given[first:last], given[last:])

    trace = make_fx(
        torch.func.functionalize(flattened), tracing_mode="fake", _allow_non_fake_inputs=True
    )
    traced = trace(*flat)
    traced.graph.eliminate_dead_code()
    placeholders = traced.graph.find_nodes(op="placeholder")
    return not any(node.users for node in placeholders[first:last])


def _is_adjoint(
    backward: fx.GraphModule, wanted: tuple[int, ...], run: Transposed, inputs: Inputs
) -> bool:
    """Whether ⟨u, Jt⟩ = ⟨Jᵀu, t⟩, of a u and of a t to which all arguments contribute.

    A sign, a rounding or a ``.detach()`` has a derivative that does not depend on u either: 0. A
    layer that starts at zero would hide what comes behind it, so that zeros are replaced first.
    """
    draw, rounding = torch.Generator().manual_seed(0), _rounding([*inputs[0], *inputs[1]])
    at = [_drawn(x, draw) for x in inputs[1]]
    for read in ([_unhidden(x, draw) for x in inputs[0]], inputs[0]):
        everything = backward(*read, *at)
        pulled = [everything[i].detach() for i in wanted]
        squares = [_inner([x], [x]) for x in pulled]
        # What is small beside the others may be rounding: a bias before a batch norm.
        shares = [max(own, max(squares) * rounding**0.6) for own in squares]
        pairs = zip(pulled, shares, strict=True)
        moved = run(read, at, [x / share if share else x for x, share in pairs])
        expected = sum(own / share for own, share in zip(squares, shares, strict=True) if share)
        scale = expected + math.sqrt(_inner(at, at) * _inner(moved, moved))
        if math.isfinite(scale):
            return bool(abs(_inner(at, moved) - expected) <= scale * rounding**0.6)
    return True  # nothing is known: the trial will tell


def _inner(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """⟨a, b⟩ over lists of tensors, in float64; a complex number counts as two."""
    return float(sum(torch.dot(_flat(x), _flat(y)).item() for x, y in zip(a, b, strict=True)))


def _flat(x: Tensor) -> Tensor:
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return x.detach().reshape(-1).double()


def _unhidden(x: Any, draw: torch.Generator) -> Any:
    """What a backward reads, of other numbers where it is nothing but zeros."""
    inexact = isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
    return _drawn(x, draw) if inexact and not x.any() else x


def _drawn(like: Tensor, draw: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draw).to(like)


def _rounding(inputs: Iterable[Any]) -> float:
    tensors = (x for x in inputs if isinstance(x, Tensor))
    dtypes = {x.dtype.to_real() for x in tensors if x.is_floating_point() or x.is_complex()}
    return max(torch.finfo(dtype).eps for dtype in dtypes)


# -- operators of a backward that autograd does not differentiate ---------------------------------


def _differentiable(backward: fx.GraphModule) -> fx.GraphModule:
    """The same program, of operators that autograd differentiates in u."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(backward.graph, {}))
    for node in graph.nodes:
        if node.op == "call_function":
            node.target = _SAME.get(str(node.target), node.target)
    return fx.GraphModule(backward, graph)


def _convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


def _multiplied(x: Tensor, factor: Tensor, summand: Tensor) -> Tensor:
    return x * factor + summand


def _attention(
    u: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _out: Tensor,
    _logsumexp: Tensor,
    _dropout: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """The fused backward on a CPU (which knows no dropout), by the mathematical one."""

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result: Tensor = _aten._scaled_dot_product_attention_math(
            q,
            k,
            v,
            attn_mask,
            0.0,
            is_causal,
            scale=scale,
            enable_gqa=query.shape[-3] != key.shape[-3],
        )[0]
        return result

    gradients: tuple[Tensor, ...] = torch.func.vjp(attended, query, key, value)[1](u)
    return gradients


_SAME: dict[str, Callable[..., Any]] = {
    "prims.convert_element_type.default": _convert,
    "prims.fma.default": _multiplied,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention,
}


# -- trust ----------------------------------------------------------------------------------------


@contextmanager
def trial(nodes: Iterable[Node], *, alone: bool, telling: bool) -> Iterator[bool]:
    """Whether a program of these nodes is not proven: within, hold it to plain backwards.

    Leaving by an error refuses it for good, if nothing but it (``alone``) can be the reason.
    Leaving without one proves it, if that is ``telling``: results of zeros are not.
    """
    known = [_KNOWN[made] for node in nodes if (made := node._forward_cls) in _KNOWN]  # type: ignore[attr-defined]
    new = [p for each in known for p in each.programs.values() if not p.refused and not p.proven]
    try:
        yield bool(new)
    except Exception:
        for program in new if alone else ():
            program.refused = "backwards do not confirm it"
        raise
    for program in new if telling else ():
        program.proven = True
