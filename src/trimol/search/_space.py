"""What may be tried of a method: learning rate, weights and positive hyper-parameters, by ratio."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimol import methods
from trimol.search._setting import Setting, normalised, rounded
from trimol.training.loop import Schedule

# Powers of ten to either side: of the learning rate, and of the ratio of two weights.
RATES, RATIOS = 1.5, 2.5
Place = dict[str, float]  # powers of ten, by dimension


@dataclass(frozen=True)
class SearchSpace:
    """What may be tried of a method.

    Attributes:
        method: The method's name.
        objectives: Their number.
        lr: The learning rate in the middle.
        ranges: Positive hyper-parameters, each from a least to a largest value.
        weighs: The hyper-parameter that takes one weight for each objective; None if none does.
        fixed: Hyper-parameters that stay.
        schedule: How the learning rate falls.
        reach: Powers of ten around the learning rate that may be tried.
        lengths: The gradients' lengths, where steps are as long as the weighted gradient: then
            places have the learning rate that makes equal weights' steps as long.
    """

    method: str
    objectives: int
    lr: float
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    weighs: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None = None
    reach: float = RATES
    lengths: Sequence[float] | None = None

    @property
    def dimensions(self) -> dict[str, tuple[float, float]]:
        """The bounds of every dimension, in powers of ten."""
        middle = math.log10(self.lr)
        found = {"lr": (middle - self.reach, middle + self.reach)}
        found |= {n: (math.log10(a), math.log10(b)) for n, (a, b) in self.ranges.items()}
        if self.weighs is not None:
            found |= {f"{self.weighs}.{m}": (-RATIOS, RATIOS) for m in range(1, self.objectives)}
        return found

    def setting(self, place: Mapping[str, float]) -> Setting:
        """Return the setting at a place.

        >>> space = SearchSpace("static", 3, 0.1, weighs="weights")
        >>> space.setting({"lr": 0.0, "weights.1": 0.0, "weights.2": 1.0}).weights
        (0.08333, 0.08333, 0.8333)
        """
        own = {name: rounded(10 ** place[name]) for name in self.ranges}
        if self.weighs is not None:
            powers = [0.0] + [place[f"{self.weighs}.{m}"] for m in range(1, self.objectives)]
            own[self.weighs] = normalised([10**power for power in powers])  # type: ignore[assignment]
        rate = rounded(10 ** place["lr"] * self._stretch(own))
        return Setting(self.method, rate, {**self.fixed, **own}, self.schedule)

    def _stretch(self, own: Mapping[str, Any]) -> float:
        """Return by how much shorter the weighted gradient is than that of equal weights.

        Gradients count as orthogonal: those of many parameters nearly are.
        """
        if self.lengths is None or self.weighs is None:
            return 1.0
        equal = [1 / self.objectives] * self.objectives
        each = (equal, own[self.weighs])
        sizes = [math.hypot(*(w * g for w, g in zip(ws, self.lengths, strict=True))) for ws in each]
        return sizes[0] / sizes[1] if all(sizes) else 1.0

    def place(self, setting: Setting) -> Place:
        """Return where a setting lies; moved to the nearest bound where it is outside."""
        own = setting.hyperparameters
        found = {"lr": math.log10(setting.lr / self._stretch(own))}
        found |= {name: math.log10(own[name]) for name in self.ranges}
        if self.weighs is not None:
            sizes = [max(float(weight), 1e-12) for weight in own[self.weighs]]
            ratios = [math.log10(size / sizes[0]) for size in sizes[1:]]
            found |= {f"{self.weighs}.{m}": ratio for m, ratio in enumerate(ratios, 1)}
        bounds = self.dimensions
        return {n: min(max(at, bounds[n][0]), bounds[n][1]) for n, at in found.items()}

    def start(self, lr: float | None = None, weights: Sequence[float] | None = None) -> Setting:
        """Return the setting to begin with: equal weights, hyper-parameters in the middle."""
        own: dict[str, Any] = {n: rounded(math.sqrt(a * b)) for n, (a, b) in self.ranges.items()}
        if self.weighs is not None:
            own[self.weighs] = normalised(weights or [1.0] * self.objectives)
        rate = rounded(self.lr * self._stretch(own)) if lr is None else lr
        return Setting(self.method, rate, {**self.fixed, **own}, self.schedule)


def space_of(
    method: str,
    objectives: int,
    lr: float,
    *,
    schedule: Schedule | None = None,
    lengths: Sequence[float] | None = None,
    length: str = "mean gradient",
) -> SearchSpace:
    """Return what is searched of a method where nobody says more.

    By default steps of methods are as long as those of equal weights, so that one range of learning
    rates suits all. Hyper-parameters whose default is no number (``"auto"``) stay at it.
    """
    kind = methods.get(method)
    weighs = kind.prefers
    static = kind.needs == "nothing"
    return SearchSpace(
        method,
        objectives,
        lr,
        ranges={name: own for name, own in kind.search.items() if is_tuned(kind, name)},
        weighs=weighs,
        fixed={} if static or length == "own" else {"length": length},
        schedule=schedule,
        lengths=lengths if static else None,
    )


def is_tuned(method: type[methods.Method], name: str) -> bool:
    """Whether a hyper-parameter has a number as its default.

    >>> is_tuned(methods.get("uw"), "lr"), is_tuned(methods.get("modo"), "gamma")
    (True, False)
    """
    default = inspect.signature(method.__init__).parameters[name].default
    return isinstance(default, int | float) and not isinstance(default, bool)
