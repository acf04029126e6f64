"""Which objectives a step has samples of, in its draws and on all processes.

Every loss is the mean over its objective's own samples. Those of several processes (and, where a
step keeps its weights, of several draws) are joined by their numbers of samples,

    f_m = Σ n_m f_m / Σ n_m,

so that a process without samples of m has no say in f_m, instead of adding a zero. Where a draw has
no sample of an objective on any process, the step cannot tell new weights: it *keeps* those it has,
and moves along Σ λ_m ∇f_m of the objectives that are there. What decides is exchanged once a step,
with the losses' values, so that all processes decide alike, errors included.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trimol._checks import Names, in_order
from trimol._failures import BadType, BadValue
from trimol.gradients import _reduce as reduce

Counts = Tensor | Sequence[Any] | Mapping[str, Any]


class Presence:
    """What a call says of its objectives, and what follows from it.

    Args:
        called: The objectives' names.
        draws: How many loss vectors a step of the method takes.
        counts: This process's samples of each objective, one row for each loss vector; None where
            every loss that is given counts as much as any other.
        keep: Whether the step is to keep its weights in any case.
        due: Whether the step computes new weights, and so takes all its draws apart.
        wanted: The objectives that it takes for that; all of them where it is not said.

    Attributes:
        asked: Whether it was told to keep them.
        keeps: Whether the step keeps its weights.
        silent: The places of objectives that were found to be absent, and not declared so.
        own: This process's samples, vectors × M.
        total: Their mean over the processes, draws × M.
    """

    own: Tensor
    total: Tensor
    sums: Tensor

    def __init__(
        self,
        called: Names,
        draws: int,
        counts: Tensor | None,
        *,
        keep: bool,
        due: bool,
        wanted: Names | None = None,
    ) -> None:
        self.called, self.draws, self.counts, self.due = called, draws, counts, due
        self.wanted = [wanted is None or name in wanted for name in called]
        self.asked = self.keeps = keep
        self.silent: set[int] = set()

    def join(self, values: Tensor, there: Tensor, *, waits: bool = False) -> None:
        """Find out, together with the other processes, what there is.

        Args:
            values: The losses, vectors × M, whatever number stands for those that are not there.
            there: Which of them are.
            waits: Whether they passed a wrapper of the model, which waits for the user's backward.
        """
        self.own = self._checked(there) if self.counts is not None else there.double()
        rows = torch.zeros(2, self.draws, len(self.called), dtype=torch.float64)
        sums = torch.where(self.own > 0, values.detach().cpu().double() * self.own, 0.0)
        rows[:, : len(self.own)] = torch.stack([self.own, sums])
        here = (self.own > 0).any(0).double()
        asks = torch.tensor([self.keeps, self.counts is not None, waits]).double()
        if reduce.is_distributed():
            device = torch.device("cpu") if values.device.type == "mps" else values.device
            said = torch.cat([asks, here, rows.flatten()]).to(device)
            said = reduce.mean_small(said).cpu()
            asks, here, flat = said.split([len(asks), len(here), rows.numel()])
            rows = flat.view_as(rows)
        self.total, self.sums = rows.unbind()
        self._check_together(asks, here)
        found = self.total[:, self.wanted] if self.due else self.total.sum(0)
        self.keeps = bool(asks[0] > 0) or not bool((found > 0).all())

    def drop(self, places: Tensor) -> None:
        """Take these, draws × M, for absent on all processes."""
        self.own, self.total, self.sums = (
            t.masked_fill(places[: len(t)], 0) for t in (self.own, self.total, self.sums)
        )
        self.silent |= set(places.any(0).nonzero().flatten().tolist())
        self.keeps = True

    def factors(self) -> Tensor | None:
        """What to multiply the vectors by, so that their mean over draws and processes is F."""
        own, whole = self.own, self.total
        if self._together:
            own, whole = own * len(own), whole.sum(0)
        shares = own / whole.where(whole > 0, 1.0)
        return None if (shares == 1).all() else shares

    @property
    def losses(self) -> Tensor:
        """F of all processes; NaN for an objective that is absent."""
        if self._together:
            return self.sums.sum(0) / self.total.sum(0)
        return (self.sums / self.total).mean(0)

    @property
    def absent(self) -> tuple[str | int, ...]:
        """The names of the objectives that the step is known to have no sample of."""
        if not hasattr(self, "total"):
            return ()
        return tuple(
            n for n, there in zip(self.called, self.total.sum(0), strict=True) if not there
        )

    @property
    def is_empty(self) -> bool:
        """Whether this process is known to have no sample at all."""
        return hasattr(self, "own") and not bool(self.own.any())

    @property
    def _together(self) -> bool:
        """Whether all draws are one batch: only where new weights are due are they told apart."""
        return self.keeps or not self.due

    def _checked(self, there: Tensor) -> Tensor:
        """The counts, none of them of a loss that is not there."""
        counts = self.counts
        assert counts is not None
        for place in ((counts > 0) & ~there).any(0).nonzero().flatten().tolist():
            raise BadValue(
                f"counts must be 0 where a loss is None, found {counts[:, place].max().item():g} "
                f"for objective {self.called[place]!r}"
            )
        return counts

    def _check_together(self, asks: Tensor, here: Tensor) -> None:
        """On all processes alike: they count, or none does; what is absent is so everywhere."""
        counted = float(asks[1])
        if 0 < counted < 1:
            raise BadValue("counts must be given on every process or on none, found both")
        if 0 < asks[2] < 1:
            raise BadValue(
                "losses must pass DistributedDataParallel's forward on every process, found some "
                "on which none does: give zeros that do (trimol.tasks.masked_mean), and counts"
            )
        for place in ((here > 0) & (here < 1)).nonzero().flatten().tolist() if not counted else []:
            raise BadValue(
                f"counts must be given on every process (how many samples each loss is the mean "
                f"of), found objective {self.called[place]!r} absent on some processes only"
            )


def silence(method: str, objective: str | int) -> str:
    """What to say of an objective that was found absent, though nobody had said so."""
    return (
        f"{method}: the loss of objective {objective!r} is 0 without a gradient: it is taken for "
        "absent from this batch, and the weights are kept (counted in info.kept, said once); where "
        "that is so, say None or counts="
    )


def checked_counts(counts: Counts, called: Names, vectors: int) -> Tensor:
    """How many samples there are of each objective, vectors × M.

    Args:
        counts: M numbers, in order or by name; for more than one loss vector, such a row for each.
        called: The objectives' names.
        vectors: How many loss vectors there are.

    >>> checked_counts({"cvr": 0, "ctr": 3}, ("ctr", "cvr"), 1)
    tensor([[3., 0.]], dtype=torch.float64)
    """
    if not isinstance(counts, Tensor | Iterable):
        raise BadType(f"counts must be one number for each objective, found {counts!r}")
    rows = list(counts) if _is_rows(counts) else [counts]
    if len(rows) != vectors:
        raise BadValue(f"counts must have a row for each loss vector, {vectors}, found {len(rows)}")
    read = [in_order("counts", row, called) if isinstance(row, Mapping) else row for row in rows]
    table = torch.stack([torch.as_tensor(row, dtype=torch.float64).detach().cpu() for row in read])
    if table.shape != (vectors, len(called)):
        shape = tuple(table.shape[1:])
        raise BadValue(
            f"counts must have {len(called)} entries, one per objective, found shape {shape}"
        )
    if not table.isfinite().all() or (table < 0).any():
        raise BadValue(f"counts must be finite and at least 0, found {table.tolist()}")
    return table


def _is_rows(counts: Counts) -> bool:
    """Whether there is a row for each loss vector, and not just M numbers."""
    if isinstance(counts, Tensor):
        return counts.dim() > 1
    if isinstance(counts, Mapping):
        return False
    return any(
        isinstance(c, (Sequence, Mapping)) or (isinstance(c, Tensor) and c.dim()) for c in counts
    )
