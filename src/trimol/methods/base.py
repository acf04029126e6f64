"""What every method has in common: losses in, one scalar out, state that survives a checkpoint."""

import math
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Never, Self, TypedDict, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trimol import _checks as checks
from trimol._checks import Objectives as Objectives
from trimol._failures import BadType, BadValue
from trimol._warnings import warn
from trimol.data._draws import short_number
from trimol.gradients import Evidence, Losses, NonFinite
from trimol.gradients import _reduce as reduce
from trimol.gradients._accumulated import Accumulated
from trimol.gradients._compiled import keep_later_buffers
from trimol.gradients._delivery import Delivery, Heads, Length
from trimol.gradients._params import checked
from trimol.gradients._presence import Counts, Presence, checked_counts, silence
from trimol.gradients._scalar import mean, weighted
from trimol.gradients._stepping import Stepping, Steps
from trimol.gradients.losses import loss_vectors
from trimol.maths._numerics import is_finite
from trimol.methods import _handshake as handshake
from trimol.methods._info import Info
from trimol.methods._inherited import inherit_arguments, refuse_unknown, without_rest
from trimol.methods._movement import Movement
from trimol.methods._reach import Reach
from trimol.methods._restart import look_at_optimizer
from trimol.methods._verification import Verification, WrongGradient, verify

# A forward and a backward, in backwards, which are twice as long as a forward.
PLAIN_STEP = 1.5
_PAID = 1e-9  # what is owed to rounding is paid

Metric = Literal["step", "gradient"]
Range = tuple[float, float]  # `Method.search`
Needs = Literal["nothing", "losses", "gramian", "product", "jacobian", "representation"]
State = Mapping[str, Tensor]


class StepOptions(TypedDict, total=False):
    """The keywords of every method; `Method` says what they mean."""

    every: int
    cost: float | None
    length: Length
    max_norm: float | None
    heads: Heads
    optimizer: Optimizer | None
    metric: Metric
    guard: bool


class Options(StepOptions, total=False):
    """These, and λ at the start."""

    weights: Tensor | Sequence[float] | Mapping[str, float] | None


class Method(nn.Module):
    """A module that turns M losses into one scalar whose gradient is the method's direction.

    A subclass says what it `needs`, how many independent `draws` a step takes, how evidence becomes
    weights (:meth:`weigh`), and has a one-line `summary` and a `reference` (a key of
    ``references.bib``). What it does not say of the arguments below, its docstring and its
    signature take from here.

    Args:
        params: The parameters that the method weighs. For those that the losses reach but that
            are not given here (task heads) see ``heads``.
        objectives: M, the number of losses; or their names, ``["ctr", "cvr"]``: then losses may be
            given by name, in any order, and what the method says speaks of them so.
        weights: λ at the start, in order or by name; uniform by default.
        every: Compute new weights every so many steps only, and keep them in between. A step that
            keeps them needs one loss vector only, however many `draws` the others take.
        cost: In place of ``every``: how much new weights may cost, on the average over steps, as a
            share of a plain step. 0.25 is at most 25 % on top of a forward and a backward: a step
            that computes weights is followed by as many that keep them as pay for it. Passes are
            counted, not timed, so that a resumed run does the same; ``info.extra`` says what a step
            cost, ``info.waits`` when the next one computes weights. ``length`` and ``guard`` are
            not counted.
        length: How long the direction is. ``"own"``: as the method has it, which from method to
            method differs by a factor of ten and more. ``"mean gradient"``: as long as the mean of
            the batch's gradients, the direction of `Static`, so that methods can be compared at one
            step size. Exact: free where the method holds all gradients, else one backward more. A
            direction that is zero to rounding (16 units of it, relative to the mean gradient, and
            at most a hundredth) stays as it is. A method whose direction vanishes where the mean
            gradient does not then no longer comes to rest by itself: let the learning rate fall.
        max_norm: The largest length of the direction (after ``length``); None for any. As
            ``clip_grad_norm_`` on ``params`` alone, at every step.
        heads: What the parameters get that the losses reach but that are not in ``params``:
            ``"plain"``, the gradient of the losses' sum, or ``"weighted"``, that of λᵀF on this
            batch. ``length`` and ``max_norm`` do not act on them.
        optimizer: The optimizer that takes the steps: then the weights are chosen for the step
            that it really takes, not for the gradient. Docs: "The step, not the gradient".
        metric: What the weights are chosen by, where there is an ``optimizer``: its ``"step"``
            (inner products in its metric, with its momentum), or the ``"gradient"``, as published.
        guard: Change the weights, as little as possible, wherever the optimizer's step would
            raise a loss of this batch, to first order. ``info.effect`` says what the step does to
            each loss, ``info.added`` what was added to the weights. What changes gradients between
            ``backward()`` and ``optimizer.step()`` (clipping) undoes it: take ``max_norm``.

    Attributes:
        objectives: M.
        names: The objectives' names; 0, 1, … where the method was only told how many there are.
        weights: λ, one entry per objective, in float64.
        info: What the last step saw, or ``None`` before the first.
        shown: The hyper-parameters that ``print(method)`` shows.
        search: The hyper-parameters to try several values of where the method is tuned
            (`trimol.diagnose`): each with the range to begin with, (least, largest) of a positive
            number without an upper limit.
        prefers: The hyper-parameter that takes a preference, a point of the simplex: tuned like
            those of ``search``, and `trimol.runs.front` makes the points of a front with it. None
            where there is none.
        moved_by: The hyper-parameter that is the step size of λ; None where λ takes no steps. Where
            there is one, the method says once that λ does not move, or that an objective has had
            weight 0 for long.
        no_metric: Why the weights, which need gradients, are not chosen for an optimizer's steps.
        spreads: The hyper-parameter that takes how many models are trained at once, point after
            point, to be spread over a front. None where the method trains one.
    """

    needs: ClassVar[Needs]
    summary: ClassVar[str]
    reference: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()
    search: ClassVar[Mapping[str, Range]] = {}
    prefers: ClassVar[str | None] = None
    spreads: ClassVar[str | None] = None
    no_metric: ClassVar[str] = ""
    moved_by: ClassVar[str | None] = None
    draws: int = 1
    weights: Tensor
    step: Tensor
    skipped: Tensor
    kept: Tensor
    owed: Tensor

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_arguments(cls)

    @without_rest
    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        every: int = 1,
        cost: float | None = None,
        length: Length = "own",
        max_norm: float | None = None,
        heads: Heads = "plain",
        optimizer: Optimizer | None = None,
        metric: Metric = "step",
        guard: bool = False,
        **unknown: Never,
    ) -> None:
        super().__init__()
        refuse_unknown(type(self), unknown)
        self.params = tuple(checked(params, real=False))
        self.names = checks.names(objectives)
        self.objectives = len(self.names)
        self._start: dict[str, Tensor] = {}
        start = checks.weights(weights, objectives).to(_home(self.params[0].device))
        self.every = checks.count("every", every)
        self.cost = None if cost is None else checks.positive("cost", cost)
        if cost is not None and every != 1:
            raise BadValue(f"every must be 1 with cost, which decides it, found {every}")
        checks.one_of("length", length, get_args(Length))
        checks.one_of("heads", heads, get_args(Heads))
        self.length, self.heads = length, heads
        self.max_norm = None if max_norm is None else checks.positive("max_norm", max_norm)
        checks.one_of("metric", metric, get_args(Metric))
        self.metric, self.guard = metric, guard
        self.steps = self._steps_of(optimizer)
        self._check_guard()
        keep_later_buffers()  # before the model is compiled: heads alone are a second backward
        self.carry(weights=start)
        if cost is not None:
            self.carry(owed=start.new_zeros(()))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64))
        self.register_buffer("kept", torch.zeros((), dtype=torch.int64))
        self.info: Info | None = None
        self._said: set[int] = set()
        self._begun = self._trained_in_eval = False
        self._said_of_guard: set[str] = set()
        self._met = False
        self._short = short_number()  # of batches that were dealt before: not this method's
        self._unverified = os.environ.get("TRIMOL_CHECK", "0") not in ("", "0")
        self._reach = Reach()
        self._movement = Movement()

    def _steps_of(self, optimizer: Optimizer | None) -> Steps | None:
        """What an optimizer does, where weights are chosen for it; refused where they are not."""
        if optimizer is None:
            return None
        name, steps = type(self).__name__, Steps(optimizer)
        steps.check(self.params)
        if not self.guard and self.metric == "gradient":
            raise BadValue("metric must be 'step', or guard True, with an optimizer")
        if not self.guard and not self._has_metric:
            raise BadValue(
                f"optimizer must be None, or guard True, for {name}, {self._without_metric}, found "
                f"{type(steps.optimizer).__name__}"
            )
        return steps

    def _check_guard(self) -> None:
        """Both may be set after the method was made: asked then, and at every step."""
        if checks.flag("guard", self.guard) and self.steps is None:
            raise BadValue("optimizer must be given with guard=True, found None")

    @property
    def _has_metric(self) -> bool:
        """Whether the weights depend on inner products of gradients of the parameters."""
        return self.needs in ("gramian", "product", "jacobian") and not self.no_metric

    @property
    def _without_metric(self) -> str:
        """Why there is none."""
        return self.no_metric or "whose weights need no gradients of the parameters"

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer that the weights are chosen for, if any.

        May be set where it is made after the method, as in Lightning's ``configure_optimizers``.
        """
        return None if self.steps is None else self.steps.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer | None) -> None:
        self.steps = self._steps_of(optimizer)

    @property
    def stepping(self) -> Stepping | None:
        """What the weights of the next step are chosen for, if not for the gradient."""
        self._check_guard()
        if self.steps is None:
            return None
        in_metric = self.metric == "step" and self._has_metric
        return Stepping(self.steps, self.weights, in_metric, self.guard)

    @property
    def initial_weights(self) -> Tensor:
        """λ of a new instance."""
        return self._start["weights"]

    def carry(self, **state: Tensor) -> None:
        """Carry these from step to step: as buffers, which are saved and loaded, and reset."""
        for name, start in state.items():
            self._start[name] = start
            self.register_buffer(name, start.clone(memory_format=torch.contiguous_format))

    @abstractmethod
    def weigh(self, evidence: Evidence) -> Tensor | State:
        """New weights from the evidence of this step and from what the method carries.

        A pure function: it changes nothing. A method that carries more than its weights returns the
        new values of all of it by name, ``{"weights": …, "tracker": …}``; the base class takes them
        over. Where all tensors have leading dimensions (of runs that step together) it
        works on each of these runs.
        """

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """The scalar whose gradient is the method's direction.

        Args:
            evidence: What the losses tell.
            before: λ before this step.
            after: λ of this step: ``before`` itself, where no new weights were computed.
        """
        return evidence.scalar(after)

    def commit(self, told: Tensor | State, broken: Tensor | None = None) -> Tensor | None:
        """Take over what `weigh` returned; runs that cannot keep what they had.

        Args:
            told: New weights, or new values of all that is carried.
            broken: Which runs had evidence that was not finite, if any.

        Returns:
            Which runs kept what they had: those, and those whose new weights are not finite. None
            if there are none.
        """
        new = told if isinstance(told, Mapping) else {"weights": told}
        if broken is None and is_finite(new["weights"]):
            for name, value in new.items():
                self._buffers[name] = value.detach()
            return None
        kept = ~new["weights"].isfinite().all(-1)
        kept = kept if broken is None else kept | broken
        for name, value in new.items():
            old, each = getattr(self, name), [1] * (value.dim() - kept.dim())
            kept_here = kept.view(*kept.shape, *each).to(value.device)
            self._buffers[name] = old if kept.all() else torch.where(kept_here, old, value.detach())
        return kept

    @property
    def weights_by_name(self) -> dict[str | int, float]:
        """λ, by the names of the objectives.

        >>> import torch, trimol
        >>> trimol.Static([torch.zeros(1)], objectives=["ctr", "cvr"]).weights_by_name
        {'ctr': 0.5, 'cvr': 0.5}
        """
        return dict(zip(self.names, self.weights.tolist(), strict=True))

    @property
    def wanted(self) -> tuple[str | int, ...]:
        """The objectives whose losses the next step needs for new weights: all, for most methods.

        The losses of others may be None.
        """
        return self.names

    @property
    def harmless(self) -> float | Tensor:
        """Losses that do for `weigh`, of a run among many whose own are not finite."""
        return 1.0

    @property
    def due(self) -> bool:
        """Whether the next step computes new weights (and so takes all its draws)."""
        if self.needs == "nothing":
            return False
        return int(self.step) % self.every == 0 if self.cost is None else self.waits == 0

    @property
    def waits(self) -> int:
        """With ``cost``: how many steps keep the weights before others are paid for."""
        if self.cost is None:
            return 0
        return max(math.ceil(float(self.owed) / self.cost - _PAID), 0)

    def _pay(self, extra: float) -> None:
        """Put a step's extra cost on the account, and what every step pays off."""
        if self.cost is not None:
            self.owed = (self.owed + extra - self.cost).clamp_min(-self.cost)

    def forward(
        self, *losses: Losses | None, keep: bool = False, counts: Counts | None = None
    ) -> Tensor:
        """The scalar to differentiate, from one loss vector for each of the method's `draws`.

        Under ``torch.no_grad()`` or ``torch.inference_mode()``, and after ``method.eval()``, it is
        λᵀF and nothing more, of one vector or of the mean over as many as there are draws: no step
        is counted, λ, `info` and random numbers stay, and processes do not wait for each other.

        Args:
            losses: The loss vectors: each a 1-D tensor, a sequence of scalars, or, where the
                objectives have names, a mapping from these to scalars. An entry that is None is an
                objective without a sample in the batch. A vector that is None is a draw that a
                short batch had no samples for. Either makes a step that keeps λ.
            keep: Leave λ and all else that the method remembers as they are, and move along
                ∇F λ: for a batch that cannot tell new weights. One loss vector will do.
            counts: How many samples of each objective the losses are means over, M numbers in
                order or by name (a row of them for each loss vector), on this process alone. Those
                of all processes are added up, and f_m is the mean over all samples of m; an
                objective without any is absent, whatever its loss.
        """
        if self.evaluates:
            return self.evaluated(losses, counts)
        return self._take(self._evidence(losses, keep, counts))

    def accumulate(
        self,
        losses: Callable[[Any], Losses],
        batches: Iterable[Sequence[Any]],
        *,
        sizes: Sequence[float] | None = None,
    ) -> Tensor:
        """One step on micro-batches that are too large together: exactly that of their whole.

        λ moves once, on the evidence of all of them, and the scalar's gradient is that of the whole
        batch: k micro-batches of n samples do what one batch of kn does. One graph is held at a
        time; where the weights have to be known before the gradient (all but static ones), losses
        are computed again, with the same random numbers.

        Args:
            losses: From a batch to its M losses: means over samples. It may be called several
                times for each batch, and must then give the same (statistics of batch normalisation
                move each time). No objective may be absent.
            batches: The micro-batches, each a sequence with one batch for every draw, as
                `trimol.draws` deals them out.
            sizes: How many samples each micro-batch has, where they differ.

        Example:
            >>> import torch, trimol
            >>> x = torch.tensor([2.0, 0.0], requires_grad=True)
            >>> def losses(z):
            ...     return torch.stack([(x - z).square().mean(), (x + z).square().mean()])
            >>> data, modo = torch.randn(8, 2), trimol.MoDo([x], objectives=2)
            >>> modo.accumulate(losses, trimol.draws(data.split(2), 2)).backward()
            >>> x.grad.shape, int(modo.step)
            (torch.Size([2]), 1)
        """
        parts = [_as_draws(batch) for batch in batches]
        if not parts:
            raise BadValue("batches must hold a micro-batch, found none")
        for part in parts:
            if any(draw is part[0] or draw is None for draw in part[1:]):
                raise BadValue("batches must be long enough to be split, found one that is not")
            self._check_count(len(part), self.due and not self.evaluates)
        if len({len(part) for part in parts}) > 1:
            raise BadValue("batches must all have as many draws, found 1 and several")
        counted = [1.0] * len(parts) if sizes is None else list(sizes)
        if len(counted) != len(parts) or not all(0 < size < math.inf for size in counted):
            raise BadValue(f"sizes must be {len(parts)} numbers above 0, found {counted}")
        shares = [size / sum(counted) for size in counted]
        evidence = Accumulated(
            losses, parts, shares, self.params, self.names, self.delivery, self.stepping
        )
        if self.evaluates:
            return weighted(evidence.own_losses, self.weights)
        self.meet(lambda: {"micro-batches": len(parts), "loss vectors": len(parts[0])})
        return self._take(evidence)

    def verify(
        self,
        *losses: Losses | None,
        counts: Counts | None = None,
        representation: Sequence[Tensor] | None = None,
    ) -> Verification:
        """Compare a step on these losses with plain backwards, one for each loss; take none.

        The first thing to do on a new model: it tells by which route the engine goes there, and
        whether that is exact. Weights, graphs and parameters stay as they are. With
        ``TRIMOL_CHECK=1`` in the environment every method does so before its first step, prints
        the line to standard error and raises where the step is wrong.

        Args:
            losses: One loss vector for each of the method's draws, as for a step.
            counts: As for a step.
            representation: What the heads see, for a method that asks for it.

        Example:
            >>> import torch, trimol
            >>> model = torch.nn.Linear(4, 2).double()
            >>> def losses(): return model(torch.ones(3, 4).double()).square().mean(0)
            >>> trimol.MGDA(model.parameters(), objectives=2).verify(losses()).exact
            True
        """
        more = {"keep": False, "counts": counts, "representation": representation}
        return verify(self, losses, more)

    def _check_engine(
        self,
        losses: Sequence[Losses | None],
        counts: Counts | None,
        representation: Sequence[Tensor] | None,
    ) -> None:
        """Say how far the first step is from plain backwards; raise where it is wrong."""
        if reduce.is_distributed():
            name = type(self).__name__
            print(f"{name}: not checked, as there are several processes", file=sys.stderr)
            return
        found = self.verify(*losses, counts=counts, representation=representation)
        if not found.exact:
            raise WrongGradient(f"{found}: please report this")
        print(found, file=sys.stderr)

    @property
    def evaluates(self) -> bool:
        """Whether a call is no step now: in eval mode, or where no gradients are wanted."""
        return not (self.training and torch.is_grad_enabled())

    def evaluated(self, losses: Sequence[Losses | None], counts: Counts | None = None) -> Tensor:
        """λᵀF, the mean over the loss vectors; with a graph where they have one."""
        given = [each for each in losses if each is not None]
        self._check_count(len(given), due=False)
        vectors, _ = loss_vectors(given, self.names, graph=False)
        samples = self._samples(counts, losses)
        if samples is not None:  # what has no sample counts nothing, whatever its loss
            pairs = zip(vectors, samples, strict=True)
            vectors = [torch.where(own.to(v.device) > 0, v, 0.0) for v, own in pairs]
        value = mean([weighted(vector, self.weights) for vector in vectors])
        if value.requires_grad and not self._trained_in_eval:
            value.register_hook(self._warn_of_eval)
        return value

    def _warn_of_eval(self, _gradient: Tensor) -> None:
        """Evaluation does not differentiate: who does so means to train."""
        if not self._trained_in_eval:
            self._trained_in_eval = True
            warn(
                f"{type(self).__name__}: backward() through a call in eval mode, where the weights "
                "do not move: call method.train() (said once)"
            )

    def _evidence(
        self,
        losses: Sequence[Losses | None],
        keep: bool,
        counts: Counts | None = None,
        representation: Sequence[Tensor] | None = None,
        kind: type[Evidence] = Evidence,
    ) -> Evidence:
        """What the losses of this step tell."""
        if self._unverified and self.due and not keep:
            self._unverified = False
            self._check_engine(losses, counts, representation)
        self.meet(lambda: handshake.of_losses(losses, keep=keep))
        due = self.due
        self._check_count(len(losses), due and not keep)
        given = [each for each in losses if each is not None]
        if not given:
            raise BadValue(f"losses must have a vector that is not None, found {len(losses)} None")
        samples = self._samples(counts, losses)
        short = self._is_of_short_batch()  # asked in every step
        lacks = keep or len(given) < len(losses) or short
        presence = Presence(
            self.names, self.draws, samples, keep=lacks, due=due, wanted=self.wanted
        )
        return kind(
            given,
            self.params,
            self.names,
            representation,
            self.delivery,
            presence,
            self.stepping,
        )

    def _is_of_short_batch(self) -> bool:
        """Whether this step is on a batch that was dealt whole for every draw.

        Such a batch makes one step: the next one, if nothing was dealt, has draws of the user's.
        """
        last, now = self._short, short_number()
        if now == last:
            return False
        self._short = now
        return self.draws > 1 and now != 0

    def _samples(self, counts: Counts | None, losses: Sequence[Losses | None]) -> Tensor | None:
        """The counts of the loss vectors that are there, vectors × M."""
        if counts is None:
            return None
        return checked_counts(counts, self.names, len(losses))[[f is not None for f in losses]]

    @property
    def delivery(self) -> Delivery:
        """What becomes of the direction: its length, and what is not weighed."""
        return Delivery(self.length, self.max_norm, self.heads)

    def meet(self, more: Callable[[], Mapping[str, object]]) -> None:
        """Before the first step of several processes: all must have the same method and parameters.

        Where they do not, all of them raise the same line. Later calls do nothing.

        Args:
            more: Gives what else must be the same on every process, by name.
        """
        if self._met or not reduce.is_distributed():
            return
        handshake.meet({**handshake.of_method(self), **more()}, _home(self.params[0].device))
        self._met = True

    def _take(self, evidence: Evidence) -> Tensor:
        """One step: new weights where they are due, then the scalar."""
        keep, absent = evidence.keeps, evidence.absent
        self._tell(evidence)
        if not self._begun:
            if self.step == 0:
                look_at_optimizer(self)
            self._begun = True
        # A batch without samples of an objective may leave its branch out.
        if evidence.graphs and not keep and not absent:
            self._reach.follow(type(self).__name__, self.params, evidence)
        before = self.weights
        updated = self.due and not keep and self._update(evidence)
        if updated and self.moved_by is not None:
            self._movement.follow(self)
        extra = max(evidence.extra(self.weights), 0.0) / PLAIN_STEP
        self._pay(extra)
        result = evidence.scalar(before) if keep else self.scalar(evidence, before, self.weights)
        self.step.add_(1)  # `+=` would have the module register its buffer anew
        if keep:
            self.kept.add_(1)
        self.info = Info(
            names=self.names,
            losses=evidence.losses,
            weights=self.weights,
            updated=updated,
            skipped=int(self.skipped),
            kept=int(self.kept),
            absent=absent,
            route=evidence.route,
            reason=evidence.reason,
            extra=extra,
            waits=self.waits,
            scale=evidence.scale,
            start=self.initial_weights,
            **evidence.findings,
        )
        if self.info.guarded == "failed" and bool(self.info.effect.isfinite().all()):  # type: ignore[union-attr]
            self._say_of_guard(
                "failed",
                f"no weights were found at step {int(self.step) - 1} with which the optimizer's "
                "step raises no loss; it is left as it was (info.guarded says 'failed'",
            )
        elif self.info.guarded and not self._has_all(evidence):
            self._say_of_guard(
                "beside",
                "losses reach parameters that are not in the optimizer: the guard takes them for "
                "parameters that do not move (one optimizer for all of them would be guarded",
            )
        return result

    def _has_all(self, evidence: Evidence) -> bool:
        """Whether the optimizer moves all parameters that the losses reach."""
        beside = [p for p in evidence.given_others if isinstance(p, nn.Parameter)]
        return self.steps is None or self.steps.moves_all(beside)

    def _say_of_guard(self, topic: str, what: str) -> None:
        """Warn, once of each topic."""
        if topic not in self._said_of_guard:
            self._said_of_guard.add(topic)
            text = f"{type(self).__name__}: {what}; said once)"
            warn(text)

    def _tell(self, evidence: Evidence) -> None:
        """Say once of each objective that it was found absent, though nobody had said so."""
        presence = evidence.presence
        found = set() if presence is None or presence.asked else presence.silent
        for place in sorted(found - self._said):
            self._said.add(place)
            warn(silence(type(self).__name__, self.names[place]))

    def reset(self) -> Self:
        """Back to the state of a new instance."""
        for name, start in self._start.items():
            fresh = start.clone(memory_format=torch.contiguous_format)
            self._buffers[name] = fresh.to(getattr(self, name).device)
        self.step.zero_()
        self.skipped.zero_()
        self.kept.zero_()
        self.info = None
        self._said = set()
        self._reach = Reach()
        self._movement = Movement()
        return self

    def extra_repr(self) -> str:
        """What ``print(method)`` shows in the brackets."""
        common = {
            "cost": None,
            "length": "own",
            "max_norm": None,
            "heads": "plain",
            "optimizer": None,
            "metric": "step",
            "guard": False,
        }
        unusual = [n for n in common if n not in self.shown and getattr(self, n) != common[n]]
        settings = {name: getattr(self, name) for name in ("every", *self.shown, *unusual)}
        told = self.objectives if self.names[0] == 0 else list(self.names)
        shown = {"objectives": told, **settings}
        return ", ".join(f"{name}={_brief(value)}" for name, value in shown.items())

    def _update(self, evidence: Evidence) -> bool:
        """Take new weights; keep the old ones if the losses or the gradients are not finite."""
        wanted = self.wanted  # those of this step: the next one's may be others
        try:
            told, losses = self.weigh(evidence), evidence.losses
            if wanted != self.names:
                losses = losses[[self.names.index(name) for name in wanted]]
            # The mean of no samples is NaN with gradients of 0, which would look like evidence.
            broken = None if is_finite(losses) else torch.tensor(True)
            kept = self.commit(told, broken) is not None
        except NonFinite:
            kept = True
        if not kept:
            return True
        self.skipped.add_(1)
        if self.skipped == 1:
            warn(
                f"{type(self).__name__}: {self._not_finite(evidence.losses)}; λ is kept as it is "
                "(counted in info.skipped, said once)"
            )
        return False

    def _not_finite(self, losses: Tensor) -> str:
        """Where NaN or infinity was found: in losses, which then have names, or in gradients."""
        found = dict(zip(self.names, losses.isfinite().tolist(), strict=True))
        bad = [repr(name) for name, finite in found.items() if not finite]
        if not bad or len(bad) == len(found):
            return f"{'losses' if bad else 'gradients'} with NaN or infinity"
        return (
            f"NaN or infinity in the loss of {', '.join(bad)} (a batch without its samples? None)"
        )

    def _check_count(self, given: int, due: bool) -> None:
        allowed = {self.draws} if due else {1, self.draws}
        if given not in allowed:
            how = "all losses in one list, method([a, b])"
            if self.draws > 1:
                how = f"trimol.data.dealt(batch, {self.draws}) cuts a batch into them"
            raise BadValue(
                f"{type(self).__name__} takes {self.draws} loss vector"
                f"{'s, one per independent batch' if self.draws > 1 else ''}, found {given}: {how}"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """As every module; a state of before steps were `kept` has kept none."""
        given = state_dict.get(f"{prefix}weights")
        if isinstance(given, Tensor) and not given.isfinite().all():
            raise BadValue(f"weights of a state must be finite, found {given.tolist()}")
        if f"{prefix}skipped" in state_dict:
            state_dict.setdefault(f"{prefix}kept", torch.zeros_like(self.kept))
        super()._load_from_state_dict(state_dict, prefix, *more)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow ``.to()`` to another device, but keep λ in float64 and the counters on the CPU."""
        device = _home(fn(torch.empty(0)).device)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                self._buffers[name] = buffer.to(device)
        return self


class Checked:
    """A hyper-parameter that may be set between steps, and is checked whenever it is."""

    def __init__(self, check: Callable[[str, float], float]) -> None:
        self.check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, method: object, owner: type) -> float:
        return self if method is None else vars(method)[self.name]  # type: ignore[return-value]

    def __set__(self, method: object, value: float) -> None:
        vars(method)[self.name] = self.check(self.name, value)


def _as_draws(batch: Any) -> list[Any]:
    """A micro-batch as its draws: neither a tensor nor a mapping is a sequence of batches."""
    if not isinstance(batch, Sequence):
        raise BadType(
            "batches must hold micro-batches that are sequences, with a batch for every draw, "
            f"found {type(batch).__name__}: write [batch] for one draw"
        )
    return list(batch)


def _home(device: torch.device) -> torch.device:
    """Where λ lives: beside the parameters, or on the CPU if there is no float64 there."""
    return torch.device("cpu") if device.type == "mps" else device


def _brief(value: object) -> str:
    if isinstance(value, Optimizer):
        return type(value).__name__
    return f"{value:g}" if isinstance(value, float) else f"{value}"
