"""What has become of a run: it is running, or finished, or it failed, or was interrupted.

``state.json`` is there from a run's beginning until it is finished. It says who runs it, and, once
it has stopped, why. A finished run has its summary instead, which alone decides that: beside a
summary, a state that a kill left there counts for nothing, and is removed by whoever asks for the
run again. A process that was killed could not say so: what is still called running, by a process
that is no more, was interrupted.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trimol._failures import Diverged
from trimol._files import read as read_file
from trimol._warnings import say
from trimol.runs._environment import now
from trimol.runs._signals import Interrupted
from trimol.runs._storage import Damaged, read_json, write_json

FILE = "state.json"
Name = Literal["running", "finished", "failed", "interrupted"]


@dataclass(frozen=True)
class RunState:
    """What has become of a run.

    Attributes:
        name: In a word.
        reason: Of a run that failed, what was said; of others who runs it, or how it ended.
        diverged: Whether it failed as a loss became NaN or infinite: it would again.
        saved: Whether it left something to go on from.
    """

    name: Name
    reason: str = ""
    diverged: bool = False
    saved: bool = True

    def __str__(self) -> str:
        if not self.reason or self.reason.startswith(self.name):
            return self.reason or self.name
        return f"{self.name}: {self.reason}"


def begin(folder: Path) -> None:
    """Say that this process runs the run of a folder."""
    pid = os.getpid()
    write_json(
        folder / FILE,
        {"state": "running", "pid": pid, "host": platform.node(), "process": _birth(pid)}
        | {"since": now()},
    )


def stop(folder: Path, error: BaseException, *, saved: bool) -> None:
    """Say why a run has stopped."""
    asked = isinstance(error, Interrupted | KeyboardInterrupt)
    content = {
        "state": "interrupted" if asked else "failed",
        "reason": " ".join((str(error) or type(error).__name__).split()),
        "diverged": isinstance(error, Diverged),
        "saved": saved,
        "when": now(),
    }
    write_json(folder / FILE, content)


def finish(folder: Path) -> None:
    """A run has its summary: there is no more to say."""
    (folder / FILE).unlink(missing_ok=True)


def read(folder: Path, *, finished: bool) -> RunState:
    """What has become of the run of a folder.

    Raises:
        Damaged: The file is not as it was written, or not ours.
    """
    if finished:
        return RunState("finished")
    file = folder / FILE
    if not os.path.lexists(file):
        return RunState("interrupted")  # of a run that never said it, or was written before we did
    content = read_json(file)
    if not _is_state(content):
        raise Damaged(f"{file} is damaged or not ours: no state of a run")
    if content["state"] == "running":
        return _running(content)
    return RunState(content["state"], content["reason"], content["diverged"], content["saved"])


def unfinished(folder: Path, *, aloud: bool = False) -> RunState:
    """What has become of an unfinished run that is to go on.

    No result depends on it: if its file is damaged, the run counts as interrupted.
    """
    try:
        return read(folder, finished=False)
    except Damaged as error:
        if aloud:
            say(f"{error.flaw}: the run goes on as one that was interrupted")
        return RunState("interrupted")


def _is_state(content: Any) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {"reason": str, "diverged": bool, "saved": bool}
    if not isinstance(content, dict) or content.get("state") not in (
        *("running", "failed", "interrupted"),
    ):
        return False
    if content["state"] == "running":
        kinds = {"pid": int, "host": str, "since": str, "process": (str, type(None))}
    return all(isinstance(content.get(name), kind) for name, kind in kinds.items())


def _running(content: dict[str, Any]) -> RunState:
    """Running, if its process is there; of another machine's nobody here can tell."""
    who = f"process {content['pid']} on {content['host']}, since {content['since']}"
    here = content["host"] == platform.node()
    if here and not _lives(content["pid"], content["process"]):
        return RunState("interrupted", f"{who}, ended without a word")
    return RunState("running", who)


def _lives(pid: int, birth: str | None) -> bool:
    """Whether a process is there, and no other that got its number."""
    if not 0 < pid < 2**31:
        return False
    if os.name == "nt":  # there, signal 0 is no question but Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return birth is None or _birth(pid) == birth


def _birth(pid: int) -> str | None:
    """When a process began, in the system's own count; None where the system does not say."""
    try:
        fields = read_file(Path(f"/proc/{pid}/stat")).decode().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19] if len(fields) > 19 else None
