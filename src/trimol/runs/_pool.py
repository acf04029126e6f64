"""Many runs: together where they are alike; one by one, or by several workers at a time."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trimol._checks import whole_number
from trimol.runs import store
from trimol.runs._cluster import cluster
from trimol.runs._entry import failed_before, finished, refuse_another
from trimol.runs._execute import run_alone
from trimol.runs._journal import Watch
from trimol.runs._together import Job, Unit, execute_together, units
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.training import Diverged
from trimol.training._replicable import NotReplicable


def execute_all(
    runs: Sequence[Job],
    *,
    jobs: int | None = None,
    watch: Watch | None = None,
    together: bool = True,
    retry: bool = False,
    say: Callable[[str], None] | None = None,
    on: str | None = None,
) -> list[StoredRun | Diverged]:
    """Execute runs, going on with those that are unfinished and skipping those that are finished.

    Runs that differ only in seed, step size or numbers of the method train together, where the
    model is small and task and method allow it (:mod:`trimol.runs._together`). Each has its folder
    all the same, and equals, to rounding, what `execute` makes of it.

    Args:
        runs: Configurations and their folders.
        jobs: How many to run at a time; by default one, and on a cluster as many as it has CPUs.
            More than one: in processes of their own, with the threads of this one shared out
            between them.
        watch: As for `execute`; with several processes not every step is told.
        together: Whether runs may train together. Apart, each is what `execute` makes of it to the
            last bit, also where training amplifies what rounding leaves.
        retry: Whether to go on also with runs that diverged before. The same run diverges again;
            data that are not part of a configuration may have changed.
        say: Told, in a line each, of runs that failed before for another reason: these are tried
            again.
        on: A Ray cluster: ``"ray"`` for the one of ``RAY_ADDRESS``, or else one that is started
            here for this; or the address of one, ``"ray://HOST:PORT"`` or ``"HOST:PORT"``. Its
            nodes must share the runs' folders. Every run has one thread there.

    Returns:
        The runs in their order; where one diverged, that it did.

    Raises:
        RunError: Anything else that stops a run stops all. What was done is on disk.
    """
    many = 1 if jobs is None else whole_number("jobs", jobs, least=1)
    where = None if on is None else cluster(on, called="on ")
    done: dict[Path, StoredRun | Diverged] = {}
    pending: dict[Path, RunConfig] = {}
    asked: dict[Path, RunConfig] = {}
    for config, folder in runs:
        if folder in asked:
            refuse_another(asked[folder], config, folder)
        else:
            asked[folder], there = config, finished(config, folder)
            before = failed_before(config, folder) if there is None else None
            if there is not None:
                done[folder] = there
            elif before is not None and before.diverged and not retry:
                done[folder] = Diverged(before.reason)
            else:
                pending[folder] = config
                if before is not None and say is not None:
                    say(f"{folder} failed before ({before.reason}): it is tried again")
    unfinished = [(config, folder) for folder, config in pending.items()]
    left = units(runs, unfinished) if together else [Unit((job,)) for job in unfinished]
    if left and where is not None:
        from trimol.runs._ray import execute_on

        done |= execute_on(where, left, watch, cpus=max(jobs or 1, cores()), most=jobs)
        left = []
    while left:
        if min(many, len(left)) > 1:
            from trimol.runs._processes import execute_here

            done |= execute_here(left, many, watch)
            break
        unit, *left = left
        try:
            done |= execute_unit(unit, watch)
        except NotReplicable:
            left = unit.apart() + left
    return [done[folder] if folder in done else store.load(folder) for _, folder in runs]


def cores() -> int:
    """The cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def at_a_time(jobs: int | None, on: str | None) -> int | None:
    """How many runs at a time a command has: as many as there are cores, unless it says more."""
    return cores() if jobs is None and on is None else jobs


def execute_unit(unit: Unit, watch: Watch | None) -> dict[Path, Diverged]:
    """Do what is left of one run, or of several together: those that diverged, by their folders."""
    if unit.file is not None:
        return execute_together(unit, watch)
    ((config, folder),) = unit.jobs
    try:
        run_alone(config, folder, resume=True, watch=watch)
    except Diverged as error:
        return {folder: error}
    return {}
