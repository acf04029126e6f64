"""What a run's folder holds: nothing yet, this run (finished, unfinished, damaged) or another."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from trimol._failures import BadValue
from trimol._warnings import say
from trimol.runs import _run_state as states
from trimol.runs import store
from trimol.runs._journal import check_complete
from trimol.runs._lock import FILE as LOCK
from trimol.runs._lock import locked
from trimol.runs._storage import Damaged, StoreError, make_folder, newest
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.training._checkpoint import check_keys


def enter(config: RunConfig, path: Path, resume: bool, stack: ExitStack) -> bool:
    """Lock the folder and look into it. Whether there is nothing to do."""
    if finished(config, path):  # needs no lock, nor a folder that can be written
        return True
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_folder(path)
    stack.enter_context(locked(path))
    stack.enter_context(_without_debris(path, made))
    if finished(config, path):  # by another process, just now
        return True
    if gives_way(path) and not (resume and _holds(config, path)):
        for name in store.OWN:
            (path / name).unlink(missing_ok=True)
    damaged = _damaged_config(path)
    flaw = damaged or _flaw(config, path)
    if (path / store.CONFIG).exists() and not resume:
        if flaw is not None:
            raise StoreError(f"{flaw}: resume the run (--resume), which makes it again")
        failed = states.unfinished(path)
        how = f"this run, which {failed}" if failed.name == "failed" else "this run unfinished"
        raise StoreError(f"{path} holds {how}: resume it (--resume), or choose another folder")
    states.unfinished(path, aloud=True)
    # A checkpoint says whose the folder is, too.
    newest(path / store.CHECKPOINT, lambda kept: _step_of(config, path, kept))
    if flaw is not None:
        say(f"{flaw}: the run is made again from its last checkpoint, or from its start")
        (path / store.SUMMARY).unlink(missing_ok=True)
    if damaged is not None:
        (path / store.CONFIG).unlink()
    return False


def _damaged_config(path: Path) -> str | None:
    """What is wrong with the configuration in a folder, if it is not as it was written."""
    try:
        if (path / store.CONFIG).exists():
            store.read_config(path)
    except Damaged as error:
        return error.flaw
    return None


def _holds(config: RunConfig, path: Path) -> bool:
    """Whether a folder is this run's, as far as its configuration can be read."""
    if not (path / store.CONFIG).exists() or _damaged_config(path) is not None:
        return True
    return store.read_config(path).key == config.key


@contextmanager
def _without_debris(path: Path, made: Sequence[Path]) -> Iterator[None]:
    """The folders that were made for a run are removed if it did not even begin."""
    try:
        yield
    except BaseException:
        if made and not (path / store.CONFIG).exists():
            with suppress(OSError):  # something is in it; or nobody may remove what is locked
                (path / LOCK).unlink()
                for folder in made:
                    folder.rmdir()
        raise


def gives_way(path: Path) -> bool:
    """Whether a folder holds a run that failed before its first checkpoint.

    Nothing is left to go on from: the mended task, or another setting, may have the folder.
    """
    if not (path / store.CONFIG).exists() or (path / store.SUMMARY).exists():
        return False
    state = states.unfinished(path)
    return state.name == "failed" and not state.saved


def failed_before(config: RunConfig, path: Path) -> states.RunState | None:
    """How this very run failed, if it did."""
    if not (path / store.CONFIG).exists() or not _holds(config, path):
        return None
    state = states.unfinished(path)
    return state if state.name == "failed" and not (path / store.SUMMARY).exists() else None


def over(path: Path) -> bool:
    """Whether the run of a folder is finished, or has diverged: it goes on no more by itself."""
    there = (path / store.CONFIG).exists()
    return there and ((path / store.SUMMARY).exists() or states.unfinished(path).diverged)


def _flaw(config: RunConfig, path: Path) -> str | None:
    """What is wrong with the files of a run that was finished."""
    if not (path / store.SUMMARY).exists():
        # Until its summary is there, a run has a state.
        done = (path / store.METRICS).exists() and not os.path.lexists(path / store.STATE)
        return f"{path / store.SUMMARY} is gone" if done else None
    if not (path / store.CONFIG).exists():
        return f"{path / store.CONFIG} is gone"
    try:
        store.load_whole(path, config)
    except Damaged as error:
        return error.flaw
    return None


def _step_of(config: RunConfig, path: Path, kept: Any) -> int:
    """The step of a run's checkpoint. It must be this run's, and what it builds on be there."""
    check_keys("a checkpoint", kept, ("run", "seconds"))
    check_keys("a run", kept["run"], ("step",))
    if "config" in kept:  # an older version's has none
        same_run(RunConfig.model_validate(kept["config"]), config)
    step = within(kept["run"]["step"], config)
    (tables,) = kept.get("tables", [None])
    check_complete(config, path, step, tables)
    return step


def within(step: Any, config: RunConfig) -> int:
    """A step that a run has."""
    if not isinstance(step, int) or not 0 <= step <= config.steps:
        raise BadValue(f"step must be a whole number from 0 to {config.steps}, found {step!r}")
    return step


def same_run(found: RunConfig, config: RunConfig) -> None:
    """What was saved must be of this run."""
    if found.key != config.key:
        name = found.differences(config)[0]
        raise BadValue(
            f"{name} must be {getattr(config, name)!r}, found {getattr(found, name)!r}: it is of "
            "another run"
        )


def finished(config: RunConfig, path: Path) -> StoredRun | None:
    """The run of a folder that holds this one, finished and whole; never another run."""
    try:
        if not (path / store.CONFIG).exists():
            return None
    except OSError as error:
        raise StoreError(f"cannot look into {path}: {error.strerror}") from error
    try:
        there = store.read_config(path)
    except Damaged:  # `enter` says so
        return None
    if there.key != config.key and gives_way(path):
        return None
    refuse_another(there, config, path)
    try:
        run = store.load_whole(path, there) if (path / store.SUMMARY).exists() else None
    except Damaged:
        return None
    if run is not None:
        with suppress(OSError):  # a folder that cannot be written keeps what a kill left there
            states.finish(path)
    return run


def refuse_another(there: RunConfig, config: RunConfig, path: Path) -> None:
    """A folder that belongs to one run is no place for another."""
    if there.key != config.key:
        name = there.differences(config)[0]
        if name == "source":
            raise StoreError(
                f"{path} holds a run of {config.task} as it was before it changed: choose another "
                "folder"
            )
        raise StoreError(
            f"{path} holds another run ({name} is {getattr(there, name)!r} there, "
            f"{getattr(config, name)!r} here): choose another folder"
        )
