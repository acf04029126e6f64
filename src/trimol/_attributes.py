"""What a user's objects remember in attributes: numbers and text, and lists and dicts of them.

Those count of a task, of its model's modules, of objects whose classes are written beside the
task's, of learning-rate schedulers, and what is global in the task's file.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from trimol._files import OF_FILES
from trimol._generators import OF_TORCH, reachable

_KINDS = (int, float, bool, str, type(None))
_ENTRIES = 100  # of a list or a dict, at most


class Attribute(NamedTuple):
    """What one object remembers under one name: a copy."""

    owner: Any
    name: str
    value: Any

    def put(self) -> None:
        """Give it this value; a list or dict that others may hold, too, stays the same one."""
        there, fresh = vars(self.owner).get(self.name), _plain(self.value)
        if type(there) is list and type(fresh) is list:
            there[:] = fresh
        elif type(there) is dict and type(fresh) is dict:
            there.clear()
            there.update(fresh)
        else:
            setattr(self.owner, self.name, fresh)


def attributes(*parts: Any) -> dict[str, Attribute]:
    """What these objects remember, the first of them a task or a module, by the way to it.

    >>> class Mine: pass
    >>> mine = Mine()
    >>> mine.steps, mine.of = 3, [1, {"a": 2.5}]
    >>> {way: each.value for way, each in attributes(mine).items()}
    {'0.steps': 3, '0.of': [1, {'a': 2.5}]}
    """
    return {
        f"{way}.{name}": Attribute(owner, name, value)
        for way, owner in _owners(*parts).items()
        for name, value in _values(owner)
    }


def changes(
    before: Mapping[str, Attribute], after: Mapping[str, Attribute]
) -> dict[str, Attribute]:
    """Those of after that are new or have other values."""
    return {
        way: each
        for way, each in after.items()
        if way not in before or repr(each.value) != repr(before[way].value)
    }


def put_back(before: Mapping[str, Attribute], *parts: Any) -> None:
    """Give these objects' attributes the values of before, where both are numbers or text."""
    for way in changes(before, attributes(*parts)).keys() & before.keys():
        before[way].put()


def recall(saved: Mapping[str, Any], *parts: Any) -> None:
    """Give attributes of these objects the values that were saved, by the way to them."""
    owners = _owners(*parts)
    for path, value in saved.items():
        way, _, name = path.rpartition(".")
        if way in owners:
            Attribute(owners[way], name, value).put()


@contextmanager
def attributes_kept(*parts: Any) -> Iterator[None]:
    """After this, what was remembered before has the values of before."""
    before = attributes(*parts)
    try:
        yield
    finally:
        put_back(before, *parts)


def _owners(*parts: Any) -> dict[str, Any]:
    beside = _module(parts[0])
    return {
        way: value
        for way, value in reachable(*parts)
        if hasattr(value, "__dict__")
        and (
            isinstance(value, nn.Module | LRScheduler)
            or _module(value).startswith(OF_FILES)
            or _module(value) == beside
        )
    }


def _module(value: Any) -> str:
    """The module in which a class, or an object's class, is written; of a module its own name."""
    if isinstance(value, ModuleType):
        return value.__name__
    return (value if isinstance(value, type) else type(value)).__module__


def _values(owner: Any) -> Iterator[tuple[str, Any]]:
    """Numbers and texts of an object, but for those that every module or class has."""
    taken = OF_TORCH if isinstance(owner, nn.Module) else ()
    for name, found in list(vars(owner).items()):
        if name not in taken and not name.startswith("__"):
            with suppress(TypeError):
                yield name, _plain(found)


def _plain(found: Any) -> Any:
    """A copy of a number or text, or of a list or dict of them; all else is a TypeError."""
    if type(found) in (list, dict) and len(found) <= _ENTRIES:
        pairs = found.items() if type(found) is dict else enumerate(found)
        values = {_plain(key): _plain(value) for key, value in pairs}
        return values if type(found) is dict else list(values.values())
    value = found.item() if isinstance(found, np.generic) else found
    if type(value) not in _KINDS:
        raise TypeError
    return value
