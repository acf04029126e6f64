"""List the built-in tasks: what each trains, and on which losses."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimol.cli._lines import say
from trimol.cli._parse import parse
from trimol.cli._reporting import print_json
from trimol.tasks._catalogue import names, outline


@dataclass(frozen=True)
class Options:
    """List the built-in tasks: what each trains, and on which losses."""

    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "tasks")
    sources = {name: outline(name) for name in names()}
    tasks = [
        {"task": name, "summary": source.summary, "objectives": source.value("objectives")}
        for name, source in sources.items()
    ]
    if options.json:
        print_json(tasks)
        return 0
    width = max(map(len, sources))
    for task in tasks:
        say(f"{task['task']:<{width}}  {task['summary']}", indent=width + 2)
        losses = ", ".join(task["objectives"]) or "those of another task, --option of=TASK"
        say(f"{'':<{width}}  losses: {losses}", indent=width + 4, whole="--option of=TASK")
    print("A task of your own: trimol run path/to/file.py:Class")
    return 0
