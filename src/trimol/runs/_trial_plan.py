"""What a trial is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimol import methods
from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.methods._registry import BASELINE


@dataclass(frozen=True)
class TrialPlan:
    """What is tried.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``.
        methods: The methods that are to beat static weighting.
        options: The task's options.
        trials: Settings tried of each contender, before those around the best; None: 9 for each
            objective and 9 more.
        steps: Steps of every run.
        batch_size: Samples a step.
        seeds: Final runs of each contender; and as many more of the settings that came out best.
        tuning_seeds: Runs of every setting that is tried.
        first_seed: Trials take the seeds from here on, the final runs those after, and the further
            runs of the best settings those after these.
        minutes: No more trials are begun after so long; None: all.
        most: Settings tried of each contender, with those around the best; None: as many as gain.
            Then the best are not run with further seeds, which are trials, too.
        timed: Whether what is chosen is also run at equal time.
        rates: Step sizes to begin with, the same for all contenders, each falling to 0; empty: a
            grid around the task's own settings, which may suit some contenders better than others.
    """

    task: str
    methods: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int | None = None
    steps: int = 500
    batch_size: int = 64
    seeds: int = 10
    tuning_seeds: int = 3
    first_seed: int = 0
    minutes: float | None = None
    most: int | None = None
    timed: bool = True
    rates: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "seeds", "tuning_seeds"):
            whole_number(name, getattr(self, name), least=1)
        whole_number("first_seed", self.first_seed, least=0)
        for name in ("trials", "most"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=1)
        if self.minutes is not None and not self.minutes > 0:
            raise BadValue(f"minutes must be above 0, found {self.minutes}")
        if not self.methods or len({*self.methods, BASELINE}) <= len(self.methods):
            raise BadValue(
                f"methods must be one or more different names other than {BASELINE}, found "
                f"{', '.join(self.methods) or 'none'}"
            )
        for name in self.methods:
            if methods.growth(name):
                raise BadValue(
                    f"methods must take the same samples at every step, found {name!r}, whose "
                    "batches grow"
                )

    @property
    def contenders(self) -> tuple[str, ...]:
        """Static weighting first, then the methods."""
        return BASELINE, *self.methods

    @property
    def seeds_tried(self) -> range:
        """Those that every setting is tried with."""
        return range(self.first_seed, self.first_seed + self.tuning_seeds)

    @property
    def seeds_fresh(self) -> range:
        """Those of the final runs."""
        return range(self.seeds_tried.stop, self.seeds_tried.stop + self.seeds)

    @property
    def seeds_again(self) -> range:
        """Those that the best settings are tried with again."""
        return range(self.seeds_fresh.stop, self.seeds_fresh.stop + self.seeds)
