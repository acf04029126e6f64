"""The command that runs a configuration again."""

import shlex
from typing import Any

from trimol.runs.config import RunConfig


def command(config: RunConfig) -> str:
    """What to type to get this run again.

    Args:
        config: The run's configuration.

    Example:
        >>> command(RunConfig(task="digits", method="modo", lr=1.0, steps=9, seed=3))
        'trimol run digits --method modo --lr 1.0 --steps 9 --batch-size 64 --seed 3 \
--measure-every 0 --measure-rho 0.0'
    """
    flags = {
        "method": config.method,
        "lr": config.lr,
        "steps": config.steps,
        "batch-size": config.batch_size,
        "seed": config.seed,
        "measure-every": config.measure_every,
        "measure-rho": config.rho,
    }
    if config.score_every:
        flags["score-every"] = config.score_every
    if config.precision != "no":
        flags["precision"] = config.precision
    # With the prefix, a hyper-parameter is never taken for a flag of the command.
    own = {f"method.{name}": value for name, value in config.hyperparameters.items()}
    words = ["trimol", "run", config.task]
    for name, value in {**flags, **own}.items():
        words += [f"--{name}", _text(value)]
    for name, value in config.task_options.items():
        words += ["--option", f"{name}={_text(value)}"]
    return shlex.join(words)


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value)
