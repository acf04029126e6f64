"""``torch.compile``: backwards that write over what they read, and so can run but once.

A compiled backward may reuse the buffers that its forward pass left for it ("donated buffers").
Whether it does is decided when it is compiled: at once where sizes vary, else at the first
backward, if that one frees its graph. Methods pass a graph more than once, and keep it.
"""

from collections.abc import Iterable
from typing import Any

from torch.autograd.graph import Node

from trimol._failures import BadValue

_NODE = "CompiledFunctionBackward"


def is_compiled(node: Node) -> bool:
    """Whether a node stands for a compiled graph."""
    return type(node).__name__ == _NODE


def keep_buffers(nodes: Iterable[Node]) -> None:
    """What is compiled from now on can be passed again; raise if one of the nodes cannot.

    With torch's setting off, torch no longer asks whether a backward was compiled with it on. So we
    ask, and leave the setting to torch where nodes do not tell.
    """
    made: list[Any] = [getattr(type(node), "_forward_cls", None) for node in nodes]
    if not all(hasattr(each, "compiled_bw") and _tells(each) for each in made):
        return
    _switch_off()
    if any(each.metadata.bw_donated_idxs and each.compiled_bw is not None for each in made):
        raise BadValue(
            "losses come from a model that was compiled for backwards that run once (donated "
            "buffers): call torch._dynamo.reset(), so that it is compiled again"
        )


def _tells(made: Any) -> bool:
    return hasattr(getattr(made, "metadata", None), "bw_donated_idxs")


def _switch_off() -> None:
    from torch._functorch import config  # loaded by who compiles, and by nobody else

    settings: Any = config
    if getattr(settings, "donated_buffer", False):
        settings.donated_buffer = False
