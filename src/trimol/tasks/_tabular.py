"""Tables of numbers and categories: read from text, encoded by what the training rows say."""

import csv
import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.data._files.datasets import BadData

Columns = dict[str, NDArray[Any]]  # each of text, one entry a row
RARE = 10  # a word that fewer training rows have is not told from others


def read(
    path: Path, names: Sequence[str] | None = None, *, separator: str = ",", comment: str = "|"
) -> Columns:
    r"""The columns of a text file by name; without names its first line says them.

    Empty lines, lines that begin with the comment sign and spaces around entries are left out. A
    file that ends in ``.gz`` is unpacked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     _ = path.write_text("age,sex\n39, Male\n50, Female\n")
    ...     read(path)["sex"].tolist()
    ['Male', 'Female']
    """
    packed = path.suffix == ".gz"
    with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as file:
        lines = (line for line in file if line.strip() and not line.startswith(comment))
        rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    header = list(names) if names is not None else (rows.pop(0) if rows else [])
    wrong = next((n for n, row in enumerate(rows) if len(row) != len(header)), None)
    if not rows or wrong is not None:
        found = "none" if wrong is None else f"{len(rows[wrong])} in row {wrong + 1}"
        raise BadData(f"{path} must hold rows of {len(header)} columns, found {found}")
    return {
        name: np.char.strip(np.array(column))
        for name, column in zip(header, zip(*rows, strict=True), strict=True)
    }


def joined(*tables: Columns) -> Columns:
    """One table below the other."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def chosen(table: Columns, rows: NDArray[Any] | Tensor) -> Columns:
    """Some rows, by their numbers or a mask."""
    places = rows.numpy() if isinstance(rows, Tensor) else rows
    return {name: column[places] for name, column in table.items()}


def told(name: str, column: NDArray[Any], yes: Iterable[str], no: Iterable[str]) -> Tensor:
    """1 and 0 for the words of a column; any other word is refused.

    >>> told("income", np.array([">50K", "<=50K"]), yes=[">50K"], no=["<=50K"])
    tensor([1, 0])
    """
    meant = {**dict.fromkeys(no, 0), **dict.fromkeys(yes, 1)}
    other = sorted(set(column.tolist()) - meant.keys())
    if other:
        raise BadData(f"{name} must be one of {', '.join(meant)}, found {other[0]!r}")
    return torch.tensor([meant[word] for word in column.tolist()])


def number(name: str, column: NDArray[Any]) -> NDArray[np.float64]:
    """A column as numbers; NaN where it is empty or a question mark.

    >>> number("age", np.array(["39", "?"]))
    array([39., nan])
    """
    known = ~np.isin(column, ("", "?"))
    values = np.full(len(column), np.nan)
    try:
        values[known] = column[known].astype(np.float64)
    except ValueError as error:
        said = str(error).partition(": ")[2].removeprefix("np.str_(").removesuffix(")")
        raise BadData(f"{name} must be numbers, found {said}") from error
    return values


class Encoder:
    """From rows to inputs, by statistics of the training rows alone.

    A number loses the training rows' mean and is divided by their standard deviation; one that is
    missing counts as the mean. A category becomes one column of 0 and 1 for each word that at least
    ``rare`` training rows have, treated likewise; a missing entry is a word of its own. Columns
    that do not vary in the training rows are 0.

    Args:
        train: The training rows.
        numbers: Names of the columns that are numbers.
        categories: Names of those that are words.
        rare: How many training rows must have a word for a column of its own.

    Example:
        >>> rows = {"age": np.array(["20", "40"]), "sex": np.array(["Male", "Female"])}
        >>> encoder = Encoder(rows, numbers=["age"], categories=["sex"], rare=1)
        >>> encoder({"age": np.array(["50"]), "sex": np.array(["?"])})
        tensor([[ 2., -1., -1.]])
    """

    def __init__(
        self,
        train: Columns,
        numbers: Sequence[str] = (),
        categories: Sequence[str] = (),
        *,
        rare: int = RARE,
    ) -> None:
        if not numbers and not categories:
            raise BadValue("numbers and categories must name at least one column, found none")
        rare = whole_number("rare", rare, least=1)
        self.numbers = list(numbers)
        self.words = {name: common(train[name], rare) for name in categories}
        raw = self._raw(train)
        self.mean = _over_known(raw, np.mean)
        spread = _over_known(raw, np.std)
        varies = spread > constant(self.mean, len(raw))
        self.scale = np.divide(1, spread, out=np.zeros_like(spread), where=varies)

    def __call__(self, rows: Columns) -> Tensor:
        """The inputs, a row each, in float32."""
        standardised = np.nan_to_num((self._raw(rows) - self.mean) * self.scale)
        return torch.from_numpy(standardised.astype(np.float32))

    def _raw(self, rows: Columns) -> NDArray[np.float64]:
        plain = [number(name, rows[name])[:, None] for name in self.numbers]
        hot = [rows[name][:, None] == words for name, words in self.words.items()]
        return np.concatenate([*plain, *hot], axis=1).astype(np.float64)


def constant(mean: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """The largest standard deviation that a column of so many equal numbers may have, by rounding.

    >>> column = np.full(1000, 0.1)
    >>> bool(0 < column.std() < constant(column.mean(), 1000))
    True
    """
    return np.asarray(rows * np.finfo(np.float64).eps * np.abs(mean))


def _over_known(raw: NDArray[np.float64], statistic: Callable[[Any], Any]) -> NDArray[np.float64]:
    """A statistic of each column over the rows that have it; 0 for a column that none has."""
    known = [column[np.isfinite(column)] for column in raw.T]
    return np.array([statistic(column) if len(column) else 0.0 for column in known])


def common(column: NDArray[Any], rare: int = RARE) -> NDArray[Any]:
    """The words that at least so many rows have, sorted.

    >>> common(np.array(["b", "a", "b"]), rare=2).tolist()
    ['b']
    """
    words, counts = np.unique(column, return_counts=True)
    return np.asarray(words[counts >= rare])


def codes(column: NDArray[Any], words: NDArray[Any]) -> Tensor:
    """The place of each entry among the sorted words, from 1; 0 for any other.

    >>> codes(np.array(["b", "c", "a"]), np.array(["a", "b"]))
    tensor([2, 0, 1])
    """
    if not len(words):
        return torch.zeros(len(column), dtype=torch.int64)
    places = np.searchsorted(words, column).clip(max=len(words) - 1)
    return torch.from_numpy(np.where(words[places] == column, places + 1, 0))


def split_by(seed: int, rows: int, shares: Mapping[str, float]) -> dict[str, Tensor]:
    """The numbers of rows in random order, cut into parts of these shares: the seed names it.

    >>> {name: len(part) for name, part in split_by(0, 10, {"train": 0.7, "test": 0.3}).items()}
    {'train': 7, 'test': 3}
    """
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    ends = [round(rows * share) for share in np.cumsum([0, *shares.values()])]
    return {
        name: order[first:last].sort().values
        for name, first, last in zip(shares, ends[:-1], ends[1:], strict=True)
    }
