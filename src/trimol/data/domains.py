"""One data set per domain: a batch sampler that draws from every one of them at every step.

Multi-task learning with an input for each task (pictures of objects as photographs, as drawings,
as product shots) has a data set for each. Every step takes as many samples of one as of another;
each is passed through in shuffled epochs of its own, and shorter ones begin again earlier.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol._checks import whole_number
from trimol._failures import BadType, BadValue
from trimol.data.sampling import IndependentDraws
from trimol.maths import _streams as streams


class Domains(IndependentDraws):
    r"""Batch sampler that takes ``batch_size`` samples of *every* domain at every step.

    Domain d with :math:`n_d` samples is passed through in shuffled epochs: step t takes the places
    :math:`tB, \dots, (t + 1)B - 1` of its endless sequence of epochs, B = ``batch_size``. A batch
    that reaches over the end of an epoch may hold a sample twice, and a domain with fewer samples
    than B is passed through more than once within one batch.

    A batch is interleaved, :math:`a_0\, b_0\, c_0\, a_1\, b_1\, c_1 \dots`: however it is split
    into equal parts (the draws of a method, the processes' shares), no part has more than one
    sample more of one domain than of another. The indices are a pure function of (seed, step), as
    for `IndependentDraws`; but steps are *not* independent of each other within an epoch.

    Args:
        domain: For each sample the number of its domain: 0, 1, …; none of them may be empty.
        batch_size: Samples of each domain per step.
        growth: Must be 0: batches that grow are not defined here.
        seed: Names the sequence.

    Attributes:
        sizes: The number of samples of each domain.

    Example:
        >>> domain = torch.tensor([0, 0, 0, 0, 1, 1])
        >>> sampler = Domains(domain, batch_size=2, seed=1)
        >>> [domain[sampler.indices(step)[0]].tolist() for step in range(2)]
        [[0, 1, 0, 1], [0, 1, 0, 1]]
        >>> sorted(i for step in range(2) for i in sampler.indices(step)[0].tolist())
        [0, 1, 2, 3, 4, 4, 5, 5]
        >>> sampler.steps_per_epoch, sampler.budget(0)
        (2, 4)
    """

    def __init__(
        self, domain: Tensor, batch_size: int, *, growth: float = 0.0, seed: int = 0
    ) -> None:
        if growth:
            raise BadValue(
                f"growth must be 0 with several domains, where growing batches are not defined, "
                f"found {growth}"
            )
        self._members = _members(domain)
        self.sizes = [len(own) for own in self._members]
        self._orders: dict[int, tuple[int, NDArray[np.int64]]] = {}  # domain → epoch, its order
        super().__init__(len(domain), batch_size, k=1, seed=seed)

    def indices(self, step: int) -> tuple[Tensor, ...]:
        """The batch of any step, interleaved, as one index set; does not move the sampler.

        Args:
            step: Number of the step, from 0.
        """
        step = streams.word("step", step)
        columns = [self._of(number, step) for number in range(len(self._members))]
        return (torch.from_numpy(np.stack(columns, 1).reshape(-1)),)

    def budget(self, step: int) -> int:
        """Samples of a step, over all domains: the same for every step."""
        return self.batch_size * len(self.sizes)

    @property
    def steps_per_epoch(self) -> int:
        """The steps in which the longest domain is passed through once."""
        return -(-max(self.sizes) // self.batch_size)

    def _of(self, number: int, step: int) -> NDArray[np.int64]:
        """What a step takes of one domain."""
        own, size = self._members[number], self.sizes[number]
        first = step * self.batch_size
        last = first + self.batch_size
        taken = [
            self._order(number, epoch)[max(first - epoch * size, 0) : last - epoch * size]
            for epoch in range(first // size, (last - 1) // size + 1)
        ]
        return own[np.concatenate(taken)]

    def _order(self, number: int, epoch: int) -> NDArray[np.int64]:
        """The order of a domain in one of its epochs; the last one asked for is remembered."""
        kept = self._orders.get(number)
        if kept is None or kept[0] != epoch:
            source = streams.stream(self.seed, epoch, number)
            kept = self._orders[number] = epoch, streams.permutation(source, self.sizes[number])
        return kept[1]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, bit for bit (see `IndependentDraws`)."""
        super().load_state_dict(state)
        self._orders.clear()  # the seed may be another

    def _check_budget(self) -> None:
        """Any number of samples can be taken: what is used up begins again."""

    def _shape(self) -> dict[str, Any]:
        """The settings that the indices of a step depend on, beside the seed."""
        return {**super()._shape(), "sizes": self.sizes}


def _members(domain: Tensor) -> list[NDArray[np.int64]]:
    """The samples of each domain."""
    if not isinstance(domain, Tensor) or domain.dim() != 1 or domain.is_floating_point():
        given = tuple(domain.shape) if isinstance(domain, Tensor) else type(domain).__name__
        raise BadType(f"domain must be a 1-D tensor of whole numbers, found {given}")
    if not len(domain):
        raise BadValue("domain must not be empty, found a tensor of length 0")
    numbers = domain.cpu().numpy()
    least = whole_number("domain", int(numbers.min()), least=0)
    each = [np.flatnonzero(numbers == number) for number in range(least, numbers.max() + 1)]
    empty = 0 if least else next((n for n, own in enumerate(each) if not len(own)), None)
    if empty is not None:
        raise BadValue(
            f"domain must number domains from 0 without a gap, found none of number {empty}"
        )
    return each
