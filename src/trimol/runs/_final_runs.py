"""The final runs of a trial: what was chosen, with fresh seeds, at equal samples and equal time.

``costs-….json`` in the trial's folder has the measured cost of a step, so that a trial that is
resumed has the same steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trimol.methods._registry import BASELINE
from trimol.runs import _storage as files
from trimol.runs._candidates import Candidate
from trimol.runs._costs import step_costs
from trimol.runs._trial_stages import Final, Runs
from trimol.runs.store import StoredRun
from trimol.runs.study import part_name
from trimol.training import Diverged

if TYPE_CHECKING:
    from trimol.runs._trying import Trying

ALIKE = 1.05  # a step that costs at most so many of the baseline's, or one such part, is the same


def final(trying: "Trying", folder: Path, stage: Callable[[str], None]) -> Final:
    """Run what was chosen."""
    settings = {name: trying.chosen(name) for name in trying.series}
    costs = dict.fromkeys(settings, 1.0)
    if trying.plan.timed:
        stage("the cost of a step")
        costs = _costs(trying, settings, folder)
    steps = {name: steps_in_time(trying.plan.steps, cost) for name, cost in costs.items()}
    stage("the chosen settings with fresh seeds")
    runs, timed, failed = _run(trying, settings, steps)
    kept = [name for name in settings if name in trying.series]
    return Final(
        {name: settings[name] for name in kept},
        {name: costs[name] for name in kept},
        {name: steps[name] for name in kept},
        runs,
        timed,
        failed,
    )


def steps_in_time(steps: int, cost: float) -> int:
    """The steps that take the time of so many of the baseline's.

    A step that costs about the same counts as the same.

    >>> steps_in_time(100, 2.0), steps_in_time(100, 0.4), steps_in_time(100, 1.04)
    (50, 250, 100)
    """
    return steps if 1 / ALIKE <= cost <= ALIKE else max(1, int(steps / cost))


def _costs(trying: "Trying", settings: Mapping[str, Candidate], folder: Path) -> dict[str, float]:
    """The cost of a step beside the baseline's: measured once, then read."""
    seed = trying.plan.seeds_fresh.start
    configs = {name: trying.series[name].config(c, seed) for name, c in settings.items()}
    facts = {name: config.key for name, config in configs.items()}
    file = folder / f"{part_name('costs', facts)}.json"
    if not file.exists():
        files.write_json(file, {"seconds": step_costs(configs), "runs": facts})
    seconds = files.read_json(file)["seconds"]
    return {name: seconds[name] / seconds[BASELINE] for name in settings}


def _run(
    trying: "Trying", settings: Mapping[str, Candidate], steps: Mapping[str, int]
) -> tuple[Runs, Runs, list[str]]:
    plan, folders = trying.plan, trying.folders
    others = [count for count in steps.values() if count != plan.steps]
    left = plan.seeds * (plan.steps * len(steps) + sum(others))
    folders.count.total = folders.count.done + left
    even = {n: replace(series, validation_only=False) for n, series in trying.series.items()}
    timed = {
        n: replace(series, label=f"{n} (equal time)", epoch=steps[n])
        for n, series in even.items()
        if steps[n] != plan.steps
    }
    folders.only([*even.values(), *timed.values()])
    for group in (even, timed):
        for name, series in group.items():
            folders.choose(series, settings[name])
    wanted = [
        (series, settings[name], seed)
        for group in (even, timed)
        for name, series in group.items()
        for seed in plan.seeds_fresh
    ]
    found = trying.execute(wanted)
    failed = [
        f"{label}, seed {seed}: {run}"
        for label, own in found.items()
        for seed, run in zip(plan.seeds_fresh, own, strict=True)
        if isinstance(run, Diverged)
    ]

    def finished(group: Mapping[str, object], labels: Mapping[str, str]) -> Runs:
        return {
            name: [run for run in found[labels[name]] if isinstance(run, StoredRun)]
            for name in group
            if name in trying.series
        }

    return (
        finished(even, {name: series.label for name, series in even.items()}),
        finished(timed, {name: series.label for name, series in timed.items()}),
        failed,
    )
