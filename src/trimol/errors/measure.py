"""`measure`: the three errors of a model, over whole data sets, in one call."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from trimol import simplex
from trimol.errors.conflict import direction_distance, weight_distance
from trimol.errors.fulldata import FullData, full_data
from trimol.errors.pareto import stationarity
from trimol.gradients import Evidence, Losses
from trimol.gradients.losses import as_vector
from trimol.gradients.params import checked
from trimol.gradients.rows import gram


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

    @property
    def norms(self) -> tuple[float, ...]:
        """The training gradients' norms ‖∇f_m‖."""
        return tuple(self.gramian.diagonal().sqrt().tolist())

    @property
    def test_norms(self) -> tuple[float, ...] | None:
        """The test gradients' norms; None without test data."""
        gramian = self.test_gramian
        return None if gramian is None else tuple(gramian.diagonal().sqrt().tolist())

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
    weights: Tensor | Sequence[float] | None = None,
    rho: float = 0.0,
    size: Callable[[Any], float] | None = None,
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

    Nothing is changed: not ``.grad``, no graph is kept, torch's random state is put back (a
    loader's own ``generator`` is not: give `measure` loaders of its own). But ``losses`` is called
    as it is, with the model in the mode you left it in. **Put the model in eval mode.** With
    dropout in train mode the errors are those of one random mask a batch. With batch normalisation
    in train mode they depend on how the data is batched, and measuring moves the running
    statistics of the model, as any forward pass does. (`trimol.training.evaluating` is a context
    manager that does it and puts every module's mode back.)

    Under an initialised ``torch.distributed`` group call it on every process; the data of all is
    one data set. Loaders must give as many batches on each.

    Args:
        losses: From a batch to its M losses, each the mean over the batch: a 1-D tensor, or a
            sequence of scalars.
        params: The parameters x, usually those that were given to the method.
        train: The training data S: any iterable of batches, gone over once.
        test: Data that was not trained on, which stands for the population.
        weights: λ, usually ``method.weights``. Needed for the conflict, which is between points of
            the simplex: weights with another sum (some methods') are scaled to sum to one.
        rho: ρ of λ*_ρ.
        size: How many samples a batch holds, from the batch. By default the length that its
            tensors have in common (as `trimol.data.split` finds it). To be given for batches that
            do not show it, and for losses that are means over something else than samples, such
            as tokens.

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
    held, given = checked(params), _weights(weights)
    _check_rho(rho)
    vector = _LossVector(losses, held, None if given is None else len(given))
    _check_loader("train", train)
    if test is not None:
        _check_loader("test", test)
    with _undisturbed(held):
        on_train = full_data(vector, held, train, name="train", size=size)
        on_test = None if test is None else full_data(vector, held, test, name="test", size=size)
    return _errors(on_train, on_test, given, rho)


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


def _errors(train: FullData, test: FullData | None, weights: Tensor | None, rho: float) -> Errors:
    gramian = gram(train.jacobian).cpu()
    avoiding = simplex.min_norm(gramian, rho)
    opt = stationarity(train.jacobian)
    pop = None if test is None else stationarity(test.jacobian)
    conflict = conflict_weight = None
    if weights is not None:
        conflict = direction_distance(train.jacobian, weights, avoiding)
        conflict_weight = weight_distance(weights, avoiding) if rho > 0 else None
    return Errors(
        opt=opt,
        pop=pop,
        gen=None if pop is None else pop - opt,
        conflict=conflict,
        conflict_weight=conflict_weight,
        losses=tuple(train.losses.tolist()),
        test_losses=None if test is None else tuple(test.losses.tolist()),
        min_norm=tuple(avoiding.tolist()),
        gramian=gramian,
        test_gramian=None if test is None else gram(test.jacobian).cpu(),
    )


class _LossVector:
    """The user's losses, checked: as many on every batch, and as many as weights."""

    def __init__(
        self, losses: Callable[[Any], Losses], params: Sequence[Tensor], weights: int | None
    ) -> None:
        if not callable(losses):
            raise TypeError(
                "losses must be a function from a batch to its loss vector, found "
                f"{type(losses).__name__}"
            )
        self.losses, self.params, self.weights = losses, params, weights
        self.objectives: int | None = None

    def __call__(self, batch: Any) -> Tensor:
        vector = as_vector(self.losses(batch))
        if self.objectives is None:
            self._first(vector)
        if len(vector) != self.objectives:
            raise ValueError(
                f"losses must give as many losses on every batch, found {self.objectives} and "
                f"{len(vector)}"
            )
        return vector

    def _first(self, vector: Tensor) -> None:
        self.objectives = len(vector)
        if self.weights not in (None, self.objectives):
            raise ValueError(
                f"weights must have {self.objectives} entries, one per objective, found "
                f"{self.weights}"
            )
        # A loss that reaches no parameter would have a zero gradient, and make R_opt zero.
        Evidence([vector], self.params, self.objectives)


def _weights(weights: Tensor | Sequence[float] | None) -> Tensor | None:
    if weights is None:
        return None
    found = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
    if found.dim() != 1 or not found.isfinite().all():
        raise ValueError(f"weights must be finite numbers in one dimension, found {weights!r}")
    if not found.sum() > 0:
        raise ValueError(f"weights must have a positive sum, found {found.tolist()}")
    # What is on the simplex to single precision is left as it is, to the last bit.
    return found if abs(found.sum() - 1) < 1e-6 else found / found.sum()


def _check_rho(rho: float) -> None:
    if not isinstance(rho, Real) or not 0 <= rho < float("inf"):
        raise ValueError(f"rho must be a finite number of at least 0, found {rho!r}")


def _check_loader(name: str, loader: Iterable[Any]) -> None:
    # A tensor and a data set can be iterated too, but sample by sample.
    if isinstance(loader, Tensor) or not hasattr(loader, "__iter__"):
        raise TypeError(
            f"{name} must be an iterable of batches (a DataLoader, a list of batches), found "
            f"{type(loader).__name__}"
        )


@contextmanager
def _undisturbed(params: Sequence[Tensor]) -> Iterator[None]:
    """With gradients on, and torch's random state (loaders take from it, too) put back after."""
    cuda = sorted({p.get_device() for p in params if p.is_cuda})
    with torch.random.fork_rng(cuda), torch.enable_grad():
        yield
