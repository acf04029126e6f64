"""EPO: the exact Pareto optimal point on a ray, by a linear program each step."""

from collections.abc import Iterable
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.maths._linear import over_simplex
from trimol.maths._numerics import EPS, Array, tolerance_of
from trimol.maths._validation import checked_gramian
from trimol.maths.min_norm import min_norm_one
from trimol.methods._gramian import each
from trimol.methods._preferring import GramianPreferringMethod, GramianPreferringOptions
from trimol.methods.base import Needs, Objectives


def epo_weights(gramian: Tensor, above: Tensor, prefer: Tensor, eps: float) -> Tensor:
    """α of the step that balances where p (f − z) differ, and descends where they do not."""
    C = checked_gramian(gramian)
    terms, p = (t.detach().cpu().double().numpy() for t in (prefer * above, prefer))
    if len(C) == 1 or not C.any():
        return torch.full((len(C),), 1 / len(C), dtype=torch.float64)
    uneven, anchor = _imbalance(terms, p)
    C = C / C.diagonal().max()
    alpha = _balanced(C, anchor, terms) if uneven > eps else _descended(C, anchor)
    if alpha is None:  # only rounding makes it so: the min-norm weights satisfy all that is asked
        alpha = min_norm_one(C, 0.0, tolerance_of(gramian.dtype))
    return torch.from_numpy(alpha)


def _imbalance(terms: Array, prefer: Array) -> tuple[float, Array]:
    """μ, how far the shares of p (f − z) are from uniform (KL), and the anchor a (equation 17)."""
    total = terms.sum()
    shares = terms / total if total > 0 else np.full_like(terms, 1 / len(terms))
    logs = np.log(len(terms) * np.maximum(shares, EPS))  # a loss at its ideal has no logarithm
    uneven = float(shares @ logs)
    return uneven, prefer * (logs - uneven)


def _balanced(C: Array, anchor: Array, terms: Array) -> Array | None:
    """Move most along the anchor's direction, which takes f to the ray; the worst must not rise.

    What that direction would raise may rise no faster than there (the controlled ascent).
    """
    pulled = C @ anchor
    falls = pulled > 0
    least = np.where(falls, -np.inf, pulled) if falls.any() else np.zeros_like(pulled)
    least[terms == terms.max()] = 0
    return over_simplex(pulled, C, least)


def _descended(C: Array, anchor: Array) -> Array | None:
    """Descend most, raising no loss; and without leaving the ray, where that can be had."""
    pulled, none = C @ anchor, np.zeros(len(C))
    kept = over_simplex(C.sum(0), np.vstack([C, pulled]), np.append(none, min(pulled.max(), 0)))
    return over_simplex(C.sum(0), C, none) if kept is None else kept


class EPO(GramianPreferringMethod):
    r"""Exact Pareto optimal search: to the ray of a preference, then down it to the front.

    With :math:`p` = ``prefer``, :math:`z` = ``ideal``, the shares
    :math:`s_m \propto p_m (f_m - z_m)` that sum to one, and :math:`C = G^\top G` for
    :math:`G = \nabla F_z(x)`:

    .. math::
        \mu = \sum_m s_m \log(M s_m), \qquad a_m = p_m (\log(M s_m) - \mu), \qquad
        \lambda = \arg\max_{\alpha \in \Delta^M} \begin{cases}
            \alpha^\top C a \ \text{ s.t. } (C\alpha)_j \ge (Ca)_j \text{ for } (Ca)_j \le 0,\
            (C\alpha)_k \ge 0 & \mu > \epsilon \quad \text{(balance)} \\
            \alpha^\top C \mathbf 1 \ \text{ s.t. } C\alpha \ge 0,\
            \alpha^\top C a \ge \min(0, \max_j (Ca)_j) & \mu \le \epsilon \quad \text{(descend)}
        \end{cases}

    with :math:`\epsilon` = ``eps`` and k the largest share. μ is zero exactly on the ray
    :math:`f_m - z_m \propto 1/p_m`. Balancing may raise losses that are low for the ray, also
    along the front, but never the one that is highest for it. Descending raises none. The last of
    its constraints may contradict the others; then it is left out. Both are linear programs, solved
    by trying all vertices for M ≤ 4, and by HiGHS beyond (:mod:`trimol.maths._linear`).

    What that promises, for small steps on the full gradient: x ends where the ray crosses the
    front, to μ ≤ ε, on non-convex fronts too; if it does not cross it, at a point of the front
    that is no exact answer. Losses must be at least ``ideal``. On mini-batches it holds of the
    batch's noisy losses. One backward per objective.

    Args:
        eps: ε, the largest μ that counts as on the ray: 1e-4 lets the terms p_m (f_m − z_m) of two
            losses differ by 3 %.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.5], requires_grad=True)
        >>> epo = trimol.EPO([x], objectives=2, prefer=[0.2, 0.8])
        >>> optimizer = torch.optim.SGD([x], lr=0.02)
        >>> for _ in range(200):
        ...     optimizer.zero_grad()
        ...     epo(torch.cat([x**2, (x - 3) ** 2])).backward()
        ...     optimizer.step()
        >>> abs(x.item() - 2) < 0.05  # 0.2 · 2² = 0.8 · 1²
        True

    Reference:
        D. Mahapatra, V. Rajan, *Multi-Task Learning with User Preferences: Gradient Descent with
        Controlled Ascent in Pareto Optimization*, ICML 2020.
    """

    needs: ClassVar[Needs] = "gramian"
    summary: ClassVar[str] = (
        "To the ray of a preference, then down it to the exact Pareto point, by a linear program."
    )
    reference: ClassVar[str] = "mahapatra2020multi"
    shown: ClassVar[tuple[str, ...]] = ("eps",)
    prefers: ClassVar[str | None] = "prefer"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        eps: float = 1e-4,
        **options: Unpack[GramianPreferringOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.eps = checks.positive("eps", eps)

    def weigh(self, evidence: Evidence) -> Tensor:
        """α of this batch."""
        above = self.above_ideal(evidence)
        checks.losses_at_least_zero(above, "above their ideal, for EPO's ray", self.names)
        gramian = evidence.gramian(chunk=self.chunk).to(self.weights)
        prefer = self.prefer.to(self.weights).expand_as(above)
        return each(epo_weights, [gramian, above, prefer], self.eps).to(self.weights)
