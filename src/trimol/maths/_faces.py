r"""Faces of the simplex, many problems at once: which support does the min-norm point have?

:mod:`trimol.maths.min_norm` tells the problem, the linear system of a face and the certificate.
Pure torch over leading dimensions; C and c are the scaled Gramian and the scaled ones.
"""

import torch
from torch import Tensor

from trimol.maths._numerics import ROUNDING, TINY


def best_support(C: Tensor, c: Tensor) -> Tensor:
    """Solve on all 2^M - 1 supports; return the y ≥ 0 that best satisfies the certificate."""
    size = c.shape[-1]
    codes = torch.arange(1, 2**size, device=c.device)
    supports = (codes[:, None] >> torch.arange(size, device=c.device)) % 2 == 1
    C, c = C[..., None, :, :], c[..., None, :]
    y = _faces(C, c, supports)
    residual = _slack(C, c, y).amax(-1)
    feasible = torch.isfinite(y).all(-1) & (y >= 0).all(-1) & ~residual.isnan()
    residual = torch.where(feasible, residual, torch.inf)
    best = residual.argmin(-1)[..., None, None].expand(*residual.shape[:-1], 1, size)
    return y.gather(-2, best)[..., 0, :]


def active_set(C: Tensor, c: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Run the active-set method from ``support``; return the best y and its failure, per problem.

    The method of Lawson and Hanson: solve on the support; if an entry turns negative, step until
    the first one vanishes and drop it; else add the objective that fails the certificate most.
    Each such step lowers the objective, so no support comes twice and the method is finite; the
    bound on the number of steps only guards against cycles by rounding.
    """
    y = support / (c * support).sum(-1, keepdim=True)
    best, least = y, torch.full_like(y[..., 0], torch.inf)
    done = torch.zeros_like(least, dtype=torch.bool)
    for _ in range(5 * c.shape[-1] + 10):
        # The minimiser on the support; the best one inside the simplex is kept.
        face = _faces(C, c, support)
        slack = _slack(C, c, face)
        feasible = ((face > 0) | ~support).all(-1)
        failure = torch.where(feasible, slack.amax(-1), torch.inf)
        better = (failure < least) & ~done
        best = torch.where(better[..., None], face, best)
        least = torch.where(better, failure, least)

        # Certified where no objective outside the support gains by entering.
        outside = torch.where(support, -torch.inf, slack)
        done = done | ~torch.isfinite(face).all(-1) | (feasible & ~(outside.amax(-1) > ROUNDING))
        if done.all():
            break
        # Inside the simplex: add the worst objective. Else: stop at its border, drop what vanished.
        worst = torch.nn.functional.one_hot(outside.argmax(-1), c.shape[-1]).bool()
        stepped, blocking = _step(y, face, support)
        y = torch.where(feasible[..., None], face, stepped)
        support = torch.where(feasible[..., None], support | worst, support & ~blocking)
    return best, least


def _step(y: Tensor, face: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Go from ``y`` towards ``face`` until the first entries vanish; tell which these are."""
    ratio = torch.where(support & (face <= 0), y / (y - face), torch.inf)
    length = ratio.amin(-1, keepdim=True)
    blocking = support & (ratio <= length)
    stepped = torch.where(support & ~blocking, y + length * (face - y), torch.zeros_like(y))
    return stepped.clamp(min=0), blocking


def _faces(C: Tensor, c: Tensor, support: Tensor) -> Tensor:
    """Solve the linear system of each support's face, refined once; cᵀy = 1.

    A singular system gives NaN or inf, never an error.
    """
    # Outside the support: rows and columns of the identity, so that all systems have one size.
    inside = support.to(C.dtype)
    block = C * inside[..., None] * inside[..., None, :] + torch.diag_embed(1 - inside)
    border = c * inside
    border = border / border.amax(-1, keepdim=True)
    corner = torch.zeros_like(border[..., :1])
    last = torch.cat([border, corner], -1)[..., None, :]
    system = torch.cat([torch.cat([block, border[..., None]], -1), last], -2)
    target = torch.cat([torch.zeros_like(border), corner + 1], -1)[..., None]

    # Solve, and solve once more for the residual: errors per component.
    factors, pivots, _ = torch.linalg.lu_factor_ex(system)
    solution = torch.linalg.lu_solve(factors, pivots, target)
    solution = solution + torch.linalg.lu_solve(factors, pivots, target - system @ solution)
    y = torch.where(support, solution[..., :-1, 0], torch.zeros_like(border))
    return y / (c * y).sum(-1, keepdim=True)


def _slack(C: Tensor, c: Tensor, y: Tensor) -> Tensor:
    """Say by how much each entry of ``y`` fails the certificate (`min_norm._certified`)."""
    y = y / y.amax(-1, keepdim=True)
    product = (C @ y[..., None])[..., 0]
    magnitude = (C.abs() @ y[..., None])[..., 0]
    share = y / (c * y).sum(-1, keepdim=True)
    scale = magnitude + c * (share * magnitude).sum(-1, keepdim=True)
    slack = product - c * (share * product).sum(-1, keepdim=True)
    slack = slack / (scale + TINY)
    return torch.where(y > 0, slack.abs(), -slack)
