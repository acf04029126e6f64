"""Deal every batch of a loader out as the k draws of one step.

A method that needs k mini-batches per step (MoDo: two) gets them by *splitting* the loader's
batch, so that every method sees the same number of samples per step.

How independent the parts are is the loader's doing. Parts are consecutive slices of the batch:
with ``shuffle=True`` they are two disjoint uniform samples, negatively dependent at the order
batch/data (one sample never is in both), which vanishes on large data. A loader that does *not*
shuffle hands out neighbours of the file, and its parts are as dependent as the file's order is.
Draws that are independent exactly come from `trimol.data.IndependentDraws`.
"""

import copy
import dataclasses
import enum
import numbers
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from trimol._checks import whole_number
from trimol._failures import BadType, BadValue
from trimol._warnings import warn

Batch = TypeVar("Batch")


class _Last(threading.local):
    """What was dealt last, in each thread: losses do not tell which batch they are of."""

    is_short = False
    number = 0  # of the short batches that were dealt


_last = _Last()

# Values that describe a batch as a whole: every part gets them.
_SHARED = (str, bytes, numbers.Number, np.generic, enum.Enum, torch.dtype, torch.device, type(None))


def draws(loader: Iterable[Batch], k: int) -> "Draws[Batch]":
    """Iterate over ``loader``, each batch split into k parts.

    Args:
        loader: Any iterable of batches, such as a ``DataLoader``. It should shuffle: see the
            module's notes on independence.
        k: Number of parts, ``method.draws``. With 1 the batches come unchanged, as 1-tuples.

    Returns:
        An iterable of k-tuples, as `dealt` gives them: a last batch that is too short to be split
        comes whole, for every draw. It can be iterated as often as ``loader`` can, and has a length
        if ``loader`` has one.

    Example:
        >>> for first, second, third in draws([torch.arange(7)], 3):
        ...     print(first.tolist(), second.tolist(), third.tolist())
        [0, 1, 2] [3, 4] [5, 6]
    """
    return Draws(loader, k)


def pairs(loader: Iterable[Batch]) -> "Draws[Batch]":
    """Iterate over ``loader``, each batch split into two halves: ``draws(loader, 2)``.

    Args:
        loader: Any iterable of batches, such as a ``DataLoader`` that shuffles.

    Returns:
        An iterable of pairs, as `draws` gives it.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> data = TensorDataset(torch.randn(640, 3), torch.zeros(640))
        >>> loader = DataLoader(data, batch_size=64, shuffle=True)
        >>> first, second = next(iter(pairs(loader)))
        >>> [leaf.shape[0] for leaf in (*first, *second)]
        [32, 32, 32, 32]
        >>> len(pairs(loader))
        10
    """
    return draws(loader, 2)


class Draws(Generic[Batch]):
    """The iterable that `draws` returns.

    Args:
        loader: Any iterable of batches.
        k: Number of parts of each batch.
    """

    def __init__(self, loader: Iterable[Batch], k: int) -> None:
        if not hasattr(loader, "__iter__"):
            kind = type(loader).__name__
            raise BadType(f"loader must be an iterable of batches (a DataLoader), found {kind}")
        self.loader = loader
        self.k = whole_number("k", k, least=1)
        self._has_warned = False

    def __iter__(self) -> Iterator[tuple[Batch, ...]]:
        short_in_a_row = 0
        try:
            for batch in self.loader:
                parts = dealt(batch, self.k)
                short_in_a_row = short_in_a_row + 1 if _last.is_short else 0
                if short_in_a_row == 2:  # one may be the rest of an epoch
                    self._warn_of_short(batch)
                yield parts
        finally:
            _last.is_short = False

    def _warn_of_short(self, batch: Batch) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"batches of {batch_size(batch)} cannot be split into {self.k} draws, so that the "
                f"weights stay as they are: let the loader's batch_size be {self.k} or more"
            )

    def __len__(self) -> int:
        if not isinstance(self.loader, Sized):
            raise BadType(f"loader of type {type(self.loader).__name__} has no length")
        return len(self.loader)


def dealt(batch: Batch, k: int) -> tuple[Batch, ...]:
    """The k draws of one batch: its parts, or where it has too few samples, itself every time.

    The same samples k times are no independent draws: a method of several draws that is called
    before the next batch is dealt keeps λ, and x moves on the whole batch (``info.kept`` counts
    it). So a short last batch needs no ``drop_last=True``.

    Args:
        batch: Whatever a loader yields, as for `split`.
        k: Number of draws, ``method.draws``.

    Example:
        >>> dealt(torch.arange(5), 2)
        (tensor([0, 1, 2]), tensor([3, 4]))
        >>> dealt(torch.arange(1), 2)
        (tensor([0]), tensor([0]))
    """
    _last.is_short = whole_number("k", k, least=1) > 1 and 0 < batch_size(batch) < k
    _last.number += _last.is_short
    return (batch,) * k if _last.is_short else split(batch, k)


def short_number() -> int:
    """Which of the batches that were too short this thread dealt last, from 1; 0 if it was none."""
    return _last.number if _last.is_short else 0


def split(batch: Batch, k: int) -> tuple[Batch, ...]:
    """Split one batch into k parts that together hold exactly its samples, in order.

    What is split, and how:

    - Tensors and NumPy arrays: on dimension 0, as views.
    - Mappings, named tuples and dataclasses: field by field, into the same type.
    - Lists and tuples: if anything to split is inside, they are containers, and split item by
      item. Otherwise each item belongs to one sample, and the list is cut: strings as
      ``default_collate`` leaves them, numbers, images, dicts of plain values. So a batch must
      not be a list of samples that are tensors: collate it.
    - Any other object with ``__len__`` and a ``__getitem__`` that takes slices: by those.
    - Numbers, strings, None, zero-dimensional tensors: these are no samples; every part gets them.

    Args:
        batch: Whatever a loader yields. Everything that is split must have the same length.
        k: Number of parts. With 1 the batch is returned as it is, without a look inside.

    Returns:
        k batches built like ``batch``, with as many samples as `sizes` says.

    Raises:
        ValueError: The lengths differ, or there are fewer than k samples.
        TypeError: The batch holds something that cannot be cut, such as a ``PackedSequence``.

    Example:
        >>> batch = {"x": torch.arange(4), "name": ["a", "b", "c", "d"], "scale": 0.5}
        >>> first, second = split(batch, 2)
        >>> second
        {'x': tensor([2, 3]), 'name': ['c', 'd'], 'scale': 0.5}
    """
    if whole_number("k", k, least=1) == 1:
        return (batch,)
    samples = batch_size(batch)
    if samples < k:
        raise BadValue(
            f"cannot split a batch of {samples} into k={k} non-empty parts: "
            "set drop_last=True in the loader, or use larger batches"
        )
    stops = accumulate(sizes(samples, k), initial=0)
    return tuple(_cut(batch, [slice(*ends) for ends in pairwise(stops)]))


def sizes(total: int, k: int) -> list[int]:
    """Sizes of the k parts of ``total`` samples: equal, the first ``total % k`` one larger.

    Args:
        total: Number of samples.
        k: Number of parts.

    Example:
        >>> sizes(64, 2), sizes(8, 3)
        ([32, 32], [3, 3, 2])
    """
    size, larger = divmod(total, k)
    return [size + 1] * larger + [size] * (k - larger)


class _Node(NamedTuple):
    """A container taken apart."""

    places: list[str]  # where each child sits, as one would write it in Python
    children: list[Any]
    rebuild: Callable[[list[Any]], Any]  # from children of the same number, the same container


def _open(item: Any) -> _Node | None:
    """Take a container apart; None for a leaf."""
    if isinstance(item, PackedSequence):  # a named tuple, but of time steps
        return None
    if _is_mapping(item):
        values = [item[key] for key in item]
        return _Node([f"[{key!r}]" for key in item], values, partial(_mapped, item))
    if isinstance(item, tuple) and hasattr(item, "_fields"):  # a named tuple
        named: Any = item
        return _Node([f".{name}" for name in named._fields], list(item), named._make)
    if isinstance(item, tuple | list) and any(map(_has_samples, item)):
        return _Node([f"[{index}]" for index in range(len(item))], list(item), type(item))
    if dataclasses.is_dataclass(item) and not isinstance(item, type) and not _is_sliceable(item):
        names = [field.name for field in dataclasses.fields(item)]
        values = [getattr(item, name) for name in names]
        return _Node([f".{name}" for name in names], values, partial(_replace, item, names))
    return None


def _is_mapping(item: Any) -> TypeGuard[Mapping[Any, Any]]:
    # A TensorDict is a Mapping too, but one that is sliced like a tensor.
    return isinstance(item, Mapping) and not hasattr(type(item), "narrow")


def _is_sliceable(item: Any) -> bool:
    kind = type(item)
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__")


def _mapped(item: Mapping[Any, Any], values: list[Any]) -> Any:
    """A mapping of the same type with new values.

    The constructor comes first, as in accelerate: a copy would keep what some types hold beside
    their items for the whole batch (the ``encodings`` of transformers' BatchEncoding).
    """
    items = dict(zip(item, values, strict=True))
    try:
        return type(item)(items)  # type: ignore[call-arg]
    except TypeError:  # a defaultdict, or a constructor of the user's own
        new: Any = copy.copy(item)
        new.update(items)
        return new


def _replace(record: Any, names: list[str], values: list[Any]) -> Any:
    """`dataclasses.replace` that also sets fields which are no argument of ``__init__``."""
    new = copy.copy(record)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(new, name, value)  # frozen ones too
    return new


def _leaves(item: Any, place: str = "batch") -> Iterator[tuple[str, Any]]:
    """Every leaf of a batch, with the place where it sits."""
    node = _open(item)
    if node is None:
        yield place, item
        return
    for name, child in zip(node.places, node.children, strict=True):
        yield from _leaves(child, place + name)


def _length(leaf: Any) -> int | None:
    """Number of samples in a leaf; None if it holds none."""
    if isinstance(leaf, torch.Tensor):
        return leaf.size(0) if leaf.dim() else None
    if isinstance(leaf, np.ndarray):
        return leaf.shape[0] if leaf.ndim else None
    if isinstance(leaf, _SHARED) or not _is_sliceable(leaf):
        return None
    # An empty list is a placeholder: it has no items that could be anyone's.
    return None if isinstance(leaf, tuple | list) and not leaf else len(leaf)


def _has_samples(item: Any) -> bool:
    if isinstance(item, _SHARED):  # the quick way through a long list of strings
        return False
    return any(_length(leaf) is not None for _, leaf in _leaves(item))


def batch_size(batch: Any) -> int:
    """Number of samples in a batch, after checking that it can be split."""
    places: dict[int, str] = {}
    for place, leaf in _leaves(batch):
        length = _length(leaf)
        _check_leaf(place, leaf, length)
        if length is not None:
            places.setdefault(length, place)
    if not places:
        raise BadValue(f"found no samples to split in a batch of type {type(batch).__name__}")
    if len(places) > 1:
        lengths = [f"{length} in {place}" for length, place in places.items()]
        shown = ", ".join(lengths[:4]) + (", …" if len(lengths) > 4 else "")
        raise BadValue(
            f"all samples of a batch must lie along dimension 0, but lengths differ: {shown} "
            "(a list with tensors inside is a container, not a list of samples)"
        )
    return next(iter(places))


def _check_leaf(place: str, leaf: Any, length: int | None) -> None:
    if isinstance(leaf, PackedSequence):
        raise BadType(
            f"cannot split the PackedSequence at {place}: "
            "let the loader yield padded sequences and their lengths, and pack in the losses"
        )
    # Handing such an object to every part could put the same samples into all of them.
    known = isinstance(leaf, (*_SHARED, torch.Tensor, np.ndarray, tuple, list))
    if length is None and not known:
        raise BadType(
            f"cannot split the {type(leaf).__name__} at {place}: "
            "it needs __len__ and a __getitem__ that takes slices"
        )


def _cut(item: Any, parts: list[slice]) -> list[Any]:
    """The samples of a batch that belong to each of the parts."""
    node = _open(item)
    if node is not None:
        pieces = [_cut(child, parts) for child in node.children]
        return [node.rebuild([piece[part] for piece in pieces]) for part in range(len(parts))]
    return [item if _length(item) is None else _cut_leaf(item, part) for part in parts]


def _cut_leaf(leaf: Any, part: slice) -> Any:
    kind = type(leaf).__name__
    try:
        piece = leaf[part]
        length = len(piece)
    # A deque, an object that is read by key, a sparse or nested tensor.
    except (TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise BadType(f"cannot split a {kind}: it does not take slices") from error
    if length != part.stop - part.start:
        wanted = f"[{part.start}:{part.stop}]"
        raise BadType(f"cannot split a {kind}: its slice {wanted} has length {length}")
    return piece
