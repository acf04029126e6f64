"""TorchJD's aggregators and weightings, as methods."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from trimol._extras import require
from trimol._failures import BadType, BadValue
from trimol._warnings import warn
from trimol.gradients import Evidence, NonFinite
from trimol.gradients._autocast import no_autocast
from trimol.integrations._capture import Capture, put
from trimol.methods import Method
from trimol.methods.base import Needs, Objectives, StepOptions

Of = Literal["gramian", "jacobian", "pair", "direction"]
_NEEDS: dict[Of, Needs] = {
    "gramian": "gramian",
    "jacobian": "jacobian",
    "pair": "product",
    "direction": "jacobian",
}


class TorchJD(Method):
    r"""Any aggregator or weighting of TorchJD: one scalar out, its state kept.

    .. math:: x_{t+1} = x_t - \alpha\, \mathcal A(\nabla F_z(x_t))

    with :math:`\mathcal A` = ``aggregator``. What it is shown follows from its class, or is told
    by ``of``: the Gramian (in float64, so that models in bfloat16 work), the Jacobian, or, for
    those that double sample, :math:`J_1 J_2^\top` of two independent draws. An aggregator that is
    no weighting of the gradients gives the direction itself; the scalar's value is then the loss
    weighted by λ0.

    The aggregator's state is in ``state_dict()`` and loads into a fresh instance; what it draws at
    random comes from (``seed``, step). One backward per objective (and draw).

    Args:
        params: The parameters that the method weighs.
        objectives: M, the number of losses.
        aggregator: A TorchJD ``Aggregator`` or ``Weighting``, or the name of one that needs no
            arguments. Its state is reset, and belongs to this method from now on.
        of: What it is shown, where its class does not tell: ``"gramian"``, ``"jacobian"``
            or ``"pair"`` (:math:`J_1 J_2^\top`).
        draws: For a pair: 2, or 3, then x moves on the third batch alone.
        seed: Of what the aggregator draws at random.
        weights: λ before the first step.
        every: Compute new weights every so many steps; 1 for an aggregator that gives directions.

    Example:
        >>> import torch, torchjd
        >>> from trimol.integrations.torchjd import TorchJD
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> method = TorchJD([x], objectives=2, aggregator=torchjd.aggregation.PCGrad())
        >>> method(torch.stack([x[0], x[1] - x[0]])).backward()
        >>> x.grad
        tensor([0.5000, 1.5000])

    Reference:
        P. Quinton, V. Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024; TorchJD
        0.18.
    """

    needs: ClassVar[Needs] = "jacobian"
    summary: ClassVar[str] = "An aggregator or a weighting of TorchJD, as a method."
    reference: ClassVar[str] = "quinton2024jacobian"
    aggregator: nn.Module

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        aggregator: nn.Module | str,
        of: Of | None = None,
        draws: int | None = None,
        seed: int = 0,
        weights: Tensor | Sequence[float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=weights, **options)
        if self.steps is not None and self.metric == "step":
            raise BadValue("metric must be 'gradient' for an aggregator of TorchJD, found 'step'")
        theirs = require("torchjd.aggregation", extra="torchjd", purpose="an aggregator")
        own = _named(theirs, aggregator) if isinstance(aggregator, str) else aggregator
        # No submodule: their buffers are None at first, and their state_dict does not load then.
        object.__setattr__(self, "aggregator", own)
        self.of, self._inner = _understood(theirs, own, of)
        self.needs = _NEEDS[self.of]  # type: ignore[misc]  # of this aggregator, not of the class
        self.draws = _checked_draws(draws, self.of)
        if self.of == "direction" and (self.every != 1 or self.cost is not None):
            found = f"every must be 1 and cost None, found {self.every} and {self.cost},"
            raise BadValue(
                f"{found} with {type(own).__name__}, which gives directions and no weights to keep"
            )
        self.seed = seed
        self._direction: Tensor | None = None
        self._capture = Capture(own)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The aggregator's weights; λ0 if it gives a direction, which is kept for `scalar`."""
        shown = self._shown(evidence)
        speaker = getattr(self.aggregator, self._inner) if self._inner else self.aggregator
        with torch.no_grad(), no_autocast(), _seeded(self.seed, int(self.step), shown.device):
            answer: Tensor = speaker(shown)
        if not answer.isfinite().all():
            raise NonFinite
        if self.of != "direction":
            return answer.to(self.weights)
        self._direction = answer
        return self.weights

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """Along its direction; else the weighted loss, of a third draw if there is one."""
        direction, self._direction = self._direction, None
        if direction is not None:
            return evidence.scalar_along(after, direction)
        return evidence.scalar(after, slice(2, None))

    def reset(self) -> Self:
        """Back to the state of a new instance."""
        self._capture.renew(self.aggregator, self._home)
        return super().reset()

    def get_extra_state(self) -> dict[str, Any]:
        """The aggregator's state, for ``state_dict()``."""
        state = self._capture.changed(self.aggregator)
        if state is None:
            warn(
                f"the state of {type(self.aggregator).__name__} holds what cannot be saved: "
                "it starts anew where this state_dict is loaded"
            )
        return state or {}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Give the aggregator the state that ``state_dict()`` holds."""
        self._capture.renew(self.aggregator, self._home)
        put(self.aggregator, state, self._home)

    def extra_repr(self) -> str:
        """What ``print(method)`` shows in the brackets."""
        return f"{super().extra_repr()}, aggregator={self.aggregator!r}, of={self.of!r}"

    @property
    def _home(self) -> torch.device:
        """Where what the aggregator is shown, and so its state, lives."""
        rows = self.of in ("jacobian", "direction")
        return self.params[0].device if rows else self.weights.device

    def _shown(self, evidence: Evidence) -> Tensor:
        """What the aggregator is shown: at least float32, since their solvers refuse bfloat16."""
        if self.of == "gramian":
            return evidence.gramian().to(self.weights)
        if self.of == "pair":
            return evidence.cross(self.weights)
        rows = evidence.jacobian()
        return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _named(theirs: Any, name: str) -> nn.Module:
    kinds = [n for n in theirs.__all__ if n not in ("Aggregator", "Weighting")]
    if name not in kinds:
        raise BadValue(f"aggregator must be one of {', '.join(kinds)}, found {name!r}")
    kind = getattr(theirs, name)
    wanted = [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is parameter.empty
    ]
    if wanted:
        raise BadValue(
            f"aggregator must be an object where it needs arguments ({name} needs "
            f"{', '.join(wanted)}), found the name {name!r}"
        )
    made: nn.Module = kind()
    return made


def _understood(theirs: Any, aggregator: nn.Module, of: Of | None) -> tuple[Of, str]:
    """What it is to be shown, and the attribute of it that gives weights ("": itself)."""
    if isinstance(aggregator, theirs.Aggregator):
        if of is not None:
            raise BadValue(f"of must be None: an aggregator takes the Jacobian, found {of!r}")
        own = type(aggregator).forward
        if own is not theirs.WeightedAggregator.forward:
            return "direction", ""
        by_gramian = isinstance(aggregator, theirs.GramianWeightedAggregator)
        return ("gramian", "gramian_weighting") if by_gramian else ("jacobian", "weighting")
    if not isinstance(aggregator, theirs.Weighting):
        kind = type(aggregator).__name__
        raise BadType(f"aggregator must be a TorchJD Aggregator or Weighting, found {kind}")
    if of not in (None, "gramian", "jacobian", "pair"):
        raise BadValue(f"of must be 'gramian', 'jacobian' or 'pair', found {of!r}")
    return of or _told(theirs, aggregator), ""


def _told(theirs: Any, weighting: nn.Module) -> Of:
    """What a weighting takes, by its class."""
    bases = require(
        "torchjd.aggregation._weighting_bases", extra="torchjd", purpose="an aggregator"
    )
    if isinstance(weighting, theirs.CRMOGMWeighting):  # as the weighting that it smooths
        return _told(theirs, weighting.weighting)
    if isinstance(weighting, (theirs.MoDoWeighting, theirs.SDMGradWeighting)):
        return "pair"
    if isinstance(weighting, bases._GramianWeighting):
        return "gramian"
    if isinstance(weighting, (bases._MatrixWeighting, bases._Composition)):
        return "jacobian"
    kind = type(weighting).__name__
    raise BadValue(f"of must say what {kind} takes: 'gramian', 'jacobian' or 'pair', found None")


def _checked_draws(draws: int | None, of: Of) -> int:
    allowed = (2, 3) if of == "pair" else (1,)
    if draws is not None and draws not in allowed:
        raise BadValue(f"draws must be {' or '.join(map(str, allowed))}, found {draws!r}")
    return allowed[0] if draws is None else draws


@contextmanager
def _seeded(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Theirs use the global generators: these start from (seed, step), and are put back."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    states = [generator.get_state() for generator in generators]
    (mixed,) = np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)
    for generator in generators:
        generator.manual_seed(int(mixed))
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
