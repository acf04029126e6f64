"""Checkpoints: all that a run needs to go on as if nothing had happened, as tensors and numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from trimol._attributes import attributes, changes, recall
from trimol._checks import whole_number
from trimol._extras import require
from trimol._failures import BadType, BadValue, RunError
from trimol._generators import Generators
from trimol.training._repeat import digests
from trimol.training.loop import Run

_KEYS = (
    *("step", "samples", "model", "method", "optimizer", "sampler", "scaler"),
    *("random", "own", "next", "unrepeatable"),
)


def state(run: Run) -> dict[str, Any]:
    """The state of a run between two steps. ``torch.load(weights_only=True)`` reads it back.

    Under several processes call it on each: every one has random numbers of its own.

    Example:
        >>> from trimol.tasks import get
        >>> from trimol.training import start, train
        >>> run = train(start(get("digits")(), "modo"), steps=3)
        >>> again = start(get("digits")(), "modo", seed=1)
        >>> restore(again, state(run))
        >>> again.step, again.method.weights.equal(run.method.weights)
        (3, True)
    """
    utils = require("accelerate.utils", extra="studies", purpose="the training loop")
    return {
        "step": run.step,
        "samples": run.samples,
        "model": run.model.state_dict(),
        "method": run.method.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "sampler": run.sampler.state_dict(step=run.step),
        "scaler": run.scaler.state_dict(),
        "random": utils.gather_object([run.random.state_dict()]),
        "own": utils.gather_object([_own(run)]),
        "next": utils.gather_object([digests(run)]),
        "unrepeatable": run.unrepeatable,
        **({} if run.watch is None else {"watch": run.watch.state_dict()}),
    }


def restore(run: Run, state: dict[str, Any]) -> None:
    """Take a run, set up as the saved one was, to where that one was.

    Args:
        run: The run, which is changed in place.
        state: What `state` gave.

    Raises:
        RunError: The checkpoint was saved by another number of processes.
        BadValue, BadType: It is no checkpoint, or one of another run.
    """
    check_keys("a run", state, _KEYS if run.watch is None else (*_KEYS, "watch"))
    processes = run.where.num_processes
    if len(state["random"]) != processes:
        raise RunError(
            f"the checkpoint was saved by {len(state['random'])} processes, found {processes}: "
            "resume with as many"
        )
    run.step = whole_number("step", state["step"], least=0)
    run.samples = whole_number("samples", state["samples"], least=0)
    run.model.load_state_dict(state["model"])
    run.method.load_state_dict(state["method"])
    check_weights(run.method.weights, run.model.parameters())
    run.optimizer.load_state_dict(state["optimizer"])
    _check_optimizer(run)
    run.sampler.load_state_dict(state["sampler"])
    if run.sampler.step != run.step:
        raise BadValue(f"the sampler's step must be {run.step}, found {run.sampler.step}")
    run.scaler.load_state_dict(state["scaler"])
    if run.watch is not None:
        run.watch.load_state_dict(state["watch"])
    random = state["random"][run.where.process_index]
    run.random.load_state_dict(random)
    _restore_own(run, state["own"][run.where.process_index])
    run.unrepeatable = state["unrepeatable"]


def _own(run: Run) -> dict[str, Any]:
    """What the task remembers: its generators, and the numbers and texts that have changed."""
    now = changes(run.began, attributes(*run.parts))
    return {
        "generators": Generators(*run.parts, shared=False).state_dict(),
        "attributes": {way: each.value for way, each in now.items()},
    }


def _restore_own(run: Run, saved: dict[str, Any]) -> None:
    own, states = Generators(*run.parts, shared=False), saved["generators"]
    own.load_state_dict({n: states.get(n, text) for n, text in own.state_dict().items()})
    own.put_back()
    recall(saved["attributes"], *run.parts)


def check_keys(what: str, state: Any, keys: tuple[str, ...]) -> None:
    """What was saved must be a dict with these keys."""
    if not isinstance(state, dict):
        raise BadType(f"the state of {what} must be a dict, found {type(state).__name__}")
    if missing := [key for key in keys if key not in state]:
        raise BadValue(f"the state of {what} must have {missing[0]!r}, found none")


def check_weights(weights: Tensor, params: Iterable[Tensor]) -> None:
    """λ must be finite where x is: a step with another λ would have spoilt x."""
    if not weights.isfinite().all() and all(bool(p.isfinite().all()) for p in params):
        raise BadValue(f"the method's weights must be finite, found {weights.tolist()}")


def check_shapes(what: str, own: Mapping[Any, Tensor], found: Mapping[Any, Tensor]) -> None:
    """Saved tensors must have the names and shapes of this run's."""
    if own.keys() != found.keys():
        raise BadValue(f"{what} must have the names {list(own)}, found {list(found)}")
    for name, tensor in own.items():
        if tensor.shape != found[name].shape:
            raise BadValue(
                f"{what} {name!r} must have the shape {tuple(tensor.shape)}, "
                f"found {tuple(found[name].shape)}"
            )


def _check_optimizer(run: Run) -> None:
    """What an optimizer has for each entry of a parameter must have as many entries."""
    for param, kept in run.optimizer.state.items():
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.dim() == param.dim() != 0:
                check_shapes("the optimizer's", {name: param}, {name: value})
