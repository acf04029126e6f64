"""Trainings that take no time: metrics by a formula of the setting, with a known gain of a method.

A landscape has a best learning rate and best weights; a training's metrics get worse with the
distance from there, in powers of ten, and are noisy. The method `PLANTED` has metrics that are
better by a known share. ``benchmarks/verdicts.py`` lets `trimol.diagnose` find out.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Literal

from trimol.search import Setting
from trimol.tasks.task import Better

PLANTED, OTHER = "upgrad", "mgda"
RATE = 0.1  # the learning rate to begin with
WRONG = 0.5  # powers of ten: a start that is wrong by √10
FLAT, STEEP = 0.02, 0.3  # what one power of ten costs
COLLAPSED, LOST = 0.1, 0.5  # a training in ten collapses: its metrics are so much worse
# Shares of the noise's variance: of a seed, of a training, and of each metric of it.
SEED, TRAINING, METRIC = 0.3, 0.4, 0.3
Tail = Literal["normal", "heavy", "collapse", "methods collapse"]


@dataclass(frozen=True)
class Landscape:
    """A formula in place of a training.

    Attributes:
        name: Names it, and its random numbers.
        rate: What one power of ten from the best learning rate costs, as a share.
        weight: The same for weights; methods without weights have the best ones.
        noise: The standard deviation of a metric, as a share.
        wrong: Powers of ten from the start to the best setting.
        wrong_method: The same for the methods' learning rate; None for the same as static's.
        tail: Whether trainings have outliers, or collapse: those of all, or of methods alone.
        objectives: Their number.
        metrics: Their number; from the third on, higher is better.
        cliff: Powers of ten above the best learning rate from which on trainings diverge.
        gain: By which share `PLANTED` is better.
    """

    name: str
    rate: float = FLAT
    weight: float = FLAT
    noise: float = 0.03
    wrong: float = 0.0
    wrong_method: float | None = None
    tail: Tail = "normal"
    objectives: int = 2
    metrics: int = 2
    cliff: float = math.inf
    gain: float = 0.0

    @cached_property
    def goals(self) -> dict[str, Better]:
        """The metrics, and which way is better."""
        return {f"m{k}": "lower" if k < 2 else "higher" for k in range(self.metrics)}

    def levels(self, setting: Setting, *, planted: bool = True) -> list[float]:
        """Return the metrics without noise and collapses; NaN where training diverges."""
        own = setting.weights
        wrong = self.wrong if own or self.wrong_method is None else self.wrong_method
        off = math.log10(setting.lr / RATE) - wrong
        if off > self.cliff:
            return [math.nan] * self.metrics
        sides = [math.log10(w / own[0]) - self.wrong for w in own[1:]] if own else [0.0]
        cost = self.rate * off**2 + self.weight * fmean(side**2 for side in sides)
        trade = self.weight * fmean(sides) / 2  # lowers one metric and raises the next
        gain = self.gain if planted and setting.method == PLANTED else 0.0
        found = []
        for k, way in enumerate(self.goals.values()):
            loss = cost + (-1) ** k * trade
            factor = (1 + loss) * (1 - gain) if way == "lower" else (1 + gain) / (1 + loss)
            found.append((k + 1) * factor)
        return found

    def __call__(self, setting: Setting, seed: int, final: bool) -> dict[str, float]:
        """Return the metrics of a training."""
        kind = "test" if final else "validation"
        of_seed = self._draw(f"{kind} {seed}")
        of_training = self._draw(f"{kind} {seed} {setting.key}")
        luck = [
            math.sqrt(SEED) * of_seed
            + math.sqrt(TRAINING) * of_training
            + math.sqrt(METRIC) * self._draw(f"{kind} {seed} {setting.key} {k}")
            for k in range(self.metrics)
        ]
        lost = self._random(f"{seed} {setting.key}") < self._collapsed(setting)
        values = [1 + max(-0.9, self.noise * each) + LOST * lost for each in luck]
        ways, levels = self.goals.items(), self.levels(setting)
        return {
            name: level * value if way == "lower" else level / value
            for (name, way), level, value in zip(ways, levels, values, strict=True)
        }

    def gain_of(self, base: Setting, own: Setting, *, planted: bool = True) -> float:
        """Return the true gain of one setting over another, as `diagnose` scores it.

        That is the mean over metrics of the logarithm of their ratio.
        """
        return self._score(*(self._expected(each, planted) for each in (base, own)))

    def noise_of(self, base: Setting, own: Setting, count: int = 200) -> float:
        """Return the standard deviation of the gain from seed to seed."""
        seeds = range(-count, 0)  # no diagnosis has these
        drawn = (
            [[math.log(v) for v in self(s, seed, True).values()] for s in (base, own)]
            for seed in seeds
        )
        return stdev(self._score(a, b) for a, b in drawn)

    def _collapsed(self, setting: Setting) -> float:
        """Return the chance that a training collapses."""
        all_do, methods_do = self.tail == "collapse", self.tail == "methods collapse"
        return COLLAPSED if all_do or (methods_do and not setting.weights) else 0.0

    def _expected(self, setting: Setting, planted: bool) -> list[float]:
        """Return the means of the metrics' logarithms, with collapses, but for what all share."""
        of_noise = self.noise**2 / 2 * (1 - (1 + LOST) ** -2)
        lost = self._collapsed(setting) * (math.log(1 + LOST) + of_noise)
        signs = [1 if way == "lower" else -1 for way in self.goals.values()]
        levels = self.levels(setting, planted=planted)
        return [math.log(level) + sign * lost for sign, level in zip(signs, levels, strict=True)]

    def _score(self, base: Sequence[float], own: Sequence[float]) -> float:
        """Score one setting's logarithms of metrics relative to another's."""
        signs = [1 if way == "lower" else -1 for way in self.goals.values()]
        return fmean(sign * (a - b) for sign, a, b in zip(signs, base, own, strict=True))

    def _random(self, what: str) -> float:
        return random.Random(f"{self.name} {what}").random()

    def _draw(self, what: str) -> float:
        """Return a number of mean 0 and variance 1."""
        source = random.Random(f"{self.name} {what}")
        normal = source.gauss(0, 1)
        if self.tail != "heavy":
            return normal
        squares = sum(source.gauss(0, 1) ** 2 for _ in range(3))
        return normal / math.sqrt(squares)  # Student's t with 3 degrees of freedom, scaled


LANDSCAPES = (
    Landscape("flat, noise 1 %", noise=0.01),
    Landscape("flat", wrong=WRONG),
    Landscape("flat, noise 10 %", noise=0.1),
    Landscape("steep rate", rate=STEEP),
    Landscape("steep rate, wrong start", rate=STEEP, wrong=WRONG, noise=0.01),
    Landscape("steep weights", weight=STEEP),
    Landscape("steep weights, wrong start", weight=STEEP, wrong=WRONG),
    Landscape("steep, noise 1 %", rate=STEEP, weight=STEEP, noise=0.01),
    Landscape("steep, wrong start", rate=STEEP, weight=STEEP, wrong=WRONG, noise=0.1),
    Landscape("steep rate, wrong for methods", rate=STEEP, wrong_method=WRONG),
    Landscape("steep rate, diverges", rate=STEEP, cliff=WRONG),
    Landscape("outliers", tail="heavy"),
    Landscape("outliers, steep, wrong start", rate=STEEP, weight=STEEP, wrong=WRONG, tail="heavy"),
    Landscape("collapses", tail="collapse"),
    Landscape("collapses, steep", rate=STEEP, weight=STEEP, tail="collapse", noise=0.01),
    Landscape("methods collapse", tail="methods collapse", noise=0.01),
    Landscape("three objectives", objectives=3, metrics=3),
    Landscape(
        "three, steep, wrong start",
        rate=STEEP,
        weight=STEEP,
        wrong=WRONG,
        objectives=3,
        metrics=3,
    ),
    Landscape("four metrics", rate=STEEP, metrics=4),
)
