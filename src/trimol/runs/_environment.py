"""Where a run ran: versions, machine, commit, time."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from typing import Any

import torch

from trimol._version import __version__


def environment() -> dict[str, Any]:
    """What may explain why the same run came out differently elsewhere.

    >>> sorted(environment())
    ['commit', 'platform', 'python', 'started', 'threads', 'torch', 'trimol']
    """
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "trimol": __version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "commit": commit(os.getcwd()),
        "started": now(),
    }


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def commit(folder: str) -> str | None:
    """The git commit of a folder, asked for once a process; None if there is none, or no git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, cwd=folder
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
