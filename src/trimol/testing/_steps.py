"""One step of every method: what the scalar is worth, and what its gradient is."""

import copy

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
        want = row.used(method, before) @ jacobian
        torch.testing.assert_close(flat_gradient(params), want)


def assert_heads_get_plain_gradients(row: Row) -> None:
    """Parameters that the method was not given get the gradient of the losses' sum."""
    model = network()
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    method = row.new(trunk)
    before, step = method.weights, model.step(method.draws, 1)
    on_trunk = step[row.moves_on].jacobian(trunk)
    on_heads = step[row.moves_on].jacobian(heads)
    row.call(method, step).backward()
    if row.combines:
        want = row.used(method, before) @ on_trunk
        torch.testing.assert_close(flat_gradient(trunk), want)
    torch.testing.assert_close(flat_gradient(heads), on_heads.sum(0))


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
    else:
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
    want = method.weights @ step.jacobian(params)
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
