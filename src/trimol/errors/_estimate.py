"""`estimate`: the three errors from random batches, each between two bounds."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trimol import simplex
from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.errors._bracket import Bracket, Norm, Numbers, root
from trimol.errors._fulldata import Size, Walk, check_present, own_rows
from trimol.errors._inputs import (
    LossVector,
    check_loader,
    check_rho,
    checked_weights,
    undisturbed,
)
from trimol.errors._measure import Errors, short
from trimol.errors._subsample import subsample
from trimol.gradients import Losses
from trimol.gradients import _reduce as reduce
from trimol.gradients._params import checked
from trimol.gradients._rows import gram

# Four batches to find a direction, four to test it on: less has no variance to speak of.
LEAST_BATCHES = 8
# Columns of a batch's gradients that are taken to float64 at once.
_COLUMNS = 2**16


@dataclass(frozen=True)
class Estimate:
    """The three errors as estimated from some batches. ``print(estimate)`` shows the brackets.

    Attributes:
        opt: R_opt.
        pop: R_pop; None without test data.
        gen: R_gen; None without test data.
        conflict: E_ca, for the weights given; None without.
        conflict_weight: E_caw, for the weights given and ρ > 0; None without.
        errors: The values as `trimol.measure` would give them. What has no bracket above is as
            found on the batches, noise included: norms are too large on average.
        loss_errors: The standard errors of ``errors.losses``.
        confidence: With which probability a bracket covers the truth, at least.
        batches: How many training batches were used.
    """

    opt: Bracket
    pop: Bracket | None
    gen: Bracket | None
    conflict: Bracket | None
    conflict_weight: Bracket | None
    errors: Errors
    loss_errors: tuple[float, ...]
    confidence: float
    batches: int

    @property
    def brackets(self) -> dict[str, Bracket]:
        """The brackets that there are, by their names above."""
        names = ("opt", "pop", "gen", "conflict", "conflict_weight")
        found = {name: getattr(self, name) for name in names}
        return {name: bracket for name, bracket in found.items() if bracket is not None}

    def __str__(self) -> str:
        return " · ".join(
            f"{name.replace('_', ' ')} {short(b.value)} [{short(b.low)}, {short(b.high)}]"
            for name, b in self.brackets.items()
        )


def estimate(
    losses: Callable[[Any], Losses],
    params: Iterable[Tensor],
    *,
    train: Iterable[Any],
    test: Iterable[Any] | None = None,
    weights: Tensor | Sequence[float] | None = None,
    rho: float = 0.0,
    size: Size | None = None,
    batches: int = 32,
    confidence: float = 0.95,
    seed: int | Sequence[int] = 0,
) -> Estimate:
    r"""Estimate what `trimol.measure` measures, from random batches of the data.

    The shortest combination of noisy gradients is no estimate of R_opt: at a Pareto stationary
    point it is the noise's length, not zero. So half of the batches (A) chooses the weights
    :math:`\lambda_A` and the unit vector u along :math:`q = \nabla F_A \lambda_A`, and the other
    half (B), which is independent of them, tests these. For *any* fixed choice

    .. math:: \min_m \langle u, \nabla f_m \rangle \;\le\;
              R = \min_{\lambda \in \Delta^M} \|\nabla F \lambda\| \;\le\; \|\nabla F \lambda_A\|,

    the left by duality. The left side is M means of numbers; the bound of the least mean is the
    least of their Student bounds, with no correction for M: it is too large only if the bound of
    that one mean is. The right side is the norm of one mean vector, bounded as in
    `trimol.errors._bracket`; its unbiased square is the estimate. With ρ > 0 the same holds of the
    gradients with √ρ times the unit vectors appended, whose R is
    :math:`\tilde R^2 = \min_\lambda \|\nabla F\lambda\|^2 + \rho\|\lambda\|^2`. And since
    :math:`\|\nabla F (\lambda_A - \lambda^*_\rho)\|^2 + \rho \|\lambda_A - \lambda^*_\rho\|^2
    \le \delta^2 := \|\nabla F\lambda_A\|^2 + \rho\|\lambda_A\|^2 - \tilde R^2` (a projection onto
    a convex set), :math:`\sqrt{E_{ca}}` is within δ of :math:`\|\nabla F(\lambda - \lambda_A)\|`,
    and :math:`\sqrt{E_{caw}}` within :math:`\delta/\sqrt\rho` of :math:`\|\lambda - \lambda_A\|`.
    Error probabilities of the bounds used are added up, so that a bracket misses the truth (that
    of all the data given) with probability 1 − ``confidence`` at most, where the mean of a few
    batches' gradients is near normal. Each bracket is for itself, not all at once.

    The batches should be of the size that training takes, or larger: a bracket's width is about
    the noise of the mean of B. Memory: two Jacobians, and for each batch of B one gradient (with
    weights two, with ρ > 0 three).

    Where every objective has its own number of samples in a batch, all means are over these, and
    each batch counts in each mean for the objective's share. How much of the spread of B is an
    objective's is then taken from the numbers of samples in A, which B's gradients need not wait
    for; memory for one more Jacobian.

    Under an initialised ``torch.distributed`` group call it on every process: a batch is then
    the batches of all processes together.

    Args:
        losses: From a batch to its M losses, each the mean over the batch.
        params: The parameters x.
        train: The training data: a ``DataLoader`` or a list of batches, from which random batches
            are taken, or any iterable of batches in random order.
        test: Data that was not trained on.
        weights: λ, usually ``method.weights``; needed for the conflict.
        rho: ρ of λ*_ρ.
        size: How many samples a batch holds, from the batch; read off it by default. M numbers
            where every loss is the mean over its own samples, as for `trimol.measure`.
        batches: How many batches to take of each data set, at most; 8 at least.
        confidence: With which probability a bracket is to cover the truth.
        seed: Decides which batches.

    Example:
        >>> import torch, trimol
        >>> from trimol.errors import estimate
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().mean(), (x + 1).square().mean()])
        >>> data = (1 + torch.randn(10_000, generator=torch.Generator().manual_seed(0))).split(20)
        >>> found = estimate(losses, [x], train=data, batches=32)
        >>> found.opt.covers(trimol.measure(losses, [x], train=data).opt)
        True
    """
    held, given = checked(params), checked_weights(weights)
    check_rho(rho)
    count = whole_number("batches", batches, least=LEAST_BATCHES)
    miss = 1 - _checked_confidence(confidence)
    vector = LossVector(losses, held, None if given is None else len(given))
    with undisturbed(held):
        look = _Look(vector, held, size, count, seed)
        on_train = look.at(train, "train", given, rho)
        on_test = None if test is None else look.at(test, "test", None, 0.0)
    found = _brackets(on_train, on_test, given, rho, miss)
    return Estimate(
        **found,  # type: ignore[arg-type]
        errors=_point(on_train, on_test, found, rho),
        loss_errors=tuple(on_train.losses.error.tolist()),
        confidence=1 - miss,
        batches=len(on_train.losses.sizes),
    )


@dataclass(frozen=True)
class _Findings:
    """What the batches of one data set have shown.

    Attributes:
        losses: Of all clusters.
        gramian: Of the mean gradients of all clusters.
        combinations: What A has chosen, a row each: the weights for R; with ρ > 0 those for R̃;
            λ minus the last of them, if there are weights λ.
        probes: ∇F_A times each row: ‖·‖,
        along: its inner products with B's clusters' gradients, n × M each,
        norms: and what tells the norm of ∇F times each row, from B's clusters.
    """

    losses: Numbers
    gramian: Tensor
    combinations: Tensor
    probes: list[float]
    along: list[Numbers]
    norms: list[Norm]

    def least(self, choice: int, rho: float, alpha: float) -> float:
        """A bound of R (of R̃ with ρ) from below, too large with probability ``alpha``."""
        weights = self.combinations[choice]
        length = math.sqrt(self.probes[choice] ** 2 + rho * float(weights.square().sum()))
        if length == 0:
            return 0.0
        bounds = self.along[choice].lower(alpha) + rho * weights
        return max(float(bounds.min()) / length, 0.0)

    def stationarity(self, alpha: float) -> Bracket:
        """R, outside of its bounds with probability ``alpha``."""
        low, norm = self.least(0, 0.0, alpha / 2), self.norms[0]
        return root(norm.square, norm.square_error, low, max(norm.upper(alpha / 2), low))


class _Look:
    """Goes over random batches: half of them to choose directions, the others to test these."""

    def __init__(
        self,
        losses: LossVector,
        params: Sequence[Tensor],
        size: Size | None,
        batches: int,
        seed: int | Sequence[int],
    ) -> None:
        self.losses, self.params, self.size, self.batches = losses, params, size, batches
        own = [seed] if isinstance(seed, int) else list(seed)
        self.seed = [*own, dist.get_rank() if reduce.is_distributed() else 0]

    def at(self, loader: Iterable[Any], name: str, weights: Tensor | None, rho: float) -> _Findings:
        """What random batches of this loader show."""
        check_loader(name, loader)
        chosen, count = subsample(loader, self.batches, self.seed)
        if count < LEAST_BATCHES:
            raise BadValue(f"{name} must have at least {LEAST_BATCHES} batches, found {count}")
        walk = Walk(chosen, self.params, name=name, size=self.size)
        seen = _Seen(self._clusters(walk))
        for _ in islice(seen, count // 2):
            pass
        check_present(seen.samples, f"the first half of {name}'s batches")
        choice = _chosen(seen, weights, rho)
        test = _Test(choice, (choice / seen.samples).to(seen.jacobian) @ seen.jacobian, seen)
        for rows in seen:
            test.add(rows)
        if len(seen.sizes) != count:
            raise BadValue(f"{name} must give {count} batches, found {len(seen.sizes)}")
        half = torch.stack(seen.sizes[count // 2 :])
        check_present(half.sum(0), f"the second half of {name}'s batches")
        return _Findings(
            losses=_numbers(torch.stack(seen.losses), torch.stack(seen.sizes)),
            gramian=_gramian(seen),
            combinations=choice,
            **test.findings(half),
        )

    def _clusters(self, walk: Walk) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Of each batch (of all processes together): its losses, gradients and size (or M)."""
        for batch, samples in walk:
            vector = self.losses(batch)
            rows, values = own_rows(vector, self.params), vector.detach().double()
            own = torch.as_tensor(samples).to(values)
            mean = reduce.mean_small(own)
            if reduce.is_distributed():
                share = (own / mean.where(mean > 0, 1)).expand(len(values))
                (rows,) = reduce.mean_large([rows * share[:, None].to(rows)])
                values = reduce.mean_small(values * share)
            walk.check(values, rows, everywhere=True)
            yield values.cpu(), rows, mean.cpu()


class _Seen:
    """An iterator over the gradients of clusters that keeps their losses, sizes and the sum."""

    def __init__(self, clusters: Iterator[tuple[Tensor, Tensor, Tensor]]) -> None:
        self.clusters = clusters
        self.losses: list[Tensor] = []
        self.sizes: list[Tensor] = []

    def __iter__(self) -> Iterator[Tensor]:
        for losses, rows, size in self.clusters:
            if not self.sizes:
                self.jacobian = torch.zeros_like(rows, dtype=torch.float64)
            _add(self.jacobian, rows, size)
            self.losses.append(losses)
            self.sizes.append(size)
            yield rows

    @property
    def samples(self) -> Tensor:
        """How many samples so far, of each objective."""
        return torch.stack(self.sizes).sum(0).expand(len(self.losses[0]))


class _Test:
    """What the second half of the batches says of the combinations that the first has chosen."""

    def __init__(self, combinations: Tensor, probes: Tensor, seen: _Seen) -> None:
        self.combinations, self.probes, self.seen = combinations, probes, seen
        self.along: list[Tensor] = []
        self.vectors: list[Tensor] = []
        self.several = seen.sizes[0].dim() > 0
        if self.several:
            self.usual = seen.samples / len(seen.sizes)
            self.before = seen.jacobian.clone()

    def add(self, rows: Tensor) -> None:
        """Look at the gradients of one cluster."""
        self.along.append(_inner(self.probes, rows))
        share = self.seen.sizes[-1] / self.usual if self.several else 1.0
        self.vectors.append((self.combinations * share).to(rows) @ rows)

    def findings(self, sizes: Tensor) -> dict[str, Any]:
        """The fields of `_Findings` that come from here."""
        along = torch.stack(self.along, 1)
        if self.several:
            self._centre(sizes)
        alike = torch.ones(len(sizes), dtype=torch.float64) if self.several else sizes
        return {
            "probes": self.probes.norm(dim=1).tolist(),
            "along": [_numbers(values, sizes) for values in along],
            "norms": [Norm(gramian, alike) for gramian in _gramians(self.vectors)],
        }

    def _centre(self, sizes: Tensor) -> None:
        """Make Σ λ_m s_m g_m of each cluster, s_m its size, Σ λ_m (ḡ_m + s_m (g_m − ḡ_m)).

        Their plain mean is then that of the ratios, and their residuals are the ratios'.
        """
        means = (self.seen.jacobian - self.before) / sizes.sum(0)[:, None].to(self.before)
        for number, own in enumerate(sizes):
            rest = (self.combinations * (1 - own / self.usual)).to(means) @ means
            self.vectors[number] = self.vectors[number].double() + rest


def _chosen(seen: _Seen, weights: Tensor | None, rho: float) -> Tensor:
    """The combinations of `_Findings`, from the clusters seen so far."""
    gramian = _gramian(seen)
    rows = [simplex.min_norm(gramian)]
    if weights is not None:
        if rho > 0:
            rows.append(simplex.min_norm(gramian, rho))
        rows.append(weights - rows[-1])
    return torch.stack(rows)


def _gramian(seen: _Seen) -> Tensor:
    return gram(seen.jacobian).cpu() / torch.outer(seen.samples, seen.samples)


def _add(total: Tensor, rows: Tensor, size: Tensor) -> None:
    """Add the gradients of a cluster, as often as it has samples."""
    if not size.dim():
        total.add_(rows, alpha=size.item())
        return
    for own, row, count in zip(total, rows, size.tolist(), strict=True):
        own.add_(row, alpha=count)


def _numbers(values: Tensor, sizes: Tensor) -> Numbers:
    """Numbers of clusters with one size each, or with one for each number.

    With sizes n × K, w = n_b / n̄ of each number, those of clusters of one size that have the same
    means v̄ and residuals: v̄ + w_b (v_b − v̄).
    """
    if sizes.dim() == 1:
        return Numbers(values, sizes)
    mean = (values * sizes).sum(0) / sizes.sum(0)
    alike = mean + sizes / sizes.mean(0) * (values - mean)
    return Numbers(alike, torch.ones(len(sizes), dtype=torch.float64))


def _inner(first: Tensor, second: Tensor) -> Tensor:
    """The inner products of all rows of one with all rows of the other, in float64."""
    blocks = zip(first.split(_COLUMNS, 1), second.split(_COLUMNS, 1), strict=True)
    return torch.stack([a.double() @ b.double().T for a, b in blocks]).sum(0).cpu()


def _gramians(vectors: Sequence[Tensor]) -> Tensor:
    """From a c × d tensor a cluster to the c Gramians over clusters, in float64, by columns."""
    columns = zip(*(each.split(_COLUMNS, 1) for each in vectors), strict=True)
    blocks = (torch.stack(parts, 1).double() for parts in columns)
    return torch.stack([block @ block.mT for block in blocks]).sum(0).cpu()


def _brackets(
    train: _Findings, test: _Findings | None, weights: Tensor | None, rho: float, miss: float
) -> dict[str, Bracket | None]:
    """All brackets, each missing the truth with probability ``miss`` at most."""
    found: dict[str, Bracket | None] = dict.fromkeys(["pop", "gen", "conflict", "conflict_weight"])
    found["opt"] = train.stationarity(miss)
    if test is not None:
        found["pop"] = test.stationarity(miss)
        found["gen"] = _difference(test.stationarity(miss / 2), train.stationarity(miss / 2))
    if weights is not None:
        found["conflict"] = _conflict(train, rho, miss)
        if rho > 0:
            found["conflict_weight"] = _conflict_weight(train, rho, miss)
    return found


def _difference(first: Bracket, second: Bracket) -> Bracket:
    return Bracket(
        value=first.value - second.value,
        error=math.hypot(first.error, second.error),
        low=first.low - second.high,
        high=first.high - second.low,
    )


def _slack(train: _Findings, rho: float, alpha: float) -> float:
    """δ of `estimate`, too small with probability ``alpha``. The last choice is that for ρ."""
    choice = len(train.norms) - 2
    weights = train.combinations[choice]
    high = train.norms[choice].upper(alpha / 2) ** 2 + rho * float(weights.square().sum())
    return math.sqrt(max(high - train.least(choice, rho, alpha / 2) ** 2, 0.0))


def _conflict(train: _Findings, rho: float, miss: float) -> Bracket:
    """E_ca: within δ of ‖∇F(λ − λ_A)‖, before squaring."""
    norm, slack = train.norms[-1], _slack(train, rho, miss / 2)
    probe, along = train.probes[-1], train.along[-1]
    between = Numbers(along.values @ train.combinations[-1][:, None], along.sizes)
    near = between.lower(miss / 4).item() / probe if probe > 0 else 0.0
    low = max(near - slack, 0.0) ** 2
    high = max((norm.upper(miss / 4) + slack) ** 2, low)
    return Bracket(min(max(norm.square, low), high), norm.square_error, low, high)


def _conflict_weight(train: _Findings, rho: float, miss: float) -> Bracket:
    """E_caw: within δ/√ρ of ‖λ − λ_A‖, before squaring; no two weights are more than √2 apart."""
    distance = float(train.combinations[-1].norm())
    slack = _slack(train, rho, miss) / math.sqrt(rho)
    low, high = max(distance - slack, 0.0), min(distance + slack, math.sqrt(2))
    return Bracket(distance**2, math.nan, low**2, high**2)


def _point(
    train: _Findings, test: _Findings | None, found: dict[str, Bracket | None], rho: float
) -> Errors:
    """The estimates in the shape of `Errors`."""
    values = {name: None if b is None else b.value for name, b in found.items()}
    return Errors(
        **values,  # type: ignore[arg-type]
        losses=tuple(train.losses.mean.tolist()),
        test_losses=None if test is None else tuple(test.losses.mean.tolist()),
        min_norm=tuple(simplex.min_norm(train.gramian, rho).tolist()),
        gramian=train.gramian,
        test_gramian=None if test is None else test.gramian,
    )


def _checked_confidence(confidence: float) -> float:
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise BadValue(f"confidence must be between 0 and 1, found {confidence!r}")
    return float(confidence)
