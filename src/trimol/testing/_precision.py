"""Mixed precision, and steps whose gradients overflow."""

import copy
import warnings

import torch

from trimol.testing._problems import Step, flat_gradient, network
from trimol.testing._row import Row
from trimol.testing._state import assert_same


def assert_grad_scaler_sees_the_scaled_direction(row: Row) -> None:
    """Scaling the scalar scales the gradient, so that unscaling gives it back."""
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method, scaler = row.new(params), torch.amp.GradScaler("cpu", init_scale=1024.0)
    twin, other = copy.deepcopy((method, model))
    before, step = method.weights, model.step(method.draws)
    jacobian = step[row.moves_on].jacobian(params)
    scaler.scale(row.call(method, step)).backward()
    scaler.unscale_(torch.optim.SGD(params, lr=0.1))
    direction = flat_gradient(params)
    row.call(twin, other.step(twin.draws)).backward()
    torch.testing.assert_close(direction, flat_gradient(other.parameters()))
    if row.combines:
        want = row.direction(method, row.used(method, before), jacobian)
        torch.testing.assert_close(direction, want)


def assert_a_step_that_is_not_finite_never_enters_the_weights(row: Row) -> None:
    """Overflow leaves the state as it is, is counted and said once; the scaler skips the step."""
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method, scaler = row.new(params), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(params, lr=0.1)
    row.train(method, model, optimizer, range(1))
    before = copy.deepcopy(method.state_dict())
    values = [p.detach().clone() for p in params]
    step = model.step(method.draws, 1)
    overflow = torch.tensor([1.0, float("inf"), 1.0])
    optimizer.zero_grad()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bad = Step([one * overflow for one in step.losses], step.shared)
        scaler.scale(row.call(method, bad)).backward()
        scaler.step(optimizer)
        scaler.update()
    for p, value in zip(params, values, strict=True):
        assert torch.equal(p, value), "the scaler did not skip the step"
    assert method.info is not None
    counted = int(row.sees)
    said = [w for w in caught if "kept" in str(w.message)]
    assert method.info.skipped == counted, f"skipped {method.info.skipped}, expected {counted}"
    assert len(said) == counted, f"said {len(said)} times, expected {counted}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        step = model.step(method.draws, 2)
        row.call(method, Step([one * float("nan") for one in step.losses], step.shared))
    assert method.info.skipped == 2 * counted, f"skipped {method.info.skipped} of 2"
    if row.sees or method.needs == "nothing":
        assert not method.info.updated, "info says that the weights were updated"
        assert_same(method.state_dict(), before, but=("step", "skipped"))
    assert method.weights.isfinite().all(), "the weights are not finite"


def assert_one_draw_that_is_not_finite_is_enough(row: Row) -> None:
    """Overflow in a single draw keeps the weights just as well."""
    model = network()
    method = row.new(model.parameters())
    if not row.sees:
        return
    before, step = method.weights.clone(), model.step(method.draws)
    bad = Step([step.losses[0] * float("nan"), *step.losses[1:]], step.shared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        row.call(method, bad)
    assert torch.equal(method.weights, before), "the weights moved"
    assert int(method.skipped) == 1, "not counted in `skipped`"


def assert_bf16_autocast(row: Row) -> None:
    """Under autocast the scalar is float32 and its gradient close to the exact one."""
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method = row.new(params)
    before = method.weights
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step = model.step(method.draws)
        jacobian = step[row.moves_on].jacobian(params)
        scalar = row.call(method, step)
    scalar.backward()
    assert scalar.dtype == torch.float32, f"a scalar in {scalar.dtype}"
    assert flat_gradient(params).isfinite().all(), "the gradient is not finite"
    if row.combines:
        want = row.direction(method, row.used(method, before), jacobian)
        atol = 0.02 * max(1.0, method.weights.abs().sum().item())
        torch.testing.assert_close(flat_gradient(params), want, rtol=0.05, atol=atol)


def assert_bf16_parameters(row: Row) -> None:
    """A model in bfloat16 trains; λ stays in float64 and as promised."""
    model = network(dtype=torch.bfloat16)
    method = row.new(model.parameters())
    row.call(method, model.step(method.draws)).backward()
    for p in model.parameters():
        assert p.grad is not None, "a parameter without gradient"
        assert p.grad.dtype == torch.bfloat16, f"a gradient in {p.grad.dtype}"
    row.assert_weights(method.weights, 3)
