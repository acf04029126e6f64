"""Independent draws: a batch sampler whose k index sets per step know nothing of each other.

Splitting a shuffled batch gives parts that are disjoint; the theory of double sampling assumes
parts that are independent. `IndependentDraws` draws them so.

The indices of a step are a pure function of (seed, step, draw): a position is one number, and
resuming is exact by construction (`trimol.maths._streams`).
"""

import math
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from trimol._checks import whole_number
from trimol._failures import BadType, BadValue
from trimol.data._draws import sizes
from trimol.maths import _streams as streams


class IndependentDraws(Sampler[list[int]]):
    """Batch sampler that draws k index sets per step, independently of each other.

    One step's batch is the k sets in a row, with the sizes that `trimol.data.draws` splits into:
    ``draws(DataLoader(data, batch_sampler=sampler), k)`` yields exactly the independent sets.

    Every step is independent of every other: there are no epochs in which each sample comes once.
    An iteration is ``steps`` steps long and goes on where the last one stopped. If it was left
    early, the next one is the rest of it.

    With ``num_workers > 0`` a DataLoader asks for indices ahead of the training, so ``step`` is
    ahead of it too. To resume from what was *used*, count the steps and save
    ``state_dict(step=count)``.

    Args:
        data: The data set, or its size.
        batch_size: Samples per step, over all draws.
        k: Number of draws, ``method.draws``.
        replacement: Whether one sample may come several times within one draw.
        seed: Names the sequence. Different seeds give independent sequences.
        steps: Steps of one iteration. None: without end.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from trimol.data import pairs
        >>> x = torch.arange(1000)
        >>> sampler = IndependentDraws(x, batch_size=8, k=2, seed=1, steps=100)
        >>> loader = DataLoader(TensorDataset(x), batch_sampler=sampler)
        >>> [first], [second] = next(iter(pairs(loader)))
        >>> first.tolist() == sampler.indices(0)[0].tolist()
        True

        On tensors in memory no loader is needed:

        >>> for first, second in sampler.sets():
        ...     batches = x[first], x[second]
        >>> sampler.step
        100
    """

    def __init__(
        self,
        data: int | Sized,
        batch_size: int,
        k: int = 2,
        *,
        replacement: bool = False,
        seed: int = 0,
        steps: int | None = None,
    ) -> None:
        super().__init__()
        self.size = _size(data)
        self.k = whole_number("k", k, least=1)
        self.batch_size = whole_number("batch_size", batch_size, least=1)
        self.replacement = bool(replacement)
        self.seed = streams.word("seed", seed)
        self.steps = None if steps is None else whole_number("steps", steps, least=1)
        self.step = 0
        self._check_budget()

    def _check_budget(self) -> None:
        if self.batch_size < self.k:
            raise BadValue(f"batch_size must be at least k={self.k}, found {self.batch_size}")
        largest = sizes(self.batch_size, self.k)[0]
        if not self.replacement and largest > self.size:
            many = "" if self.k == 1 else f"{self.k} times "
            raise BadValue(
                f"batch_size must be at most {self.k * self.size}, {many}the number of samples "
                f"(which a draw takes once each), found {self.batch_size}"
            )

    def indices(self, step: int) -> tuple[Tensor, ...]:
        """The k index sets of any step; does not move the sampler.

        Args:
            step: Number of the step, from 0.

        Example:
            >>> first, second = IndependentDraws(60_000, batch_size=64).indices(step=7)
            >>> first.shape, second.dtype
            (torch.Size([32]), torch.int64)
        """
        step = streams.word("step", step)
        sample = streams.with_replacement if self.replacement else streams.without_replacement
        return tuple(
            torch.from_numpy(sample(streams.stream(self.seed, step, draw), self.size, count))
            for draw, count in enumerate(sizes(self.budget(step), self.k))
        )

    def budget(self, step: int) -> int:
        """Samples of a step, over all draws: the same for every step."""
        return self.batch_size

    def samples(self, steps: int) -> int:
        """Samples that so many first steps take together."""
        return sum(self.budget(step) for step in range(whole_number("steps", steps, least=0)))

    def steps_within(self, samples: int) -> int:
        """The most first steps that take no more samples than this together.

        >>> IndependentDraws(1000, batch_size=8).steps_within(30)
        3
        """
        left, count = whole_number("samples", samples, least=0), 0
        while left >= self.budget(count):
            left -= self.budget(count)
            count += 1
        return count

    @property
    def steps_per_epoch(self) -> int:
        """The steps of the first batch's size that take as many samples as the data has."""
        return math.ceil(self.size / self.batch_size)

    def sets(self) -> Iterator[tuple[Tensor, ...]]:
        """Iterate over the k index sets of each step, as tensors: for data in memory."""
        left = None if self.steps is None else self.steps - self.step % self.steps
        end = None if left is None else self.step + left
        while end is None or self.step < end:
            self.step += 1  # before the yield: a loop left by break has used this step
            yield self.indices(self.step - 1)

    def __iter__(self) -> Iterator[list[int]]:
        return (torch.cat(sets).tolist() for sets in self.sets())

    def __len__(self) -> int:
        if self.steps is None:
            raise BadType("an endless sampler has no length: give it steps")
        return self.steps

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """What a fresh sampler needs to go on from here, or from another step.

        Args:
            step: Number of steps used. By default, the number of steps handed out.

        Example:
            >>> sampler = IndependentDraws(100, batch_size=4, seed=3)
            >>> used = [next(iter(sampler)) for _ in range(5)]
            >>> fresh = IndependentDraws(100, batch_size=4)
            >>> fresh.load_state_dict(sampler.state_dict())
            >>> next(iter(fresh)) == next(iter(sampler))
            True
        """
        step = self.step if step is None else streams.word("step", step)
        return {"step": step, "seed": self.seed, **self._shape()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, bit for bit.

        Args:
            state: What `state_dict` gave. The seed is taken from it; data, batch and draws must
                be the ones it was saved with.
        """
        for name, value in self._shape().items():
            if state[name] != value:
                raise BadValue(
                    f"state was saved with {name}={state[name]}, this sampler has {name}={value}"
                )
        self.step, self.seed = (
            streams.word("step", state["step"]),
            streams.word("seed", state["seed"]),
        )

    def _shape(self) -> dict[str, Any]:
        """The settings that the indices of a step depend on, beside the seed."""
        return {name: getattr(self, name) for name in ("size", "batch_size", "k", "replacement")}


def _size(data: int | Sized) -> int:
    if isinstance(data, int | np.integer):
        return whole_number("data", data, least=1)
    try:
        size = len(data)
    except TypeError as error:
        kind = type(data).__name__
        raise BadType(f"data must be a size or have a length, found {kind}") from error
    if size == 0:
        raise BadValue(f"data must not be empty, found a {type(data).__name__} of length 0")
    return size
