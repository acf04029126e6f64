"""What a task answers when it is asked for its model, data, losses and the rest, checked.

A task is its user's code. An answer that will not do is told in one line that names the task's
method, and the file and line where a user wrote it.
"""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from trimol._checks import whole_number
from trimol._failures import BadType, BadValue, UserError
from trimol._files import OF_FILES, from_here
from trimol._generators import IN_DATA, seeding
from trimol.data import IndependentDraws
from trimol.gradients._params import checked
from trimol.gradients.losses import as_vector
from trimol.tasks.loading import TaskError, is_name
from trimol.tasks.task import SAMPLES, Batch, Data, Task, holding_out, summed


class BadAnswer(TaskError, BadType):
    """What a method of a task returned will not do."""


def model(task: Task) -> nn.Module:
    """A new model: a module with parameters in memory."""
    found = _asked(task, "model")
    if not isinstance(found, nn.Module):
        raise _wrong(task, "model", f"must return a module, found {_kind(found)}")
    held = list(found.parameters())
    if not held:
        raise _wrong(task, "model", f"must return a module with parameters, found {_kind(found)}")
    if any(p.is_meta for p in held):
        raise _wrong(task, "model", "must return parameters in memory, found one on 'meta'")
    return found


def data(task: Task, seed: int | None = None) -> Data:
    """The task's data; of the run with this seed, where that decides the split.

    What it draws from global generators is the same at every call.
    """
    by_seed = seed is not None and type(task).data_for is not Task.data_for
    method, given = ("data_for", [seed]) if by_seed else ("data", [])
    with seeding(IN_DATA):
        found = _asked(task, method, *given)
    if not isinstance(found, Data):
        raise _wrong(task, method, f"must return a trimol.tasks.Data, found {_kind(found)}")
    held_out = task.hold_out if found.validation is None else 0
    return holding_out(found, held_out) if held_out else found


def shared(task: Task, module: nn.Module) -> list[Tensor]:
    """The parameters that the method weighs."""
    found = _asked(task, "shared", module)
    with about(task, "shared"):
        return checked(found)


def optimizer(task: Task, params: Iterable[Tensor], lr: float) -> Optimizer:
    """What moves the parameters: some of them, and without a closure."""
    given = list(params)
    found = _asked(task, "optimizer", given, lr)
    if not isinstance(found, Optimizer):
        raise _wrong(task, "optimizer", f"must return an optimizer, found {_kind(found)}")
    closure = inspect.signature(found.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise _wrong(
            task, "optimizer", f"must return one that steps without a closure, found {_kind(found)}"
        )
    moved = {id(p) for group in found.param_groups for p in group["params"]}
    if moved.isdisjoint(map(id, given)):
        raise _wrong(
            task, "optimizer", "must return one of the given parameters, found one of others"
        )
    return found


def batch_size(task: Task, samples: Data, given: int | None, *, hold_out: int = 0) -> int:
    """Samples a step: as given, else the task's own, or all that it has where these are fewer.

    Args:
        task: The task.
        samples: Its data.
        given: What a user says.
        hold_out: So many samples of train are going to be validation data, if there is none.
    """
    if given is not None:
        return whole_number("batch_size", given, least=1)
    held_out = hold_out if samples.validation is None else 0
    return min(task.batch_size, len(samples.train[0]) - held_out)


def sampler(
    task: Task, samples: Data, batch_size: int, *, growth: float, seed: int
) -> IndependentDraws:
    """Which samples each step takes: one index set a step, of samples that are there."""
    found = _asked(task, "sampler", samples, batch_size, growth=growth, seed=seed)
    if not isinstance(found, IndependentDraws):
        raise _wrong(
            task, "sampler", f"must return a trimol.data.IndependentDraws, found {_kind(found)}"
        )
    if found.k != 1:
        raise _wrong(task, "sampler", f"must return one with k=1, found k={found.k}")
    size = len(samples.train[0])
    if found.size > size:
        raise _wrong(
            task,
            "sampler",
            f"must return one over the {size} samples of train, found one over {found.size}",
        )
    return found


def losses(task: Task, module: nn.Module, batch: Batch, *, graph: bool = True) -> Tensor:
    """The M losses of a batch as one vector; with a graph, if one is needed."""
    found = _asked(task, "losses", module, batch)
    with about(task, "losses"):
        vector = as_vector(found, graph=graph)
    names = task.objectives
    if len(vector) != len(names):
        raise _wrong(
            task,
            "losses",
            f"must return {len(names)} losses, one for each of {', '.join(names)}, found "
            f"{len(vector)}",
        )
    return vector


def counts(task: Task, batch: Batch) -> Tensor | None:
    """How many samples of a batch each objective has; None if each has all."""
    found = _asked(task, "counts", batch)
    if found is None:
        return None
    if not isinstance(found, Tensor) or found.shape != (len(task.objectives),):
        kind = f"one of shape {tuple(found.shape)}" if isinstance(found, Tensor) else _kind(found)
        raise _wrong(
            task,
            "counts",
            f"must return a tensor of {len(task.objectives)} numbers, one for each of "
            f"{', '.join(task.objectives)}, or None, found {kind}",
        )
    if found.is_complex() or not (found >= 0).all() or not found.isfinite().all():
        raise _wrong(task, "counts", f"must return numbers of at least 0, found {found.tolist()}")
    return found


def representation(task: Task, module: nn.Module) -> nn.Module | None:
    """The module whose outputs are all that the heads see; None if there is none."""
    found = _asked(task, "representation", module)
    if found is not None and not isinstance(found, nn.Module):
        raise _wrong(task, "representation", f"must return a module or None, found {_kind(found)}")
    return found


def true_front(task: Task, batch: Batch, points: int) -> Tensor | None:
    """Points of the true front of some samples; None if it is not known."""
    found = _asked(task, "true_front", batch, points)
    if found is None:
        return None
    wanted = len(task.objectives)
    if not isinstance(found, Tensor) or found.dim() != 2 or found.shape[1] != wanted:
        kind = f"one of shape {tuple(found.shape)}" if isinstance(found, Tensor) else _kind(found)
        raise _wrong(task, "true_front", f"must return a tensor of {wanted} columns, found {kind}")
    if found.is_complex() or not len(found) or not found.isfinite().all():
        raise _wrong(task, "true_front", "must return at least one point of finite numbers")
    return found.detach()


def tally(task: Task, module: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
    """What adds up over batches to the metrics."""
    if type(task).tally is Task.tally:
        found = _asked(task, "metrics", module, batch)
        _check_numbers(task, "metrics", found)
        if SAMPLES in found:
            raise _clash(task, "metrics", SAMPLES)
        return summed(found, len(batch[0]))
    found = _asked(task, "tally", module, batch)
    _check_mapping(task, "tally", found)
    for name, value in found.items():
        if not isinstance(value, Tensor):
            raise _wrong(task, "tally", f"must return tensors, found {_kind(value)} for {name!r}")
    return found  # type: ignore[no-any-return]


def conclude(task: Task, sums: Mapping[str, Tensor], *, taken: Iterable[str]) -> dict[str, float]:
    """The metrics, by name; names that are taken mean something else beside them."""
    method = "conclude"
    if type(task).conclude is Task.conclude:
        method = "metrics"
        _check_means(task, sums)
    found = _asked(task, "conclude", sums)
    _check_numbers(task, method, found)
    for name in (*task.objectives, *taken, SAMPLES):
        if name in found:
            raise _clash(task, method, name)
    return {name: float(value) for name, value in found.items()}


def added(task: Task, sums: dict[str, Tensor], more: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What two batches tally together: the same names in both, and the same shapes."""
    shapes = [{name: tuple(value.shape) for name, value in each.items()} for each in (sums, more)]
    if shapes[0] != shapes[1]:
        method = "metrics" if type(task).tally is Task.tally else "tally"
        raise _wrong(
            task,
            method,
            f"must return the same names and shapes for every batch, found {_brief(shapes[0])} and "
            f"{_brief(shapes[1])}",
        )
    return {name: value + more[name] for name, value in sums.items()}


@contextmanager
def about(task: Task, method: str) -> Iterator[None]:
    """What is wrong here is wrong with what a method of the task returned."""
    try:
        yield
    except TaskError:
        raise
    except (BadType, BadValue) as error:
        raise BadAnswer(f"{_place(task, method)}: {error}") from error


def _asked(task: Task, method: str, *given: Any, **named: Any) -> Any:
    """What a method returns; one that cannot be called so is named, or that is not the user's."""
    try:
        return getattr(task, method)(*given, **named)
    except UserError:
        raise
    except Exception as error:
        trace = error.__traceback__
        if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:
            raise _wrong(task, method, f"cannot be called: {error}") from error
        if not _passes_by(task, error):
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise _wrong(task, method, f"failed on what the class gives: {said}") from error


def _passes_by(task: Task, error: Exception) -> bool:
    """Whether an error came up in a class of ours that a user's file derives its task from.

    Nothing in such an error names the file, though what it gave (data, a model) is what is wrong.
    """
    module = sys.modules.get(type(task).__module__)
    file = getattr(module, "__file__", None)
    if file is None or not type(task).__module__.startswith(OF_FILES):
        return False
    seen = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    return not seen & {file, str(Path(file).resolve())}


def _check_mapping(task: Task, method: str, found: Any) -> None:
    if not isinstance(found, Mapping):
        raise _wrong(task, method, f"must return a mapping, found {_kind(found)}")
    for name in found:
        if not is_name(name):
            raise _wrong(
                task, method, f"must return values by name (text on one line), found {name!r}"
            )


def _check_numbers(task: Task, method: str, found: Any) -> None:
    _check_mapping(task, method, found)
    for name, value in found.items():
        if not _is_number(value):
            kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            raise _wrong(
                task,
                method,
                f"must return one real number for {name!r}, found {kind or _kind(value)}",
            )


def _check_means(task: Task, sums: Mapping[str, Tensor]) -> None:
    """What a task tallies itself adds up to means only if it is sums and a number of samples."""
    for name, total in sums.items():
        if total.numel() != 1 or SAMPLES not in sums:
            raise _wrong(
                task, "tally", f"must come with a conclude() that makes a metric of {name!r}"
            )


def _is_number(value: Any) -> bool:
    """Whether it is one real number; NaN, which says that there is none, included."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, Real)


def _clash(task: Task, method: str, name: str) -> BadAnswer:
    return _wrong(task, method, f"must not call a metric {name!r}: another number is called so")


def _wrong(task: Task, method: str, said: str) -> BadAnswer:
    return BadAnswer(f"{_place(task, method)} {said}")


def _place(task: Task, method: str) -> str:
    """A method of a task, after the file and the line where a user wrote it."""
    called = f"{method}() of {type(task).__name__}"
    written: Callable[..., Any] | None = inspect.unwrap(getattr(type(task), method))
    code = getattr(written, "__code__", None)
    module = type(task).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.startswith("trimol."):
        return called
    path = Path(file).resolve()
    line = f", line {code.co_firstlineno}" if code and Path(code.co_filename) == path else ""
    return f"{from_here(path)}{line}: {called}"


def _brief(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}{list(shape) if shape else ''}" for name, shape in shapes.items())


def _kind(value: Any) -> str:
    return type(value).__name__
