"""`Monitor`: the three errors while a loop of your own trains, in two lines of it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from numbers import Real
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn

from trimol._checks import Names, in_order, whole_number
from trimol._failures import BadType, BadValue
from trimol._generators import generators_kept
from trimol.errors import Errors, estimate, measure
from trimol.errors._fulldata import Size
from trimol.errors._inputs import check_again, shards_kept
from trimol.gradients import Losses
from trimol.gradients import _reduce as reduce
from trimol.methods import Method
from trimol.training._modes import evaluating
from trimol.training.records import ERRORS, Record, Sink, from_errors
from trimol.training.watch import StepWatch


class SinkFailed(RuntimeError):
    """A sink has raised; the message names it. The monitor goes on if the loop does."""


class Monitor:
    r"""Measures when due, and hands each measurement, a record, to the sinks.

    Call `step` once in every step of the loop. Where it stands decides what is measured. Between
    ``loss.backward()`` and ``optimizer.step()`` it sees :math:`(x_t, \lambda_{t+1})`, at which the
    paper defines E_ca: the weights that the method has just chosen, at the point it chose them
    for. After ``optimizer.step()`` it sees :math:`(x_{t+1}, \lambda_{t+1})`: weights that are one
    step old. The R's are those of the x seen, either way. The training goes on as if nothing had
    been measured: ``.grad`` and all random generators are left as they were.

    Under an initialised ``torch.distributed`` group call it on every process; all measure
    together, and rank 0 alone feeds its sinks.

    Args:
        losses: From a batch to its M losses, as for `trimol.measure`, or by the method's names.
        method: The method, for its parameters and ``method.weights``.
        train: The training data: batches that can be gone over again and again (a ``DataLoader``,
            a list; no generator).
        test: Data that is not trained on.
        every: Measure at every so many steps.
        cost: Or: measure as often as takes this share of all time at most (0.05: 5 %). The first
            step is always measured; the next measurement comes when the share, with it included,
            is not above ``cost``.
        sinks: Functions that take a record: `trimol.training.sinks`, `trimol.integrations`, or
            your own. `close` calls the ``close()`` of those that have one.
        model: A module to put into eval mode for the measuring. Without, ``losses`` is called as
            it is.
        metrics: Called without arguments, without gradients, in eval mode: numbers of your own, by
            name, for the record.
        objectives: The objectives' names; by default those that the method has ("0", "1", … where
            it has none).
        rho: ρ of the conflict-avoiding weights.
        subsample: Estimate from so many random batches (`trimol.errors.estimate`) instead of going
            over all of the data; others at each measurement. The record then has the bounds
            too: ``R_opt_low``, ``R_opt_high`` and so on, but no ``gen_bound``.
        seed: Of these batches.
        size: How many samples a batch holds, from the batch; read off it by default. M numbers
            where every loss is the mean over its own samples, as for `trimol.measure`.
        watch: A `trimol.StepWatch` around the optimizer's steps: what it has seen since the start
            comes into the records, too, and its state into the monitor's.
        clock: What tells the time in seconds, for ``cost``.

    Attributes:
        steps: How often `step` was called.
        samples: The training samples that were reported to `step`; None if none were.
        last: The last record; None before the first.

    Example:
        >>> import torch, trimol
        >>> from trimol.training.monitor import Monitor
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().mean(), (x + z).square().mean()])
        >>> train, optimizer = [torch.ones(4)], torch.optim.SGD([x], lr=0.1)
        >>> method = trimol.MGDA([x], objectives=2)
        >>> show = lambda record: print(record["step"], f"{record['R_opt']:.3f}")
        >>> with Monitor(losses, method, train=train, every=2, sinks=[show]) as monitor:
        ...     for _ in range(4):
        ...         method(losses(train[0])).backward()
        ...         _ = monitor.step()
        ...         optimizer.step(); optimizer.zero_grad()
        2 3.200
        4 2.048
    """

    def __init__(
        self,
        losses: Callable[[Any], Losses],
        method: Method,
        *,
        train: Iterable[Any],
        test: Iterable[Any] | None = None,
        every: int | None = None,
        cost: float | None = None,
        sinks: Sequence[Sink] = (),
        model: nn.Module | None = None,
        metrics: Callable[[], Mapping[str, float]] | None = None,
        objectives: Sequence[str] | None = None,
        rho: float = 0.0,
        subsample: int | None = None,
        seed: int = 0,
        size: Size | None = None,
        watch: StepWatch | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not isinstance(method, Method):
            raise BadType(f"method must be a trimol method, found {type(method).__name__}")
        if watch is not None and not isinstance(watch, StepWatch):
            raise BadType(f"watch must be a trimol.StepWatch, found {type(watch).__name__}")
        check_again("train", train)
        check_again("test", test)
        self.losses, self.method, self.train, self.test = losses, method, train, test
        self.every, self.cost = _checked_schedule(every, cost)
        self.sinks = _checked_sinks(sinks)
        self.model, self.metrics = model, metrics
        self.objectives = _names(objectives, method.names)
        self.rho, self.subsample, self.seed, self.size = rho, subsample, seed, size
        self.watch = watch
        self.steps = 0
        self.samples: int | None = None
        self.last: Record | None = None
        self._timer = _Timer(clock, method.params[0].device)

    def step(self, samples: int | None = None) -> Record | None:
        """Count one step of the loop, and measure if it is due.

        Args:
            samples: How many training samples the step took, for ``samples`` in the records.

        Returns:
            The record if one was made, else None.

        Raises:
            SinkFailed: A sink raised. The record was made and the other sinks have it.
        """
        if samples is not None:
            self.samples = (self.samples or 0) + whole_number("samples", samples, least=0)
        self.steps += 1
        self._timer.look()
        return self.measure() if self._due() else None

    def measure(self) -> Record:
        """Measure now, due or not: at the end of training, say.

        Returns:
            The record, which the sinks get as well.
        """
        in_eval = evaluating(self.model) if self.model else nullcontext()
        devices = {p.device for p in self.method.params}
        with generators_kept(self.losses, self.metrics, devices=devices):
            with self._timer.measuring(), shards_kept(), in_eval:
                record = self._record()
            self.last = record
            if not reduce.is_distributed() or dist.get_rank() == 0:
                self._hand_over(record)
        return record

    def close(self) -> None:
        """Close the sinks that can be closed; the first that failed is then named."""
        self._each(lambda sink: getattr(sink, "close", lambda: None)(), "when it was closed")

    def state_dict(self) -> dict[str, Any]:
        """What a resumed loop needs to measure at the same steps: plain values."""
        self._timer.look()
        looked = {} if self.watch is None else {"watch": self.watch.state_dict()}
        return {"steps": self.steps, "samples": self.samples, **self._timer.state, **looked}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.steps, self.samples = state["steps"], state["samples"]
        self._timer.restart({name: state[name] for name in self._timer.state})
        if self.watch is not None and "watch" in state:
            self.watch.load_state_dict(state["watch"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except SinkFailed:
            if error is None:  # else what ended the loop says more: it may be this very sink
                raise

    def _due(self) -> bool:
        if self.every is not None:
            return self.steps % self.every == 0
        never = self._timer.state["spent"] == 0
        return never or self._timer.share_after_one_more() <= (self.cost or 0.0)

    def _record(self) -> Record:
        errors, bounds = self._errors()
        with torch.no_grad():
            metrics = None if self.metrics is None else dict(self.metrics())
        record = from_errors(
            errors,
            self.objectives,
            step=self.steps,
            samples=self.samples,
            kept=int(self.method.kept),
            metrics=metrics,
            weights=self.method.weights,
        )
        looked = {} if self.watch is None else self.watch.summary.record
        return record | bounds | looked

    def _losses(self, batch: Any) -> Losses:
        """The losses of a batch, in the method's order where they come by name."""
        found = self.losses(batch)
        if isinstance(found, Mapping):
            return in_order("losses", found, self.method.names)
        return found

    def _samples(self, batch: Any) -> Any:
        """How many samples a batch holds, likewise."""
        assert self.size is not None
        found = self.size(batch)
        return in_order("size", found, self.method.names) if isinstance(found, Mapping) else found

    def _errors(self) -> tuple[Errors, Record]:
        """The errors, and the bounds of those that were estimated."""
        what: dict[str, Any] = {
            "train": self.train,
            "test": self.test,
            "weights": self.method.weights,
            "rho": self.rho,
            "size": None if self.size is None else self._samples,
        }
        if self.subsample is None:
            return measure(self._losses, self.method.params, **what), {}
        # Fresh batches each time, and the same in a resumed loop.
        what |= {"batches": self.subsample, "seed": (self.seed, self.steps)}
        estimates = estimate(self._losses, self.method.params, **what)
        bounds: Record = {}
        for key, name in ERRORS.items():
            if name in estimates.brackets:
                bracket = estimates.brackets[name]
                bounds |= {f"{key}_low": bracket.low, f"{key}_high": bracket.high}
        return estimates.errors, bounds

    def _hand_over(self, record: Record) -> None:
        """To every sink, each with a copy of its own; the first that failed is then named."""
        self._each(lambda sink: sink(dict(record)), f"at step {record['step']}")

    def _each(self, do: Callable[[Sink], object], when: str) -> None:
        """Do something with every sink, then name the first that failed."""
        failures: list[tuple[Sink, Exception]] = []
        for sink in self.sinks:
            try:
                do(sink)
            except Exception as error:  # noqa: BLE001  # raised below, after the others had theirs
                failures.append((sink, error))
        for sink, cause in failures:
            name = getattr(sink, "__qualname__", type(sink).__name__)
            said = f"{type(cause).__name__}: {cause}"
            raise SinkFailed(f"sink {name} failed {when}: {said}") from cause


class _Timer:
    """How much time has passed, how much of it was measuring, and how long the last one took."""

    def __init__(self, clock: Callable[[], float], device: torch.device) -> None:
        self.clock = clock
        self.device = device if reduce.is_distributed() else torch.device("cpu")
        self.restart({"elapsed": 0.0, "spent": 0.0, "latest": 0.0})

    def restart(self, state: dict[str, float]) -> None:
        """Go on from these times, from now."""
        self.state = dict(state)
        self.seen = self.clock()

    def look(self) -> None:
        """Read the clock."""
        now = self.clock()
        self.state["elapsed"] += now - self.seen
        self.seen = now

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """The time inside counts as measuring."""
        self.look()
        start = self.seen
        yield
        self.look()
        self.state["latest"] = self.seen - start
        self.state["spent"] += self.state["latest"]

    def share_after_one_more(self) -> float:
        """The share of measuring if one more is made that takes as long as the last.

        The mean over processes, so that all decide alike.
        """
        elapsed, spent, latest = self.state.values()
        times = [spent + latest, elapsed + latest]
        joined = reduce.mean_small(torch.tensor(times, dtype=torch.float64, device=self.device))
        measuring, total = joined.tolist()
        return float(measuring / total) if total > 0 else 0.0


def _checked_schedule(every: int | None, cost: float | None) -> tuple[int | None, float | None]:
    if (every is None) == (cost is None):
        raise BadValue(f"one of every and cost must be given, found {every!r} and {cost!r}")
    if every is not None:
        return whole_number("every", every, least=1), None
    if not isinstance(cost, Real) or not 0 < cost < 1:
        raise BadValue(f"cost must be a share between 0 and 1, found {cost!r}")
    return None, float(cost)


def _names(objectives: Sequence[str] | None, own: Names) -> tuple[str, ...]:
    names = tuple(map(str, own if objectives is None else objectives))
    if len(names) != len(own) or len(set(names)) != len(own):
        raise BadValue(f"objectives must be {len(own)} different names, found {list(names)}")
    return names


def _checked_sinks(sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    if callable(sinks):
        raise BadType("sinks must be a list of sinks, found a single one: pass [sink]")
    for sink in sinks:
        if not callable(sink):
            raise BadType(f"sinks must hold functions of a record, found {sink!r}")
    return tuple(sinks)
