"""Checkpoints: all that a run needs to go on as if nothing had happened, as tensors and numbers."""

from typing import Any

from trimol._extras import require
from trimol._failures import RunError
from trimol.training.loop import Run


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
        "random": utils.gather_object([run.random]),
    }


def restore(run: Run, state: dict[str, Any]) -> None:
    """Take a run, set up as the saved one was, to where that one was.

    Args:
        run: The run, which is changed in place.
        state: What `state` gave.

    Raises:
        RunError: The checkpoint was saved by another number of processes.
    """
    processes = run.where.num_processes
    if len(state["random"]) != processes:
        raise RunError(
            f"the checkpoint was saved by {len(state['random'])} processes, found {processes}: "
            "resume with as many"
        )
    run.step, run.samples = state["step"], state["samples"]
    run.model.load_state_dict(state["model"])
    run.method.load_state_dict(state["method"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.sampler.load_state_dict(state["sampler"])
    run.scaler.load_state_dict(state["scaler"])
    run.random = state["random"][run.where.process_index]
