"""What is seen of a comparison while it goes on."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from trimol.cli._progress import Progress
from trimol.cli._tables import bar_of, live_table
from trimol.report._numbers import number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trimol.training.records import Record

LATEST = ("R_opt", "R_pop", "E_ca")


class CompareView:
    """Several methods, several seeds each: how far each is, and its errors as last measured.

    Args:
        title: What is compared, in a few words.
        methods: Their names, in the order in which the runs of a seed are started.
        seeds: Runs of each.
        steps: Steps of a run.
    """

    def __init__(self, title: str, methods: Sequence[str], seeds: int, steps: int) -> None:
        self.methods, self.seeds, self.steps = tuple(methods), seeds, steps
        self.fractions: dict[tuple[str, int], float] = {}
        self.latest: dict[str, Record] = {}
        self.progress = Progress(title, len(methods) * seeds * steps)

    def advance(self, method: str, seed: int, fraction: float, record: "Record | None") -> None:
        """A run is so far (a fraction of its steps), and has measured something or nothing."""
        if (method, seed) not in self.fractions:
            self._done_before(method, seed)
        self.fractions[method, seed] = fraction
        if record is not None:
            self.latest[method] = record
        self.progress.advance(round(sum(self.fractions.values()) * self.steps))

    def finish(self) -> None:
        """All runs are done."""
        self.fractions = dict.fromkeys(product(self.methods, range(self.seeds)), 1.0)
        self.progress.advance(self.progress.total)

    def done(self, method: str) -> float:
        """How many runs of a method are done, the one that is running as a fraction."""
        return sum(part for (name, _), part in list(self.fractions.items()) if name == method)

    def line(self) -> str:
        """How far it is, in one line."""
        each = ", ".join(f"{m} {int(self.done(m))}/{self.seeds}" for m in self.methods)
        return f"{self.progress.line()} (runs: {each})"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        table = live_table(("", "", "runs", *LATEST), right=("runs", *LATEST))
        for method in self.methods:
            done, record = self.done(method), self.latest.get(method, {})
            table.add_row(
                method,
                bar_of(done, self.seeds),
                f"{int(done)} of {self.seeds}",
                *[number(record.get(name)) for name in LATEST],
            )
        steps = f"{self.progress.done} of {self.progress.total} steps"
        pace = ", ".join(filter(None, (steps, self.progress.pace)))
        return Group(Text(self.progress.title, style="bold"), table, Text(pace))

    def _done_before(self, method: str, seed: int) -> None:
        """A method's seeds start in order or together, and so do the methods at one seed.

        So what is listed before and was never heard of was done by an earlier process.
        """
        for name in self.methods[: self.methods.index(method) + 1]:
            for i in range(seed + (name != method)):
                self.fractions.setdefault((name, i), 1.0)
