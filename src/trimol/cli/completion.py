"""Completion for your shell: eval "$(trimol completion bash)", or zsh, or fish."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, NamedTuple, get_type_hints

from tyro.conf import Positional

from trimol._failures import meant
from trimol.cli._lines import echo
from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError, print_json
from trimol.cli._values import typed
from trimol.methods._registry import names as methods
from trimol.tasks._catalogue import names as tasks

# Commands whose first word is a task, and flags whose value is a method, or several.
OF_A_TASK = ("run", "compare", "diagnose", "sweep", "front")
OF_A_METHOD = ("--method", "--methods")
FRONTS_BY = ("front", "--by")  # a sweep's --by is no method
_BASH = """
_trimol() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local words="" listed=""
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"
    elif [[ " {flags} " == *" ${{COMP_WORDS[1]}}:$before "* ]]; then
        words="{methods}"
        [[ "$word" == *,* ]] && listed="${{word%,*}},"
    else case "${{COMP_WORDS[1]}}" in
{cases}
    esac; fi
    COMPREPLY=($(compgen -P "$listed" -W "$words" -- "${{word#"$listed"}}"))
    [ ${{#COMPREPLY[@]}} -eq 0 ] && COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _trimol trimol
"""
# Where nobody has started zsh's completion yet, it starts here.
_ZSH = """
autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
"""


class _Words(NamedTuple):
    """What may follow a command: its first words, and its flags."""

    first: list[str]
    flags: list[str]


@dataclass(frozen=True)
class Options:
    """Print what makes your shell complete commands, tasks, methods and flags.

    bash: eval "$(trimol completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc. fish:
    save what it prints in ~/.config/fish/completions, in a file with the command's name and .fish.
    """

    shell: Positional[Annotated[str, typed(str, "SHELL")]]
    """bash, zsh or fish."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "completion")
    shell = options.shell
    if shell not in SHELLS:
        near = meant(shell, SHELLS)
        raise UsageError(f"SHELL must be one of {', '.join(SHELLS)}, found {shell!r}{near}")
    script = SHELLS[shell](_words())
    if options.json:
        print_json({"shell": shell, "script": script})
    else:
        echo(script)
    return 0


def words() -> Sequence[str]:
    """What may follow the command itself."""
    return list(SHELLS)


def _words() -> dict[str, _Words]:
    """Every command with its words."""
    from trimol.cli import COMMANDS

    return {name: _of(name, import_module(module)) for name, module in COMMANDS.items()}


def _of(name: str, command: Any) -> _Words:
    """The words of a command: tasks or methods, where it takes one, else what it says itself."""
    if name in (*OF_A_TASK, "tasks"):
        first = tasks()
    elif name == "methods":
        first = methods()
    else:
        first = getattr(command, "words", list)()
    hints = get_type_hints(command.Options, include_extras=True)
    flags = [flag for flag, hint in hints.items() if not _is_positional(hint)]
    return _Words(list(first), [f"--{flag.replace('_', '-')}" for flag in (*flags, "help")])


def _takes_methods(command: str, flag: str) -> bool:
    """Whether a flag's value is the name of a method, or of several."""
    return flag in OF_A_METHOD or (command, flag) == FRONTS_BY


def _is_positional(hint: Any) -> bool:
    """Whether an option is typed without a flag."""
    return any(repr(mark) == "Positional" for mark in getattr(hint, "__metadata__", ()))


def _bash(words: dict[str, _Words]) -> str:
    cases = "\n".join(
        f'        {name}) words="{" ".join([*own.first, *own.flags])}";;'
        for name, own in words.items()
    )
    return _BASH.format(
        commands=" ".join(words),
        flags=" ".join(
            f"{name}:{flag}"
            for name, own in words.items()
            for flag in own.flags
            if _takes_methods(name, flag)
        ),
        methods=" ".join(methods()),
        cases=cases,
    ).strip()


def _zsh(words: dict[str, _Words]) -> str:
    return f"{_ZSH.strip()}\n{_bash(words)}"


def _fish(words: dict[str, _Words]) -> str:
    """Files are offered after the command only: a task, a folder, a path may be one."""
    lines = [f"complete -c trimol -f -n __fish_use_subcommand -a '{' '.join(words)}'"]
    for name, own in words.items():
        here = f"complete -c trimol -n '__fish_seen_subcommand_from {name}'"
        if own.first:
            lines.append(f"{here} -a '{' '.join(own.first)}'")
        for flag in own.flags:
            value = f" -x -a '{' '.join(methods())}'" if _takes_methods(name, flag) else ""
            lines.append(f"{here} -l {flag.removeprefix('--')}{value}")
    return "\n".join(lines)


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
