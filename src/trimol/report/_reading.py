"""What a folder holds that can be reported on; what cannot be read is left out, in a line each.

Files may be damaged, edited by hand, or somebody else's. None of that ends a report, and nothing
from outside the folder comes into it.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from trimol import _files
from trimol._failures import UserError
from trimol.report._diagnosed import Diagnosed
from trimol.runs import _diagnosis_file as diagnosis
from trimol.runs import store
from trimol.runs import study as results
from trimol.runs._storage import StoreError
from trimol.runs.store import StoredRun
from trimol.runs.study import Study, is_fact, is_number, within

FoundT = TypeVar("FoundT", StoredRun, Study, Diagnosed)


class Found(NamedTuple):
    """What is reported on, and what is left out."""

    runs: list[StoredRun]
    studies: list[Study]
    left_out: list[str]
    diagnoses: list[Diagnosed]


def read(folder: Path) -> Found:
    """All runs and studies in a folder and below it. A study reports on its own runs."""
    left_out: list[str] = []
    studies = _readable(results.files_in(folder), lambda file: _study(file, folder), left_out)
    homes = [study.folder for study in studies]
    own = [file for file in store.configs_in(folder) if not {*homes} & {*file.parent.parents}]
    runs = _readable(own, lambda file: _run(file, folder), left_out)
    said = _files.find(folder, diagnosis.FILE)
    told = _readable(said, lambda file: _diagnosis(file, folder), left_out)
    return Found(runs, studies, left_out, told)


def _readable(
    files: Iterable[Path], load: Callable[[Path], FoundT | None], left_out: list[str]
) -> list[FoundT]:
    """What can be loaded. A line for each file that says why not."""
    found = []
    for file in files:
        try:
            one = load(file)
        except UserError as error:
            left_out.append(" ".join(str(error).split()))
        except OSError as error:
            left_out.append(f"cannot read {error.filename or file}: {error.strerror}")
        except RecursionError:
            left_out.append(f"{file} is nested too deeply to be ours")
        else:
            found += [] if one is None else [one]
    return found


def _study(file: Path, folder: Path) -> Study:
    _check_within(folder, file)
    return results.load(file.parent)


def _diagnosis(file: Path, folder: Path) -> Diagnosed:
    _check_within(folder, file)
    return Diagnosed(diagnosis.read(file.parent))


def _run(file: Path, folder: Path) -> StoredRun | None:
    """The run that a configuration is of; None if it is not one of ours."""
    _check_within(folder, file)
    if not store.is_config(file):
        return None
    for name in (*store.OWN, store.SUMMARY):
        _check_within(folder, file.with_name(name))
    run = store.load(file.parent)
    _check_plain(file, {**run.config.hyperparameters, **run.config.task_options})
    _check_plain(run.path / store.ENVIRONMENT, run.environment)
    _check_summary(run)
    for name, table in ((store.METRICS, run.metrics), (store.SCORES, run.scores)):
        _check_table(run.path / name, table)
    _check_direction(run)
    assert run.state  # if its file is damaged, that is said now
    return run


def _check_within(folder: Path, file: Path) -> None:
    if not within(folder, file):
        raise StoreError(f"{file} must be in {folder}, found a link that leads out of it")
    if file.is_symlink() and not file.exists():
        raise StoreError(f"{file} must be a file, found a link that leads nowhere")


def _check_plain(file: Path, facts: Any) -> None:
    if not isinstance(facts, dict):
        raise StoreError(f"{file} must hold values by name, found {type(facts).__name__}")
    for name, value in facts.items():
        if not is_fact(value, deep=8):
            raise StoreError(f"{file}: {name} must be plain values, found {_found(value)}")


def _check_summary(run: StoredRun) -> None:
    if run.summary is None:
        return
    file = run.path / store.SUMMARY
    for name in ("steps", "samples", "seconds"):
        if not is_number(run.summary[name]):
            raise StoreError(f"{file}: {name} must be a number, found {_found(run.summary[name])}")
    if run.metrics.is_empty():
        raise StoreError(f"{run.path / store.METRICS} must hold a record, found none")


def _check_table(file: Path, table: Any) -> None:
    """Steps, and numbers beside them."""
    if not table.columns:
        return
    steps = table.get_column("step", default=None)
    if steps is None or not steps.dtype.is_integer() or steps.null_count():
        raise StoreError(f"{file} must have a whole number as step in every row, found another")
    for name, kind in table.schema.items():
        if not kind.is_numeric():
            raise StoreError(f"{file}: {name} must hold numbers, found {kind}")


def _check_direction(run: StoredRun) -> None:
    file = run.path / store.DIRECTION
    if run.finished and file.exists():
        vector: Any = run.direction
        if not isinstance(vector, Tensor) or vector.dim() != 1 or not vector.is_floating_point():
            raise StoreError(f"{file} must hold one vector, found {_found(vector)}")


def _found(value: Any) -> str:
    """A value of whatever size, in a few words."""
    if isinstance(value, dict | list) or not isinstance(value, str | int | float | None):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
