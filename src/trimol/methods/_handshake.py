"""Before the first step of several processes: do they run the same method on the same parameters?

Where they do not, their evidence has other sizes (torch.distributed aborts or hangs) or is a mean
of unlike things (nothing shows). So each says once what it has, and all raise the same line.
"""

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from trimol._failures import BadValue
from trimol.gradients import _reduce as reduce
from trimol.gradients._sharded import check, is_dtensor

# Bits as whole numbers, whose sum does not depend on its order; NaN is as good as any number.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LONGEST = 60  # of a value that is shown


def meet(facts: Mapping[str, Any], device: torch.device) -> None:
    """Compare what this process has with what every other has; where they differ, all raise.

    Args:
        facts: What must be the same everywhere, by name, in the order in which it is compared.
        device: Where the processes exchange tensors.
    """
    own = json.dumps({name: str(value) for name, value in facts.items()})
    said = [json.loads(text) for text in reduce.texts(own, device)]
    for name in dict.fromkeys(name for each in said for name in each):
        values = [each.get(name, "nothing") for each in said]
        if len(set(values)) > 1:
            raise BadValue(f"processes must have the same {name}, found {_told(values)}")


def of_method(method: Any) -> dict[str, Any]:
    """What a method and its parameters are, as far as the steps of several processes need it."""
    return {
        "method": type(method).__name__,
        "draws": method.draws,
        **_settings(method),
        "names of objectives": list(method.names),
        **of_tensors("parameters", method.params),
        "steps done": int(method.step),
        "weights λ": method.weights.tolist(),
        "state": _digest(_bits(buffer) for buffer in method.buffers()),
    }


def _settings(method: Any) -> dict[str, Any]:
    """The arguments that it was made with: numbers and words (a tensor's text tells its device)."""
    named = {
        name: getattr(method, name, None) for name in inspect.signature(type(method)).parameters
    }
    plain = (bool, int, float, str, Mapping)
    return {name: value for name, value in named.items() if isinstance(value, plain)}


def of_model(model: nn.Module) -> dict[str, Any]:
    """What a whole model is, the heads included, which no method looks at."""
    return of_tensors("parameters of the model", model.parameters())


def of_losses(losses: Sequence[Any], *, keep: bool) -> dict[str, Any]:
    """What a step was called with."""
    given = [each for each in losses if each is not None]
    shapes = [tuple(each.shape) if isinstance(each, Tensor) else _length(each) for each in given]
    return {
        "loss vectors": len(losses),
        "shapes of losses": list(dict.fromkeys(shapes)),
        "keep": keep,
    }


def of_tensors(name: str, tensors: Iterable[Tensor]) -> dict[str, Any]:
    """How many there are, their sizes, and a checksum of their values."""
    given = list(tensors)
    check(given, name)
    held = [tensor.detach() for tensor in given]
    kinds = [(tuple(t.shape), str(t.dtype), t.requires_grad) for t in given]
    # Of a sharded parameter every process has another part: there are no values to compare.
    whole = [tensor for tensor in held if not is_dtensor(tensor)]
    return {
        f"number of {name}": len(held),
        f"entries of {name}": sum(tensor.numel() for tensor in held),
        f"shapes and types of {name}": _digest(kinds),
        f"values of {name} (seeded alike, or loaded from one file?)": _digest(map(_bits, whole)),
    }


def _length(losses: Any) -> tuple[int] | str:
    """The shape of the vector that they are to be: one process may have a list, with None."""
    counted = isinstance(losses, (Sequence, Mapping))
    return (len(losses),) if counted else type(losses).__name__


def _bits(tensor: Tensor) -> int:
    """A sum of a tensor's bits: the same on every device."""
    whole = tensor if not tensor.is_floating_point() else tensor.view(_BITS[tensor.itemsize])
    return int(whole.sum(dtype=torch.int64))


def _digest(parts: Iterable[Any]) -> str:
    return sha256(repr(list(parts)).encode()).hexdigest()[:8]


def _told(values: Sequence[str]) -> str:
    """Each value with the first process that has it."""
    first = {value: rank for rank, value in reversed(list(enumerate(values)))}
    shown = sorted((rank, value) for value, rank in first.items())
    return " and ".join(f"{_cut(value)} on rank {rank}" for rank, value in shown[:3])


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
