"""Records: one measurement of a run as a flat mapping from names to numbers.

What a monitor hands to its sinks, a row of a run's ``metrics.parquet``, a point of a report's
curves. Keys, in this order, each absent where it was not measured:

- ``step``, the steps done, and ``samples``, the training samples that they took;
- ``kept``, how many of the steps kept λ because an objective was absent, where any did;
- ``loss/<objective>`` on the whole training data, ``test_loss/<objective>`` on the test data;
- ``metric/<name>``, the task's metrics on the test data;
- ``weight/<objective>``, λ, and ``avoiding/<objective>``, λ*_ρ;
- ``norm/<objective>``, ‖∇f_m‖ on the training data; ``cosine/<a>/<b>`` for every pair of objectives
  (a before b), or, of more than 64 objectives, ``least_cosine`` and ``mean_cosine`` over all pairs;
  ``conflicting``, the fraction of pairs with a negative cosine;
- ``R_opt``, ``R_pop``, ``R_gen`` (with its sign) and ``gen_bound`` = ‖∇F_test − ∇F_S‖_F, which
  R_gen never exceeds in size;
- ``E_ca``, ``E_caw``;
- of the steps that a `trimol.StepWatch` looked at, from the start of training on: ``steps_looked``,
  how many; ``steps_raise_some`` and ``steps_raise_all``, the share that raised at least one loss of
  their batch, or every one; ``steps_raise/<objective>``, the share that raised this one;
  ``steps_worst_cosine``, the least cosine of a step with a −∇f_m; ``steps_not_finite``, how many
  more had an effect that is not finite. The same on the training data: ``full_looked``,
  ``full_raise_some`` and so on, with ``full_undecided``, the share of which a subsample could not
  tell.

No clock is in it: the records of a resumed run are those of an unbroken one, byte for byte.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from trimol.errors import Errors

# Objectives up to which every pair has a key: a thousand objectives have half a million pairs.
MOST_PAIRED = 64
# The keys of looks that are whole numbers.
COUNTS = ("steps_looked", "steps_not_finite", "full_looked", "full_not_finite")
Record = dict[str, float | int]
Sink = Callable[[Record], None]
# How records call the errors, and how `Errors` does.
ERRORS = {
    "R_opt": "opt",
    "R_pop": "pop",
    "R_gen": "gen",
    "E_ca": "conflict",
    "E_caw": "conflict_weight",
}


def from_errors(
    errors: "Errors",
    objectives: Sequence[str],
    *,
    step: int,
    samples: int | None = None,
    kept: int = 0,
    metrics: Mapping[str, float] | None = None,
    weights: Tensor | Sequence[float] | None = None,
) -> Record:
    """One measurement as a record.

    Args:
        errors: The result of `trimol.measure`.
        objectives: The names of the objectives, in their order.
        step: The steps done.
        samples: The training samples that they took, if known.
        kept: How many of the steps kept λ (`trimol.methods.Info.kept`).
        metrics: Metrics on the test data, by name.
        weights: λ, as the method has it (some methods' do not sum to one).

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> losses = lambda z: torch.stack([(x - z).square().mean(), (x + 1).square().mean()])
        >>> errors = trimol.measure(losses, [x], train=[torch.ones(2)], weights=[0.5, 0.5])
        >>> record = from_errors(errors, ["near", "far"], step=7, weights=[0.5, 0.5])
        >>> record["step"], record["loss/near"], record["cosine/near/far"], record["R_opt"]
        (7, 4.0, 1.0, 4.0)
    """
    record: Record = {"step": step}
    if samples is not None:
        record["samples"] = samples
    if kept:
        record["kept"] = kept
    record |= _each("loss", objectives, errors.losses)
    record |= _each("test_loss", objectives, errors.test_losses)
    record |= {f"metric/{name}": value for name, value in (metrics or {}).items()}
    if weights is not None:
        record |= _each("weight", objectives, [float(weight) for weight in weights])
    record |= _each("avoiding", objectives, errors.min_norm)
    record |= _each("norm", objectives, errors.norms)
    record |= _cosines(errors.cosines, objectives)
    numbers = {
        "conflicting": errors.conflicting,
        "R_opt": errors.opt,
        "R_pop": errors.pop,
        "R_gen": errors.gen,
        "gen_bound": errors.bound,
        "E_ca": errors.conflict,
        "E_caw": errors.conflict_weight,
    }
    return record | {name: value for name, value in numbers.items() if value is not None}


def objectives_of(names: Sequence[str]) -> tuple[str, ...]:
    """The objectives' names, from the keys of a record.

    >>> objectives_of(["step", "loss/fit", "loss/slope", "weight/fit"])
    ('fit', 'slope')
    """
    return tuple(name.removeprefix("loss/") for name in names if name.startswith("loss/"))


def _cosines(cosines: Tensor, objectives: Sequence[str]) -> Record:
    """Return those of every pair, or what they come to where there are too many."""
    first, second = torch.triu_indices(len(objectives), len(objectives), offset=1)
    pairs = cosines[first, second]
    if len(objectives) <= MOST_PAIRED:
        named = (f"cosine/{a}/{b}" for a, b in combinations(objectives, 2))
        return dict(zip(named, pairs.tolist(), strict=True))
    known = pairs[pairs.isfinite()]  # a zero gradient has none
    return {
        "least_cosine": float(known.min()) if len(known) else math.nan,
        "mean_cosine": float(known.mean()),
    }


def _each(kind: str, objectives: Sequence[str], values: Sequence[float] | None) -> Record:
    if values is None:
        return {}
    return {f"{kind}/{name}": value for name, value in zip(objectives, values, strict=True)}
