"""Rows in many files that are read as they are needed, and a loader that holds one file at a time.

A folder of shards has ``rows.json`` and, for each shard and column, a file of numpy's. Files are
mapped into memory: what is not looked at is not read.
"""

import json
import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol._files import make_folder, replace, writing
from trimol.data._files.datasets import BadData
from trimol.maths import _streams as streams
from trimol.tasks.task import Batch

_ROWS = "rows.json"


def write_shards(folder: Path, blocks: Iterable[Batch]) -> "Shards":
    """Write rows, a shard for each block of them; only one block is held at a time.

    The file that says how many there are comes last: without it the folder is not whole, and is
    written anew.
    """
    make_folder(folder)
    sizes, columns = [], 0
    for number, block in enumerate(blocks):
        columns = len(block)
        sizes.append(len(block[0]))
        for place, column in enumerate(block):
            with writing(_file(folder, number, place)) as file:
                np.save(file, column.numpy())
    if not sizes:
        raise BadValue("blocks must hold at least one block of rows, found none")
    replace(folder / _ROWS, json.dumps({"sizes": sizes, "columns": columns}).encode())
    return Shards(folder)


def _file(folder: Path, shard: int, column: int) -> Path:
    return folder / f"shard{shard:05d}-column{column}.npy"


class Shards:
    """A folder of shards.

    Args:
        folder: Where they are.

    Attributes:
        sizes: How many rows each shard has.
        columns: The columns, as data sets of `trimol.tasks.Data` take them: looked up by slices
            and by tensors of row numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     blocks = [(torch.arange(3),), (torch.arange(3, 5),)]
        ...     kept = write_shards(Path(home), blocks)
        ...     len(kept), kept.columns[0][torch.tensor([4, 0])].tolist()
        (5, [4, 0])
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            told = json.loads((self.folder / _ROWS).read_text())
            self.sizes: list[int] = list(told["sizes"])
            count = int(told["columns"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadData(f"{self.folder} is no whole folder of shards: {error}") from error
        self.columns = cast("Batch", tuple(_Column(self, place) for place in range(count)))

    @staticmethod
    def there(folder: Path) -> bool:
        """Whether a folder of shards is whole."""
        return (folder / _ROWS).is_file()

    def __len__(self) -> int:
        return sum(self.sizes)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The number of the first row after each shard."""
        return np.cumsum(self.sizes)

    def mapped(self, shard: int, column: int) -> NDArray[Any]:
        """A column of a shard, not read yet."""
        path = _file(self.folder, shard, column)
        try:
            found: NDArray[Any] = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise BadData(f"{path} cannot be read: {error}") from error
        if len(found) != self.sizes[shard]:
            raise BadData(f"{path} must hold {self.sizes[shard]} rows, found {len(found)}")
        return found


class _Column:
    """A column of all shards, looked up when it is asked for."""

    def __init__(self, shards: Shards, place: int) -> None:
        self.shards, self.place = shards, place

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)))
        # As of a tensor: a mask, and numbers below zero, which count from the end.
        rows = torch.arange(len(self))[rows] if rows.dtype == torch.bool else rows
        wanted = torch.where(rows < 0, rows + len(self), rows).numpy()
        if ((wanted < 0) | (wanted >= len(self))).any():
            raise IndexError(f"rows must be among the {len(self)} that there are")
        shard = np.searchsorted(self.shards.ends, wanted, side="right")
        first = self.shards.mapped(0, self.place)
        found = np.empty((len(wanted), *first.shape[1:]), first.dtype)
        for number in np.unique(shard):
            own = shard == number
            start = self.shards.ends[number] - self.shards.sizes[number]
            found[own] = self.shards.mapped(int(number), self.place)[wanted[own] - start]
        return torch.from_numpy(found)


class Stream:
    """Batches of rows, one shard at a time: shards in random order, rows shuffled within each.

    Every row comes once an epoch. What is held is a batch and a shard's order of rows. The batch of
    a step is a function of the seed and the step, so that going on after a stop is exact.

    Args:
        shards: The rows.
        batch_size: Rows of a batch; the last one of a shard may be smaller.
        seed: Names the order.

    Attributes:
        step: Batches handed out.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     kept = write_shards(Path(home), [(torch.arange(3),), (torch.arange(3, 5),)])
        ...     stream = Stream(kept, batch_size=2)
        ...     sorted(row for _ in range(3) for row in next(stream)[0].tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, shards: Shards, batch_size: int, *, seed: int = 0) -> None:
        self.shards = shards
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        self.seed = streams.word("seed", seed)
        self.step = 0
        self._orders: dict[tuple[int, int], NDArray[np.int64]] = {}

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch."""
        return sum(map(self._steps, range(len(self.shards.sizes))))

    def _steps(self, shard: int) -> int:
        return math.ceil(self.shards.sizes[shard] / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        shard, rows = self._place(self.step)
        self.step += 1
        columns = range(len(self.shards.columns))
        return tuple(torch.from_numpy(self.shards.mapped(shard, c)[rows]) for c in columns)

    def _place(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """The shard of a step, and its rows."""
        epoch, left = divmod(step, self.steps_per_epoch)
        for place, shard in enumerate(self._order(epoch, 0, len(self.shards.sizes))):
            if left < self._steps(shard):
                own = self._order(epoch, place + 1, self.shards.sizes[shard])
                return int(shard), own[left * self.batch_size :][: self.batch_size]
            left -= self._steps(shard)
        raise AssertionError("a step is within its epoch")

    def _order(self, epoch: int, of: int, count: int) -> NDArray[np.int64]:
        """The order of the shards (0), or of the rows of one of them, in an epoch.

        That of the shards and that of the present one's rows are kept for the next step.
        """
        key = epoch, of
        if key not in self._orders:
            random = np.random.Generator(streams.stream(self.seed, epoch, of))
            first = {k: kept for k, kept in self._orders.items() if k == (epoch, 0)}
            self._orders = {**first, key: random.permutation(count)}
        return self._orders[key]

    def state_dict(self) -> dict[str, int]:
        """What a fresh stream over the same rows needs to go on from here."""
        return {"step": self.step, "seed": self.seed, **self._shape()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved state, with the same batches."""
        for name, value in self._shape().items():
            if state[name] != value:
                raise BadValue(f"state was saved with {name}={state[name]}, this one has {value}")
        self.step, self.seed, self._orders = state["step"], state["seed"], {}

    def _shape(self) -> dict[str, int]:
        return {"batch_size": self.batch_size, "rows": len(self.shards)}
