"""Random generators: the global ones of Python, NumPy and torch, and those that objects hold.

What must leave random numbers as they were, or draw them again, does it here: for all at once.
"""

import copy
import functools
import json
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from trimol._failures import BadValue
from trimol._files import OF_FILES

# Seeds of what is drawn while a task is made, or its data are, or it is measured: not a run's.
IN_FILES, IN_DATA, IN_MEASURING = 2**31 - 1, 2**31 - 2, 2**31 - 3
# Objects that are looked through for generators, and entries of a list or dict, at most.
_OBJECTS, _ENTRIES = 20_000, 100
_WITHOUT_GENERATOR = ("cpu", "meta")  # of their own, beside torch's
_WITHOUT_PARTS = (Tensor, np.ndarray, int, float, str, bytes, type(None))
OF_TORCH = vars(nn.Module()).keys()  # what every module has


class _Access(NamedTuple):
    """How the state of a generator is read and written."""

    get: Callable[[], Any]
    put: Callable[[Any], object]


class Generators:
    """The states of all generators at one moment: they can be put back, and saved as text.

    Args:
        owners: Objects and functions whose own generators count, too: those in their attributes, in
            lists and dicts of them, in what functions enclose, in a task's class and file.
        devices: Whose global generators count, beside the CPU's.
        shared: Whether the global ones count.

    Example:
        >>> now = Generators()
        >>> first = random.random(), np.random.rand(), torch.rand(())
        >>> now.put_back()
        >>> first == (random.random(), np.random.rand(), torch.rand(()))
        True
    """

    def __init__(
        self, *owners: Any, devices: Iterable[torch.device] = (), shared: bool = True
    ) -> None:
        found = ((way, _access(value)) for way, value in reachable(*owners))
        own = {way: access for way, access in found if access is not None}
        self._access = {**(_shared(devices) if shared else {}), **own}
        self._states = {name: access.get() for name, access in self._access.items()}

    def now(self) -> "Generators":
        """The states of the same generators by now."""
        later = copy.copy(self)
        later._states = {name: access.get() for name, access in self._access.items()}
        return later

    def put_back(self) -> None:
        """Make all generators go on from here."""
        for name, state in self._states.items():
            self._access[name].put(state)

    def state_dict(self) -> dict[str, str]:
        """The states by the generators' names, as text: nothing is unpickled to read it."""
        return {name: _text(state) for name, state in self._states.items()}

    def load_state_dict(self, saved: Mapping[str, str]) -> None:
        """Hold the states that were saved; `put_back` then writes them.

        Raises:
            BadValue: They are not of the same generators.
        """
        if {*saved} != {*self._states}:
            raise BadValue(f"random must have states of {list(self._states)}, found {list(saved)}")
        now, self._states = self.now(), {name: _state(text) for name, text in saved.items()}
        try:
            self.put_back()  # what is no state of a generator is found here
        finally:
            now.put_back()


@contextmanager
def generators_kept(*owners: Any, devices: Iterable[torch.device] = ()) -> Iterator[None]:
    """After this, all generators (those of `Generators`) go on as if it had not been.

    >>> torch.manual_seed(0).initial_seed()
    0
    >>> with generators_kept():
    ...     first = torch.rand(())
    >>> bool(first == torch.rand(()))
    True
    """
    before = Generators(*owners, devices=devices)
    try:
        yield
    finally:
        before.put_back()


@contextmanager
def seeding(seed: int) -> Iterator[None]:
    """The global generators as this seed makes them; after this, as they were."""
    with generators_kept():
        seed_generators(seed, devices=())
        yield


def seed_generators(seed: int, *, devices: Iterable[torch.device] | None = None) -> None:
    """Seed Python's, NumPy's and torch's global generators, of the CPU and these devices or all."""
    if devices is None:
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
        for device in devices:
            if device.type not in _WITHOUT_GENERATOR:
                torch.get_device_module(device).manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _shared(devices: Iterable[torch.device]) -> dict[str, _Access]:
    found = {
        "torch": _Access(torch.get_rng_state, torch.set_rng_state),
        "python": _Access(random.getstate, random.setstate),
        "numpy": _Access(functools.partial(np.random.get_state, legacy=False), np.random.set_state),
    }
    for device in {str(device): device for device in devices}.values():
        if device.type not in _WITHOUT_GENERATOR:
            module = torch.get_device_module(device)
            get = functools.partial(module.get_rng_state, device)
            found[str(device)] = _Access(get, functools.partial(_set, module, device))
    return found


def _set(module: Any, device: torch.device, state: Tensor) -> None:
    module.set_rng_state(state, device)


def reachable(*owners: Any) -> Iterator[tuple[str, Any]]:
    """What these objects and functions hold, and what that holds, by the way to it.

    >>> class Mine: pass
    >>> mine = Mine()
    >>> mine.list = [Mine]
    >>> [way for way, _ in reachable(mine)]
    ['0', '0.list', '0.list.0']
    """
    queue = deque((str(place), owner) for place, owner in enumerate(owners))
    seen: dict[int, Any] = {}
    while queue and len(seen) < _OBJECTS:
        way, value = queue.popleft()
        if id(value) not in seen and not isinstance(value, _WITHOUT_PARTS):
            seen[id(value)] = value
            yield way, value
            for place, (key, inner) in enumerate(_inside(value)):
                queue.append((f"{way}.{key if isinstance(key, str) else place}", inner))


def _access(value: Any) -> _Access | None:
    if isinstance(value, torch.Generator):
        return _Access(value.get_state, value.set_state)
    if isinstance(value, np.random.RandomState):
        return _Access(functools.partial(value.get_state, legacy=False), value.set_state)
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return _Access(lambda: bits.state, lambda state: setattr(bits, "state", state))
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return _Access(value.getstate, value.setstate)
    return None


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    """What an object holds, by name."""
    if isinstance(value, type):
        return list(vars(value).items()) if value.__module__.startswith(OF_FILES) else ()
    if isinstance(value, dict):
        return list(value.items()) if len(value) <= _ENTRIES else ()
    if isinstance(value, list | tuple):
        return enumerate(value) if len(value) <= _ENTRIES else ()
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, **value.keywords}.items()
    if isinstance(value, MethodType):
        return (("self", value.__self__), ("func", value.__func__))
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        held = {name: cell.cell_contents for name, cell in cells if cell != CellType()}
        return {**held, "defaults": value.__defaults__, **vars(value)}.items()
    own = getattr(value, "__dict__", {})
    module = isinstance(value, nn.Module)
    own = {**own, **value._modules} if module else own
    taken = OF_TORCH if module else ()
    held = {k: v for k, v in own.items() if k not in taken and not isinstance(v, ModuleType)}
    if type(value).__module__.startswith(OF_FILES):
        held["file"] = sys.modules[type(value).__module__]
    return held.items()


def _text(state: Any) -> str:
    if isinstance(state, Tensor):
        return json.dumps({"torch": state.numpy().tobytes().hex()})
    return json.dumps(state, default=lambda array: array.tolist())


def _state(text: str) -> Any:
    """A state from its text: torch's a tensor, NumPy's a dict, Python's a tuple."""
    state = json.loads(text)
    if isinstance(state, list):
        return tuple(tuple(part) if isinstance(part, list) else part for part in state)
    if "torch" in state:
        return torch.frombuffer(bytearray.fromhex(state["torch"]), dtype=torch.uint8)
    return state
