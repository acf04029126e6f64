"""The options that several commands have, each said once.

Each is the type of a field of a command's options: ``jobs: Jobs = None``.
"""

from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from trimol.cli._values import (
    Maybe,
    Texts,
    count,
    optimizer_name,
    positive,
    schedule_name,
    typed,
)
from trimol.runs._cluster import cluster

STEPS = 500  # of each run, where a command makes many

TaskName = Positional[
    Annotated[
        str,
        typed(str, "TASK"),
        arg(help="A built-in task (see `trimol tasks`), or path/to/file.py:Class for your own."),
    ]
]
TaskOptions = Annotated[
    UseAppendAction[Texts],
    arg(metavar="NAME=VALUE", help="An option of the task, e.g. --option hidden=128."),
]
Rate = Annotated[
    Maybe[float],
    typed(positive, "ALPHA", unset="per-task"),
    arg(help="Step size of every method that is not given its own; by default what the task has."),
]
Schedule = Annotated[
    Maybe[str],
    typed(schedule_name, "NAME", unset="constant"),
    arg(help="How the step size falls to 0 over the steps: constant (it stays), linear or cosine."),
]
OptimizerName = Annotated[
    Maybe[str],
    typed(optimizer_name, "NAME", unset="per-task"),
    arg(
        help="sgd, momentum (SGD with 0.9), nesterov, adam, adamw, rmsprop or adagrad, as torch "
        "has them; by default what the task has."
    ),
]
Steps = Annotated[Maybe[int], typed(count, "N", unset=f"{STEPS}"), arg(help="Steps of each run.")]
Epochs = Annotated[
    Maybe[int],
    typed(count, "N", unset="none"),
    arg(help="Passes through the data (of several sets, the longest), in place of steps."),
]
BatchSize = Annotated[
    Maybe[int],
    typed(count, "N", unset="per-task"),
    arg(help="Samples a step, the same for every method."),
]
# These two go to `trimol.runs.execute_all`.
Jobs = Annotated[
    Maybe[int],
    typed(count, "N", unset="cores"),
    arg(help="Runs at a time; by default as many as there are cores, here or on a cluster."),
]
On = Annotated[
    Maybe[str],
    typed(cluster, "CLUSTER", unset="here"),
    arg(
        help="A Ray cluster for the runs: ray://HOST:PORT or HOST:PORT; or ray, for the one of "
        "RAY_ADDRESS, or else one on this machine for the time of the command. Its nodes must "
        "share the folders of the runs, and of your task."
    ),
]
Current = Annotated[
    UseAppendAction[Texts],
    arg(
        metavar="NAME=VALUE",
        help="What you have now, tried first: --current weights=1,0.1,5 --current lr=3e-4.",
    ),
]
Retry = Annotated[
    bool,
    arg(
        help="Train runs again that diverged before; those that failed for another reason always "
        "are."
    ),
]
AsJson = Annotated[bool, arg(help="Print the result as JSON.")]
Quiet = Annotated[bool, arg(help="Show no progress.")]
