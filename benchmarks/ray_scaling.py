"""What a run costs on Ray beside local processes, and what it leaves on the disk.

    python benchmarks/ray_scaling.py --json results/ray_scaling.json  # python docs/measured.py

Many short runs of digits, on one and on two workers of a local Ray, beside as many local processes.
They take turns, a few runs each, in random order, so that other work on the machine meets all of
them. Shown is the time from the end of a round's first run to the end of its last, by the runs
between; how long the first took, with what starts the workers, is apart. Only ratios mean
something.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from trimol.runs import configure, execute, execute_all
from trimol.runs._cluster import connect
from trimol.runs._environment import environment, now

ENGINES = {"processes": None, "Ray": "ray"}
WORKERS = (1, 2)
Taken = dict[tuple[str, int], list[tuple[float, float]]]


def round_of(on: str | None, workers: int, runs: int, folder: Path) -> tuple[float, float]:
    """Seconds until the first run of a round ended, and seconds a run from then on."""
    given: dict[str, Any] = {"steps": 20, "measure_every": 10, "checkpoint_every": 10}
    configs = [configure("digits", "modo", seed=seed, **given) for seed in range(runs)]
    ends: list[float] = []

    def watch(config: Any, step: int, record: Any) -> None:
        if record is not None and step == config.steps:
            ends.append(time.monotonic())

    began = time.monotonic()
    jobs = [(config, folder / str(config.seed)) for config in configs]
    execute_all(jobs, jobs=workers, together=False, watch=watch, on=on)
    return ends[0] - began, (time.monotonic() - ends[0]) / (runs - 1)


def taken(runs: int, rounds: int) -> Taken:
    """What each way took, round by round."""
    ways = [(engine, workers) for engine in ENGINES for workers in WORKERS]
    found: Taken = {way: [] for way in ways}
    connect("ray", max(WORKERS))
    for number in range(rounds + 1):  # the first, a short one, does not count
        for engine, workers in random.sample(ways, len(ways)):
            with tempfile.TemporaryDirectory() as folder:
                several = runs // rounds if number else 2
                took = round_of(ENGINES[engine], workers, several, Path(folder))
            if number:
                found[engine, workers].append(took)
    return found


def rows(found: Taken, runs: int) -> list[dict[str, Any]]:
    """A row for each way: medians over rounds, and ratios round by round."""
    result = []
    for (engine, workers), took in found.items():
        each = [pace for _, pace in took]
        local = [pace for _, pace in found["processes", workers]]
        single = [pace for _, pace in found[engine, 1]]
        result.append(
            {
                "engine": engine,
                "workers": workers,
                "runs": runs,
                "seconds_a_run": statistics.median(each),
                "first": statistics.median(first for first, _ in took),
                "beside_processes": _ratio(each, local),
                "faster_than_one": _ratio(single, each),
            }
        )
    return result


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def left_on_disk(steps: int = 500) -> dict[str, Any]:
    """What a run as `trimol compare digits` has it leaves behind, and how it was written."""
    config = configure(
        "digits", "modo", steps=steps, measure_every=steps // 10, checkpoint_every=steps // 5
    )
    flushed, renamed, real = 0, 0, (os.fsync, Path.replace)

    def fsync(handle: int) -> None:
        nonlocal flushed
        flushed += 1
        real[0](handle)

    def rename(self: Path, target: Any) -> Path:
        nonlocal renamed
        renamed += 1
        return real[1](self, target)

    with tempfile.TemporaryDirectory() as folder:
        os.fsync, Path.replace = fsync, rename  # type: ignore[assignment, method-assign]
        try:
            run = execute(config, folder)
        finally:
            os.fsync, Path.replace = real  # type: ignore[method-assign]
        sizes = {file.name: file.stat().st_size for file in sorted(run.path.iterdir())}
    return {"fsyncs": flushed, "renames": renamed, "files": sizes, "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs on Ray beside local processes.")
    parser.add_argument("--runs", type=int, default=100, help="of each way, over all rounds")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, help="where to write the results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    content = {
        "study": "ray_scaling",
        "rows": rows(taken(args.runs, args.rounds), args.runs),
        "folder": left_on_disk(),
        "command": "python benchmarks/ray_scaling.py --json results/ray_scaling.json",
        "created": now(),
        "environment": environment(),
    }
    text = json.dumps(content, indent=1) + "\n"
    if args.json is not None:
        args.json.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
