"""Many runs of one task as one program: R models trained side by side.

Small models spend their time in calling operators. Stacked, R × shape, the parameters of R replicas
take one call where R runs take R. Replicas differ in seed, in data, in step size and in
hyper-parameters; each equals, to rounding, the run that `trimol.training.start` and `train` would
make of its seed: the same start, the same samples at every step.
"""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trimol import methods
from trimol._attributes import attributes, attributes_kept, changes
from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol._generators import Generators, generators_kept, seed_generators
from trimol._warnings import warn
from trimol.data import sizes
from trimol.errors import Errors
from trimol.errors._fulldata import FullData, NotFinite
from trimol.errors._inputs import check_rho, checked_weights
from trimol.errors._measure import from_means
from trimol.gradients._backward import pulled
from trimol.gradients._presence import silence
from trimol.gradients._stacked import StackedEvidence, jacobians
from trimol.methods._replicated import Jacobians
from trimol.tasks import Batch, Data, Task
from trimol.tasks import _answers as answers
from trimol.tasks._point import Formula
from trimol.tasks._shapes import fixing
from trimol.training._kept import task_kept
from trimol.training._modes import evaluating, training
from trimol.training._replica_data import (
    BySeed,
    Neighbours,
    ReplicaSampler,
    Sets,
    data_of,
    source_of,
)
from trimol.training._replicable import NotReplicable, check_hooks, check_padding, optimizer_of
from trimol.training.assessment import batches, sample_counts

Schedule = Callable[[int], float] | None
# How many numbers the full-data gradients of a group of replicas may hold: 256 MB in float64.
_HELD = 2**25
# Samples of one pass over full data: with fewer, adding up the gradients takes as long as they do.
_AT_ONCE = 4096
# Gradients below it are those of losses that are finite in double precision.
_HUGE = 1e100
# Samples by which replicas are held to the models that they stand for.
_FEW = 4


class Replicas:
    """R models in training, one step at a time for all.

    Args:
        task: What to train.
        method: The method's name, or replicas of it (as `trimol.methods.replicated` makes them).
        seeds: One for each replica: its start, its samples and, where the task says so
            (`Task.data_for`), its split of the data.
        lr: α, for all or one for each replica (a tensor of R entries).
        hyperparameters: The method's own; a tensor holds one value for each replica
            (`trimol.methods._replicated`).
        batch_size: Samples a step, over all the draws of the method; None: the task's own.
        data: Instead of the task's: one for all, one for each replica, or `Neighbours`.
        sampler: Draws the samples of all replicas at once, instead of the task's samplers, one for
            each seed; ``batch_size`` is not used then.
        schedule: What α is multiplied with, by the number of the step; 1 by default. A list has
            one for each replica.

    Attributes:
        params: The parameters, by name, stacked: R × shape.
        method: λ and the rest of the method's state, for all replicas.
        step: The steps done.
        samples: The training samples that each replica took.
        diverged: For each replica the step at which its losses were no longer finite, or −1. The
            others go on.

    Dropout and other random numbers in the model would not be those of the single runs: such models
    raise `NotReplicable`, as does what ``torch.func.vmap`` cannot do. Batch normalisation is fine.
    A replica whose batch has no sample of an objective (`Task.counts`), or a loss of 0 without a
    gradient, keeps its λ for that step, as a single run does; with a method that takes several
    draws, that raises `NotReplicable`, too.
    The optimizer must treat every entry on its own (SGD, Adam and their kin).
    A task that is a formula (`trimol.tasks.quadratic.Quadratic`) gives its gradients itself: no
    graph is recorded.

    Example:
        >>> from trimol.tasks import get
        >>> replicas = Replicas(get("digits")(), "modo", seeds=[0, 1, 2], lr=1.0)
        >>> replicas.train(steps=5).method.weights.shape
        torch.Size([3, 3])
        >>> replicas.module(1)[0]
        Linear(in_features=64, out_features=64, bias=True)
        >>> [errors.opt > 0 for errors in replicas.measure()]
        [True, True, True]
    """

    def __init__(
        self,
        task: Task,
        method: str | Any,
        *,
        seeds: Sequence[int],
        lr: float | Tensor = 0.1,
        hyperparameters: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        data: Data | Sequence[Data] | Neighbours | None = None,
        sampler: ReplicaSampler | None = None,
        schedule: Schedule | Sequence[Schedule] = None,
    ) -> None:
        self.task, self.seeds = task, list(seeds)
        if not self.seeds:
            raise BadValue("seeds must hold at least one seed, found none")
        given = data_of(task, self.seeds) if data is None else data
        self.data = source_of(given, len(self.seeds))
        first = tuple(tensor[:1] for tensor in self.data[0].train)
        self._counted = answers.counts(task, first) is not None
        self.method = (
            methods.replicated(
                method,
                replicas=len(self.seeds),
                objectives=len(task.objectives),
                **(hyperparameters or {}),
            )
            if isinstance(method, str)
            else method
        )
        fresh = {seed: _fresh(task, seed) for seed in dict.fromkeys(self.seeds)}
        models = [fresh[seed] for seed in self.seeds]
        check_hooks(task, models[0])
        self._lossy = _Lossy(task, models[0].train())
        self.params = _stacked([dict(model.named_parameters()) for model in models])
        self._buffers = _stacked([dict(model.named_buffers()) for model in models])
        self._shared = self._named(answers.shared(task, models[0]))
        trained = {name: p for name, p in self.params.items() if p.requires_grad}
        self._weighed = [trained[name] for name in self._shared]
        self._others = [p for name, p in trained.items() if name not in self._shared]
        self._trained = [*self._weighed, *self._others]
        self._schedule, self._schedules = _schedules(schedule, len(self.seeds))
        if self._schedules and not isinstance(lr, Tensor):
            lr = torch.full((len(self.seeds),), lr, dtype=torch.float64)
        self._lr = _step_sizes(lr, len(self.seeds))
        self._optimizer = optimizer_of(task, list(self.params.values()), lr, models[0])
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        growth = methods.growth(method) if isinstance(method, str) else 0.0
        one = self.data[0]
        size = answers.batch_size(task, one, batch_size)
        self._sampler = sampler or BySeed(
            self.data,
            self.seeds,
            lambda seed: answers.sampler(task, one, size, growth=growth, seed=seed),
        )
        self.step = self.samples = 0
        self._said: set[int] = set()
        self._checked = isinstance(task, Formula)
        self.diverged = torch.full((len(self.seeds),), -1)
        if not isinstance(task, Formula):
            self._check_models(models)

    def _check_models(self, models: Sequence[nn.Module]) -> None:
        """One model stands for all, and vmap for autograd: losses and gradients must be the same.

        Models may hide what differs from their ``state_dict``. And vmap is not always right: for
        an embedding's ``padding_idx`` it leaves out the word of the first replica alone.
        """
        check_padding(self.task, models[0])
        few = tuple(tensor[:_FEW].clone() for tensor in self.data[0].train)
        task, model = self.task, self._lossy.model
        with task_kept(task, model, self.data), evaluating(model):
            each = tuple(tensor.expand(len(self), *tensor.shape) for tensor in few)
            together = self._losses(self.params, self._buffers, each)
            slopes = _slopes(together, self._trained)
            places = {id(model): place for place, model in enumerate(models)}
            for place in places.values():
                with evaluating(models[place]):
                    losses = _alone(task, models[place], few)
                own = dict(models[place].named_parameters())
                trained = [own[name] for name, p in self.params.items() if p.requires_grad]
                pairs = zip(slopes, _slopes(losses, trained), strict=True)
                if not _alike(together[place], losses) or not all(
                    _alike(many[place], one) for many, one in pairs
                ):
                    raise NotReplicable(
                        f"models of task {task.name!r} must differ in parameters and buffers only, "
                        "found other losses or gradients than one by one (is what was drawn with "
                        "the seed a buffer?): train its runs one by one"
                    )

    def __len__(self) -> int:
        return len(self.seeds)

    def train(self, steps: int, *, watch: Callable[["Replicas"], None] | None = None) -> "Replicas":
        """Train all replicas for so many steps more.

        Args:
            steps: How many steps to take.
            watch: Called in every step when λ_{t+1} is known, and before x_t moves.

        Returns:
            The same object.
        """
        self._lossy.model.train()
        for _ in range(whole_number("steps", steps, least=0)):
            self._step(watch)
        return self

    def module(self, replica: int) -> nn.Module:
        """An ordinary model with the parameters of one replica."""
        model = copy.deepcopy(self._lossy.model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.params[name][replica])
            for name, buffer in model.named_buffers():
                buffer.copy_(self._buffers[name][replica])
        return model

    def measure(
        self,
        *,
        rho: float = 0.0,
        weights: Tensor | None = None,
        only: Collection[int] | None = None,
    ) -> list[Errors]:
        """The three errors of every replica on all of its data, as `trimol.measure` gives them.

        Args:
            rho: ρ of the conflict-avoiding weights.
            weights: λ, R × M; by default `next_weights`, as for a single run.
            only: Which replicas; those that diverged cannot be measured. All by default.
        """
        results = []
        with task_kept(self.task, None, self.data):
            for result in self.measured(rho=rho, weights=weights, only=only):
                if isinstance(result, NotFinite):
                    raise result
                results.append(result)
        return results

    def measured(
        self, *, rho: float, weights: Tensor | None, only: Collection[int] | None
    ) -> Iterator[Errors | NotFinite]:
        """As `measure`, one by one; instead of what cannot be measured, why."""
        check_rho(rho)
        given = self.next_weights() if weights is None else weights
        for replica, on_train, on_test in self._full():
            if only is not None and replica not in only:
                continue
            numbers = (on_train.losses, on_train.jacobian, on_test.losses, on_test.jacobian)
            if all(own.isfinite().all() for own in numbers):
                yield from_means(on_train, on_test, checked_weights(given[replica]), rho)
            else:
                yield NotFinite(
                    f"replica {replica} must have finite losses and gradients, found NaN or "
                    "infinity over its data"
                )

    def next_weights(self) -> Tensor:
        """λ_{t+1}, R × M, which the next batch gives at the present x; all stays as it was."""
        if self.method.step > self.step or not self.method.due:  # inside a step, or λ is kept
            return self.method.weights
        before, diverged = self.method.state_dict(), self.diverged.clone()
        buffers = {name: buffer.clone() for name, buffer in self._buffers.items()}
        with training(self._lossy.model):
            self.method.direction(self._evidence())
        weights = self.method.weights
        self.method.load_state_dict(before)
        self.diverged, self._buffers = diverged, buffers
        return weights

    def gradients(self, batch: Batch, replicas: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """F and ∇F of one batch for these replicas, in eval mode: R × M and R × M × d."""
        shared = [self.params[name][replicas].detach().requires_grad_() for name in self._shared]
        params = {name: p[replicas] for name, p in self.params.items()}
        params |= zip(self._shared, shared, strict=True)
        buffers = {name: buffer[replicas] for name, buffer in self._buffers.items()}
        with evaluating(self._lossy.model):
            losses = self._losses(params, buffers, batch, places=(None,))
        return losses.detach(), jacobians(losses, shared).detach()

    def state_dict(self) -> dict[str, Any]:
        """What a fresh object made alike needs to go on from here."""
        return {
            "params": {name: p.detach().clone() for name, p in self.params.items()},
            "buffers": {name: buffer.clone() for name, buffer in self._buffers.items()},
            "method": self.method.state_dict(),
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "step": self.step,
            "samples": self.samples,
            "diverged": self.diverged.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        self.method.load_state_dict(state["method"])
        with torch.no_grad():
            for name, p in self.params.items():
                p.copy_(state["params"][name])
            for name, buffer in self._buffers.items():
                buffer.copy_(state["buffers"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step, self.samples = int(state["step"]), int(state["samples"])
        self.diverged = state["diverged"].clone()

    def _check_repeats(self) -> None:
        """What a task draws or remembers is one run's: computed for all at once, it is another's.

        The losses of a step are computed twice, after which all is as it was.
        """
        task, model, stacked = self.task, self._lossy.model, self._buffers
        before = attributes(task, model, self.data)
        seen: list[Tensor] = []
        with task_kept(task, model, self.data):
            random = [Generators(task, model, self.data).state_dict()]
            for _ in range(2):
                self._buffers = {name: buffer.clone() for name, buffer in stacked.items()}
                batch = self._first_batch()
                answers.counts(task, tuple(tensor[0] for tensor in batch))
                seen.append(torch.stack(self._draws(batch, self._split(batch))).detach())
                random.append(Generators(task, model, self.data).state_dict())
            same = not changes(before, attributes(task, model, self.data))
        self._buffers, self._checked = stacked, True
        if not (same and random[0] == random[1] == random[2] and _equal(*seen)):
            raise NotReplicable(
                f"task {task.name!r} must neither draw random numbers nor remember anything from "
                "step to step, which would be one run's: train its runs one by one"
            )

    def _first_batch(self) -> Batch:
        """The samples of the next step; data that load them may know single runs' only."""
        try:
            return self._sampler.batch(self.step)
        except Exception as error:
            raise NotReplicable(
                f"data of task {self.task.name!r} must take numbers of samples for many replicas "
                f"at once, found {type(error).__name__}: train its runs one by one"
            ) from error

    def _split(self, batch: Batch) -> list[int]:
        """The samples of each draw of a step."""
        return sizes(batch[0].shape[1], self.method.draws if self.method.due else 1)

    def _step(self, watch: Callable[["Replicas"], None] | None) -> None:
        if not self._checked:
            self._check_repeats()
        evidence = self._evidence()
        direction = self.method.direction(evidence)
        self._assign(direction, evidence.on_others if isinstance(evidence, StackedEvidence) else ())
        if watch is not None:
            watch(self)
        self._move()
        self.samples += self._sampler.budget(self.step)
        self.step += 1

    def _evidence(self) -> StackedEvidence | Jacobians:
        """What the method weighs by: a graph of losses, or the gradients of a formula."""
        batch = self._sampler.batch(self.step)
        parts = self._split(batch)
        if isinstance(self.task, Formula):
            return self._by_formula(self.task, batch, parts)
        draws = self._draws(batch, parts)
        values = torch.stack([draw.detach() for draw in draws])
        self._note(values)
        keeps = self._keeping(draws, values, batch, parts)
        return StackedEvidence(draws, self._weighed, self._others, keeps=keeps)

    def _keeping(
        self, draws: Sequence[Tensor], values: Tensor, batch: Batch, parts: Sequence[int]
    ) -> Tensor | None:
        """Which replicas cannot tell new weights by this batch; None if all can."""
        missing = torch.zeros_like(values, dtype=torch.bool)
        if self._counted:
            missing = self._absent(values, batch, parts)
        if self.method.due:
            missing = missing | self._silent(draws, values, missing)
        if not missing.any():
            return None
        if len(parts) > 1 or len(self.method.method.wanted) < len(self.task.objectives):
            raise NotReplicable(
                f"a batch of task {self.task.name!r} has no sample of an objective, or no gradient "
                "of it, and the method takes several draws or some objectives: train its runs one "
                "by one"
            )
        return missing.any(0).any(-1)

    def _absent(self, values: Tensor, batch: Batch, parts: Sequence[int]) -> Tensor:
        """Of which objectives there is no sample, draws × R × M."""
        counts = [
            torch.stack([_counts(self.task, samples) for samples in zip(*draw, strict=True)])
            for draw in _apart(batch, parts)
        ]
        absent = torch.stack(counts) == 0
        if not values[absent].isfinite().all():  # a single run says what is wrong
            raise NotReplicable(f"a loss of {self.task.name!r} without samples is not finite")
        return absent

    def _silent(self, draws: Sequence[Tensor], values: Tensor, absent: Tensor) -> Tensor:
        """Which losses are 0 without a gradient, beside others that are not 0; draws × R × M."""
        zero = (values == 0) & ~absent & values.any(-1, keepdim=True)
        if not zero.any():
            return zero
        silent = zero & ~torch.stack([jacobians(draw, self._weighed).any(-1) for draw in draws])
        for place in silent.flatten(0, 1).any(0).nonzero()[:, 0].tolist():
            if place not in self._said:
                self._said.add(place)
                called = self.task.objectives[place]
                warn(silence(type(self.method.method).__name__, called))
        return silent

    def _note(self, numbers: Tensor) -> None:
        """Remember which replicas diverge now, from draws × R × what must be finite."""
        if not math.isfinite(
            numbers.detach().sum()
        ):  # one operator, for the steps where nothing diverges
            broken = ~numbers.isfinite().flatten(2).all(-1).all(0)
            self.diverged[broken & (self.diverged < 0)] = self.step

    def _by_formula(self, task: Formula, batch: Batch, parts: Sequence[int]) -> Jacobians:
        """∇F of every draw, R × M × d, and F: it is linear in z, so that a draw is its mean."""
        (x,), (z,) = self._weighed, batch
        means = torch.stack([draw.mean(1) for draw in z.split(list(parts), dim=1)])
        points = x.detach().expand(len(parts), *x.shape)
        rows = task.jacobian(points, means)
        if not abs(float(rows.sum())) < _HUGE:  # losses are infinite before their gradients are
            self._note(torch.cat([rows.flatten(2), task.values(points, means)], -1))
        return Jacobians(list(rows), lambda: task.values(points, means).mean(0))

    def _draws(self, batch: Batch, parts: Sequence[int]) -> list[Tensor]:
        """The losses of the next step, R × M, one tensor for each draw."""
        if len(parts) > 1 and parts[0] == parts[-1] and not self._buffers:
            # One forward and one backward for all draws: weights are read and written once.
            apart = tuple(tensor.unflatten(1, (len(parts), -1)) for tensor in batch)
            return list(self._losses(self.params, {}, apart, places=(0, 0)).unbind(1))
        return [self._losses(self.params, self._buffers, draw) for draw in _apart(batch, parts)]

    def _losses(
        self,
        params: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        batch: Batch,
        *,
        places: tuple[int | None, ...] = (0,),
    ) -> Tensor:
        """F of every replica, R × M, or of every draw of every replica, R × draws × M.

        ``places`` says which dimension of the batch are the replicas (None: one batch for all), and
        then the draws.
        """

        def one(own: dict[str, Tensor], *samples: Tensor) -> Tensor:
            result: Tensor = functional_call(self._lossy, own, samples)
            return result

        state = {f"model.{name}": tensor for name, tensor in {**params, **buffers}.items()}
        call: Any = one
        for place in places[:0:-1]:
            call = vmap(call, in_dims=(None, *[place] * len(batch)))
        try:
            losses: Tensor = vmap(call, in_dims=(0, *places[:1] * len(batch)))(state, *batch)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            reason = str(error).strip().splitlines()[0]
            raise NotReplicable(
                f"task {self.task.name!r} cannot be computed for many replicas at once ({reason}): "
                "train its runs one by one"
            ) from error
        if losses.shape[-1] != len(self.task.objectives):
            raise BadValue(
                f"losses must have {len(self.task.objectives)} entries, one per objective, found "
                f"{losses.shape[-1]}"
            )
        return losses

    def _named(self, shared: Any) -> list[str]:
        """The names of the parameters that the method weighs and that are trained."""
        ids = {id(p) for p in shared}
        own = self._lossy.model.named_parameters()
        return [name for name, p in own if id(p) in ids and p.requires_grad]

    def _assign(self, direction: Any, plain: Sequence[Tensor]) -> None:
        """The directions as gradients, for the optimizer."""
        if isinstance(direction, Tensor):  # flat, R × d
            widths = [p.numel() // len(self) for p in self._weighed]
            parts = zip(direction.split(widths, dim=1), self._weighed, strict=True)
            direction = [part.reshape(p.shape) for part, p in parts]
        for p, gradient in zip(self._trained, [*direction, *plain], strict=True):
            p.grad = gradient.to(p.dtype)

    def _move(self) -> None:
        if self._schedule is not None:
            share = self._schedule(self.step)
            for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * share
        if self._lr is None:
            self._optimizer.step()
        else:  # the step is proportional to lr, so take that of lr = 1 and shorten it
            rates = self._lr * self._shares() if self._schedules else self._lr
            before = [p.detach().clone() for p in self._trained]
            self._optimizer.step()
            with torch.no_grad():
                for p, old in zip(self._trained, before, strict=True):
                    own = rates.to(p).view(-1, *[1] * (p.dim() - 1))
                    torch.lerp(old, p, own, out=p)  # old + own (p − old), in one pass
        for p in self._trained:
            p.grad = None

    def _shares(self) -> Tensor:
        """What each replica's α is multiplied with now."""
        known = {each: each(self.step) if each else 1.0 for each in dict.fromkeys(self._schedules)}
        return torch.tensor([known[each] for each in self._schedules], dtype=torch.float64)

    def _full(self) -> Iterator[tuple[int, FullData, FullData]]:
        """Each replica's losses and gradients on all of its training and test data."""
        width = sum(self.params[name][0].numel() for name in self._shared)
        group = max(1, _HELD // (2 * len(self.task.objectives) * width))
        step = group if isinstance(self.data, Sets) and self.data.alike else 1
        for low in range(0, len(self), step):
            which = slice(low, min(low + step, len(self)))
            data = self.data[low]
            on_train, on_test = (self._means(part, which) for part in (data.train, data.test))
            for r in range(which.stop - low):
                yield low + r, on_train[r], on_test[r]

    def _means(self, data: Batch, replicas: slice) -> list[FullData]:
        """Means over all samples, of each objective its own, summed in float64."""
        own_size = self.task.at_once != Task.at_once
        parts = batches(data, size=self.task.at_once if own_size else _AT_ONCE)
        counts = [_counts(self.task, part) for part in parts]
        count = torch.stack(counts).sum(0)
        losses = rows = torch.zeros((), dtype=torch.float64)
        for batch, own in zip(parts, counts, strict=True):
            copied = tuple(tensor.clone() for tensor in batch)  # losses may change it in place
            values, gradients = self.gradients(copied, replicas)
            share = own / count
            losses = losses + values.double() * share
            rows = rows + gradients.double() * share[..., None]
        return [
            FullData(mean, jacobian, count if self._counted else float(count))
            for mean, jacobian in zip(losses, rows, strict=True)
        ]


class _Lossy(nn.Module):
    """The model and its losses as one module: what `functional_call` takes."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, *batch: Tensor) -> Tensor:
        """The loss vector of a batch."""
        before = list(self.model.buffers())
        with fixing():
            losses = answers.losses(self.task, self.model, batch, graph=False)
        if any(new is not old for new, old in zip(self.model.buffers(), before, strict=False)):
            raise NotReplicable("a buffer is replaced by another tensor, not changed in place")
        return losses


def _alone(task: Task, model: nn.Module, batch: Batch) -> Tensor:
    """The losses of one model; what it keeps from a call for many at once it cannot use."""
    try:
        return answers.losses(task, model, batch, graph=False)
    except RuntimeError as error:
        raise NotReplicable(
            f"task {task.name!r} must be computed alike for one and for many replicas, found "
            f"{str(error).strip().splitlines()[0]!r}: train its runs one by one"
        ) from error


def _slopes(losses: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the sum of losses; zeros where there is none."""
    if not losses.requires_grad:
        return [torch.zeros_like(p) for p in params]
    return pulled(losses.sum(), params, retain=False)


def _equal(found: Tensor, expected: Tensor) -> bool:
    """Whether numbers are the same, NaN where NaN is."""
    return bool(((found == expected) | (found.isnan() & expected.isnan())).all())


def _alike(found: Tensor, expected: Tensor) -> bool:
    """Whether numbers agree, up to what single precision and another order of sums may do."""
    least = 1e-5 + 1e-3 * expected.detach().abs().nan_to_num(0, 0, 0).amax().item()
    return torch.allclose(found, expected, rtol=1e-2, atol=least, equal_nan=True)


def _counts(task: Task, batch: Batch) -> Tensor:
    """How many samples a batch holds, of each objective if they differ."""
    return torch.as_tensor(sample_counts(task, batch)).detach().double().cpu()


def _apart(batch: Batch, parts: Sequence[int]) -> Iterator[Batch]:
    """The draws of a batch of all replicas, which has so many samples of each."""
    return zip(*(tensor.split(list(parts), dim=1) for tensor in batch), strict=True)


def _fresh(task: Task, seed: int) -> nn.Module:
    """The model that a run with this seed starts from."""
    with generators_kept(task), attributes_kept(task):
        seed_generators(seed, devices=())
        return answers.model(task)


def _stacked(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {
        name: torch.stack([one[name].detach() for one in each]).requires_grad_(tensor.requires_grad)
        for name, tensor in each[0].items()
    }


def _schedules(
    given: Schedule | Sequence[Schedule], replicas: int
) -> tuple[Schedule, list[Schedule]]:
    """The one for all, or else one for each replica."""
    if given is None or callable(given):
        return given, []
    if len(given) != replicas:
        raise BadValue(f"schedule must be one, or one for each of {replicas}, found {len(given)}")
    return (given[0], []) if len(set(given)) == 1 else (None, list(given))


def _step_sizes(lr: float | Tensor, replicas: int) -> Tensor | None:
    """One for each replica, or None where the optimizer has the only one."""
    if not isinstance(lr, Tensor):
        return None
    if lr.shape != (replicas,) or not bool((lr >= 0).all()):
        raise BadValue(f"lr must be one number, or {replicas} of at least 0, found {lr.tolist()!r}")
    return lr.double()
