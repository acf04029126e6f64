"""List the built-in tasks: what each trains, and on which losses."""

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass

from trimol.cli._parse import parse


@dataclass(frozen=True)
class Options:
    """List the built-in tasks: what each trains, and on which losses."""

    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    from trimol import tasks

    options = parse(Options, arguments, "tasks")
    found = [
        {"task": name, "summary": _summary(name), "objectives": list(tasks.get(name).objectives)}
        for name in tasks.names()
    ]
    if options.json:
        print(json_format.dumps(found, indent=1))
        return 0
    width = max(len(name) for name in tasks.names())
    for task in found:
        print(f"{task['task']:<{width}}  {task['summary']}")
        print(f"{'':<{width}}  losses: {', '.join(task['objectives'])}")
    print("A task of your own: trimol run path/to/file.py:Class")
    return 0


def _summary(name: str) -> str:
    from trimol import tasks

    return (tasks.get(name).__doc__ or "").strip().splitlines()[0]
