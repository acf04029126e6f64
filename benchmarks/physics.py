"""Burgers' equation by a physics-informed network: ConFIG's published example, and an honest one.

    python benchmarks/physics.py published --json results/physics.json    # one seed, 3 methods
    python benchmarks/physics.py equal-time --json results/physics.json   # ten seeds, hours
    python benchmarks/physics.py equal-time --steps 1000 --points 200 --width 20 --depth 3
    python benchmarks/physics.py equal-time --quick                    # to see whether it works

*published*: the protocol of ConFIG's own example: 5 layers of width 50, tanh, Xavier's start, 2000,
50 and 50 points drawn anew at every step by Latin hypercubes, 5000 steps of Adam at 1e-4 (M-ConFIG:
SGD at 5e-4), seed 19018. The number is the least mean squared error that any step has on the test
grid: it is picked on test. ``--look 25`` looks at every 25th step alone. ``--reference`` is the
file of the example that it takes for the solution
(``experiments/PINN/data/burgers/simulation_data.npy`` of its repository); ``--disturbed`` moves
every number of the start by about 1e-6 of itself, which shows how much of the result is rounding.

*equal-time*: the task ``burgers`` with its fixed points, full batches. A step of every method is
timed beside one of plain training, in one process; each gets the steps that 5000 plain ones take
(``--steps``). Both go on where they were stopped.
Three step sizes, constant or with a cosine, and for static weighting three weightings, are tried
with a seed of their own, and larger or smaller steps while the best is at an end; the best two of
them with two more seeds. The summed losses of held-out points choose. The number is the error after
the last step, over ten seeds: nothing is picked on test. The settings of a small network, and then
its seeds, train together as replicas of one program; those of a large one, where that is slower,
one by one.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats.qmc import LatinHypercube
from torch import Tensor, nn

import trimol
from trimol import search
from trimol.runs._environment import environment, now
from trimol.search import BudgetStudy, GridSampler, Setting
from trimol.search._grid import exhaust
from trimol.search._problem import Outcome, checked_point
from trimol.tasks import Batch, Data
from trimol.tasks.pinn import burgers
from trimol.tasks.pinn._field import Field
from trimol.tasks.task import Better
from trimol.training.loop import decay
from trimol.training.replicas import Replicas

SEED, STEPS = 19018, 5000
POINTS, CONDITIONS, WIDTH, DEPTH = 2000, 50, 50, 5
PRINTED = {"static": 0.03095, "config": 0.00638, "mconfig": 0.00186}
# Of the step, in the example: the sum of the losses is static weighting times three.
ADAM, SGD = 1e-4, 5e-4
COMPARED = (
    *("static", "config", "mconfig", "lra", "ntk", "softadapt", "relobralo"),
    *("famo", "gls", "upgrad", "mgda", "pcgrad", "cagrad"),
)
# All step sizes, and those that are tried first.
LADDER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
RATES, SEEDS = LADDER[4:7], 10
# The seed that all settings are tried with, and those of the best few: one alone rewards luck.
TUNED_ON, AGAIN, FINALISTS = 1000, (1001, 1002), 2
# Up to so many points as replicas: at 200 five times as fast as one by one, at 2000 a fourth.
REPLICATED = 500
SCHEDULES = (None, "cosine")
# Of the losses of the equation, the start and the walls.
WEIGHTS = ((1.0, 1.0, 1.0), (0.1, 1.0, 1.0), (0.01, 1.0, 1.0))
Row = dict[str, Any]


def network(seed: int) -> Field:
    """That of the example, with its start: Xavier's weights, biases of 0.001."""
    torch.manual_seed(seed)
    field = Field(WIDTH, DEPTH, twice=(0,))

    def begin(layer: nn.Module) -> None:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.constant_(layer.bias, 0.001)

    field.apply(begin)
    return field


class Sampled:
    """The points of the example: drawn anew for every loss that is asked for."""

    def __init__(self, seed: int) -> None:
        # A number, as in the example: of a generator scipy takes a child, and draws other points.
        self.line, self.plane = LatinHypercube(1, seed=seed), LatinHypercube(2, seed=seed)

    def initial(self, field: Field) -> Tensor:
        """u(x, 0) = −sin(πx)."""
        x = self._along(CONDITIONS) * 2 - 1
        at = torch.stack([x, torch.zeros_like(x)], -1)
        off: Tensor = field(at)[:, 0] + torch.sin(torch.pi * x)
        return off.square().mean()

    def boundary(self, field: Field) -> Tensor:
        """u(±1, t) = 0."""
        t = self._along(CONDITIONS)
        half = torch.ones(CONDITIONS // 2)
        values: Tensor = field(torch.stack([torch.cat([-half, half]), t], -1))
        return values.square().mean()

    def equation(self, field: Field) -> Tensor:
        """u_t + u u_x = ν u_xx."""
        drawn = torch.from_numpy(self.plane.random(POINTS)).float()
        u, u_x, u_t, u_xx = field.derivatives(
            drawn * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])
        )
        residual: Tensor = u_t + u * u_x - burgers.VISCOSITY * u_xx
        return residual.square().mean()

    def _along(self, size: int) -> Tensor:
        return torch.from_numpy(self.line.random(size)[:, 0]).float()


@cache
def grid() -> tuple[Tensor, Tensor]:
    """The test points of the example, 256 × 100, and the exact solution there."""
    x, t = np.linspace(-1 + 1 / 256, 1 - 1 / 256, 256), np.linspace(0, 1, 100)
    points = np.stack(np.meshgrid(x, t, indexing="xy"), -1).reshape(-1, 2)
    exact = burgers.solution(*points.T)
    return torch.from_numpy(points).float(), torch.from_numpy(exact).float()


def reference_error(reference: Tensor) -> Row:
    """How far the example's reference is from the exact solution; of when its first frame is."""
    points, exact = grid()
    across = int((points[:, 1] == 0).sum())  # the points of one frame
    x, first = points[:across, 0].double().numpy(), reference[:across].double().numpy()
    early = {
        f"first frame at t = {t:g}": float(
            ((first - burgers.solution(x, np.full_like(x, t))) ** 2).mean()
        )
        for t in (0.0, 0.01)
    }
    return {"protocol": "reference", "MSE": float((reference - exact).square().mean()), **early}


def published(
    name: str,
    seed: int = SEED,
    steps: int = STEPS,
    look: int = 1,
    reference: Tensor | None = None,
    disturbed: int = 0,
) -> Row:
    """One method by the protocol of the example; the errors beside a reference of its own, too."""
    field, drawn, (points, exact) = network(seed), Sampled(seed), grid()
    if disturbed:
        _disturb(field, disturbed)
    # M-ConFIG begins with all, then the second: the start, as in the example, which goes on with
    # its first after one turn of each.
    makes: dict[str, Callable[[Field], Tensor]] = {
        "equation": drawn.equation,
        "initial": drawn.initial,
        "boundary": drawn.boundary,
    }
    method = trimol.methods.get(name)(field.parameters(), list(makes))
    optimizer = optimizer_of(name, field, SGD if name == "mconfig" else ADAM)
    known = {"": exact} | ({} if reference is None else {" by its reference": reference})
    errors: dict[str, list[float]] = {key: [] for key in known}
    spent = 0.0
    for step in range(1, steps + 1):
        began = time.process_time()
        wanted = method.wanted
        losses = {key: make(field) if key in wanted else None for key, make in makes.items()}
        optimizer.zero_grad()
        method(losses).backward()
        optimizer.step()
        spent += time.process_time() - began
        if step % look == 0 or step == steps:
            with torch.no_grad():
                found = field(points)[:, 0]
            for key, truth in known.items():
                errors[key].append(float((found - truth).square().mean()))
    row: Row = {"protocol": "published", "method": name, "seed": seed, "steps": steps}
    row["look"] = look
    row |= {f"best{key}": min(own) for key, own in errors.items()}
    row |= {f"last{key}": own[-1] for key, own in errors.items()}
    row["paper"] = PRINTED.get(name) if (seed, steps) == (SEED, STEPS) else None
    return row | {"seconds": round(spent, 1), "disturbed": disturbed}


def _disturb(field: Field, seed: int) -> None:
    """Move every number by about 1e-6 of itself: a few roundings."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in field.parameters():
            p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=random))


def optimizer_of(name: str, field: nn.Module, lr: float) -> torch.optim.Optimizer:
    """What moves the whole network."""
    return _optimizer(name, field.parameters(), lr)


def _optimizer(name: str, params: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Adam; plain SGD for the method that has Adam's moments in itself."""
    kind: Any = torch.optim.SGD if name == "mconfig" else torch.optim.Adam
    made: torch.optim.Optimizer = kind(params, lr=lr)
    return made


class Training:
    """Full batches of a task with fixed points, by one method."""

    def __init__(
        self, task: burgers.Burgers, name: str, lr: float, seed: int, **options: Any
    ) -> None:
        torch.manual_seed(seed)
        self.task, self.model, self.lr = task, task.model(), lr
        if trimol.methods.get(name).draws > 1:
            options["draws"] = 1
        self.method = trimol.methods.get(name)(self.model.parameters(), 3, **options)
        self.optimizer = optimizer_of(name, self.model, lr)
        *points, _, own = task.data().train
        self.points = [at[mask] for at, mask in zip(points, own.bool().T, strict=True)]

    def step(self) -> None:
        """One step; a method that wants one loss has the others' points left out."""
        wanted = self.method.wanted
        chosen = [at if m in wanted else at[:0] for m, at in enumerate(self.points)]
        left = self.task.left_over(self.model, chosen)
        losses = [part.square().mean() if m in wanted else None for m, part in enumerate(left)]
        self.optimizer.zero_grad()
        self.method(losses).backward()
        self.optimizer.step()

    def run(self, steps: int, schedule: Any = None) -> "Training":
        """So many steps."""
        share = decay(schedule, steps) or (lambda step: 1.0)
        for step in range(steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * share(step)
            self.step()
        return self


def ends(task: burgers.Burgers, model: nn.Module) -> dict[str, float]:
    """Losses on held-out points, the error on test points, and how large u is there."""
    data = task.data()
    assert data.validation is not None
    with torch.no_grad():
        held = task.losses(model, data.validation).sum()
        found, exact = model(data.test[0]), data.test[-2]
    size = found.square().mean() / exact.square().mean()
    error = (found - exact).square().mean()
    return {"held out": float(held), "MSE": float(error), "size": float(size)}


def costs(task: burgers.Burgers, names: Sequence[str], repeats: int) -> dict[str, float]:
    """CPU time over that of plain training, interleaved in one process: medians of three steps.

    Three, for the method that takes one of the three losses at a step.
    """
    made = {name: Training(task, name, 1e-6, 0).run(2) for name in ("static", *names)}
    took: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(repeats):
        for name, training in made.items():
            began = time.process_time()
            training.run(3)
            took[name].append(time.process_time() - began)
    plain = statistics.median(took["static"])
    return {name: statistics.median(times) / plain for name, times in took.items()}


class Whole(burgers.Burgers):
    """All points as one sample: full batches whose runs train as replicas of one program."""

    def __init__(self, task: burgers.Burgers, name: str) -> None:
        self.task, self.by = task, name
        for option in ("width", "depth", "points", "conditions", "held_out", "points_seed"):
            setattr(self, option, getattr(task, option))

    def data(self) -> Data:
        """One row: the points of every loss."""
        *points, _, own = self.task.data().train
        row = tuple(at[mask][None] for at, mask in zip(points, own.bool().T, strict=True))
        return Data(train=row, test=row)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean squares over all points."""
        assert isinstance(model, Field)
        left = self.left_over(model, [at[0] for at in batch])
        return torch.stack([part.square().mean() for part in left])

    def counts(self, batch: Batch) -> None:  # type: ignore[override]
        """Every loss has its points."""

    def optimizer(self, params: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """As for a single run."""
        return _optimizer(self.by, params, lr)


def together(
    task: burgers.Burgers, name: str, steps: int, seeds: Sequence[int], settings: Sequence[Row]
) -> list[dict[str, float]]:
    """How runs end that differ in seed or setting: all of them as one program."""
    own: dict[str, Any] = {"draws": 1} if trimol.methods.get(name).draws > 1 else {}
    if "weights" in settings[0]:
        own["weights"] = torch.tensor([one["weights"] for one in settings], dtype=torch.float64)
    replicas = Replicas(
        Whole(task, name),
        name,
        seeds=seeds,
        lr=torch.tensor([one["lr"] for one in settings], dtype=torch.float64),
        hyperparameters=own,
        batch_size=1,
        schedule=[decay(one["schedule"], steps) for one in settings],
    ).train(steps)
    return [ends(task, replicas.module(number)) for number in range(len(seeds))]


def apart(
    task: burgers.Burgers, name: str, steps: int, seed: int, setting: Row
) -> dict[str, float]:
    """How one run ends."""
    own = {key: value for key, value in setting.items() if key == "weights"}
    training = Training(task, name, setting["lr"], seed, **own).run(steps, setting["schedule"])
    return ends(task, training.model)


def settings_of(name: str) -> list[Setting]:
    """List what is tried at first."""
    weights: list[Row] = [{"weights": own} for own in WEIGHTS] if name == "static" else [{}]
    return [Setting(name, lr, own, how) for lr, how, own in product(RATES, SCHEDULES, weights)]


def _setting(row: Row) -> Row:
    return {key: row[key] for key in ("lr", "schedule", "weights") if key in row}


def _row(setting: Setting) -> Row:
    return {"lr": setting.lr, "schedule": setting.schedule, **setting.hyperparameters}


def equal_time(kept: "Kept", names: Sequence[str], *, steps: int, seeds: int, task: Any) -> None:
    """All runs that are not kept yet: first the settings of a method, then its seeds."""
    cost = kept.costs(task, names)
    for name in names:
        long = max(round(steps / cost[name]), 1)
        chosen = choose_setting(kept, task, name, long)
        kept.drop(chosen, protocol="equal-time", method=name, steps=long, **size_of(task))
        kept.runs(task, "equal-time", name, long, range(seeds), [chosen] * seeds)


class FixedPoints:
    """Runs on the fixed points, judged by the losses at held-out ones (`trimol.search.Problem`)."""

    objectives: Sequence[str] = burgers.Burgers.objectives
    ways: Mapping[str, Better] = {"held out": "lower"}
    spread = False

    def __init__(self, kept: "Kept", task: Any, name: str, steps: int) -> None:
        self.kept, self.what = kept, (task, "tuning", name, steps)

    def rate(self, method: str) -> float:
        """Return the first step size that is tried."""
        return RATES[0]

    def train(self, trainings: Sequence[search.Training]) -> list[Outcome]:
        """Train what is not kept yet."""
        settings, seeds = [_row(t.setting) for t in trainings], [t.seed for t in trainings]
        rows = self.kept.runs(*self.what, seeds, settings)
        return [checked_point(row, self.ways) for row in rows]


def choose_setting(kept: "Kept", task: Any, name: str, steps: int) -> Row:
    """Return the setting that is best at held-out points.

    Its step size has tried ones on both sides, unless it is at an end of `LADDER`. What is kept of
    an earlier search is tried, too.
    """
    of = {"protocol": "tuning", "method": name, "steps": steps, "seed": TUNED_ON}
    grid = settings_of(name)
    for row in kept.of(**of, **size_of(task)):
        own = {"weights": row["weights"]} if "weights" in row else {}
        grid.append(Setting(name, row["lr"], own, row["schedule"]))
    sampler = GridSampler(grid, extend=len(LADDER), axes={"lr": LADDER}, whole=True)
    problem, most = FixedPoints(kept, task, name, steps), len(grid) * len(LADDER)
    study = BudgetStudy(problem, {name: sampler}, most, seeds=[TUNED_ON])
    exhaust(study, [name])
    last = sorted(study.trials[name], key=lambda trial: -trial.score)[:FINALISTS]
    study.add_seeds(last, AGAIN)
    return _row(max(last, key=lambda trial: trial.score).setting)


def size_of(task: Any) -> Row:
    """What tells a study from a smaller one."""
    return {key: getattr(task, key) for key in ("points", "width", "depth")}


class Kept:
    """What was run, in a file, so that nothing is run twice."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.rows, self.commands = path, list[Row](), list[str]()
        if path is not None and path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            self.rows, self.commands = found["rows"], found["command"].split(" && ")

    def costs(self, task: Any, names: Sequence[str]) -> dict[str, float]:
        """What a step costs at this size: measured once, beside plain training."""
        of = {"protocol": "cost", **size_of(task)}
        new = [name for name in names if not self.has(**of, method=name)]
        if new:
            ratios = costs(task, new, 15)
            for name in new:
                self.add({**of, "method": name, "cost": ratios[name]})
        return {row["method"]: row["cost"] for row in self.of(**of)}

    def asked(self, options: argparse.Namespace) -> None:
        """Note the command, but for where it writes and which methods it runs."""
        said = ["python benchmarks/physics.py", options.protocol]
        usual = {"steps": STEPS, "seeds": SEEDS, "points": POINTS, "width": WIDTH, "depth": DEPTH}
        for name, usual_value in usual.items():
            if getattr(options, name) != usual_value:
                said.append(f"--{name} {getattr(options, name)}")
        said += ["--reference FILE"] * (options.reference is not None)
        said += [f"--look {options.look}"] * (options.look > 1)
        said += [f"--disturbed {options.disturbed}"] * bool(options.disturbed)
        if " ".join(said) not in self.commands:
            self.commands.append(" ".join(said))

    def of(self, **what: Any) -> list[Row]:
        """The rows that are such."""
        return [row for row in self.rows if all(row.get(key) == what[key] for key in what)]

    def drop(self, setting: Row, **what: Any) -> None:
        """Forget such rows of other settings: those of a choice that was made otherwise before."""
        gone = [row for row in self.of(**what) if _setting(row) != _as_read(setting)]
        self.rows = [row for row in self.rows if row not in gone]

    def has(self, **what: Any) -> bool:
        """Whether there is such a row."""
        return bool(self.of(**what))

    def runs(
        self,
        task: Any,
        protocol: str,
        name: str,
        steps: int,
        seeds: Sequence[int],
        settings: Sequence[Row],
    ) -> list[Row]:
        """Train on the fixed points what was not trained before; return the rows of all."""
        of = {"protocol": protocol, "method": name, "steps": steps, **size_of(task)}
        keys = [{**of, "seed": seed, **own} for seed, own in zip(seeds, settings, strict=True)]
        left = [key for key in keys if not self.has(**_as_read(key))]
        at_once = len(left) if task.points <= REPLICATED else 1
        for first in range(0, len(left), max(at_once, 1)):
            part = left[first : first + at_once]
            own, started = [_setting(key) for key in part], [key["seed"] for key in part]
            found = (
                [apart(task, name, steps, started[0], own[0])]
                if at_once == 1
                else together(task, name, steps, started, own)
            )
            for key, ended in zip(part, found, strict=True):
                self.add(_as_read({**key, **ended}))
        return [self.of(**_as_read(key))[0] for key in keys]

    def add(self, row: Row) -> None:
        """Keep one more."""
        self.rows.append(row)
        print(
            "  ".join(f"{k} {v:g}" if isinstance(v, float) else f"{v}" for k, v in row.items()),
            flush=True,
        )
        self.write()

    def write(self) -> None:
        """To the file."""
        if self.path is None:
            return
        result: Row = {"study": "physics", "rows": self.rows}
        result |= {
            "command": " && ".join(self.commands),
            "created": now(),
            "environment": environment(),
        }
        self.path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _as_read(row: Row) -> Row:
    """As it comes back from a file."""
    read: Row = json.loads(json.dumps(row))
    return read


def main() -> None:
    """Run what is not kept yet."""
    parser = argparse.ArgumentParser(description="Burgers' equation by physics-informed networks.")
    parser.add_argument("protocol", choices=["published", "equal-time"])
    parser.add_argument("--methods", nargs="*", choices=trimol.methods.names())
    parser.add_argument("--steps", type=int, default=STEPS, help="plain ones")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the runs at equal time")
    parser.add_argument("--points", type=int, default=POINTS, help="of the runs at equal time")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the runs at equal time")
    parser.add_argument("--depth", type=int, default=DEPTH, help="of the runs at equal time")
    parser.add_argument("--reference", type=Path, help="the example's own, beside the exact one")
    parser.add_argument("--look", type=int, default=1, help="judge every so many steps")
    parser.add_argument("--disturbed", type=int, default=0, help="a seed: disturb the start")
    parser.add_argument("--json", type=Path, help="keep the runs in this file, and go on from it")
    parser.add_argument("--quick", action="store_true", help="few steps: does it work?")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = Kept(options.json)
    kept.asked(options)
    if options.protocol == "published":
        steps = 20 if options.quick else options.steps
        theirs = None if options.reference is None else np.load(options.reference).reshape(-1)
        given = None if theirs is None else torch.from_numpy(theirs)
        if given is not None and not kept.has(protocol="reference"):
            kept.add(reference_error(given))
        for name in list(PRINTED) if options.methods is None else options.methods:
            own = {"steps": steps, "look": options.look, "disturbed": options.disturbed}
            if not kept.has(protocol="published", method=name, **own):
                kept.add(published(name, reference=given, **own))
        return
    small = {"points": 60, "conditions": 10, "held_out": 40, "width": 8, "depth": 2}
    asked = {key: getattr(options, key) for key in ("points", "width", "depth")}
    task = burgers.Burgers(**(small if options.quick else asked))
    steps, seeds = (10, 2) if options.quick else (options.steps, options.seeds)
    equal_time(kept, options.methods or COMPARED, steps=steps, seeds=seeds, task=task)


if __name__ == "__main__":
    main()
