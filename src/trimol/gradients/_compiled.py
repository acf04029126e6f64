"""``torch.compile``: backwards that write over what they read, and so can run but once.

A compiled backward may reuse the buffers that its forward pass left for it ("donated buffers").
Whether it does is decided when it is compiled: at once where sizes vary, else at the first
backward, if that one frees its graph. Methods pass a graph more than once, and keep it.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import Node

from trimol._failures import BadValue

_NODE = "CompiledFunctionBackward"


def is_compiled(node: object) -> bool:
    """Whether a node stands for a compiled graph."""
    return type(node).__name__ == _NODE


def saved_types(nodes: Iterable[Node]) -> set[torch.dtype]:
    """The types of what compiled graphs keep: under autocast, coarser than those of the outputs."""
    saved = (tensor for node in nodes for tensor in node.saved_tensors)  # type: ignore[attr-defined]
    return {tensor.dtype.to_real() for tensor in saved if tensor.is_floating_point()}


def keep_later_buffers() -> None:
    """What is compiled from now on can be passed again."""
    _set(False)


def keep_buffers(nodes: Iterable[Node]) -> None:
    """What is compiled from now on can be passed again; raise if one of the nodes cannot.

    With torch's setting off, torch no longer asks whether a backward was compiled with it on. So we
    ask, and leave the setting to torch where nodes do not tell.
    """
    made: list[Any] = [getattr(type(node), "_forward_cls", None) for node in nodes]
    if not all(hasattr(each, "compiled_bw") and _tells(each) for each in made):
        _set(True)
        return
    _set(False)
    if any(each.metadata.bw_donated_idxs and each.compiled_bw is not None for each in made):
        raise BadValue(
            "losses come from a model that was compiled for backwards that run once (donated "
            "buffers): call torch._dynamo.reset(), so that it is compiled again, or make the "
            "method before the first forward pass"
        )


def _tells(made: Any) -> bool:
    return hasattr(getattr(made, "metadata", None), "bw_donated_idxs")


_OURS = {"off": False}  # whether we switched torch's setting off


def _set(on: bool) -> None:
    from torch._functorch import config  # 4 ms, and nothing else is loaded with it

    settings: Any = config
    if getattr(settings, "donated_buffer", False) and not on:
        settings.donated_buffer, _OURS["off"] = False, True
    elif on and _OURS["off"]:
        settings.donated_buffer, _OURS["off"] = True, False
