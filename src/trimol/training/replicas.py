"""Many runs of one task as one program: R models trained side by side.

Small models spend their time in calling operators. Stacked, R × shape, the parameters of R replicas
take one call where R runs take R. Replicas differ in seed, in data, in step size and in
hyper-parameters; each equals, to rounding, the run that `trimol.training.start` and `train` would
make of its seed: the same start, the same samples at every step.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.func import functional_call, vmap
from torch.optim import Optimizer

from trimol import methods
from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.data._draws import sizes
from trimol.errors import Errors
from trimol.errors._fulldata import FullData
from trimol.errors._inputs import check_rho, checked_weights
from trimol.errors._measure import from_means
from trimol.gradients._stacked import StackedEvidence, jacobians
from trimol.gradients.losses import as_vector
from trimol.tasks import Batch, Data, Task
from trimol.training.assessment import batches, evaluating, training

# Optimizers that treat each entry on its own, with a step that is proportional to lr.
_ELEMENTWISE = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Adagrad,
    optim.Adadelta,
)
# How many numbers the full-data gradients of a group of replicas may hold: 256 MB in float64.
_HELD = 2**25
# Samples of one pass over full data: with fewer, adding up the gradients takes as long as they do.
_AT_ONCE = 4096


class NotReplicable(BadValue):
    """The task cannot be trained as many replicas at once; one by one it can."""


class Neighbours:
    """R data sets, each the same as one but for one sample; held as one.

    Args:
        data: The data set S.
        places: For each replica the number of the training sample that is replaced; −1 for none.
        substitutes: What it is replaced by, one sample for each replica.

    Example:
        >>> data = Data(train=(torch.arange(4),), test=(torch.arange(2),))
        >>> neighbours = Neighbours(data, torch.tensor([-1, 2]), (torch.tensor([7, 9]),))
        >>> neighbours[1].train
        (tensor([0, 1, 9, 3]),)
        >>> neighbours.batch(torch.tensor([[0, 2], [0, 2]]))
        (tensor([[0, 2],
                [0, 9]]),)
    """

    def __init__(self, data: Data, places: Tensor, substitutes: Batch) -> None:
        self.data, self.places, self.substitutes = data, places, substitutes
        self._all = tuple(
            torch.cat([own, new]) for own, new in zip(data.train, substitutes, strict=True)
        )

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, replica: int) -> Data:
        place = int(self.places[replica])
        if place < 0:
            return self.data
        train = tuple(tensor.clone() for tensor in self.data.train)
        for tensor, new in zip(train, self.substitutes, strict=True):
            tensor[place] = new[replica]
        return Data(train, self.data.test, self.data.validation)

    def batch(self, indices: Tensor) -> Batch:
        """The samples with these numbers (R × B), for each replica from its own data set."""
        size = len(self.data.train[0])
        own = size + torch.arange(len(self))[:, None]
        found = torch.where(indices == self.places[:, None], own, indices)
        return tuple(tensor[found] for tensor in self._all)


class _Shared:
    """One data set for all replicas."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def __getitem__(self, replica: int) -> Data:
        return self.data

    def batch(self, indices: Tensor) -> Batch:
        return tuple(tensor[indices] for tensor in self.data.train)


class _Each:
    """A data set for each replica, all of one size."""

    def __init__(self, data: Sequence[Data]) -> None:
        found = {len(each.train[0]) for each in data}
        if len(found) > 1:
            raise BadValue(
                f"data must have as many training samples for every replica, found {sorted(found)}"
            )
        self.each = list(data)

    def __getitem__(self, replica: int) -> Data:
        return self.each[replica]

    def batch(self, indices: Tensor) -> Batch:
        columns = zip(*(data.train for data in self.each), strict=True)
        return tuple(
            torch.stack([tensor[own] for tensor, own in zip(column, indices, strict=True)])
            for column in columns
        )


class Replicas:
    """R models in training, one step at a time for all.

    Args:
        task: What to train.
        method: The method's name.
        seeds: One for each replica: its start and its samples.
        lr: α, for all or one for each replica (a tensor of R entries).
        hyperparameters: The method's own; a tensor holds one value for each replica
            (`trimol.methods._replicated`).
        batch_size: Samples a step, over all the draws of the method.
        data: Instead of the task's: one for all, one for each replica, or `Neighbours`.

    Attributes:
        params: The parameters, by name, stacked: R × shape.
        method: λ and the rest of the method's state, for all replicas.
        step: The steps done.
        samples: The training samples that each replica took.
        diverged: For each replica the step at which its losses were no longer finite, or −1. The
            others go on.

    Dropout and other random numbers in the model would not be those of the single runs: such models
    raise `NotReplicable`, as do tasks with objectives that not every sample has (`Task.counts`) and
    what ``torch.func.vmap`` cannot do. Batch normalisation is fine.
    The optimizer must treat every entry on its own (SGD, Adam and their kin).

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
        method: str,
        *,
        seeds: Sequence[int],
        lr: float | Tensor = 0.1,
        hyperparameters: Mapping[str, Any] | None = None,
        batch_size: int = 64,
        data: Data | Sequence[Data] | Neighbours | None = None,
    ) -> None:
        self.task, self.seeds = task, list(seeds)
        if not self.seeds:
            raise BadValue("seeds must hold at least one seed, found none")
        self.data = _source(task.data() if data is None else data, len(self.seeds))
        if task.counts(tuple(tensor[:1] for tensor in self.data[0].train)) is not None:
            raise NotReplicable(
                f"task {task.name!r} counts the samples of each objective, of which replicas may "
                "have different numbers: train its runs one by one"
            )
        self.method = methods.replicated(
            method,
            replicas=len(self.seeds),
            objectives=len(task.objectives),
            **(hyperparameters or {}),
        )
        models = [_fresh(task, seed) for seed in self.seeds]
        self._lossy = _Lossy(task, models[0].train())
        self.params = _stacked([dict(model.named_parameters()) for model in models])
        self._buffers = _stacked([dict(model.named_buffers()) for model in models])
        self._shared = self._named(task.shared(models[0]))
        self._lr = _step_sizes(lr, len(self.seeds))
        self._optimizer = _optimizer(task, list(self.params.values()), lr)
        growth, one = methods.growth(method), self.data[0]
        self._samplers = {
            seed: task.sampler(one, batch_size, growth=growth, seed=seed)
            for seed in dict.fromkeys(self.seeds)
        }
        self.step = self.samples = 0
        self.diverged = torch.full((len(self.seeds),), -1)

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
        check_rho(rho)
        given = self.next_weights() if weights is None else weights
        found = []
        for replica, on_train, on_test in self._full():
            if only is not None and replica not in only:
                continue
            own = checked_weights(given[replica])
            found.append(from_means(on_train, on_test, own, rho))
        return found

    def next_weights(self) -> Tensor:
        """λ_{t+1}, R × M, which the next batch gives at the present x; all stays as it was."""
        if self.method.step > self.step or not self.method.due:  # inside a step, or λ is kept
            return self.method.weights
        before, diverged = self.method.state_dict(), self.diverged.clone()
        buffers = {name: buffer.clone() for name, buffer in self._buffers.items()}
        with training(self._lossy.model):
            self.method.direction(StackedEvidence(self._draws(), *self._roles()))
        weights = self.method.weights
        self.method.load_state_dict(before)
        self.diverged, self._buffers = diverged, buffers
        return weights

    def gradients(self, batch: Batch, replicas: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """F and ∇F of one batch, in eval mode: R × M losses and the R × M × d Jacobian.

        Args:
            batch: The samples, the same for every replica.
            replicas: Which replicas.
        """
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

    def _step(self, watch: Callable[["Replicas"], None] | None) -> None:
        evidence = StackedEvidence(self._draws(), *self._roles())
        direction = self.method.direction(evidence)
        self._assign(direction, evidence.plain)
        if watch is not None:
            watch(self)
        self._move()
        self.samples += self._samplers[self.seeds[0]].budget(self.step)
        self.step += 1

    def _draws(self) -> list[Tensor]:
        """The losses of the next step, R × M, one tensor for each draw."""
        drawn = {seed: sampler.indices(self.step)[0] for seed, sampler in self._samplers.items()}
        indices = torch.stack([drawn[seed] for seed in self.seeds])
        parts = sizes(indices.shape[1], self.method.draws if self.method.due else 1)
        if len(parts) > 1 and parts[0] == parts[-1] and not self._buffers:
            # One forward and one backward for all draws: weights are read and written once.
            batch = tuple(t.unflatten(1, (len(parts), -1)) for t in self.data.batch(indices))
            found = list(self._losses(self.params, {}, batch, places=(0, 0)).unbind(1))
        else:
            found = [
                self._losses(self.params, self._buffers, self.data.batch(part))
                for part in indices.split(list(parts), dim=1)
            ]
        finite = torch.stack(found).isfinite().all(-1).all(0)
        self.diverged[~finite & (self.diverged < 0)] = self.step
        return found

    def _losses(
        self,
        params: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        batch: Batch,
        *,
        places: tuple[int | None, ...] = (0,),
    ) -> Tensor:
        """F of every replica, R × M, or of every draw of every replica, R × draws × M.

        Args:
            params: The stacked parameters.
            buffers: The stacked buffers.
            batch: The samples.
            places: Which dimension of them are the replicas (None: one batch for all), then the
                draws.
        """

        def one(own: dict[str, Tensor], *samples: Tensor) -> Tensor:
            result: Tensor = functional_call(self._lossy, own, samples)
            return result

        state = {f"model.{name}": tensor for name, tensor in {**params, **buffers}.items()}
        call: Any = one
        for place in places[:0:-1]:
            call = vmap(call, in_dims=(None, *[place] * len(batch)))
        try:
            found: Tensor = vmap(call, in_dims=(0, *places[:1] * len(batch)))(state, *batch)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            reason = str(error).strip().splitlines()[0]
            raise NotReplicable(
                f"task {self.task.name!r} cannot be computed for many replicas at once ({reason}): "
                "train its runs one by one"
            ) from error
        if found.shape[-1] != len(self.task.objectives):
            raise BadValue(
                f"losses must have {len(self.task.objectives)} entries, one per objective, found "
                f"{found.shape[-1]}"
            )
        return found

    def _named(self, shared: Any) -> list[str]:
        """The names of the parameters that the method weighs and that are trained."""
        ids = {id(p) for p in shared}
        own = self._lossy.model.named_parameters()
        return [name for name, p in own if id(p) in ids and p.requires_grad]

    def _roles(self) -> tuple[list[Tensor], list[Tensor]]:
        weighed = [self.params[name] for name in self._shared]
        trained = {n: p for n, p in self.params.items() if p.requires_grad}
        return weighed, [p for name, p in trained.items() if name not in self._shared]

    def _assign(self, direction: Any, plain: Sequence[Tensor]) -> None:
        """The directions as gradients, for the optimizer."""
        weighed, others = self._roles()
        if isinstance(direction, Tensor):  # flat, R × d
            parts = direction.split([p[0].numel() for p in weighed], dim=1)
            direction = [part.reshape(p.shape) for part, p in zip(parts, weighed, strict=True)]
        for p, gradient in zip([*weighed, *others], [*direction, *plain], strict=True):
            p.grad = gradient.to(p.dtype)

    def _move(self) -> None:
        trained = [p for p in self.params.values() if p.grad is not None]
        if self._lr is None:
            self._optimizer.step()
        else:  # the step is proportional to lr, so take that of lr = 1 and shorten it
            before = [p.detach().clone() for p in trained]
            self._optimizer.step()
            with torch.no_grad():
                for p, old in zip(trained, before, strict=True):
                    share = self._lr.to(p).view(-1, *[1] * (p.dim() - 1))
                    p.copy_(old + share * (p - old))
        self._optimizer.zero_grad()

    def _full(self) -> Iterator[tuple[int, FullData, FullData]]:
        """Each replica's losses and gradients on all of its training and test data."""
        width = sum(self.params[name][0].numel() for name in self._shared)
        group = max(1, _HELD // (2 * len(self.task.objectives) * width))
        alike = isinstance(self.data, _Shared)
        step = group if alike else 1
        for low in range(0, len(self), step):
            which = slice(low, min(low + step, len(self)))
            data = self.data[low]
            on_train, on_test = (self._means(part, which) for part in (data.train, data.test))
            for r in range(which.stop - low):
                yield low + r, on_train[r], on_test[r]

    def _means(self, data: Batch, replicas: slice) -> list[FullData]:
        """Means over all samples, summed in float64."""
        losses = rows = torch.zeros(())
        for batch in batches(data, size=_AT_ONCE):
            values, gradients = self.gradients(batch, replicas)
            losses = losses + values.double() * len(batch[0])
            rows = rows + gradients.double() * len(batch[0])
        count = len(data[0])
        return [
            FullData(own, jacobian, float(count))
            for own, jacobian in zip(losses / count, rows / count, strict=True)
        ]


class _Lossy(nn.Module):
    """The model and its losses as one module: what `functional_call` takes."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, *batch: Tensor) -> Tensor:
        """The loss vector of a batch."""
        return as_vector(self.task.losses(self.model, batch), graph=False)


def _source(
    data: Data | Sequence[Data] | Neighbours, replicas: int
) -> _Shared | _Each | Neighbours:
    if isinstance(data, Data):
        return _Shared(data)
    if len(data) != replicas:
        raise BadValue(f"data must be one for each of {replicas} seeds, found {len(data)}")
    return data if isinstance(data, Neighbours) else _Each(data)


def _fresh(task: Task, seed: int) -> nn.Module:
    """The model that a run with this seed starts from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return task.model()


def _stacked(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    first = each[0]
    found = {name: torch.stack([one[name].detach() for one in each]) for name in first}
    for name, tensor in found.items():
        tensor.requires_grad_(first[name].requires_grad)
    return found


def _step_sizes(lr: float | Tensor, replicas: int) -> Tensor | None:
    """One for each replica, or None where the optimizer has the only one."""
    if not isinstance(lr, Tensor):
        return None
    if lr.shape != (replicas,) or not bool((lr >= 0).all()):
        raise BadValue(f"lr must be one number, or {replicas} of at least 0, found {lr.tolist()!r}")
    return lr.double()


def _optimizer(task: Task, params: list[Tensor], lr: float | Tensor) -> Optimizer:
    made = task.optimizer(params, 1.0 if isinstance(lr, Tensor) else lr)  # type: ignore[arg-type]
    if type(made) not in _ELEMENTWISE:
        raise NotReplicable(
            f"optimizer must treat every entry on its own (SGD, Adam and their kin), found "
            f"{type(made).__name__}: train the runs one by one"
        )
    return made
