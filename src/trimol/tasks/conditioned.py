"""Conditioned: one model for all points of a front, told the preference."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from trimol._checks import nonnegative, one_of, positive, simplex
from trimol._failures import BadValue
from trimol._generators import generators_kept
from trimol.tasks import _answers as answers
from trimol.tasks._around import Around
from trimol.tasks.task import Batch, Task

_PLACES = ("input", "features")


class Conditional(nn.Module):
    """A model that is told a preference, by what it adds to (and multiplies) a tensor inside it.

    At the start it changes nothing.

    Args:
        inner: The model.
        place: The module whose first input, or output, depends on the preference.
        size: The entries of that tensor, without its first dimension: all of an input's, the
            channels of features.
        objectives: M.
        features: Whether it is the output: then FiLM, h ← (1 + γ(r)) h + β(r) for each channel.

    Attributes:
        preference: r, which the next call of the model is told.
    """

    preference: Tensor | None

    def __init__(
        self, inner: nn.Module, place: nn.Module, size: int, objectives: int, *, features: bool
    ) -> None:
        super().__init__()
        self.inner = inner
        self.told = nn.Linear(objectives, 2 * size if features else size, bias=False)
        nn.init.zeros_(self.told.weight)
        self.preference = None
        if features:
            place.register_forward_hook(self._modulate)
        else:
            place.register_forward_pre_hook(self._shift)

    def _code(self) -> Tensor:
        """What the preference is turned into; uniform is zero."""
        if self.preference is None:
            raise BadValue("preference must be set before the model is called, found None")
        told: Tensor = self.told(self.preference.to(self.told.weight) - 1 / len(self.preference))
        return told

    def _shift(self, _module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        first, *others = given
        if not isinstance(first, Tensor) or not first.is_floating_point():
            raise BadValue(
                "the model's first input must be a floating-point tensor to be told a preference, "
                f"found {type(first).__name__}"
            )
        return (first + self._code().view(first.shape[1:]).to(first), *others)

    def _modulate(self, _module: nn.Module, _given: Any, features: Tensor) -> Tensor:
        gain, shift = self._code().to(features).chunk(2)
        each = [-1, *[1] * (features.dim() - 2)]
        return features * (1 + gain.view(each)) + shift.view(each)


class Conditioned(Around):
    r"""Another task with a model that is told which point of the front is wanted.

    In training every loss vector has its own preference r, drawn from a Dirichlet distribution, and
    its losses are :math:`M r_m f_m(x; r)`, so that their mean is the weighted sum :math:`r^\top F`.
    With a ``penalty`` κ each has :math:`\kappa\,(1 - \cos(F, 1/r))` more: the model's losses are to
    lie on the ray of their preference. In eval mode the losses are f(x; r) themselves, at the
    preference ``prefer``, and so are the metrics; `losses_along` gives them for many preferences.

    COSMOS, but for two things. Its cosine is with r itself; here :math:`f_m \propto 1/r_m` is the
    ray, as for the methods, so that a larger r_m means a smaller loss in both terms. And its r is
    concatenated to the input; here a learned linear function of r is added to it, as the first
    layer of a given model has no room for more (before a dense layer no wider than the input that
    is the same).

    Args:
        of: The task: a built-in one's name, or ``path/to/file.py:Class``. Its model must be called
            with a floating-point tensor.
        told: What depends on r: the model's ``"input"``, or the trunk's ``"features"`` (FiLM, one
            gain and shift a channel), where the task names its `representation`.
        alpha: The Dirichlet distribution's parameter, for all objectives: below 1 it prefers
            corners.
        penalty: κ.
        prefer: r in eval mode, on the simplex; uniform by default.
        options: The other options are those of the task ``of``.

    Example:
        >>> task = Conditioned(of="digits")
        >>> model = task.model()
        >>> task.losses_along(model, task.data().test, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).shape
        torch.Size([2, 3])

    Reference:
        M. Ruchte, J. Grabocka, *Scalable Pareto Front Approximation for Deep Multi-Objective
        Learning*, ICDM 2021 (COSMOS); for FiLM E. Perez et al., AAAI 2018.
    """

    name: ClassVar[str] = "conditioned"

    def __init__(
        self,
        *,
        of: str = "digits",
        told: str = "input",
        alpha: float = 1.0,
        penalty: float = 0.0,
        prefer: Sequence[float] | None = None,
        **options: Any,
    ) -> None:
        self.surround(of, options)
        one_of("told", told, _PLACES)
        self.told = told
        self.objectives, self.goals = self.inner.objectives, self.inner.goals
        self.alpha = positive("alpha", alpha)
        self.penalty = nonnegative("penalty", penalty)
        self.prefer = simplex(prefer, len(self.objectives), "prefer")

    def model(self) -> Conditional:
        """A new model of the task, and what tells it the preference."""
        inner = answers.model(self.inner)
        features = self.told == "features"
        place = self.inner.representation(inner) if features else inner
        if place is None:
            raise BadValue(
                f"told must be 'input' for {self.inner.name}, which names no representation, found "
                "'features'"
            )
        size = self._size(inner, place, features=features)
        return Conditional(inner, place, size, len(self.objectives), features=features)

    def _size(self, inner: nn.Module, place: nn.Module, *, features: bool) -> int:
        """The entries of what is to depend on r, seen in one pass of two samples."""
        seen: list[Tensor] = []

        def look(_module: nn.Module, given: tuple[Any, ...], found: Any) -> None:
            seen.extend([found] if features else given[:1])

        hook, modes = place.register_forward_hook(look), [(m, m.training) for m in inner.modules()]
        with generators_kept(self.inner), torch.no_grad():
            self.inner.losses(inner.eval(), tuple(t[:2] for t in self.data().train))
        hook.remove()
        for module, mode in modes:
            module.training = mode
        if not seen or not isinstance(seen[0], Tensor):
            raise BadValue(
                f"of must be a task whose losses call its model with a tensor, found "
                f"{self.inner.name!r}"
            )
        return seen[0].shape[1] if features else seen[0][0].numel()

    def point(
        self, model: nn.Module, preference: Sequence[float], member: int | None
    ) -> tuple[Task, nn.Module]:
        """This task with another preference in eval mode, and the one model."""
        told = copy(self)
        told.prefer = simplex(preference, len(self.objectives), "prefer")
        return told, model

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """M r f, in training at a preference of its own; else f, at ``prefer``."""
        if not model.training:
            return self.losses_at(model, batch, self.prefer)
        count = len(self.objectives)
        r = torch.distributions.Dirichlet(torch.full((count,), self.alpha)).sample()
        values = self.losses_at(model, batch, r)
        weighed = count * r.to(values) * values
        if not self.penalty:
            return weighed
        ray = (r.min() / r.clamp_min(torch.finfo(r.dtype).tiny)).to(values)
        return weighed + self.penalty * (1 - torch.cosine_similarity(values, ray, dim=0))

    def losses_at(self, model: nn.Module, batch: Batch, prefer: Tensor) -> Tensor:
        """f(x; r): the task's losses of the model that is told r."""
        with _telling(model, prefer) as inner:
            return self.inner_losses(inner, batch)

    def losses_along(self, model: nn.Module, batch: Batch, preferences: Iterable[Any]) -> Tensor:
        """The task's losses at each preference, one row each, without a graph."""
        rows = [simplex(prefer, len(self.objectives), "preferences") for prefer in preferences]
        with torch.no_grad():
            return torch.stack([self.losses_at(model, batch, row) for row in rows])

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The task's, at ``prefer``."""
        with _telling(model, self.prefer) as inner:
            return self.inner.metrics(inner, batch)

    def tally(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The task's, at ``prefer``."""
        with _telling(model, self.prefer) as inner:
            return answers.tally(self.inner, inner, batch)

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The task's."""
        return self.inner.conclude(sums)

    def counts(self, batch: Batch) -> Tensor | None:
        """The task's."""
        return answers.counts(self.inner, batch)

    def shared(self, model: nn.Module) -> Iterator[Parameter]:
        """What the task shares, and what tells the model the preference."""
        yield from self.inner.shared(_conditional(model).inner)
        yield from _conditional(model).told.parameters()

    def representation(self, model: nn.Module) -> nn.Module | None:
        """The task's."""
        return self.inner.representation(_conditional(model).inner)


def _conditional(model: nn.Module) -> Conditional:
    assert isinstance(model, Conditional)
    return model


@contextmanager
def _telling(model: nn.Module, prefer: Tensor) -> Iterator[nn.Module]:
    """The task's own model, told a preference for as long as this lasts."""
    conditional = _conditional(model)
    conditional.preference = prefer
    try:
        yield conditional.inner
    finally:
        conditional.preference = None
