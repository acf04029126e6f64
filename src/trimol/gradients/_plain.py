"""The evidence of a step by plain backwards, one a loss: what the engine's evidence is held to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trimol.gradients import _hooks as hooks
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import dense
from trimol.gradients._params import flattened
from trimol.gradients._scalar import weighted
from trimol.gradients.evidence import Evidence


class PlainEvidence(Evidence):
    """As `Evidence`, without its ways: M backwards for whatever is asked, and nothing is kept.

    So `scalar` leaves the whole backward to the user's, through the graph of λᵀF.
    """

    @no_autocast()
    def gramian(self, *, chunk: int | None = None, of: Sequence[Tensor] | None = None) -> Tensor:
        """GᵀG of the (only) draw's gradients, or of those of other tensors."""
        rows = self._plain_rows(self.draws[0], self.params if of is None else of)
        if of is None and self.metric is not None:
            return self._noted("gramian", self.gram(rows))
        return self._noted("gramian", rows.double() @ rows.double().T)

    @no_autocast()
    def product(self, weights: Tensor, *, keep_gradient: bool = False) -> Tensor:
        """G1ᵀ(G2 λ) of the first two draws, or twice the only one."""
        second = weighted(self.draws[min(1, len(self.draws) - 1)], weights)
        with hooks.muted(self.params):
            vector = self._in_metric(plain_gradients(second, self.params))
        rows = self._plain_rows(self.draws[0], self.params)
        return self._noted("product", rows.double() @ flattened(vector).double())

    @no_autocast()
    def jacobian(self) -> Tensor:
        """One row of gradients per objective of the (only) draw."""
        return self.finite(self._plain_rows(self.draws[0], self.params))

    def rows_of(self, places: Sequence[int]) -> Tensor:
        """The rows of `jacobian` at these places."""
        return self.jacobian()[list(places)]

    def _falls_of(
        self, used: Sequence[Tensor], params: Sequence[Tensor], moved: Sequence[Tensor]
    ) -> Tensor:
        return self._rows_of(used, params).double() @ flattened(moved).double()

    def _rows_of(self, used: Sequence[Tensor], params: Sequence[Tensor]) -> Tensor:
        return torch.stack([self._plain_rows(vector, params) for vector in used]).mean(0)

    def _plain_rows(self, losses: Tensor, params: Sequence[Tensor]) -> Tensor:
        with hooks.muted([p for p in params if p.is_leaf]):
            rows = [plain_gradients(loss, params) for loss in losses]
        return torch.stack([flattened(row) for row in rows])


def plain_gradients(scalar: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return what ``scalar.backward()`` would leave in these, dense; the graph is kept."""
    found = torch.autograd.grad(
        scalar, list(leaves), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return [dense(gradient) for gradient in found]
