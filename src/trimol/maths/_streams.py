"""Random numbers that are a pure function of counters: (seed, step, draw) *are* the generator.

Philox turns a key and a counter into random words, and NumPy promises its raw stream for all
versions. So a position is one number, and resuming is exact by construction. (A
``torch.Generator`` would have to be seeded by a hash, of which its CPU engine takes 32 bits: steps
would begin to repeat after some 65 000.)
"""

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray

from trimol._checks import whole_number
from trimol._failures import BadValue

_WORD = 2**64


def word(name: str, value: int) -> int:
    """A number that becomes one 64-bit word of the generator's key or counter, checked."""
    value = whole_number(name, value, least=0)
    if value >= _WORD:
        raise BadValue(f"{name} must be below 2**64, found {value}")
    return value


def stream(seed: int, step: int, draw: int = 0, *, purpose: int = 0) -> Philox:
    """The random words of one draw of one step; other purposes have independent ones."""
    # The generator counts in the first of the counter's four words and never reaches the others.
    return Philox(
        key=np.array([seed, purpose], dtype=np.uint64),
        counter=np.array([0, 0, draw, step], dtype=np.uint64),
    )


def with_replacement(source: Philox, size: int, count: int) -> NDArray[np.int64]:
    """``count`` independent uniform numbers below ``size``."""
    # Words above the last full multiple of size are rejected: the remainder is exactly uniform.
    last = np.uint64(_WORD // size * size - 1)
    accepted = np.empty(0, dtype=np.uint64)
    while len(accepted) < count:
        words = source.random_raw(count - len(accepted))
        accepted = np.concatenate([accepted, words[words <= last]])
    return (accepted % np.uint64(size)).astype(np.int64)


def without_replacement(source: Philox, size: int, count: int) -> NDArray[np.int64]:
    """``count`` distinct numbers below ``size``: each ordered choice is equally likely.

    The first ``count`` distinct values of a uniform sequence have that law, and cost
    O(count), however large the data. Above half of the data repeats abound: shuffle it then.
    """
    if 2 * count > size:
        return permutation(source, size)[:count]
    distinct: dict[int, None] = {}  # a set that keeps the order
    while len(distinct) < count:
        distinct |= dict.fromkeys(with_replacement(source, size, count - len(distinct)).tolist())
    return np.fromiter(distinct, dtype=np.int64, count=count)


def permutation(source: Philox, size: int) -> NDArray[np.int64]:
    """All numbers below ``size`` in uniform order: the ranks of random words, if all differ."""
    while True:
        words = source.random_raw(size)
        order = np.argsort(words)
        ranked = words[order]
        if not np.any(ranked[1:] == ranked[:-1]):
            return order
