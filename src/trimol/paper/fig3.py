"""Figure 3: the three errors of MoDo in the strongly convex case."""

import polars

from trimol.paper._draw_fig3 import draw
from trimol.paper._drawing import files
from trimol.paper._studies import Context, get
from trimol.paper._synthetic.sweep_runs import GAMMA, LR, PROBLEMS, RUNS, STEPS, sweep, sweeps
from trimol.runs.study import Row, Study, row

SEEDS, QUICK_SEEDS, POINTS, QUICK_POINTS = 50, 5, 11, 5
METRICS = ("R_opt", "R_pop", "R_gen", "E_ca", "E_ca_unbiased")


def fig3(context: Context) -> Study:
    """Sweeps of T, α and γ, on two problems."""
    table = errors(context)
    names = []
    for i, problem in enumerate(PROBLEMS):
        name = "fig3" if i == 0 else f"fig3-{i + 1}"
        draw(context.folder, name, table.filter(polars.col("problem") == problem), problem)
        names += files(name)
    return Study(
        "fig3",
        get("fig3").title,
        rows=_rows(table),
        notes=_notes(table),
        tables={"errors": table},
        figures=names,
    )


def errors(context: Context) -> polars.DataFrame:
    """What the sweeps measured, run or read."""
    datasets = context.pick(SEEDS, QUICK_SEEDS)
    chosen = sweeps(QUICK_POINTS if context.quick else POINTS)
    jobs = [(problem, varied) for problem in PROBLEMS for varied in chosen]
    done = []
    for i, (problem, varied) in enumerate(jobs):
        done.append(sweep(context.parts, problem, varied, datasets=datasets))
        if context.watch is not None:
            context.watch(i + 1, len(jobs))
    return polars.concat(done)


def _rows(table: polars.DataFrame) -> list[Row]:
    defaults = {"T": STEPS, "alpha": LR, "gamma": GAMMA}
    rows = []
    keys = ["problem", "sweep", "value"]
    for (problem, name, value), group in table.group_by(keys, maintain_order=True):
        setting = {**defaults, str(name): value, "problem": problem, "sweep": name}
        rows += [row("modo", metric, group[metric].to_list(), **setting) for metric in METRICS]
    return rows


def _notes(table: polars.DataFrame) -> list[str]:
    datasets = table["dataset"].n_unique()
    return [
        f"MoDo, batch 1 + 1, b1 = (1, 2, 1), b2 = (1, 3, 2), defaults T = {STEPS}, α = {LR}, "
        f"γ = {GAMMA}. The paper does not say the rest; here A = I, z ~ N(1, I), x_0 = 0, and the "
        f"two problems differ in d and n. {datasets} training sets × {RUNS} runs on each; bars are "
        "95 % intervals over training sets.",
        "|R_gen| is taken of each run, then averaged. E_ca is the mean of the runs' squared norms, "
        "which the authors report; E_ca_unbiased is the paper's definition, the squared norm of a "
        "mean over runs (estimated without bias, so it may fall below zero where the truth is "
        "zero): never larger in expectation.",
    ]
