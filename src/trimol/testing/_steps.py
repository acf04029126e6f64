"""One step of every method: what the scalar is worth, and what its gradient is."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trimol.testing._problems import Step, clear, flat_gradient, network
from trimol.testing._row import Row


def assert_value_is_the_weighted_loss(row: Row) -> None:
    """The scalar is worth λᵀF, and `info` says what the step saw."""
    model = network()
    method = row.new(model.parameters())
    before, step = method.weights, model.step(method.draws, 1)
    scalar = row.call(method, step)
    assert scalar.shape == (), f"a scalar of shape {tuple(scalar.shape)}"
    want = row.used(method, before) @ step[row.moves_on].values()
    torch.testing.assert_close(scalar.detach(), want, rtol=1e-12, atol=1e-12)
    row.assert_weights(method.weights, 3)
    assert method.info is not None, "no info after a step"
    torch.testing.assert_close(method.info.losses, step.values())
    assert torch.equal(method.info.weights, method.weights), "info.weights are not the weights"


def assert_gradient_is_the_weighted_gradient(row: Row) -> None:
    """The scalar's gradient is G λ, for the methods that combine gradients."""
    if not row.combines:
        return
    model = network()
    params = list(model.parameters())
    method = row.new(params)
    for seed in range(3):
        before, step = method.weights, model.step(method.draws, seed)
        jacobian = step[row.moves_on].jacobian(params)
        clear(params)
        row.call(method, step).backward()
        want = row.direction(method, row.used(method, before), jacobian)
        torch.testing.assert_close(flat_gradient(params), want)


def assert_heads_get_plain_gradients(row: Row) -> None:
    """Parameters that the method was not given get the gradient of the losses' sum."""
    model = network()
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    method = row.new(trunk, heads="plain")
    before, step = method.weights, model.step(method.draws, 1)
    on_trunk = step[row.moves_on].jacobian(trunk)
    on_heads = step[row.moves_on].jacobian(heads)
    row.call(method, step).backward()
    if row.combines:
        want = row.direction(method, row.used(method, before), on_trunk)
        torch.testing.assert_close(flat_gradient(trunk), want)
    torch.testing.assert_close(flat_gradient(heads), on_heads.sum(0))


def assert_heads_get_weighted_gradients(row: Row) -> None:
    """With ``heads="weighted"`` those parameters get λ times the losses' gradients, unscaled."""
    for seen in _beside(row, {"heads": "plain"}, {"heads": "weighted"}):
        torch.testing.assert_close(seen.trunk, seen.plain_trunk)
        torch.testing.assert_close(seen.heads, seen.weights @ seen.on_heads)


def assert_length_is_that_of_the_mean_gradient(row: Row) -> None:
    """With ``length="mean gradient"`` the direction is that of the method, as long as Static's."""
    own, mean = {"length": "own", "max_norm": None}, {"length": "mean gradient", "max_norm": None}
    for seen in _beside(row, own, mean):
        length = seen.on_trunk.mean(0).norm() / seen.plain_trunk.norm()
        torch.testing.assert_close(seen.trunk, seen.plain_trunk * length)
        torch.testing.assert_close(seen.heads, seen.plain_heads)


def assert_max_norm_clips_the_direction(row: Row) -> None:
    """``max_norm`` is ``clip_grad_norm_`` on the parameters that the method weighs."""
    for most in (1e-3, 1e3):
        for seen in _beside(row, {"max_norm": None}, {"max_norm": most}):
            by_hand = nn.Parameter(torch.zeros_like(seen.plain_trunk))
            by_hand.grad = seen.plain_trunk.clone()
            nn.utils.clip_grad_norm_([by_hand], most)
            # torch adds 1e-6 to the norm that it divides by
            torch.testing.assert_close(seen.trunk, by_hand.grad, rtol=1e-5, atol=0)
            torch.testing.assert_close(seen.heads, seen.plain_heads)


@dataclass(frozen=True)
class _Seen:
    """Gradients of one step: of a plain method, of one with options, and by hand."""

    plain_trunk: Tensor
    plain_heads: Tensor
    trunk: Tensor
    heads: Tensor
    on_trunk: Tensor  # Jacobians of the draws that x moves on
    on_heads: Tensor
    weights: Tensor  # that x moves with


def _beside(row: Row, plain: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[_Seen]:
    """Three steps with both, of which the second keeps its weights, where that can be."""
    model = network()
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    every = 2 if row.combines else 1
    twin = row.new(trunk, **{"every": every, **plain})
    method = row.new(trunk, **{"every": every, **options})
    for seed in range(3):
        due, before = method.due, method.weights
        draws = method.draws if due else 1
        values, on_trunk, on_heads = [], [], []
        for one in (twin, method):
            clear([*trunk, *heads])
            value = row.call(one, model.step(draws, seed))
            value.backward()
            values.append(value.item())
            on_trunk.append(flat_gradient(trunk))
            on_heads.append(flat_gradient(heads))
        assert values[0] == values[1], f"the scalar is worth {values[1]}, not {values[0]}"
        assert torch.equal(twin.weights, method.weights), "an option changes the weights"
        step = model.step(draws, seed)
        step = step[row.moves_on] if due else step
        yield _Seen(
            plain_trunk=on_trunk[0],
            plain_heads=on_heads[0],
            trunk=on_trunk[1],
            heads=on_heads[1],
            on_trunk=step.jacobian(trunk),
            on_heads=step.jacobian(heads),
            weights=row.used(method, before) if due else before,
        )


def assert_one_objective_is_plain_training(row: Row) -> None:
    """With M = 1 the direction is the gradient, or at least parallel to it."""
    model = network(tasks=1)
    params = list(model.parameters())
    method = row.new(params, 1)
    step = model.step(method.draws)
    (want,) = step[row.moves_on].jacobian(params)
    row.call(method, step).backward()
    direction = flat_gradient(params)
    if row.alone == "plain":
        torch.testing.assert_close(direction, want)
        if row.total != "any":
            assert method.weights.tolist() == [1.0], f"weights {method.weights.tolist()}"
    elif row.alone == "parallel":
        torch.testing.assert_close(direction / direction.norm(), want / want.norm())


def assert_a_sequence_of_scalars_is_a_vector(row: Row) -> None:
    """Losses may come as a vector, a list or a tuple."""

    def value(convert: type[list[Tensor]] | type[tuple[Tensor, ...]] | None) -> float:
        model = network()
        method = row.new(model.parameters())
        step = model.step(method.draws)
        if convert is not None:
            losses: list[Tensor] = [convert(one) for one in step.losses]  # type: ignore[misc]
            step = Step(losses, step.shared)
        return row.call(method, step).item()

    assert value(None) == value(list) == value(tuple), "a list of losses gives another scalar"


def assert_accumulation_and_clipping(row: Row) -> None:
    """Gradients add up over steps, and clipping sees them: the scalar is like any other."""
    model = network()
    params = list(model.parameters())
    method = row.new(params)
    twin, other = copy.deepcopy((method, model))
    total = torch.zeros(())
    for seed in range(2):
        (row.call(method, model.step(method.draws, seed)) / 2).backward()
        clear(other.parameters())
        row.call(twin, other.step(twin.draws, seed)).backward()
        total = total + flat_gradient(other.parameters()) / 2
    torch.testing.assert_close(flat_gradient(params), total)
    norm = nn.utils.clip_grad_norm_(params, 1e-3)
    torch.testing.assert_close(norm, total.norm())
    torch.testing.assert_close(flat_gradient(params).norm(), torch.tensor(1e-3).double())


def assert_every_keeps_the_weights_between_updates(row: Row) -> None:
    """With ``every=3``, new weights at the steps 0, 3, 6, …; the others take one loss vector."""
    model = network()
    method = row.new(model.parameters(), every=3)
    history, updates = [], []
    for seed in range(7):
        row.call(method, model.step(method.draws if method.due else 1, seed))
        history.append(method.weights.clone())
        assert method.info is not None
        updates.append(method.info.updated)
    moves = method.needs != "nothing"
    assert updates == [moves and seed % 3 == 0 for seed in range(7)], f"updates: {updates}"
    assert torch.equal(history[0], history[2]), "the weights moved between updates"
    assert not (moves and torch.equal(history[2], history[3])), "an update left the weights"


def assert_between_updates_the_gradient_is_that_of_the_kept_weights(row: Row) -> None:
    """With ``every=2``, the second step moves with the first one's weights."""
    if not row.combines:
        return
    model = network()
    params = list(model.parameters())
    method = row.new(params, every=2)
    row.call(method, model.step(method.draws))
    step = model.step(1, 5)
    want = row.direction(method, method.weights, step.jacobian(params))
    row.call(method, step).backward()
    torch.testing.assert_close(flat_gradient(params), want)


def assert_frozen_and_unused_parameters_are_left_alone(row: Row) -> None:
    """A frozen parameter gets no gradient, one that no loss reaches none but zero."""
    model = network()
    params = list(model.parameters())
    params[0].requires_grad_(False)
    unused = nn.Parameter(torch.zeros(4, dtype=torch.float64))
    method = row.new([*params, unused])
    row.call(method, model.step(method.draws)).backward()
    assert params[0].grad is None, "a frozen parameter has a gradient"
    assert unused.grad is None or not unused.grad.any(), "an unused parameter has a gradient"


def assert_unfreezing_needs_no_new_method(row: Row) -> None:
    """A parameter that was frozen at first is weighed from when it requires grad."""
    model = network()
    params = list(model.parameters())
    params[0].requires_grad_(False)
    method = row.new(params)
    row.call(method, model.step(method.draws))
    params[0].requires_grad_(True)
    row.call(method, model.step(method.draws, 1)).backward()
    assert params[0].grad is not None, "no gradient after unfreezing"
    assert params[0].grad.any(), "a gradient of zero after unfreezing"
