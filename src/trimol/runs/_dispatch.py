"""Units of runs, handed out to whoever executes them until none is left."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from trimol.runs._journal import Watch
from trimol.runs._signals import Interrupted, noting_signals
from trimol.runs._together import Unit
from trimol.training import Diverged


class Dispatch(ABC):
    """Units that are handed out, the longest first; a subclass knows to whom.

    Attributes:
        left: What has not been handed out yet.
        diverged: The runs that diverged so far, by their folders.
    """

    def __init__(self, units: Sequence[Unit], watch: Watch | None) -> None:
        self.watch = watch
        self.left = sorted(units, key=lambda unit: unit.steps, reverse=True)
        self.diverged: dict[Path, Diverged] = {}

    def run(self) -> dict[Path, Diverged]:
        """Execute all of them; those that diverged, by their folders."""
        with noting_signals() as noted:
            self.begin()
            try:
                while self.left or self.busy:
                    if noted.signal is not None:
                        raise Interrupted(
                            "interrupted; every run is saved where it was: run the same command "
                            "again to go on",
                            noted.code,
                        )
                    self.hand_out()
                    self.listen()
            finally:
                self.end()
        return self.diverged

    def begin(self) -> None:  # noqa: B027
        """Get ready."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a unit is being executed."""

    @abstractmethod
    def hand_out(self) -> None:
        """Give units to those who are free."""

    @abstractmethod
    def listen(self) -> None:
        """Wait for news, not for long, and take notice."""

    @abstractmethod
    def end(self) -> None:
        """Ask those that are still at work to save and stop, and wait until they have."""
