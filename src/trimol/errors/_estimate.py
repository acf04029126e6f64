"""`estimate`: the three errors from random batches, each between two bounds.

Read `estimate` first, for the inequalities. Then, in its order: the batches (1), what is chosen on
one half of them and tested on the other (2), the brackets that follow (3).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from trimol import simplex
from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.errors._bracket import Bracket, Norm, Numbers, root
from trimol.errors._fulldata import (
    Size,
    Sums,
    Walk,
    check_present,
    own_rows,
    without_absent,
)
from trimol.errors._inputs import (
    LossVector,
    check_loader,
    check_rho,
    checked_weights,
    names_of,
    undisturbed,
)
from trimol.errors._measure import Errors, short
from trimol.errors._subsample import subsample
from trimol.gradients import Losses
from trimol.gradients import _reduce as reduce
from trimol.gradients._params import checked
from trimol.gradients._rows import gram

# Four batches to choose a direction on, four to test it on: fewer tell no variance.
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
        errors: The values in the shape that `trimol.measure` gives. What has no bracket above is
            computed from the noisy batches as it is: norms are too large on average.
        loss_errors: The standard errors of ``errors.losses``.
        confidence: The least probability with which a bracket covers the true value.
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
        brackets = {name: getattr(self, name) for name in names}
        return {name: bracket for name, bracket in brackets.items() if bracket is not None}

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
    weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
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
        losses: From a batch to its M losses, each the mean over the batch, in order or by name.
        params: The parameters x.
        train: The training data: a ``DataLoader`` or a list of batches, from which random batches
            are taken, or any iterable of batches in random order.
        test: Data that was not trained on.
        weights: λ, usually ``method.weights``; needed for the conflict.
        rho: ρ of λ*_ρ.
        size: How many samples a batch holds, from the batch; read off it by default. M numbers
            where every loss is the mean over its own samples, as for `trimol.measure`; needed
            where a loss may be None.
        batches: How many batches to take of each data set, at most; 8 at least.
        confidence: The least probability with which each bracket is to cover the true value.
        seed: Decides which batches.

    Example:
        >>> import torch, trimol
        >>> from trimol.errors import estimate
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().mean(), (x + 1).square().mean()])
        >>> data = (1 + torch.randn(10_000, generator=torch.Generator().manual_seed(0))).split(20)
        >>> errors = estimate(losses, [x], train=data, batches=32)
        >>> errors.opt.covers(trimol.measure(losses, [x], train=data).opt)
        True
    """
    held, given = checked(params), checked_weights(weights)
    check_rho(rho)
    count = whole_number("batches", batches, least=LEAST_BATCHES)
    miss = 1 - _checked_confidence(confidence)
    vector = LossVector(losses, held, None if given is None else len(given), names_of(weights))
    source = _Source(vector, held, size, count, seed)
    with undisturbed(held, losses, train, test):
        on_train = _look(source, "train", train, given, rho)
        on_test = None if test is None else _look(source, "test", test, None, 0.0)

    opt = on_train.shortest.bracket(miss)
    pop = None if on_test is None else on_test.shortest.bracket(miss)
    gen = None if on_test is None else _difference(on_test.shortest, on_train.shortest, miss)
    conflict = None if given is None else _conflict(on_train, rho, miss)
    conflict_weight = None if given is None or rho == 0 else _conflict_weight(on_train, rho, miss)
    return Estimate(
        opt=opt,
        pop=pop,
        gen=gen,
        conflict=conflict,
        conflict_weight=conflict_weight,
        errors=Errors(
            opt=opt.value,
            pop=_value(pop),
            gen=_value(gen),
            conflict=_value(conflict),
            conflict_weight=_value(conflict_weight),
            losses=tuple(on_train.losses.mean.tolist()),
            test_losses=None if on_test is None else tuple(on_test.losses.mean.tolist()),
            min_norm=tuple(simplex.min_norm(on_train.gramian, rho).tolist()),
            gramian=on_train.gramian,
            test_gramian=None if on_test is None else on_test.gramian,
            objectives=tuple(vector.called),
        ),
        loss_errors=tuple(on_train.losses.error.tolist()),
        confidence=1 - miss,
        batches=len(on_train.losses.sizes),
    )


def from_clusters(
    clusters: Sequence["Cluster"], params: Sequence[Tensor], weights: Tensor, confidence: float
) -> tuple[Bracket, Bracket]:
    """R_opt and E_ca of weights, from batches whose gradients are held, in random order."""
    miss = 1 - _checked_confidence(confidence)
    found = _tested(iter(clusters), len(clusters), params, "train", weights, 0.0)
    return found.shortest.bracket(miss), _conflict(found, 0.0, miss)


# 1. The batches, each with its losses and gradients.


@dataclass(frozen=True)
class _Source:
    """What `estimate` was given to draw batches with and to differentiate."""

    losses: LossVector
    params: Sequence[Tensor]
    size: Size | None
    batches: int
    seed: int | Sequence[int]

    def clusters(self, name: str, loader: Iterable[Any]) -> tuple[Iterator["Cluster"], int]:
        """Random batches of the loader, one by one, and how many there will be."""
        check_loader(name, loader)
        own = [self.seed] if isinstance(self.seed, int) else list(self.seed)
        rank = dist.get_rank() if reduce.is_distributed() else 0
        chosen, count = subsample(loader, self.batches, [*own, rank])
        if count < LEAST_BATCHES:
            raise BadValue(f"{name} must have at least {LEAST_BATCHES} batches, found {count}")
        return self._clusters(Walk(chosen, self.params, name=name, size=self.size)), count

    def _clusters(self, walk: Walk) -> Iterator["Cluster"]:
        for batch, samples in walk:
            vector, told = walk.read(self.losses, batch, samples)
            if isinstance(told, Tensor) and isinstance(samples, float):
                raise BadValue(
                    "size must give one number for each objective where a loss is None, for an "
                    f"estimate, found {samples:g}"
                )
            vector, rows = without_absent(vector, own_rows(vector, self.params), told)
            values = vector.detach().double()
            own = torch.as_tensor(told).to(values)
            mean = reduce.mean_small(own)
            if reduce.is_distributed():  # a mean over all samples: by each process's share of them
                share = (own / mean.where(mean > 0, 1)).expand(len(values))
                (rows,) = reduce.mean_large([rows * share[:, None].to(rows)])
                values = reduce.mean_small(values * share)
            walk.check(values, rows, everywhere=True)
            yield Cluster(values.cpu(), rows, mean.cpu())


class Cluster(NamedTuple):
    """One batch, of all processes together."""

    losses: Tensor  # M numbers
    rows: Tensor  # the M × d gradients
    size: Tensor  # how many samples: one number, or M


class _Total:
    """The clusters so far: their losses and sizes, and the sum of their gradients."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = params
        self.losses: list[Tensor] = []
        self.sizes: list[Tensor] = []

    def add(self, cluster: Cluster) -> None:
        """Add the gradients of a cluster, as often as it has samples."""
        if not self.sizes:
            self._sums = Sums(len(cluster.losses), self.params)
        size = cluster.size if cluster.size.dim() else cluster.size.item()
        self._sums.add(cluster.losses, cluster.rows, size)
        self.losses.append(cluster.losses)
        self.sizes.append(cluster.size)

    @property
    def jacobian(self) -> Tensor:
        """Σ n_b ∇F_b, M × d."""
        return self._sums.jacobian

    @property
    def samples(self) -> Tensor:
        """Σ n_b, of each objective."""
        return torch.stack(self.sizes).sum(0).expand(len(self.losses[0]))

    @property
    def gramian(self) -> Tensor:
        """That of the mean gradients."""
        return gram(self.jacobian).cpu() / torch.outer(self.samples, self.samples)


# 2. One half of them (A) chooses combinations of the objectives, the other (B) tests these.


@dataclass(frozen=True)
class _Combination:
    """A combination c of the objectives that A has chosen, and what B tells of ∇F c."""

    coefficients: Tensor  # c, M numbers
    length: float  # ‖q‖ of the direction q = ∇F_A c
    along: Numbers  # ⟨q, ∇f_m⟩ of B's clusters, n × M
    norm: Norm  # ‖∇F c‖ from B's clusters

    def lower(self, rho: float, alpha: float) -> float:
        """A bound of R (of R̃ with ρ) from below, too large with probability ``alpha``.

        min_m ⟨u, ∇f_m⟩ ≤ R with u = q/‖q‖; for R̃ vectors have √ρ times the unit vectors appended.
        """
        length = math.sqrt(self.length**2 + rho * float(self.coefficients.square().sum()))
        if length == 0:
            return 0.0
        bounds = self.along.lower(alpha) + rho * self.coefficients
        return max(float(bounds.min()) / length, 0.0)

    def bracket(self, alpha: float) -> Bracket:
        """R, from min_m ⟨u, ∇f_m⟩ to ‖∇F c‖; outside with probability ``alpha``."""
        low = self.lower(0.0, alpha / 2)
        high = max(self.norm.upper(alpha / 2), low)
        return root(self.norm.square, self.norm.square_error, low, high)


@dataclass(frozen=True)
class _Findings:
    """What the batches of one data set have shown."""

    losses: Numbers  # of all clusters
    gramian: Tensor  # of the mean gradients of all clusters
    combinations: list[_Combination]  # in the order of `_chosen`

    @property
    def shortest(self) -> _Combination:
        """λ_A for R."""
        return self.combinations[0]


def _look(
    source: _Source, name: str, loader: Iterable[Any], weights: Tensor | None, rho: float
) -> _Findings:
    """Go over random batches of one data set: choose on the first half, test on the second."""
    clusters, count = source.clusters(name, loader)
    return _tested(clusters, count, source.params, name, weights, rho)


def _tested(
    clusters: Iterator[Cluster],
    count: int,
    params: Sequence[Tensor],
    name: str,
    weights: Tensor | None,
    rho: float,
) -> _Findings:
    """What ``count`` clusters show: the first half chooses, the second tests."""
    total, half = _Total(params), count // 2
    for cluster in islice(clusters, half):
        total.add(cluster)
    _check_number(name, total, count, half)
    check_present(total.samples, f"the first half of {name}'s batches")
    test = _Test(_chosen(total.gramian, weights, rho), total)
    for cluster in clusters:
        total.add(cluster)
        test.add(cluster)
    _check_number(name, total, count, count)
    check_present(torch.stack(test.sizes).sum(0), f"the second half of {name}'s batches")
    losses = Numbers(torch.stack(total.losses), torch.stack(total.sizes))
    return _Findings(losses, total.gramian, test.combinations(total))


def _check_number(name: str, total: _Total, count: int, by_now: int) -> None:
    if len(total.sizes) != by_now:
        raise BadValue(f"{name} must give {count} batches, found {len(total.sizes)}")


def _chosen(gramian: Tensor, weights: Tensor | None, rho: float) -> Tensor:
    """λ_A for R; with weights λ also λ_A for R̃ (the same without ρ), and λ − λ_A."""
    rows = [simplex.min_norm(gramian)]
    if weights is not None:
        if rho > 0:
            rows.append(simplex.min_norm(gramian, rho))
        rows.append(weights - rows[-1])
    return torch.stack(rows)


class _Test:
    """What B says of the combinations (rows of ``chosen``) that A, the total so far, has chosen."""

    def __init__(self, chosen: Tensor, total: _Total) -> None:
        self.chosen = chosen
        # q = ∇F_A c of each.
        self.probes = (chosen / total.samples).to(total.jacobian) @ total.jacobian
        self.along: list[Tensor] = []
        self.vectors: list[Tensor] = []
        self.sizes: list[Tensor] = []
        self.own_sizes = total.sizes[0].dim() > 0  # of each objective
        if self.own_sizes:
            self.usual = total.samples / len(total.sizes)
            self.before = total.jacobian.clone()

    def add(self, cluster: Cluster) -> None:
        """Look at the gradients of one cluster: ⟨q, g_m⟩, and Σ c_m g_m or Σ c_m s_m g_m."""
        self.along.append(_inner(self.probes, cluster.rows))
        shares = cluster.size / self.usual if self.own_sizes else 1.0
        self.vectors.append((self.chosen * shares).to(cluster.rows) @ cluster.rows)
        self.sizes.append(cluster.size)

    def combinations(self, total: _Total) -> list[_Combination]:
        """The results; ``total`` is by now of A and B."""
        sizes = torch.stack(self.sizes)
        if self.own_sizes:
            self._centre((total.jacobian - self.before) / sizes.sum(0)[:, None].to(self.before))
        alike = torch.ones(len(sizes), dtype=torch.float64) if self.own_sizes else sizes
        return [
            _Combination(c, length, Numbers(along, sizes), Norm(gramian, alike))
            for c, length, along, gramian in zip(
                self.chosen,
                self.probes.norm(dim=1).tolist(),
                torch.stack(self.along, 1),
                _gramians(self.vectors),
                strict=True,
            )
        ]

    def _centre(self, means: Tensor) -> None:
        """Make Σ c_m s_m g_m of each cluster, s_m its relative size, Σ c_m (ḡ_m + s_m (g_m − ḡ_m)).

        Their plain mean is then that of the ratio estimates ḡ_m, and so are their residuals.
        """
        for number, size in enumerate(self.sizes):
            rest = (self.chosen * (1 - size / self.usual)).to(means) @ means
            self.vectors[number] = self.vectors[number].double() + rest


def _inner(first: Tensor, second: Tensor) -> Tensor:
    """The inner products of all rows of one with all rows of the other, in float64."""
    blocks = zip(first.split(_COLUMNS, 1), second.split(_COLUMNS, 1), strict=True)
    return torch.stack([a.double() @ b.double().T for a, b in blocks]).sum(0).cpu()


def _gramians(vectors: Sequence[Tensor]) -> Tensor:
    """From a c × d tensor a cluster to the c Gramians over clusters, in float64, by columns."""
    columns = zip(*(each.split(_COLUMNS, 1) for each in vectors), strict=True)
    blocks = (torch.stack(parts, 1).double() for parts in columns)
    return torch.stack([block @ block.mT for block in blocks]).sum(0).cpu()


# 3. The brackets that follow; the error probabilities of the bounds used in one add up to ``miss``.


def _difference(pop: _Combination, opt: _Combination, miss: float) -> Bracket:
    """R_gen = R_pop − R_opt, half of the error probability for each."""
    first, second = pop.bracket(miss / 2), opt.bracket(miss / 2)
    return Bracket(
        value=first.value - second.value,
        error=math.hypot(first.error, second.error),
        low=first.low - second.high,
        high=first.high - second.low,
    )


def _slack(avoiding: _Combination, rho: float, alpha: float) -> float:
    """δ = √(‖∇Fλ_A‖² + ρ‖λ_A‖² − R̃²) of `estimate`, too small with probability ``alpha``."""
    penalty = rho * float(avoiding.coefficients.square().sum())
    high = avoiding.norm.upper(alpha / 2) ** 2 + penalty
    return math.sqrt(max(high - avoiding.lower(rho, alpha / 2) ** 2, 0.0))


def _conflict(train: _Findings, rho: float, miss: float) -> Bracket:
    """E_ca: √E_ca is within δ of ‖∇F(λ − λ_A)‖."""
    *_, avoiding, apart = train.combinations
    slack = _slack(avoiding, rho, miss / 2)
    # ⟨u, v⟩ ≤ ‖v‖ ≤ upper bound, with v = ∇F(λ − λ_A) and u the unit vector along A's v.
    along = apart.along.combined(apart.coefficients)
    near = along.lower(miss / 4).item() / apart.length if apart.length > 0 else 0.0
    low = max(near - slack, 0.0) ** 2
    high = max((apart.norm.upper(miss / 4) + slack) ** 2, low)
    return Bracket(min(max(apart.norm.square, low), high), apart.norm.square_error, low, high)


def _conflict_weight(train: _Findings, rho: float, miss: float) -> Bracket:
    """E_caw: √E_caw is within δ/√ρ of ‖λ − λ_A‖; no two weights are more than √2 apart."""
    *_, avoiding, apart = train.combinations
    distance = float(apart.coefficients.norm())
    slack = _slack(avoiding, rho, miss) / math.sqrt(rho)
    low, high = max(distance - slack, 0.0), min(distance + slack, math.sqrt(2))
    return Bracket(distance**2, math.nan, low**2, high**2)


def _value(bracket: Bracket | None) -> float | None:
    return None if bracket is None else bracket.value


def _checked_confidence(confidence: float) -> float:
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise BadValue(f"confidence must be between 0 and 1, found {confidence!r}")
    return float(confidence)
