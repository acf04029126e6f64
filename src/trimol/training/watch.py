"""`StepWatch`: what the steps really taken do to each loss, in anybody's loop."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trimol import _checks as checks
from trimol._checks import Objectives, whole_number
from trimol._failures import BadType, BadValue
from trimol.errors._fulldata import NotFinite, Size
from trimol.errors._inputs import check_again, check_loader, shard_groups, undisturbed
from trimol.gradients import Losses
from trimol.gradients import _reduce as reduce
from trimol.gradients._params import checked
from trimol.gradients._sharded import whole
from trimol.gradients.losses import as_vector, loss_vector
from trimol.training import _looks as looks
from trimol.training._kept import buffers_kept
from trimol.training._looks import Effects, StepLook
from trimol.training._modes import evaluating
from trimol.training._tally import StepSummary, Tally


class StepWatch:
    r"""Says which losses the steps really taken raise: for any optimizer, without any method.

    A direction that conflicts with no loss is one thing; what Adam, momentum or clipping make of it
    is another. Put ``with watch(batch):`` around ``optimizer.step()``. Every so often it compares
    the parameters before and after, :math:`s = x_{t+1} - x_t`, and computes
    :math:`\nabla f_m(x_t)^\top s` on the step's batch: above 0, the step raises that loss, to first
    order. What the parameters' dtype rounds to, in sums and in the parameters, does not count.

    The training goes on bit for bit as without it: parameters, ``.grad``, random generators and,
    with ``model``, buffers are as they were. A look takes one forward pass and a
    backward for each loss, and memory for three copies of the parameters. Dropout's masks in it are
    not those of the step.

    Under an initialised ``torch.distributed`` group call it on every process: the numbers are those
    of the global batch.

    Args:
        losses: From a batch to its M losses: a vector, a sequence, or a mapping by name.
        params: The parameters that the optimizer moves.
        objectives: The number of losses, or their names; by default as the first look finds them.
        every: Look at the first step, and at every so many.
        model: A module whose buffers (statistics of batch normalisation) are put back, and which
            is in eval mode while ``train`` is gone over. Without, ``losses`` is called as it is.
        train: Look at the effect on this training data, too: batches that can be gone over again
            and again.
        full_every: On ``train`` at every so many looks.
        subsample: Take so many random batches of ``train`` instead of all; others each time. A step
            raises a loss if the low end of the bracket of its effect is above 0; all brackets of a
            look hold together with 95 % confidence.
        seed: Of these batches.
        size: How many samples a batch of ``train`` holds, as for `trimol.measure`.

    Attributes:
        steps: The steps so far, those that were not looked at, too.
        last: The last look; None before the first.

    Example:
        The mean of two losses falls, the second alone rises.

        >>> import torch, trimol
        >>> x = torch.tensor([1.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(3 * x - z).square(), (x - 2 * z).square()]).mean(1)
        >>> optimizer = torch.optim.Adam([x], lr=0.01)
        >>> watch = trimol.StepWatch(losses, [x], objectives=["near", "far"], every=1)
        >>> for batch in torch.ones(4, 1):
        ...     losses(batch).sum().backward()
        ...     with watch(batch):
        ...         optimizer.step()
        ...     optimizer.zero_grad()
        >>> print(watch)
        of 4 steps looked at, 100 % raised some loss (0 % all): most often 'far'; worst cosine -1
    """

    def __init__(
        self,
        losses: Callable[[Any], Losses],
        params: Iterable[Tensor],
        *,
        objectives: Objectives | None = None,
        every: int = 10,
        model: nn.Module | None = None,
        train: Iterable[Any] | None = None,
        full_every: int = 10,
        subsample: int | None = None,
        seed: int = 0,
        size: Size | None = None,
    ) -> None:
        if not callable(losses):
            raise BadType(
                "losses must be a function from a batch to its losses, found "
                f"{type(losses).__name__}"
            )
        if model is not None and not isinstance(model, nn.Module):
            raise BadType(f"model must be a module, found {type(model).__name__}")
        self.losses, self.params = losses, checked(params)
        self.names = None if objectives is None else checks.names(objectives)
        self.every = checks.count("every", every)
        self.model, self.train, self.size = model, train, size
        self.full_every = checks.count("full_every", full_every)
        self.subsample = _checked_subsample(subsample, train)
        self.seed = checks.seed(seed)
        self.steps = 0
        self.last: StepLook | None = None
        self._batch, self._full = Tally(), Tally()

    @contextmanager
    def __call__(self, batch: Any) -> Iterator[None]:
        """Around one step of the optimizer, on this batch; looks if it is due.

        An error inside is passed on, and the step does not count.
        """
        due = self.steps % self.every == 0
        before = [p.detach().clone() for p in self.params] if due else None
        yield
        self.steps += 1
        if before is not None:
            self._look(before, batch)

    @property
    def summary(self) -> StepSummary:
        """What the steps looked at since the start did."""
        return self._batch.summary(self._called, None if self.train is None else self._full)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed loop needs to look at the same steps and to count on: plain values."""
        return {
            "steps": self.steps,
            "objectives": None if self.names is None else list(self.names),
            "batch": self._batch.state(),
            "full": self._full.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        found = state["objectives"]
        if found is not None and self.names not in (None, tuple(found)):
            own = list(self.names or ())
            raise BadValue(f"the state of a watch must be of objectives {own}, found {found}")
        self.names = self.names if found is None else tuple(found)
        self.steps = whole_number("steps", state["steps"], least=0)
        self._batch, self._full = Tally(**state["batch"]), Tally(**state["full"])

    def __str__(self) -> str:
        return str(self.summary)

    def _look(self, before: Sequence[Tensor], batch: Any) -> None:
        after = [p.detach().clone() for p in self.params]
        # All of a sharded parameter, which every process then has alike.
        step = [whole(b - a) for a, b in zip(before, after, strict=True)]
        if not _moved(step):
            return
        try:
            self._put(before)
            with undisturbed(self.params, self.losses, self.train):
                self.last = self._seen(step, batch)
        finally:
            self._put(after)

    def _put(self, values: Sequence[Tensor]) -> None:
        """These values into the parameters, in place."""
        _copy(self.params, values)
        for group in shard_groups():  # what FSDP2 may have gathered has other values
            group.reshard()

    def _seen(self, step: Sequence[Tensor], batch: Any) -> StepLook:
        """The look at the step from where the parameters now are; it is counted."""
        due = self.train is not None and self._batch.looks % self.full_every == 0
        with buffers_kept(self.model):
            on_batch = looks.on_batch(self._vector, self.params, step, batch)
        assert on_batch.norms is not None
        within = looks.slack(on_batch.norms, step, self.params)
        number, names = self.steps - 1, self._called
        look = looks.judged(on_batch, names, step, within, number)
        self._batch.add(look)
        if not due or not look.finite:
            return look
        full = looks.judged(self._on_full(step), names, step, within, number)
        self._full.add(full)
        return replace(look, full=full)

    def _on_full(self, step: Sequence[Tensor]) -> Effects:
        assert self.train is not None
        given = self._vector, self.params, step, self.train, self.size
        try:
            with buffers_kept(self.model), _evaluating(self.model):
                if self.subsample is None:
                    return looks.on_all(*given)
                seed = (self.seed, self.steps)
                return looks.on_some(*given, batches=self.subsample, seed=seed)
        except NotFinite:
            unknown = torch.full((len(self._called),), torch.nan, dtype=torch.float64)
            return Effects(unknown, unknown, unknown, None)

    @property
    def _called(self) -> list[str]:
        """The objectives' names, as far as they are known."""
        return [str(name) for name in self.names or ()]

    def _vector(self, batch: Any) -> Tensor:
        """The losses of a batch, as many as there are names; the first ones give the names."""
        found = self.losses(batch)
        if self.names is None:
            if isinstance(found, Mapping):
                self.names = checks.names(list(found))
            else:
                listed = isinstance(found, Sequence)
                self.names = checks.names(len(found if listed else as_vector(found)))
        return loss_vector(found, self.names)[0]


def _moved(step: Sequence[Tensor]) -> bool:
    """Whether the step moved anything, on any process."""
    own = torch.tensor([float(any(bool(part.any()) for part in step))], device=step[0].device)
    return bool(reduce.mean_small(own) > 0)


def _copy(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def _evaluating(model: nn.Module | None) -> AbstractContextManager[None]:
    return nullcontext() if model is None else evaluating(model)


def _checked_subsample(subsample: int | None, train: Iterable[Any] | None) -> int | None:
    if train is not None:
        check_loader("train", train)
        check_again("train", train)
    if subsample is None:
        return None
    if train is None:
        raise BadValue(f"subsample needs train, of which it takes batches, found {subsample!r}")
    return whole_number("subsample", subsample, least=looks.LEAST_BATCHES)
