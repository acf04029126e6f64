"""How long commands take that train nothing: help, lists, and what is said about a typing error.

    python benchmarks/startup.py                      # the table of docs/understand/cost.md
    python benchmarks/startup.py --rounds 5 --json

Each command is a process of its own, from its start to its end, beside ``python -c pass``, which is
the least that a program in Python can take, and ``import torch``, which is what a command takes
that needs it. The commands are interleaved in random order. Shown are the median and the least
time on the clock (the latter is nearer to an idle machine's), and the median time of the processor,
which other work on the machine changes less.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

PASS = "python -c pass"
TORCH = "import torch"
COMMANDS = (
    "--help",
    "--version",
    "run --help",
    "compare --help",
    "reproduce --help",
    "plan --help",
    "methods",
    "methods modo",
    "tasks",
    "reproduce",
    "run dgits",
    "run digits --gama 1",
)
CONTESTANTS: dict[str, list[str]] = {
    PASS: ["-c", "pass"],
    **{f"trimol {command}": ["-m", "trimol", *command.split()] for command in COMMANDS},
    TORCH: ["-c", TORCH],
}


def taken(arguments: Sequence[str]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, of one process."""
    clock = time.perf_counter()
    processor = _processor()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - clock, _processor() - processor


def _processor() -> float:
    """Seconds that the processor spent on processes that this one started, which have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() counts hundredths of a second
    return spent.ru_utime + spent.ru_stime


def times(names: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """What each took, after one round that does not count."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in random.sample(list(names), len(names)):
            one = taken(CONTESTANTS[name])
            if number:
                seconds[name].append(one)
    medians = {}
    for name, values in seconds.items():
        clocks, processors = zip(*values, strict=True)
        medians[name] = {
            "seconds": statistics.median(clocks),
            "least": min(clocks),
            "processor": statistics.median(processors),
        }
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of commands that train nothing.")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--json", action="store_true", help="one object a line, for machines")
    args = parser.parse_args()
    medians = times(args.contestants, args.rounds)
    if not args.json:
        print("| command | seconds | least | of the processor |\n|---|---|---|---|")
    for name, measured in medians.items():
        if args.json:
            print(json.dumps({"command": name, **measured}))
        else:
            cells = " | ".join(f"{value:.2f}" for value in measured.values())
            print(f"| `{name}` | {cells} |")


if __name__ == "__main__":
    main()
