"""What wrappers of torch put into a graph: functions in Python that hand their inputs on.

``DistributedDataParallel`` ends its forward pass with such a sink where parameters may be unused
or the graph is static. At the first backward of a static graph that passes it, the sink starts the
one all-reduce of all gradients: a backward of ours must not, the user's must.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from trimol.gradients import _reduce as reduce

_SINK = ("torch.nn.parallel.distributed", "_DDPSink")
_FSDP = "torch.distributed.fsdp._fully_shard"
_PASSING = frozenset(
    {
        _SINK,
        (f"{_FSDP}._fsdp_param_group", "RegisterPostBackwardFunction"),
        (f"{_FSDP}._fsdp_state", "RegisterPreBackwardFunction"),
    }
)
# What a sink remembers of the all-reduce, on the wrapper.
_STARTED = "_static_graph_delay_allreduce_enqueued"


def passes(node: object) -> bool:
    """Whether a node is a function of torch's, written in Python, whose outputs are its inputs."""
    kind: Any = type(node)
    return isinstance(node, BackwardCFunction) and _origin(kind) in _PASSING


def is_sink(node: Node) -> bool:
    """Whether a node is DistributedDataParallel's."""
    return _origin(type(node)) == _SINK


@functools.cache
def _origin(kind: type) -> tuple[str, str]:
    """Where a node's function is defined."""
    function = getattr(kind, "_forward_cls", kind)
    return function.__module__, function.__qualname__


def handed_on(node: Any, incoming: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """What arrives at the inputs of such a node, at the outputs that they are.

    There is an input for each tensor, an output for each argument but the first; a tensor that
    needs no gradient has no source.
    """
    present = [t for t, (source, _) in zip(incoming, node.next_functions, strict=True) if source]
    outgoing: list[Tensor | None] = [None] * len(node._input_metadata)
    places = [i for i, needed in enumerate(node.needs_input_grad[1:]) if needed]
    for place, tensor in zip(places, present, strict=True):
        outgoing[place] = tensor
    return tuple(outgoing)


@contextmanager
def muted(sinks: Iterable[Any]) -> Iterator[None]:
    """Within, a backward that passes the sinks starts no all-reduce."""
    wrappers = {id(w): w for w in (sink.ddp_weakref() for sink in sinks) if w.static_graph}
    held = [(wrapper, getattr(wrapper, _STARTED)) for wrapper in wrappers.values()]
    try:
        for wrapper, _ in held:
            setattr(wrapper, _STARTED, True)
        yield
    finally:
        for wrapper, started in held:
            setattr(wrapper, _STARTED, started)


def passed(sinks: Iterable[Any]) -> None:
    """Do what sinks do when the user's backward passes them: called from within one."""
    for sink in sinks:
        type(sink)._forward_cls.backward(sink)


def shares_of_use(
    used: Sequence[bool], sinks: Sequence[Any], device: torch.device, *, sharded: bool
) -> list[float]:
    """What a known gradient of each parameter is multiplied by where it is delivered; 0: nowhere.

    A parameter that is not used gets no gradient, as from any backward. Of several processes, each
    delivers all, for the mean of all is that gradient then; but where parameters may be unused, one
    that does not use it must not deliver it, the mean counts that as zero, and the others deliver
    so much more. Of a sharded parameter every process delivers its part, if one of them uses it.
    """
    own = [float(each) for each in used]
    if not reduce.is_distributed():
        return own
    if not sharded and not any(sink.ddp_weakref().find_unused_parameters for sink in sinks):
        return [1.0] * len(own)
    of_all: list[float] = reduce.mean_small(torch.tensor(own, device=device)).tolist()
    if sharded:
        return [float(share > 0) for share in of_all]
    return [1 / share if here else 0.0 for share, here in zip(of_all, own, strict=True)]
