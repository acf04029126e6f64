"""List the built-in tasks, or say what one trains and which options it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional

from trimol.cli._lines import echo, explain, plain, say
from trimol.cli._parse import parse
from trimol.cli._reporting import known_name, print_json
from trimol.cli._values import Maybe, typed
from trimol.tasks._catalogue import names, outline

OF_ANOTHER = "--option of=TASK"


@dataclass(frozen=True)
class Options:
    """List the built-in tasks, or say what one trains and which options it has."""

    task: Positional[Annotated[Maybe[str], typed(str, "TASK", unset="all")]] = None
    """One task."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "tasks")
    described = [_described(name) for name in (names() if options.task is None else [options.task])]
    if options.json:
        print_json(described)
    elif options.task:
        _show(described[0])
    else:
        _list(described)
    return 0


def _described(name: str) -> dict[str, Any]:
    source = outline(known_name("task", name, names()))
    return {
        "task": name,
        "summary": source.summary,
        "objectives": source.value("objectives"),
        "options": {p.name: p.default for p in source.parameters},
        "meaning": {p.name: plain(source.arguments.get(p.name, "")) for p in source.parameters},
    }


def _list(tasks: Sequence[dict[str, Any]]) -> None:
    width = max(len(task["task"]) for task in tasks)
    for task in tasks:
        say(f"{task['task']:<{width}}  {task['summary']}", indent=width + 2)
        say(f"{'':<{width}}  {_losses(task)}", indent=width + 4, whole=OF_ANOTHER)
    echo("What one of them is told: trimol tasks TASK")
    echo("A task of your own: trimol run path/to/file.py:Class")


def _show(task: dict[str, Any]) -> None:
    say(f"{task['task']}: {task['summary']}")
    say(_losses(task).replace("l", "L", 1), indent=2, whole=OF_ANOTHER)
    if task["options"]:
        echo("Options, with their defaults:")
    for name, default in task["options"].items():
        shown = str(default).lower() if default is None or isinstance(default, bool) else default
        explain(f"--option {name}={shown}", task["meaning"][name], column=34)
    say(f"Try it: trimol run {task['task']}", whole=f"trimol run {task['task']}")


def _losses(task: dict[str, Any]) -> str:
    names = ", ".join(task["objectives"])
    return f"losses: {names or f'those of another task, {OF_ANOTHER}'}"
