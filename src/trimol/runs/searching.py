"""Search for good settings of methods: grids, at random, or by Optuna's TPE."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trimol._checks import whole_number
from trimol.runs import _sweep_results as results
from trimol.runs._journal import Watch
from trimol.runs._judging import flat_goals
from trimol.runs._lock import locked
from trimol.runs._pool import cores
from trimol.runs._proposals import JOURNAL, Grid, Proposals, Sampled, TrialJournal
from trimol.runs._storage import make_folder
from trimol.runs._sweep_results import Sweep
from trimol.runs._trials import SweepPlan, Trial, Work
from trimol.runs.study import save

__all__ = ["Sweep", "SweepPlan", "Trial", "sweep"]

_CHUNK = 8  # trials of each method and job at once, where none depends on another


def sweep(
    plan: SweepPlan,
    folder: Path | str,
    *,
    jobs: int | None = None,
    on: str | None = None,
    watch: Watch | None = None,
    told: Callable[[Sequence[Trial]], None] | None = None,
) -> Sweep:
    """Try settings of methods, and find each method's best on validation data.

    Every trial is an ordinary run in a folder of its own below ``tuning-only``: what is on disk is
    not run again. A search that was interrupted or killed goes on when it is called again as
    before, and comes to the same trials as if nothing had happened.

    Args:
        plan: What is searched.
        folder: Where the runs are stored.
        jobs: How many runs at a time (`execute_all`). TPE asks for as many trials of each method
            before it learns from them, so another number finds other trials; a search that was
            begun keeps its own.
        on: A Ray cluster to run them on (`execute_all`).
        watch: Called with a run's configuration, its steps done and its record or None.
        told: Called with trials that came to an end, in their order.

    Raises:
        Diverged: Every trial of a method did.
        Interrupted: Ctrl-C or SIGTERM; what was done is on disk.

    Example:
        >>> import tempfile
        >>> plan = SweepPlan(
        ...     "digits", ["static"], steps=20, lr=[0.1, 1.0, 3.0], options={"validation": 200}
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = sweep(plan, folder)
        >>> found.best["static"].setting
        {'lr': 3.0}
    """
    path, many = Path(folder), 1 if on is None else cores()
    many = many if jobs is None else whole_number("jobs", jobs, least=1)
    make_folder(path)
    with locked(path):
        if plan.how == "grid":
            sources: dict[str, Proposals] = {m: Grid(own) for m, own in plan.grids.items()}
            at_once = _CHUNK * many
        else:
            sources, at_once = _sampled(plan, path / JOURNAL, many)
        trials = Work(plan, path, jobs=jobs, on=on, watch=watch, told=told).run(sources, at_once)
        found = Sweep(plan, tuple(trials), path)
        save(results.study(found), path)
    return found


def _sampled(plan: SweepPlan, file: Path, jobs: int) -> tuple[dict[str, Proposals], int]:
    """Searches by Optuna, and how many trials each asks for at once."""
    journal, sources = TrialJournal(file), dict[str, Proposals]()
    names = {method: f"{plan.made.name}: {method}" for method in plan.methods}
    learns = plan.how == "tpe"
    began = next((own for name in names.values() if (own := journal.plan(name))), {})
    at_once = int(began.get("at_once", jobs)) if learns else _CHUNK * jobs
    goals = flat_goals(plan.goals)
    for method, name in names.items():
        decisive = {**plan.summary(method), **({"at_once": at_once} if learns else {})}
        journal.open(name, decisive, goals)
        sources[method] = Sampled(
            name,
            plan.how,
            plan.spaces[method],
            plan.made.objectives,
            goals,
            trials=plan.count,
            seed=plan.seed,
            journal=journal,
        )
    return sources, at_once
