"""Eleven properties of molecules at once: methods tuned alike, single-task baselines, costs.

    python benchmarks/molecules.py --work DIR --json results/molecules.json   # 10 000 molecules
    python benchmarks/molecules.py --work DIR --full          # 110 000, 300 epochs: for a GPU
    python benchmarks/molecules.py --work DIR --quick         # shows that it works, nothing else
    python benchmarks/molecules.py --cost                     # the cost of a step alone, minutes

Every method and single-task learning of each property are tuned on validation data by the same
rule, run with several seeds and judged on test data (`trimol.compare.compare_tuned`). Static
weighting has its weights tried, too: equal ones, and in between and in proportion to 1 over the
loss that training with equal ones leaves. Δm is the mean over properties of how much larger an
error is than that of single-task learning, in per cent: the lower, the better. Runs are kept in
DIR: a stopped study resumes. Needs the files of qm9.

The cost of a step is CPU time against the bare loop that sums the losses; all take turns.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev
from time import process_time
from typing import Any

import torch

from trimol.compare import TunedResults, TuningPlan, compare_tuned
from trimol.runs import _storage as files
from trimol.runs._environment import environment, now
from trimol.search import Setting
from trimol.tasks import load
from trimol.training import start, train

# Mean losses of the training molecules after training with equal weights at 0.01, one seed.
LEFT = {
    "mu": 0.37, "alpha": 0.026, "homo": 0.21, "lumo": 0.08, "r2": 0.015, "zpve": 0.0006,
    "u0": 0.0014, "u": 0.0012, "h": 0.0012, "g": 0.0015, "cv": 0.0105,
}  # fmt: skip


def _weights(power: float) -> dict[str, Any]:
    raised = [left**-power for left in LEFT.values()]
    return {"weights": [one / sum(raised) for one in raised]}


OWN: dict[str, Sequence[Mapping[str, Any]]] = {
    "static": [{}, _weights(0.5), _weights(1.0)],
    "uw": [{}],
    "modo": [{"gamma": 1e-3}, {"gamma": 1e-2}],
    "famo": [{}],
    "fairgrad": [{}],
    "nashmtl": [{}],
    "mgda": [{"solver": "products", "gap": 0.1}],
    "cagrad": [{}],
}
# Of 10 000 molecules: static weights at 0.003 and 0.03 left twice the losses of 0.01. Methods that
# do best with the smaller of the two have a smaller one, too.
RATES = (6e-3, 1.5e-2)
SMALLER = {"modo": 2.4e-3, "fairgrad": 2.4e-3, "nashmtl": 2.4e-3, "mgda": 2.4e-3}
DROP = "ΔA_id"  # of a comparison of tuned methods: Δm, in per cent
# Single-task errors of the literature, with 110 000 molecules; energies in eV. SchNet (Schütt et
# al., 2018) predicts energies of atomisation.
LITERATURE = {
    "SchNet, 110 000 molecules": {
        "mu": 0.033, "alpha": 0.235, "homo": 0.041, "lumo": 0.034, "r2": 0.073, "zpve": 0.0017,
        "u0": 0.014, "u": 0.019, "h": 0.014, "g": 0.014, "cv": 0.033,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How large a study is."""

    options: Mapping[str, Any]
    epochs: int
    batch_size: int
    seeds: int
    rates: Sequence[float] = RATES
    schedules: Sequence[Any] = ("cosine",)
    methods: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=lambda: OWN)
    smaller: Mapping[str, float] = field(default_factory=dict)

    def rates_of(self, method: str) -> list[float]:
        """The step sizes of a method."""
        return [*self.rates, *([self.smaller[method]] if method in self.smaller else [])]


SMALL = Size(
    {"molecules": 10_000, "width": 32, "blocks": 2}, epochs=10, batch_size=64, seeds=3,
    smaller=SMALLER,
)  # fmt: skip
FULL = Size(
    {"molecules": None, "width": 128, "blocks": 6}, 300, 120, 3, (3e-4, 1e-3, 3e-3),
    (None, "cosine"),
)  # fmt: skip
QUICK = Size(
    {"molecules": 100, "width": 8, "blocks": 1}, 1, 16, 1, (1e-3,), (None,),
    {name: OWN[name][:1] for name in ("static", "famo")},
)  # fmt: skip


def plan(size: Size) -> TuningPlan:
    """What is compared."""
    return TuningPlan(
        task="qm9",
        settings=[
            Setting(name, lr, own, schedule)
            for name, each in size.methods.items()
            for own, lr, schedule in product(each, size.rates_of(name), size.schedules)
        ],
        epochs=size.epochs,
        batch_size=size.batch_size,
        options=size.options,
        seeds=size.seeds,
    )


def table(outcome: TunedResults) -> list[dict[str, Any]]:
    """Every metric and Δm by method: mean and deviation over seeds, and the seeds' own."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in outcome.seeds.sort("seed", maintain_order=True).iter_rows(named=True):
        if row["metric"] == DROP or row["metric"].endswith("MAE"):
            found.setdefault((row["method"], row["metric"]), []).append(row["value"])
    return [
        {
            "method": method,
            "metric": "Δm" if metric == DROP else metric,
            "mean": fmean(values),
            "std": stdev(values) if len(values) > 1 else None,
            "n": len(values),
            "values": values,
            "paper": None,
        }
        for (method, metric), values in found.items()
    ]


def costs(size: Size, *, steps: int, rounds: int) -> dict[str, float]:
    """CPU time of a step of each method, over that of the bare loop."""
    torch.set_num_threads(1)
    task = load("qm9", size.options)
    blocks: dict[str, Callable[[int], object]] = {"plain": _bare(task, size.batch_size)}
    for name, (own, *_) in size.methods.items():
        run = start(task, name, lr=RATES[0], hyperparameters=own, batch_size=size.batch_size)
        blocks[name] = partial(train, run)
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for turn in range(rounds + 1):
        for name, block in blocks.items():
            began = process_time()
            block(steps if turn else 1)
            if turn:
                times[name].append(process_time() - began)
    plain = median(times["plain"])
    return {name: median(own) / plain for name, own in times.items()}


def _bare(task: Any, batch_size: int) -> Callable[[int], None]:
    torch.manual_seed(0)
    model, data = task.model(), task.data().train
    optimizer = task.optimizer(model.parameters(), RATES[0])

    def block(steps: int) -> None:
        for _ in range(steps):
            rows = torch.randint(len(data[0]), (batch_size,))
            optimizer.zero_grad()
            torch.stack(task.losses(model, tuple(t[rows] for t in data))).sum().backward()
            optimizer.step()

    return block


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/qm9"))
    parser.add_argument("--full", action="store_true", help="the protocol of the literature")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cost", action="store_true", help="measure the costs, train nothing")
    parser.add_argument("--steps", type=int, default=3, help="of a block, for the costs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked = {"full": FULL, "quick": QUICK}
    size = next((size for name, size in asked.items() if getattr(given, name)), SMALL)
    ratios = costs(size, steps=given.steps, rounds=given.rounds)
    for name, ratio in ratios.items():
        print(f"{name:<10} {ratio:.2f} × plain", flush=True)
    outcome = None if given.cost else compare_tuned(plan(size), given.work, jobs=given.jobs)
    rows = [] if outcome is None else table(outcome)
    for row in (row for row in rows if row["metric"] == "Δm"):
        print(f"{row['method']:<10} Δm {row['mean']:+.1f} %")
    chosen = {} if outcome is None else {name: asdict(c) for name, c in outcome.settings.items()}
    found = {"study": "molecules", "rows": rows, "costs": ratios, "chosen": chosen}
    found["literature"] = LITERATURE
    made = {"command": "python benchmarks/molecules.py", "created": now()}
    if given.json:
        files.write_json(given.json, {**found, **made, "environment": environment()})


if __name__ == "__main__":
    main()
