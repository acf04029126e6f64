"""Where a run ran: versions, machine, commit, time."""

import platform
import subprocess
from datetime import UTC, datetime
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
        "commit": commit(),
        "started": now(),
    }


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str | None:
    """The git commit of the folder that the user is in; None if there is none, or no git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
