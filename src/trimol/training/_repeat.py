"""Whether a step repeats: what a run's promise to resume bit for bit rests on."""

import hashlib
from collections import deque
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from trimol._extras import require
from trimol._generators import reachable
from trimol._warnings import warn
from trimol.training._modes import training
from trimol.training._random import random_numbers
from trimol.training.assessment import run_kept
from trimol.training.loop import Run, losses_on, next_draw

EARLY = 2  # steps after which a step is repeated: what is built in the first one is there
_PROMISE = "a resumed run, or one measured at other steps, is not the same bit for bit"


def check_repeats(run: Run) -> None:
    """Compute the losses of the next step twice, and say if they differ; the run stays as it was.

    Under several processes call it on each.
    """
    first, held = digests(run), _lengths(run)
    cause = _cause(first, digests(run))
    if not cause and _lengths(run) != held:  # a cache has the batch by now
        cause = "losses() adds to a list, set or dict for a batch that it knows"
    _say(run, cause, f"{_PROMISE} (docs: Your own task, What a run resumes with)")


def check_resumed(run: Run, before: dict[str, str]) -> None:
    """Say if the losses of the next step are not those that they were when the run was saved."""
    cause = _cause(before, digests(run))
    result = "the resumed run is not the same bit for bit as one that was not interrupted"
    _say(run, cause, f"{result} (nor is it on another machine or with other numbers of threads)")


def digests(run: Run) -> dict[str, str]:
    """Digests of the next step's first draw, before and after its losses, and of its losses.

    None where they cannot be computed: the step itself will say why.
    """
    with suppress(Exception), run_kept(run), training(run.model), random_numbers(run):
        batch = next_draw(run)
        before = _digest(*batch)
        _, vector, _ = losses_on(run, batch)
        return {"batch": before, "after": _digest(*batch), "losses": _digest(vector)}
    return {}


def _lengths(run: Run) -> dict[str, int]:
    """How much the lists, sets and dicts hold that the task, its model and its data keep."""
    kinds = (list, set, dict, deque)
    return {way: len(each) for way, each in reachable(*run.parts) if isinstance(each, kinds)}


def _digest(*tensors: Tensor) -> str:
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return content.hexdigest()


def _cause(first: dict[str, str], again: dict[str, str]) -> str:
    """What is not the same of two times; empty if nothing is, or it is not known."""
    if not first or not again:
        return ""
    if first["batch"] != again["batch"]:
        if first["batch"] != first["after"]:
            return "losses() changes a batch in place that the data hand out again"
        return "the data hand out another batch for the same samples"
    if first["losses"] != again["losses"]:
        return (
            "losses() gives other values for the same batch, model and random numbers (by an "
            "iterator, a tensor that is no buffer, the clock?)"
        )
    return ""


def _say(run: Run, cause: str, result: str) -> None:
    """Warn in the main process of the first cause that any process has."""
    utils: Any = require("accelerate.utils", extra="studies", purpose="the training loop")
    cause = next(filter(None, utils.gather_object([cause])), "")
    if cause:
        run.unrepeatable = f"task {run.task.name!r}: {cause}: {result}"
        if run.where.is_main_process:
            warn(run.unrepeatable)
