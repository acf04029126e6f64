"""Runs on disk that look like real ones, made up from a few formulas, and a study."""

import math
import random
from itertools import combinations
from pathlib import Path

import torch

from trimol.report import _printed as printed
from trimol.runs import _storage as files
from trimol.runs import store
from trimol.runs import study as results
from trimol.runs.config import RunConfig

HOSTILE = "<script>alert(1)</script>"
OBJECTIVES = ("cross-entropy", "MSE", "Huber")
ENVIRONMENT = {
    "python": "3.11.9",
    "torch": "2.13.0",
    "trimol": "0.1.0",
    "platform": "Linux",
    "threads": 1,
    "commit": None,
    "started": "2026-01-01T00:00:00+00:00",
}


def without_printing(patch):
    """Leave out Matplotlib, which takes longer than the rest and has tests of its own."""
    for name in ("curves", "cosines", "triangle", "search", "forest", "reached"):
        patch.setattr(printed, name, lambda *_: dict.fromkeys(printed.FORMATS, b"drawn"))


def record(
    step,
    objectives,
    *,
    level=1.0,
    noise=None,
    test=True,
    metrics=("accuracy",),
    rho=0.0,
    batch=64,
):
    """One measurement with every key of `trimol.training.records`."""
    noise = noise or random.Random(0)
    decay = level * math.exp(-step / 400)

    def about(value):
        return value * math.exp(noise.gauss(0, 0.1))

    size = len(objectives)
    found = {"step": step, "samples": batch * step}
    found |= {f"loss/{o}": about(0.05 + decay / (i + 1)) for i, o in enumerate(objectives)}
    if test:
        found |= {f"test_loss/{o}": about(0.08 + decay / (i + 1)) for i, o in enumerate(objectives)}
        found |= {f"metric/{name}": min(1.0, about(0.97 - 0.5 * decay)) for name in metrics}
    raw = [about(1 + i) for i in range(size)]
    found |= {f"weight/{o}": raw[i] / sum(raw) for i, o in enumerate(objectives)}
    found |= {f"avoiding/{o}": raw[-1 - i] / sum(raw) for i, o in enumerate(objectives)}
    found |= {f"norm/{o}": about(decay) for o in objectives}
    cosines = [math.cos(i + step / 500) for i in range(size * (size - 1) // 2)]
    pairs = combinations(objectives, 2)
    found |= {f"cosine/{a}/{b}": c for (a, b), c in zip(pairs, cosines, strict=True)}
    if cosines:
        found["conflicting"] = sum(c < 0 for c in cosines) / len(cosines)
    opt, gen = about(0.02 * decay), noise.gauss(0, 0.002)
    found["R_opt"] = opt
    if test:
        found |= {"R_pop": abs(opt + gen), "R_gen": abs(opt + gen) - opt, "gen_bound": 0.01}
    found["E_ca"] = about(1e-3 * decay / level**2)
    if rho:
        found["E_caw"] = about(0.1)
    return found


def records(objectives, steps, *, every=50, **options):
    """The measurements of a whole run."""
    return [record(step, objectives, **options) for step in range(0, steps + 1, every)]


def save(folder, config, rows, *, finished=True, direction=None):
    """A run's folder, as `execute` leaves it."""
    folder = Path(folder)
    files.make_folder(folder)
    files.write_json(folder / store.CONFIG, config.model_dump(mode="json"))
    files.write_json(folder / store.ENVIRONMENT, ENVIRONMENT)
    if rows:
        files.write_table(folder / store.METRICS, store.table(rows))
    if finished:
        vector = torch.tensor([0.0, 0.1]) if direction is None else direction
        files.write_tensors(folder / store.DIRECTION, vector)
        last = {k: v if math.isfinite(v) else None for k, v in rows[-1].items()}
        summary = {"record": last, "steps": config.steps, "samples": 0, "seconds": 1.5}
        files.write_json(folder / store.SUMMARY, summary)
    return store.load(folder)


def config(method="modo", *, task="digits", seed=0, steps=1000, **others):
    return RunConfig(
        task=task, method=method, lr=others.pop("lr", 0.1), steps=steps, seed=seed, **others
    )


def compared(
    folder,
    *,
    methods=("static", "mgda", "modo"),
    seeds=3,
    objectives=OBJECTIVES,
    task="digits",
    steps=1000,
    **options,
):
    """A comparison as `compare` leaves it: a folder per method and seed."""
    runs = []
    for i, method in enumerate(methods):
        for seed in range(seeds):
            noise = random.Random(f"{method} {seed}")
            rows = records(objectives, steps, level=1.0 + i, noise=noise, **options)
            folder_of_run = Path(folder) / f"{i}-{seed}"
            found = config(method, task=task, seed=seed, steps=steps)
            runs.append(save(folder_of_run, found, rows, direction=torch.randn(4) * 0.01))
    return runs


def study(folder, *, rows=3, title="Figure 0: a study"):
    """A study as `trimol reproduce` leaves it, with a figure in two formats."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    square = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><rect width="40"/></svg>'
    )
    (folder / "fig0.svg").write_text(square)
    (folder / "fig0.png").write_bytes(b"\x89PNG")
    found = [
        results.row("modo", "R_opt", [0.1, 0.2], paper=0.14, gamma=10.0**-i) for i in range(rows)
    ]
    found[0]["verdict"] = "agrees"
    return results.save(
        results.Study(
            "fig0",
            title,
            rows=found,
            notes=["First paragraph.", f"Second, {HOSTILE}."],
            figures=["fig0.png", "fig0.svg"],
            command="trimol reproduce fig0",
            environment={"python": "3.11"},
        ),
        folder,
    )
