"""The state of a foreign module, also where its own ``state_dict`` does not load into a new one."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_INTERNAL = frozenset(vars(nn.Module()))
_PLAIN = (Tensor, bool, int, float, str, torch.dtype, torch.device)


class Capture:
    """What a module's attributes were at first, and which have changed since.

    Lazily made buffers (``None`` until the first call), step counters and cache keys are all plain
    attributes: those that changed are the state. Hyper-parameters did not change, and stay as
    they were given.

    Args:
        module: The module to watch; its `reset` is called if it has one.
    """

    def __init__(self, module: nn.Module) -> None:
        _reset(module)
        first = dict(_walk(module))
        self._fresh = {k: copy.deepcopy(v) if _plain(v) else v for k, v in first.items()}

    def changed(self, module: nn.Module) -> dict[str, Any] | None:
        """What has changed, by dotted name; ``None`` if that cannot be saved."""
        now, fresh = dict(_walk(module)), self._fresh
        changed = {k: v for k, v in now.items() if k not in fresh or not _same(v, fresh[k])}
        return changed if all(map(_plain, changed.values())) else None

    def renew(self, module: nn.Module, device: torch.device) -> None:
        """Make it a new module again: by its own `reset` if it has one."""
        if not _reset(module):
            put(module, {k: v for k, v in self._fresh.items() if _plain(v)}, device)


def put(module: nn.Module, state: Mapping[str, Any], device: torch.device) -> None:
    """Give the module these attributes, by dotted name: copies, on the device."""
    for key, value in state.items():
        path, _, name = key.rpartition(".")
        setattr(module.get_submodule(path), name, _placed(value, device))


def _reset(module: nn.Module) -> bool:
    reset = getattr(module, "reset", None)
    if callable(reset):
        reset()
    return callable(reset)


def _walk(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for path, part in module.named_modules():
        own = {name: value for name, value in vars(part).items() if name not in _INTERNAL}
        for name, value in {**own, **part._buffers}.items():
            yield f"{path}.{name}", value


def _plain(value: Any) -> bool:
    """Whether ``torch.load(weights_only=True)`` gives it back."""
    if isinstance(value, (tuple, list)):
        return all(map(_plain, value))
    return value is None or isinstance(value, _PLAIN)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    if not (_plain(one) and _plain(two)) or isinstance(one, Tensor) or isinstance(two, Tensor):
        return one is two
    return bool(one == two)


def _placed(value: Any, device: torch.device) -> Any:
    """A copy on the device; a key that names a device names this one."""
    if isinstance(value, Tensor):
        return value.to(device, copy=True)
    if isinstance(value, torch.device):
        return device
    if isinstance(value, (tuple, list)):
        return type(value)(_placed(part, device) for part in value)
    return value
