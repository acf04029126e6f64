"""What a step does to every loss, to first order: one tangent pass, whatever their number."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from trimol._failures import BadType, BadValue
from trimol.gradients import _reduce as reduce
from trimol.gradients._autocast import no_autocast
from trimol.gradients._graph import record
from trimol.gradients._params import checked, trainable
from trimol.gradients._product import directional
from trimol.gradients._sharded import whole
from trimol.gradients.losses import Losses, as_vector


@no_autocast()
def effect(losses: Losses, step: Sequence[Tensor | None], params: Iterable[Tensor]) -> Tensor:
    r"""By how much a step changes every loss, to first order: :math:`\nabla f_m^\top s`.

    Above zero, the loss rises along the step. All M numbers come from one forward-mode pass along
    the recorded graph. Under an initialised ``torch.distributed`` group the losses are those of the
    global batch.

    Args:
        losses: A 1-D tensor with one entry per objective, or a sequence of scalars, computed at
            the parameters *before* the step.
        step: What the step adds to each of the parameters, after − before; None where it adds
            nothing.
        params: The parameters, in the same order. Those that are frozen, or that the losses do not
            reach, have no effect.

    Returns:
        M numbers.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> trimol.effect([x.sum(), x.prod()], [torch.tensor([-0.2, 0.1])], [x])
        tensor([-0.1000, -0.3000])
    """
    vector, given = as_vector(losses), checked(params)
    moves = _checked_step(step, given)
    live = trainable(given)
    graph = record(vector, live)
    with graph.apart():
        local = directional(graph, [moves[id(p)] for p in live])
    return reduce.mean_small(local.values)


def _checked_step(step: Sequence[Tensor | None], params: Sequence[Tensor]) -> dict[int, Tensor]:
    """What each parameter, by its ``id``, moves by."""
    if isinstance(step, Tensor) or not isinstance(step, Sequence):
        raise BadType(
            f"step must be a list with one tensor for each parameter, found {type(step).__name__}"
        )
    if len(step) != len(params):
        raise BadValue(f"step must have {len(params)} tensors, as params has, found {len(step)}")
    for i, (part, p) in enumerate(zip(step, params, strict=True)):
        if part is not None and part.shape != p.shape:
            raise BadValue(
                f"step must have the shapes of params, found {tuple(part.shape)} in place of "
                f"{tuple(p.shape)} at place {i}"
            )
    pairs = zip(step, params, strict=True)
    parts = {id(p): torch.zeros_like(p) if part is None else part.detach() for part, p in pairs}
    return {place: whole(part) for place, part in parts.items()}
