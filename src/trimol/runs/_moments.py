"""What the full-data gradients of a task say at one state of its model, with bounds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trimol import simplex
from trimol._failures import BadType, BadValue
from trimol.errors import Bracket
from trimol.errors._estimate import LEAST_BATCHES, Cluster, from_clusters
from trimol.errors._fulldata import Sums, Walk, own_rows
from trimol.errors._inputs import undisturbed
from trimol.errors._spread import Spread, spread
from trimol.gradients._rows import combined_wide
from trimol.gradients._stepping import Steps
from trimol.tasks import Batch, Data, Task
from trimol.tasks import _answers as answers
from trimol.training import evaluating
from trimol.training._kept import task_kept
from trimol.training.assessment import batches, sample_counts

# With which probability a bracket covers the truth; those of all pairs hold together.
CONFIDENCE = 0.99
# Into so many parts the samples are put, to see how much their gradients differ.
PARTS = 16
# From here on λ* is said to be in a corner.
CORNER = 0.99


@dataclass(frozen=True)
class Geometry:
    """Lengths and angles of the mean gradients: plain, or as an optimizer's steps have them.

    Attributes:
        norms: ‖∇f_m‖, by objective.
        cosines: Those of each pair of gradients.
        along: The cosine of each gradient with the weighted one, ∇Fλ: below 0, a short step along
            that raises the loss.
        noise: The squared length of a mini-batch gradient's noise, over ‖∇f_m‖².
        ratio: The longest gradient's length over the shortest's.
        longest: The objective with the longest gradient.
        shortest: That with the shortest.
        opt: R_opt, the length of the shortest combination.
        conflict: E_ca of the weights.
        min_norm: λ*, the weights of the shortest combination.
    """

    norms: dict[str, Bracket]
    cosines: dict[tuple[str, str], Bracket]
    along: dict[str, Bracket]
    noise: dict[str, Bracket]
    ratio: Bracket
    longest: str
    shortest: str
    opt: Bracket
    conflict: Bracket
    min_norm: dict[str, float]

    @property
    def worst(self) -> tuple[str, str]:
        """The pair that is the most certain to conflict: the least upper bound of its cosine."""
        return min(self.cosines, key=lambda pair: self.cosines[pair].high)

    @property
    def corner(self) -> str | None:
        """The objective that λ* puts (nearly) all weight on."""
        most = max(self.min_norm, key=lambda name: self.min_norm[name])
        return most if self.min_norm[most] >= CORNER and len(self.min_norm) > 1 else None

    @property
    def record(self) -> dict[str, Any]:
        """All of it, ready for JSON; None for what is not known or without bound."""
        return {
            "cosines": [{"pair": list(pair), **_plain(b)} for pair, b in self.cosines.items()],
            **{
                name: {key: _plain(b) for key, b in getattr(self, name).items()}
                for name in ("norms", "along", "noise")
            },
            "norm_ratio": {"pair": [self.longest, self.shortest], **_plain(self.ratio)},
            "R_opt": _plain(self.opt),
            "E_ca": _plain(self.conflict),
            "min_norm": self.min_norm,
            "corner": self.corner,
        }


@dataclass(frozen=True)
class Moment:
    """What the full-data gradients say at one state of a model.

    Attributes:
        name: Where it is, in words: "step 30", "the end of seed 3".
        step: The steps done; None where that is not known.
        losses: The mean training losses.
        plain: The gradients as they are.
        metric: The gradients in the metric of the optimizer's next step; None where that is the
            same (SGD), or where no optimizer was given.
        samples: The training samples gone over.
        notes: What could not be seen, and why.
    """

    name: str
    step: int | None
    losses: dict[str, float]
    plain: Geometry
    metric: Geometry | None
    samples: int
    notes: tuple[str, ...] = field(default=())

    @property
    def stepped(self) -> Geometry:
        """As the optimizer's steps have the gradients."""
        return self.plain if self.metric is None else self.metric

    @property
    def record(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "name": self.name,
            "step": self.step,
            "samples": self.samples,
            "losses": self.losses,
            **self.plain.record,
            "metric": None if self.metric is None else self.metric.record,
        }


@dataclass(frozen=True)
class Setting:
    """What is looked at, and how.

    Attributes:
        task: The task.
        data: Its data.
        weights: λ, on the simplex.
        batch_size: Samples of a training step.
        batches: Go over as many samples as so many steps take, at most.
        seed: Decides which samples.
    """

    task: Task
    data: Data
    weights: Tensor
    batch_size: int
    batches: int
    seed: int

    def parts(self, place: int) -> list[Tensor]:
        """Random samples of the training data, in parts: their numbers."""
        count = len(self.data.train[0])
        most = min(count, self.batches * self.batch_size)
        order = np.random.default_rng([self.seed, place]).permutation(count)[:most]
        return list(torch.from_numpy(order).tensor_split(1 if self.few else min(PARTS, most)))

    @property
    def few(self) -> bool:
        """Whether there are too few samples to see how much they differ."""
        return len(self.data.train[0]) < LEAST_BATCHES

    def batch_counts(self) -> Tensor:
        """The samples of each objective in a training batch."""
        drawn = answers.sampler(self.task, self.data, self.batch_size, growth=0.0, seed=self.seed)
        (indices,) = drawn.indices(0)
        counts = sample_counts(self.task, tuple(t[indices] for t in self.data.train))
        return torch.as_tensor(counts).double().expand(len(self.task.objectives))


def seen(
    setting: Setting,
    model: nn.Module,
    optimizer: Optimizer | None,
    *,
    name: str,
    step: int | None,
) -> Moment:
    """Look at one state of a model; it is left as it was."""
    params = answers.shared(setting.task, model)
    kept = task_kept(setting.task, model, setting.data, device=params[0].device)
    with kept, evaluating(model), undisturbed(params):
        clusters = list(_clusters(setting, model, params, step or 0))
    scale, note = _scale(optimizer, params, clusters, setting.weights)
    metric = None if scale is None else _geometry(setting, clusters, params, scale)
    sizes = torch.stack([cluster.size for cluster in clusters])
    means = (torch.stack([c.losses for c in clusters]) * sizes).sum(0) / sizes.sum(0)
    return Moment(
        name=name,
        step=step,
        losses=dict(zip(setting.task.objectives, means.tolist(), strict=True)),
        plain=_geometry(setting, clusters, params, None),
        metric=metric,
        samples=sum(map(len, setting.parts(step or 0))),
        notes=(*_few(setting), *note),
    )


def _few(setting: Setting) -> tuple[str, ...]:
    if not setting.few:
        return ()
    samples = len(setting.data.train[0])
    text = "they are taken as all there is, and bounds leave out their noise"
    return (f"only {samples} training samples: {text}",)


def _clusters(
    setting: Setting, model: nn.Module, params: Sequence[Tensor], place: int
) -> Iterator[Cluster]:
    """The losses and gradients of each part of the samples."""
    for part in setting.parts(place):
        samples = tuple(tensor[part].to(params[0].device) for tensor in setting.data.train)
        cluster = _cluster(setting.task, model, params, samples)
        # Of too few samples all are taken, as if there were no others: no noise.
        yield from [cluster] * (LEAST_BATCHES if setting.few else 1)


def _cluster(task: Task, model: nn.Module, params: Sequence[Tensor], samples: Batch) -> Cluster:
    sums = Sums(len(task.objectives), params)
    walk = Walk(
        batches(samples, task.at_once), params, name="train", size=lambda b: sample_counts(task, b)
    )
    for batch, samples_of in walk:
        vector, count = walk.read(lambda b: answers.losses(task, model, b), batch, samples_of)
        rows = own_rows(vector, params)
        walk.check(vector, rows)
        sums.add(vector, rows, count)
    size = torch.as_tensor(sums.samples, dtype=torch.float64).expand(len(task.objectives))
    most = size.clamp_min(1)
    rows = (sums.jacobian / most[:, None].to(sums.jacobian)).to(params[0].dtype)
    return Cluster(sums.losses.cpu() / most, rows, size)


def _scale(
    optimizer: Optimizer | None,
    params: Sequence[Tensor],
    clusters: Sequence[Cluster],
    weights: Tensor,
) -> tuple[Tensor | None, tuple[str, ...]]:
    """S of the optimizer's next step, if it is more than a number; and why it is not known."""
    if optimizer is None:
        return None, ()
    try:
        steps = Steps(optimizer)
    except (BadType, BadValue) as error:
        return None, (f"the optimizer's metric is not known: {error}",)
    rows = torch.stack([cluster.rows for cluster in clusters]).mean(0)
    mean = combined_wide(weights.to(rows.device), rows)
    scale = steps.flat(params)(mean.to(params[0].dtype)).scale / steps.unit(params)
    uniform = bool(scale.max() - scale.min() <= 1e-6 * scale.max())
    return (None if uniform else scale), ()


def _geometry(
    setting: Setting, clusters: Sequence[Cluster], params: Sequence[Tensor], scale: Tensor | None
) -> Geometry:
    names, weights = setting.task.objectives, setting.weights
    sizes = torch.stack([cluster.size for cluster in clusters])
    pairs = list(combinations(range(len(names)), 2))
    confidence = 1 - (1 - CONFIDENCE) / max(len(pairs), 1)
    found = spread([c.rows for c in clusters], sizes, scale=scale, confidence=confidence)
    own = torch.eye(len(names)).double()
    norms = [found.norm(each) for each in own]
    # The noise of a batch goes with one over its samples.
    factors = (sizes.mean(0) / setting.batch_counts()).tolist()
    short, *_, long = sorted(range(len(names)), key=lambda m: norms[m].value)
    opt, conflict = _errors(clusters, params, weights, scale)
    return Geometry(
        norms=dict(zip(names, norms, strict=True)),
        cosines={(names[i], names[j]): found.cosine(own[i], own[j]) for i, j in pairs},
        along={name: found.cosine(own[m], weights) for m, name in enumerate(names)},
        noise={
            name: _times(found.noise(m), factor)
            for m, (name, factor) in enumerate(zip(names, factors, strict=True))
        },
        ratio=_ratio(found, norms[long], norms[short], long, short),
        longest=names[long],
        shortest=names[short],
        opt=opt,
        conflict=conflict,
        min_norm=dict(zip(names, simplex.min_norm(found.plain).tolist(), strict=True)),
    )


def _errors(
    clusters: Sequence[Cluster], params: Sequence[Tensor], weights: Tensor, scale: Tensor | None
) -> tuple[Bracket, Bracket]:
    """R_opt and E_ca."""
    if scale is not None:
        root = scale.clamp_min(0).sqrt()
        clusters = [c._replace(rows=c.rows * root.to(c.rows)) for c in clusters]
    return from_clusters(clusters, params, weights, CONFIDENCE)


def _times(bracket: Bracket, factor: float) -> Bracket:
    value, error, low, high = (getattr(bracket, f.name) * factor for f in fields(bracket))
    return Bracket(value, error, low, high)


def _ratio(found: Spread, longest: Bracket, shortest: Bracket, long: int, short: int) -> Bracket:
    """The longest norm over the shortest, by the logarithm."""

    def logarithm(gramian: Tensor) -> Tensor:
        squares = gramian.diagonal(dim1=-2, dim2=-1).log()
        return (squares[..., long] - squares[..., short]) / 2

    bracket = found.bracket(logarithm)
    if shortest.low > 0:
        low, high = (math.exp(min(x, 700.0)) for x in (bracket.low, bracket.high))
        return Bracket(math.exp(bracket.value), math.nan, low, high)
    # The shortest may be zero, but is no longer than its upper bound.
    least = longest.low / shortest.high if shortest.high > 0 else math.inf
    return Bracket(math.inf, math.nan, least, math.inf)


def _plain(bracket: Bracket) -> dict[str, float | None]:
    found = {"value": bracket.value, "low": bracket.low, "high": bracket.high}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}
