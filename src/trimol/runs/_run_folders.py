"""Candidates' runs in folders: tried in one place, moved to another when chosen."""

import os
from collections.abc import Sequence
from pathlib import Path

from trimol.runs import store
from trimol.runs._candidates import Candidate, Series
from trimol.runs._journal import Progress, StepCount
from trimol.runs._pool import at_a_time, execute_all
from trimol.runs._storage import StoreError, make_folder
from trimol.runs.store import StoredRun
from trimol.training import Diverged

FINAL, TUNING = "runs", store.ASIDE
Wanted = tuple[Series, Candidate, int]


class RunFolders:
    """A folder in which the runs of every `Series` are executed.

    A candidate's folder is at one of two places: below ``tuning-only`` until it is chosen, below
    ``runs`` from then on.
    """

    def __init__(
        self,
        path: Path,
        total: int,
        watch: Progress | None = None,
        *,
        jobs: int | None,
        on: str | None = None,
        together: bool = False,
    ) -> None:
        self.path, self.jobs, self.on = path, at_a_time(jobs, on), on
        self.together = together
        self.count = StepCount(total, watch)

    def execute(self, wanted: Sequence[Wanted]) -> list[StoredRun | Diverged]:
        """Execute runs, going on with those that are unfinished; in their order."""
        runs = [
            (series.config(candidate, seed), self._place(series, candidate) / f"seed-{seed}")
            for series, candidate, seed in wanted
        ]
        executed = execute_all(
            runs, jobs=self.jobs, watch=self.count, together=self.together, on=self.on
        )
        for (config, folder), run in zip(runs, executed, strict=True):
            self.count(config, config.steps)
            if isinstance(run, StoredRun):  # a finished run is never resumed
                (folder / store.CHECKPOINT).unlink(missing_ok=True)
        return executed

    def choose(self, series: Series, candidate: Candidate) -> None:
        """Make a candidate's runs the series's final ones, and no other's."""
        key = series.key(candidate)
        final, tuning = self.path / FINAL / series.folder, self.path / TUNING / series.folder
        make_folder(final)
        for other in sorted(final.iterdir()):
            if other.name != key:
                _move(other, tuning)
        if (tuning / key).exists():
            _move(tuning / key, final)
        make_folder(final / key)

    def only(self, finals: Sequence[Series]) -> None:
        """Put the final runs of all other series aside: they are of another study."""
        kept = {series.folder for series in finals}
        make_folder(self.path / FINAL)
        for folder in sorted((self.path / FINAL).iterdir()):
            for other in sorted(folder.iterdir()) if folder.name not in kept else ():
                _move(other, self.path / TUNING / folder.name)

    def _place(self, series: Series, candidate: Candidate) -> Path:
        key = series.key(candidate)
        final = self.path / FINAL / series.folder / key
        return final if final.exists() else self.path / TUNING / series.folder / key


def _move(folder: Path, into: Path) -> None:
    make_folder(into)
    try:
        os.rename(folder, into / folder.name)
    except OSError as error:
        raise StoreError(f"cannot move {folder} into {into}: {error.strerror}") from error
