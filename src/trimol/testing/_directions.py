"""What a method's mathematics promises, on the Jacobians that break careless ones."""

from collections.abc import Iterator

import torch
from torch import Tensor

from trimol.methods import Method
from trimol.testing._nasty import Input, inputs, low_ranks
from trimol.testing._problems import Linear, flat_gradient
from trimol.testing._row import Row

COUNTS = (2, 3, 5)


def _cases(seed: int = 0) -> list[Input]:
    return [case for m in COUNTS for case in inputs(m, seed=seed + m)]


def _direction(
    row: Row, jacobian: Tensor, offset: Tensor | None = None
) -> tuple[Tensor, Method, Linear]:
    """One step of a fresh method at a point with this Jacobian."""
    problem = Linear(jacobian, offset)
    method = row.new(problem.parameters(), len(jacobian))
    row.call(method, problem.step(method.draws)).backward()
    return flat_gradient(problem.parameters()), method, problem


def _size(jacobian: Tensor, weights: Tensor) -> float:
    """What rounding errors of a direction are relative to: a sum that may cancel."""
    return float((weights.abs() + 1e-8) @ jacobian.norm(dim=1))


def assert_weights_are_as_promised(row: Row) -> None:
    """On nasty Jacobians too the weights are finite and, where promised, on the simplex."""
    for case in _cases():
        direction, method, _ = _direction(row, case.jacobian)
        try:
            row.assert_weights(method.weights, len(case.jacobian))
        except AssertionError as error:
            raise AssertionError(f"{case.name}: {error}") from None
        assert direction.isfinite().all(), f"{case.name}: the direction is not finite"


def assert_direction_is_the_weighted_gradient(row: Row) -> None:
    """On nasty Jacobians too the direction is G λ."""
    if not row.combines:
        return
    for case in _cases():
        problem = Linear(case.jacobian)
        method = row.new(problem.parameters(), len(case.jacobian))
        before = method.weights
        row.call(method, problem.step(method.draws)).backward()
        weights = row.used(method, before)
        want = row.direction(method, weights, case.jacobian)
        error = (flat_gradient(problem.parameters()) - want).norm().item()
        assert method.info is not None
        size = max(1.0, method.info.scale) * _size(case.jacobian, weights)
        assert error <= 1e-12 * size, f"{case.name}: off by {error:.1e}"


def assert_direction_does_not_conflict(row: Row) -> None:
    """⟨∇f_m, d⟩ ≥ 0 for all m: no objective is made worse by a small step."""
    if not row.conflict_free:
        return
    for case in _cases():
        direction, method, _ = _direction(row, case.jacobian)
        sizes = case.jacobian.norm(dim=1)
        allowed = 1e-10 * sizes * _size(case.jacobian, method.weights)
        worst = (case.jacobian @ direction + allowed).min().item()
        assert worst >= 0, f"{case.name}: an inner product is {worst:.1e} below zero"


def _dependent(row: Row) -> Iterator[tuple[str, Tensor, Tensor, Tensor, float]]:
    """Dependent gradients in float32 and float64, the direction, and what it is compared with.

    A name, the Jacobian and the direction in float64, the size of both, and how far rounding may
    take a direction, relative to that size.
    """
    for case in low_ranks(every=383, start=166):
        for dtype, allowed in ((torch.float32, 8 * 2.0**-23), (torch.float64, 1e-10)):
            jacobian = case.jacobian.to(dtype)
            direction, _, _ = _direction(row, jacobian, _offset(jacobian))
            exact, moved = jacobian.double(), direction.double()
            size = moved.norm() + exact.norm(dim=1).max()
            yield f"{case.name}, {dtype}", jacobian, moved, size, allowed


def _offset(jacobian: Tensor) -> Tensor:
    """Losses that differ."""
    return 1 + torch.arange(len(jacobian)).to(jacobian)


def assert_dependent_gradients_do_not_conflict(row: Row) -> None:
    """Nor in float32, whose rounding makes dependent gradients independent by chance."""
    if not row.conflict_free:
        return
    for name, jacobian, direction, size, allowed in _dependent(row):
        rows = jacobian.double()
        worst = (rows @ direction + allowed * size * rows.norm(dim=1)).min().item()
        assert worst >= 0, f"{name}: an inner product is {worst:.1e} below zero"


def assert_permuting_dependent_gradients_keeps_the_direction(row: Row) -> None:
    """Whatever order the objectives have, in float32 too."""
    if not row.equivariant or row.degree is None:
        return
    for name, jacobian, direction, size, allowed in _dependent(row):
        order = torch.arange(len(jacobian)).flip(0)
        other, _, _ = _direction(row, jacobian[order], _offset(jacobian)[order])
        error = (direction - other.double()).norm()
        assert error <= 16 * allowed * size, f"{name}: the direction changes by {error:.1e}"


def assert_stationary_points_are_kept(row: Row) -> None:
    """Where the promise of the row says so, the direction is zero; always if the gradients are."""
    for case in _cases():
        zero = not case.jacobian.any()
        strongly = case.stationary == "strongly" and row.stationary in ("strongly", "weakly")
        weakly = case.stationary == "weakly" and row.stationary == "weakly"
        if not (zero or strongly or weakly):
            continue
        direction, _, _ = _direction(row, case.jacobian)
        size = case.jacobian.norm(dim=1).max().item()
        moved = direction.norm().item()
        assert moved <= 1e-7 * size, f"{case.name}: moves by {moved:.1e}, gradients {size:.1e}"


def assert_permuting_objectives_permutes_the_weights(row: Row) -> None:
    """The order of the objectives means nothing."""
    if not row.equivariant:
        return
    for case in _cases():
        if row.degree is None and case.stationary != "not" and case.jacobian.abs().max() > 1e4:
            continue  # a step of λ along G1ᵀ(G2 λ) ≈ 0 is then rounding, times 1e16
        m = len(case.jacobian)
        order = torch.arange(m).roll(1)
        offset = 1 + torch.arange(m).double()
        direction, method, _ = _direction(row, case.jacobian, offset)
        other, permuted, _ = _direction(row, case.jacobian[order], offset[order])
        size = _size(case.jacobian, method.weights)
        error = (direction - other).norm().item()
        assert error <= 1e-6 * size, f"{case.name}: the direction changes by {error:.1e}"
        if case.independent and not case.scaled:
            want = method.weights[order]
            close = torch.allclose(permuted.weights, want, rtol=1e-5, atol=1e-7)
            assert close, f"{case.name}: {permuted.weights.tolist()}, expected {want.tolist()}"


def assert_scaling_all_losses_scales_the_direction(row: Row) -> None:
    """d(c F) = c^degree d(F) for all c > 0: no absolute threshold hides in the method."""
    if row.degree is None:
        return
    for case in _cases():
        offset = 1 + torch.arange(len(case.jacobian)).double()
        direction, method, _ = _direction(row, case.jacobian, offset)
        size = _size(case.jacobian, method.weights)
        for scale in (2.0**-20, 2.0**20):
            scaled, _, _ = _direction(row, scale * case.jacobian, scale * offset)
            error = (scaled / scale**row.degree - direction).norm().item()
            assert error <= 1e-6 * size, f"{case.name} × {scale:g}: off by {error / size:.1e}"


def assert_scaling_single_losses_keeps_the_direction(row: Row) -> None:
    """Objectives in other units: the direction does not turn."""
    if row.rowwise == "nothing":
        return
    for case in _cases():
        if not case.independent or case.scaled:
            continue
        scales = torch.logspace(-2, 2, len(case.jacobian), dtype=torch.float64)
        direction, _, _ = _direction(row, case.jacobian)
        scaled, _, _ = _direction(row, scales[:, None] * case.jacobian)
        cosine = float((direction / direction.norm()) @ (scaled / scaled.norm()))
        cosine = abs(cosine) if row.rowwise == "line" else cosine
        assert cosine >= 1 - 1e-6, f"{case.name}: turned to a cosine of {cosine:.6f}"


def assert_one_objective_of_any_size(row: Row) -> None:
    """M = 1 with gradients from 0 to 1e8: finite, parallel, and plain where promised."""
    for scale in (0.0, 1e-8, 1.0, 1e8):
        jacobian = scale * torch.linspace(1, 2, 4, dtype=torch.float64)[None]
        direction, method, _ = _direction(row, jacobian)
        row.assert_weights(method.weights, 1)
        if row.alone == "plain":
            torch.testing.assert_close(direction, jacobian[0], rtol=1e-9, atol=0)
        elif scale and row.alone == "parallel":
            unit = jacobian[0] / jacobian.norm()
            torch.testing.assert_close(direction / direction.norm(), unit)
