"""How far a run is: the numbers that the live view and the plain lines show."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimol.report._numbers import duration

if TYPE_CHECKING:
    from trimol.training.records import Record


@dataclass
class Progress:
    """How far some work is, and what has been measured on the way.

    Attributes:
        title: What is being done, in a few words.
        total: Steps in all.
        done: Steps done, those of an earlier process included.
        records: What was measured, in the order of the steps.
        clock: Seconds since whenever.
    """

    title: str
    total: int
    done: int = 0
    records: "list[Record]" = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    _from: tuple[int, float] | None = None

    def advance(self, done: int) -> None:
        """So many steps are done by now."""
        if self._from is None:
            self._from = (done, self.clock())
        self.done = done

    def skip(self, done: int) -> None:
        """So many steps are done by now, by an earlier process: they say nothing of the rate."""
        self.done, self._from = done, None

    def measured(self, record: "Record") -> None:
        """A measurement was made."""
        self.records.append(record)

    @property
    def rate(self) -> float | None:
        """Steps a second of this process, measurements included; None before there is one."""
        if self._from is None:
            return None
        steps, seconds = self.done - self._from[0], self.clock() - self._from[1]
        return steps / seconds if steps > 0 and seconds > 0 else None

    @property
    def pace(self) -> str:
        """Rate and time left in words; empty before they are known, and at the end."""
        if self.rate is None or self.done >= self.total:
            return ""
        rate = f"{self.rate:.0f}" if self.rate >= 10 else f"{self.rate:.2g}"
        left = (self.total - self.done) / self.rate
        return f"{rate} steps/s, {duration(left)} left"

    def line(self) -> str:
        """How far it is, in one line; the title alone as long as nobody knows how much there is.

        >>> Progress("digits with modo", total=1000, done=250).line()
        'digits with modo: 250 of 1000 steps'
        """
        if not self.total:
            return self.title
        said = f"{self.title}: {self.done} of {self.total} steps"
        return f"{said}, {self.pace}" if self.pace else said
