"""What is installed and found here, and a self-test of some seconds: before you report a bug."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Any

from tyro.conf import Positional

from trimol._version import __version__
from trimol._words import count
from trimol.cli import _setup as setup
from trimol.cli._common_options import BatchSize, TaskOptions
from trimol.cli._lines import echo, say
from trimol.cli._parse import parse
from trimol.cli._reporting import FAILED, print_json, usage
from trimol.cli._values import Maybe, Names, names, typed
from trimol.methods._registry import TRIED

CORE = ("torch", "numpy", "scipy", "filelock")
# A package by which each extra is told: the one that its users would miss.
EXTRAS = {
    "studies": "polars",
    "report": "plotly",
    "sweep": "optuna",
    "vision": "transformers",
    "integrations": "lightning",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "ray": "ray",
    "torchjd": "torchjd",
}


@dataclass(frozen=True)
class Options:
    """Say what is installed and found here, and test the engine for some seconds.

    The test computes the product G1ᵀ(G2 λ) by the engine and by plain backwards, and compares.
    With a task, one step of each method on the task's own model is compared with plain backwards,
    one for each loss: the first thing to do on a new model. The exit code is 1 if they differ.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.
    """

    task: Positional[Annotated[Maybe[str], typed(str, "TASK", unset="none")]] = None
    """A built-in task, or path/to/file.py:Class for your own."""
    methods: Annotated[Names, typed(names, "A,B,…")] = TRIED
    """With a task: the methods whose steps are compared."""
    batch_size: BatchSize = None
    option: TaskOptions = ()
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "doctor")
    if options.task is not None:
        return _verify(options, options.task)
    from trimol.testing._self_test import self_test

    found: dict[str, Any] = {
        "versions": _versions(),
        "devices": _devices(),
        "extras": {extra: _installed(package) for extra, package in EXTRAS.items()},
        "data": _data(),
        "engine": self_test(),
    }
    if options.json:
        print_json(found)
    else:
        _show(found)
    return 0 if found["engine"]["exact"] else FAILED


def _verify(options: Options, task: str) -> int:
    """Compare a step of each method on the task's model with plain backwards."""
    given = setup.checked_options(task, options.option)
    chosen = [setup.checked_method(name) for name in options.methods]
    from trimol.runs.config import usual_batch_size
    from trimol.tasks import load
    from trimol.testing._self_test import verify_task

    with usage():
        own = load(task, given)
        size = options.batch_size or usual_batch_size(task, given)
        checks = [verify_task(own, name, size) for name in chosen]
    if options.json:
        print_json({"task": own.name, "checks": [{**asdict(c), "exact": c.exact} for c in checks]})
    else:
        for check in checks:
            say(str(check), indent=2)
    return 0 if all(check.exact for check in checks) else FAILED


def _versions() -> dict[str, str | None]:
    own = {"trimol": __version__, "python": platform.python_version(), "system": _system()}
    return {**own, **{package: _installed(package) for package in CORE}}


def _system() -> str:
    return f"{platform.system()} {platform.release()}, {platform.machine()}"


def _installed(package: str) -> str | None:
    """A package's version; None if it cannot be imported."""
    if find_spec(package) is None:
        return None
    names = {"sklearn": "scikit-learn", "mlflow": "mlflow-skinny"}
    try:
        return version(names.get(package, package))
    except PackageNotFoundError:
        return "installed"


def _devices() -> list[str]:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    mps = ["Apple GPU (mps)"] if torch.backends.mps.is_available() else []
    return [f"CPU, {count(torch.get_num_threads(), 'thread')}", *gpus, *mps]


def _data() -> str | None:
    """The folder that data are looked for in first, if there is one."""
    folder = os.environ.get("TRIMOL_DATA")
    if folder is None:
        return None
    return folder if os.path.isdir(folder) else f"{folder} (not there)"


def _show(found: dict[str, Any]) -> None:
    for name, number in found["versions"].items():
        echo(f"{name:<10} {number or 'missing'}")
    say(f"devices    {'; '.join(found['devices'])}", indent=11)
    extras = found["extras"].items()
    there = [f"{extra} ({EXTRAS[extra]} {number})" for extra, number in extras if number]
    missing = [extra for extra, number in found["extras"].items() if not number]
    say(f"extras     {', '.join(there) or 'none'}", indent=11)
    if missing:
        command = "pip install 'trimol[NAME]'"
        say(f"not there  {', '.join(missing)}: {command}", indent=11, whole=command)
    folder = found["data"] or "TRIMOL_DATA is not set"
    say(f"data       {folder} (trimol data says more)", indent=11, whole="(trimol data")
    engine = found["engine"]
    verdict = "exact" if engine["exact"] else f"WRONG by {engine['off']:.1e}: please report this"
    say(
        f"engine     {verdict}; {engine['method']} with {engine['objectives']} losses goes the "
        f"route {engine['route']!r} and costs {engine['ratio']:.1f} times a plain step here",
        indent=11,
    )
