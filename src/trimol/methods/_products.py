"""What the methods have in common that can be solved by products, to a gap that is known."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths._by_products import Asked, Judged, Sought, approach, exact_gap
from trimol.maths._numerics import Array, float64
from trimol.methods._gramian import GramianMethod, GramianOptions
from trimol.methods.base import Objectives, State

Solver = Literal["exact", "products"]
# Where products were dearer than all gradients, how many steps to wait before they are tried again.
_LONGEST_WAIT = 63


class ProductsOptions(GramianOptions, total=False):
    """The keywords that these methods share."""

    solver: Solver
    gap: float


class ProductsMethod(GramianMethod):
    """A Gramian's method that can do with products Gλ: two passes each, whatever M.

    Products are asked for as long as they cost less than M backwards, by counting passes, never by
    timing, so that a resumed run does the same. Where they were in vain, the step is solved exactly
    and they are tried again after 1, then 3, then 7 … steps (`wait`, `pause`).

    Args:
        solver: ``"exact"``, from all gradients, or ``"products"``, without them: cheaper from about
            a dozen objectives on.
        gap: With ``solver="products"``: the largest gap, above 0, at most 1.
    """

    # The fewest products that tell anything, and the backwards that are left to do after the last.
    fewest: ClassVar[int] = 1
    backwards_left: ClassVar[int] = 0
    guess: Tensor
    wait: Tensor
    pause: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        solver: Solver = "exact",
        gap: float = 0.1,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        checks.one_of("solver", solver, get_args(Solver))
        self.solver: Solver = solver
        self.gap = checks.fraction("gap", checks.positive("gap", gap))
        if solver == "products":
            size, never = self.objectives, torch.zeros((), dtype=torch.int64)
            self.carry(guess=self.weights.new_zeros(size, size), wait=never, pause=never)
            self.check_products()

    @abstractmethod
    def sought(self, product: Callable[[Array], Array]) -> Sought:
        """What this method looks for, and the products, λ ↦ Gλ, that say what that is."""

    @abstractmethod
    def exact(self, evidence: Evidence) -> Tensor:
        """The weights from all gradients."""

    def check_products(self) -> None:
        """Raise where products of gradients are not what the weights are made of."""
        if self.steps is not None and self.metric == "step":
            self.refuse("an optimizer's metric: set metric='gradient' and guard=True, or none")
        if self.weights.dim() > 1:
            self.refuse("replicas, which have all gradients at hand")

    def refuse(self, why: str) -> None:
        """Raise, where products are asked for."""
        if self.solver == "products":
            raise BadValue(f"solver must be 'exact' with {why}, found 'products'")

    def weigh(self, evidence: Evidence) -> Tensor | State:
        """The weights of this batch, and with products what the next step starts from."""
        if self.solver == "exact":
            return self.exact(evidence)
        self.check_products()  # the optimizer may have been set since
        if reason := self._why_exact(evidence):
            return self._remembered(evidence, reason, pause=max(int(self.pause) - 1, 0))
        asked = self._asked(evidence)
        sought = self.sought(asked)
        found, reached = approach(
            asked, sought, self.gap, lambda count: self._pays(evidence, count + 1)
        )
        evidence.findings["products"] = asked.count
        if reached:
            return self._taken(evidence, found, asked)
        del evidence.findings["product"]  # not that of the weights
        wait = min(2 * int(self.wait) + 1, _LONGEST_WAIT)
        reason = f"gap {self.gap:g} was not reached by {asked.count} products"
        return self._remembered(evidence, reason, pause=wait, wait=wait)

    def note_gap(self, evidence: Evidence, gramian: Tensor, point: Tensor) -> None:
        """Say how far a point of the simplex is from what is sought, the Gramian being known."""
        G, own = _host(gramian), _host(point)
        found = self.sought(lambda other: G @ other).judge(own, G @ own)
        evidence.findings["gap"] = exact_gap(G, own, found)

    def _why_exact(self, evidence: Evidence) -> str:
        """Why this step is not solved by products; empty if it is."""
        if not self._pays(evidence, self.fewest):
            return f"products cost no less than {evidence.gramian_cost:.3g} backwards"
        if self.pause > 0:
            return f"products were dearer than {evidence.gramian_cost:.3g} backwards of late"
        return "" if self.guess.any() else "no step yet that products could start from"

    def _pays(self, evidence: Evidence, products: int) -> bool:
        """Whether so many products cost less than the Gramian."""
        return products * evidence.product_cost + self.backwards_left < evidence.gramian_cost

    def _asked(self, evidence: Evidence) -> Asked:
        """Products of this step's gradients."""

        def product(weights: Array) -> Array:
            given = torch.from_numpy(weights).to(self.weights)
            return _host(evidence.product(given, keep_gradient=True))

        return Asked(product, _host(self.guess), lambda: evidence.coarsest)

    def _taken(self, evidence: Evidence, found: Judged, asked: Asked) -> State:
        """What a step is left with that products solved: after another in vain, wait less."""
        evidence.findings["gap"] = found.gap
        return {
            "weights": torch.from_numpy(found.weights).to(self.weights),
            "guess": torch.from_numpy(asked.surrogate.remembered()).to(self.guess),
            "wait": self.wait // 2,
        }

    def _remembered(
        self, evidence: Evidence, reason: str, *, pause: int, wait: int | None = None
    ) -> State:
        """What a step is left with that was solved exactly, and when to try products again."""
        weights, evidence.reason = self.exact(evidence), reason
        return {
            "weights": weights,
            "guess": evidence.findings["gramian"].to(self.guess),
            "wait": self.wait if wait is None else torch.full_like(self.wait, wait),
            "pause": torch.full_like(self.pause, pause),
        }


def _host(tensor: Tensor) -> Array:
    array: Array = float64(tensor).cpu().numpy()
    return array
