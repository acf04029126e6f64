"""What may be tried of a method where somebody says so: a dimension for each name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from trimol._checks import number_of_runs
from trimol._failures import BadValue
from trimol.search._ranges import Dimension, Simplex
from trimol.search._setting import Setting

LR, SCHEDULE, CONSTANT = "lr", "schedule", "constant"
PREFIX = "method."  # of a hyper-parameter that has the name of one of the run's


@dataclass(frozen=True)
class RangeSpace:
    """What may be tried of a method: a dimension for each name.

    Names are ``lr``, ``schedule``, a hyper-parameter's, or ``hyper-parameter.objective``.

    Attributes:
        method: The method's name.
        dimensions: What may be tried, by name.
        objectives: The objectives' names.
        lr: The learning rate where none is searched for.
    """

    method: str
    dimensions: Mapping[str, Dimension]
    objectives: Sequence[str]
    lr: float

    def setting(self, values: Mapping[str, Any]) -> Setting:
        """Return the setting of these values, by name.

        >>> space = RangeSpace("preference", {}, ("ctr", "cvr"), 0.1)
        >>> space.setting({"lr": 1.0, "bounds.ctr": 0.2}).hyperparameters
        {'bounds': {'ctr': 0.2}}
        """
        own: dict[str, Any] = {}
        for name, value in values.items():
            outer, dot, objective = name.removeprefix(PREFIX).partition(".")
            if dot:
                own.setdefault(outer, {})[objective] = value
            elif name not in (LR, SCHEDULE):
                own[outer] = value
        schedule = values.get(SCHEDULE)
        falls = None if schedule == CONSTANT else schedule
        return Setting(self.method, values.get(LR, self.lr), own, falls)

    def values(self, setting: Setting) -> dict[str, Any]:
        """Return the values of a setting, by name: the inverse of `setting`."""
        found: dict[str, Any] = {}
        for name in self.dimensions:
            outer, dot, objective = name.removeprefix(PREFIX).partition(".")
            if name == LR:
                found[name] = setting.lr
            elif name == SCHEDULE:
                found[name] = setting.schedule or CONSTANT
            else:
                value = setting.hyperparameters[outer]
                found[name] = value[objective] if dot else value
        return found

    @property
    def size(self) -> int | None:
        """The number of settings, at most; None if they cannot be counted."""
        sizes = [own.size(len(self.objectives)) for own in self.dimensions.values()]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    def grid(self) -> list[Setting]:
        """Return all settings, the last dimension changing fastest."""
        count = len(self.objectives)
        for name, own in self.dimensions.items():
            if own.size(count) is None:
                hint = "simplex:4" if isinstance(own, Simplex) else f"{own}:5"
                raise BadValue(f"{name} must have a number of points for a grid, such as {hint}")
        number_of_runs(f"the grid of {', '.join(self.dimensions)}", self.size or 0)
        each = [own.values(count) for own in self.dimensions.values()]
        return [self.setting(dict(zip(self.dimensions, at, strict=True))) for at in product(*each)]

    def ends(self) -> list[Setting]:
        """Return settings by which to check all: every end, with the first of the others."""
        ends = {name: own.ends(len(self.objectives)) for name, own in self.dimensions.items()}
        first = {name: own[0] for name, own in ends.items()}
        each = [{**first, name: value} for name, own in ends.items() for value in own]
        return [self.setting(values) for values in each or [first]]

    def edges(self, setting: Setting) -> list[str]:
        """Return the names whose values are at an end of what may be tried."""
        found = self.values(setting).items()
        return [name for name, value in found if self.dimensions[name].is_edge(value)]
