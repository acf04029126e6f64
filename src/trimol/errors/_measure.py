"""`measure`: the three errors of a model, over whole data sets, in one call."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from trimol import simplex
from trimol.errors._conflict import conflict_direction, conflicting, cosines, weight_distance
from trimol.errors._fulldata import FullData, Size, full_data
from trimol.errors._inputs import (
    LossVector,
    check_loader,
    check_rho,
    checked_weights,
    names_of,
    undisturbed,
)
from trimol.errors._pareto import stationarity
from trimol.gradients import Losses
from trimol.gradients._params import checked
from trimol.gradients._rows import gram

ROUNDING = 16 * sys.float_info.epsilon  # the share of two numbers that is no difference of theirs


@dataclass(frozen=True)
class Errors:
    """The three errors at one point x, and what they were computed from.

    ``print(errors)`` shows the first five in one line. Two `Errors` are equal if these are.

    Attributes:
        opt: R_opt = min_λ ‖∇F_S(x) λ‖ over the training data: 0 at a Pareto stationary point.
        pop: R_pop, the same over the test data; None without test data.
        gen: R_gen = pop − opt, with its sign; None without test data.
        conflict: E_ca = ‖∇F_S(x)(λ − λ*_ρ(x))‖², for the weights λ given; None without.
        conflict_weight: E_caw = ‖λ − λ*_ρ(x)‖², for the weights λ given and ρ > 0. None for ρ = 0:
            λ* need not be unique then, and a distance from one of many would mean nothing.
        losses: F_S(x), the mean training losses.
        test_losses: The mean test losses; None without test data.
        min_norm: λ*_ρ(x), the conflict-avoiding weights of the training data.
        gramian: ∇F_Sᵀ∇F_S of the training data, M × M.
        test_gramian: The same of the test data; None without.
        bound: ‖∇F_test(x) − ∇F_S(x)‖_F, which ``|gen|`` never exceeds (the paper's first
            proposition, for these data); None without test data.
        direction: ∇F_S(x)(λ − λ*_ρ(x)), a vector of d entries, for the weights λ given; None
            without. `trimol.errors.conflict_over_runs` takes those of several runs.
        objectives: What the objectives are called, in the order of all numbers: their names, or
            0, 1, … where losses have none.
    """

    opt: float
    pop: float | None
    gen: float | None
    conflict: float | None
    conflict_weight: float | None
    losses: tuple[float, ...] = field(compare=False)
    test_losses: tuple[float, ...] | None = field(compare=False)
    min_norm: tuple[float, ...] = field(compare=False)
    gramian: Tensor = field(compare=False, repr=False)
    test_gramian: Tensor | None = field(compare=False, repr=False)
    bound: float | None = field(default=None, compare=False)
    direction: Tensor | None = field(default=None, compare=False, repr=False)
    objectives: tuple[str | int, ...] = field(default=(), compare=False)

    @property
    def norms(self) -> tuple[float, ...]:
        """The training gradients' norms ‖∇f_m‖."""
        return tuple(self.gramian.diagonal().sqrt().tolist())

    @property
    def test_norms(self) -> tuple[float, ...] | None:
        """The test gradients' norms; None without test data."""
        gramian = self.test_gramian
        return None if gramian is None else tuple(gramian.diagonal().sqrt().tolist())

    @property
    def cosines(self) -> Tensor:
        """The cosines between the training gradients, M × M; NaN for those of a zero gradient."""
        return cosines(self.gramian)

    @property
    def conflicting(self) -> float:
        """The fraction of pairs of objectives whose training gradients have a negative cosine.

        A zero gradient is in no conflict, and a single objective has no pairs: both count as 0.
        """
        return conflicting(self.gramian)

    def __str__(self) -> str:
        shown = {
            "opt": self.opt,
            "pop": self.pop,
            "gen": self.gen,
            "conflict": self.conflict,
            "conflict weight": self.conflict_weight,
        }
        return " · ".join(f"{k} {short(v)}" for k, v in shown.items() if v is not None)


def measure(
    losses: Callable[[Any], Losses],
    params: Iterable[Tensor],
    *,
    train: Iterable[Any],
    test: Iterable[Any] | None = None,
    weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
    rho: float = 0.0,
    size: Size | None = None,
) -> Errors:
    r"""Measure how far x is from Pareto stationary, what of it is lost on new data, and conflict.

    .. math::
        R_{opt} &= \min_{\lambda \in \Delta^M} \|\nabla F_S(x) \lambda\|, \qquad
        R_{pop} = \min_{\lambda \in \Delta^M} \|\nabla F_{test}(x) \lambda\|, \qquad
        R_{gen} = R_{pop} - R_{opt} \\
        E_{ca} &= \|\nabla F_S(x) (\lambda - \lambda^*_\rho(x))\|^2, \qquad
        E_{caw} = \|\lambda - \lambda^*_\rho(x)\|^2

    with :math:`\lambda` = ``weights``, :math:`\rho` = ``rho`` (for the conflict only: R has none)
    and :math:`\lambda^*_\rho(x) = \arg\min_{\lambda \in \Delta^M} \|\nabla F_S(x) \lambda\|^2 +
    \rho \|\lambda\|^2`. Gradients are means over *all* samples, whatever the batches' sizes, and
    are summed in float64; the min-norm problems are solved exactly.

    Nothing is changed: not ``.grad``, no graph is kept, random generators (Python's, NumPy's,
    torch's, those of a loader or of ``losses``) are put back. But ``losses`` is called as it is,
    with the model in the mode you left it in. **Put the model in eval mode.** With dropout in train
    mode the errors are those of one random mask a batch. With batch normalisation in train mode
    they depend on how the data is batched, and measuring moves the running statistics of the model,
    as any forward pass does. (`trimol.training.evaluating` is a context manager that does it and
    puts every module's mode back.)

    Under an initialised ``torch.distributed`` group call it on every process; the data of all is
    one data set. Loaders must give as many batches on each.

    Args:
        losses: From a batch to its M losses, each the mean over the batch: a 1-D tensor, a
            sequence of scalars, or scalars by name. None for an objective that the batch has no
            sample of: its mean is over the samples of the batches that have it.
        params: The parameters x, usually those that were given to the method.
        train: The training data S: any iterable of batches, gone over once.
        test: Data that was not trained on, which stands for the population.
        weights: λ, usually ``method.weights``. Needed for the conflict, which is between points of
            the simplex: weights with another sum (some methods') are scaled to sum to one, or
            their absolute values are, where some weights are negative. By name
            (``method.weights_by_name``) where the losses are.
        rho: ρ of λ*_ρ.
        size: How many samples a batch holds, from the batch. By default the length that its
            tensors have in common (as `trimol.data.split` finds it). To be given for batches that
            do not show it, and for losses that are means over something else than samples, such
            as tokens. M numbers, in order or by name, as methods take them for ``counts``, where
            every loss is a mean over its own samples (a data set for each objective, missing
            labels): every objective's mean is then over all of *its* samples. One that has none in
            a batch counts 0, whatever its loss is there.

    Example:
        Two quadratics, pulled to 1 and to −1 by the training data, to 2 and to −1 by the test data.

        >>> import torch, trimol
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().mean(), (x + 1).square().mean()])
        >>> train, test = [torch.tensor([0.5, 1.5]), torch.tensor([1.0])], [torch.tensor([2.0])]
        >>> errors = trimol.measure(losses, [x], train=train, test=test, weights=[0.5, 0.5])
        >>> print(errors)
        opt 4 · pop 2 · gen -2 · conflict 4
        >>> errors.min_norm, errors.norms
        ((1.0, 0.0), (4.0, 8.0))

    Reference:
        L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
        Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 2.
    """
    held, given = checked(params), checked_weights(weights)
    check_rho(rho)
    vector = LossVector(losses, held, None if given is None else len(given), names_of(weights))
    check_loader("train", train)
    if test is not None:
        check_loader("test", test)
    with undisturbed(held, losses, train, test):
        on_train = full_data(vector, held, train, name="train", size=size)
        on_test = None if test is None else full_data(vector, held, test, name="test", size=size)
    return replace(from_means(on_train, on_test, given, rho), objectives=tuple(vector.called))


def short(value: float) -> str:
    """A number in two digits, as short as can be.

    >>> short(0.0019), short(4e-5), short(0.53), short(123.4)
    ('1.9e-3', '4e-5', '0.53', '123')
    """
    if not math.isfinite(value) or value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.2g}"
    if 100 <= abs(value) < 1000:
        return f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def from_means(
    train: FullData, test: FullData | None, weights: Tensor | None, rho: float
) -> Errors:
    """The errors, from mean losses and gradients; λ on the simplex, in float64, or no conflict."""
    gramian = gram(train.jacobian).cpu()
    avoiding = simplex.min_norm(gramian, rho)
    opt = stationarity(train.jacobian)
    pop = None if test is None else stationarity(test.jacobian)
    direction = conflict_weight = None
    if weights is not None:
        direction = conflict_direction(train.jacobian, weights, avoiding)
        conflict_weight = weight_distance(weights, avoiding) if rho > 0 else None
    return Errors(
        opt=opt,
        pop=pop,
        gen=None if pop is None else _apart(pop, opt),
        conflict=None if direction is None else float(direction.square().sum()),
        conflict_weight=conflict_weight,
        losses=tuple(train.losses.tolist()),
        test_losses=None if test is None else tuple(test.losses.tolist()),
        min_norm=tuple(avoiding.tolist()),
        gramian=gramian,
        test_gramian=None if test is None else gram(test.jacobian).cpu(),
        bound=None if test is None else _distance(train.jacobian, test.jacobian),
        direction=direction,
    )


def _apart(pop: float, opt: float) -> float:
    """R_pop − R_opt; 0 where that is but the rounding of the two.

    >>> _apart(0.3, 0.1 + 0.2), _apart(0.5, 0.25)
    (0.0, 0.25)
    """
    return 0.0 if abs(pop - opt) <= ROUNDING * max(pop, opt) else pop - opt


def _distance(first: Tensor, second: Tensor) -> float:
    """‖first − second‖_F, one row at a time; 0 where that is but rounding."""
    apart = math.hypot(*(float((a - b).norm()) for a, b in zip(first, second, strict=True)))
    return 0.0 if apart <= ROUNDING * float(first.norm()) else apart
