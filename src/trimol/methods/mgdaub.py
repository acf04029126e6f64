"""MGDA-UB: the weights of MGDA from the gradients of a shared representation."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Unpack, get_args

from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadType, BadValue
from trimol.gradients import Evidence, Losses
from trimol.gradients._presence import Counts
from trimol.methods.base import Method, Needs, Objectives, Options
from trimol.methods.mgda import Normalize, mgda_weights, normalised

Representation = Tensor | Sequence[Tensor]


class MGDAUB(Method):
    r"""MGDA on an upper bound: gradients with respect to the shared representation.

    .. math::
        \lambda_t = \arg\min_{\lambda \in \Delta^M} \Big\|\sum_{m=1}^M \lambda_m
            \nabla_{Z} f_m(x_t)\Big\|^2, \qquad
        x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda_t

    where Z = ``representation`` is what the shared parameters x make of the batch and all that the
    heads see of it. Up to the factor :math:`\|\partial Z / \partial x\|^2` this bounds MGDA's
    objective from above. Name it in the call: ``mgdaub(losses, representation=h)``. Where every
    task has inputs of its own, name all their representations: ``representation=[h1, h2, h3]``.
    The losses must be computed from that very tensor. What comes out of a module *beside* its
    losses is another one where ``torch.compile`` wraps the module, or ``DistributedDataParallel``
    with unused parameters or a static graph. It is refused: let the module give Z, and compute the
    losses outside.

    One backward per objective, but through the heads only; then one through the trunk. Without a
    representation there is nothing to bound: the gradients are those of the parameters and the
    method is MGDA, at the cost of MGDA (``info.reason`` says so).

    Args:
        params: The parameters that the method weighs: those that Z depends on.
        normalize: What the gradients are divided by where λ is computed: see :class:`MGDA`. The
            authors' example takes ``"loss+"``.
        weights: λ before the first step; matters only where that step's gradients are not finite.

    Example:
        >>> import torch, trimol
        >>> trunk, heads = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)
        >>> mgdaub = trimol.MGDAUB(trunk.parameters(), objectives=2)
        >>> h = trunk(torch.ones(5, 4))
        >>> mgdaub(heads(h).square().mean(0), representation=h).backward()
        >>> trunk.weight.grad.shape, mgdaub.info.gramian.shape
        (torch.Size([3, 4]), torch.Size([2, 2]))

    Reference:
        O. Sener, V. Koltun, *Multi-Task Learning as Multi-Objective Optimization*, NeurIPS 2018,
        section 3.3.
    """

    needs: ClassVar[Needs] = "representation"
    summary: ClassVar[str] = (
        "MGDA on the gradients of the shared representation: backwards through the heads only."
    )
    reference: ClassVar[str] = "sener2018multi"
    shown: ClassVar[tuple[str, ...]] = ("normalize",)

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        normalize: Normalize = "none",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        checks.one_of("normalize", normalize, get_args(Normalize))
        self.normalize: Normalize = normalize

    def forward(
        self,
        *losses: Losses | None,
        keep: bool = False,
        counts: Counts | None = None,
        representation: Representation | None = None,
    ) -> Tensor:
        """The scalar to differentiate, from the losses and what they share.

        Args:
            losses: The loss vector.
            keep: Leave λ as it is.
            counts: How many samples of each objective the losses are means over.
            representation: Z: the tensor (or tensors) between the shared parameters and the heads.
        """
        if self.evaluates:
            return self.evaluated(losses, counts)
        return self._take(self._evidence(losses, keep, counts, _checked(representation)))

    def weigh(self, evidence: Evidence) -> Tensor:
        """The min-norm weights of the representation's gradients."""
        if evidence.representation is None:
            evidence.reason = "no representation was given: these are the parameters' gradients"
        gramian = normalised(evidence.gramian(of=evidence.representation), evidence, self.normalize)
        return mgda_weights(gramian).to(self.weights)


def _checked(representation: Representation | None) -> list[Tensor] | None:
    if representation is None:
        return None
    tensors = [representation] if isinstance(representation, Tensor) else list(representation)
    if not tensors:
        raise BadValue("representation must hold at least one tensor, found none")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise BadType(f"representation must hold tensors, found {kind} at place {i}")
        if not tensor.requires_grad:
            raise BadValue(
                "representation must require grad: it is the tensor that the losses were computed "
                f"from, found one without a graph at place {i}"
            )
    return tensors
