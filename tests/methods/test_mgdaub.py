import pytest
import torch
from problems import batch, clear, flat_gradient, naive_jacobian, network

import trimol
from trimol.simplex import min_norm


@pytest.mark.parametrize("tasks", [1, 2, 3, 6])
def test_step_is_the_min_norm_of_the_representations_gradients(tasks):
    model = network(tasks)
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    mgdaub = trimol.MGDAUB(trunk, tasks)
    for seed in range(3):
        clear([*trunk, *heads])
        losses, shared = model(*batch(tasks=tasks, seed=seed))
        rows = naive_jacobian(losses, [shared])
        expected = min_norm(rows @ rows.T)
        on_trunk, on_heads = naive_jacobian(losses, trunk), naive_jacobian(losses, heads)
        scalar = mgdaub(losses, representation=shared)
        scalar.backward()
        torch.testing.assert_close(mgdaub.weights, expected)
        torch.testing.assert_close(mgdaub.info.gramian, rows @ rows.T)
        torch.testing.assert_close(flat_gradient(trunk), expected @ on_trunk)
        torch.testing.assert_close(flat_gradient(heads), on_heads.sum(0))
        assert scalar.item() == pytest.approx((expected @ losses).item(), rel=1e-10)
        assert mgdaub.info.reason == ""


def test_it_is_an_upper_bound_on_mgda():
    """‖∇F λ‖² ≤ ‖∂Z/∂x‖² ‖∇_Z F λ‖² at its minimiser; MGDA's own value is no larger."""
    model = network()
    trunk = list(model.trunk.parameters())
    losses, shared = model(*batch())
    inner = naive_jacobian(shared.reshape(-1), trunk)
    on_trunk, on_shared = naive_jacobian(losses, trunk), naive_jacobian(losses, [shared])
    torch.testing.assert_close(on_trunk, on_shared @ inner)
    mgdaub = trimol.MGDAUB(trunk, 3)
    mgdaub(losses, representation=shared)
    bound = torch.linalg.matrix_norm(inner, 2) * (mgdaub.weights @ on_shared).norm()
    found = (mgdaub.weights @ on_trunk).norm()
    best = (min_norm(on_trunk @ on_trunk.T) @ on_trunk).norm()
    assert best <= found <= bound


def test_one_representation_per_task():
    """Every task has inputs of its own: the gradients are orthogonal, λ_m ∝ 1/‖∇_{Z_m} f_m‖²."""
    model = network()
    trunk = list(model.trunk.parameters())
    shared = [model.trunk(batch(seed=m)[0]) for m in range(3)]
    losses = [head(h).square().mean() for head, h in zip(model.heads, shared, strict=True)]
    squared = torch.stack(
        [
            naive_jacobian(loss[None], [h]).square().sum()
            for loss, h in zip(losses, shared, strict=True)
        ]
    )
    mgdaub = trimol.MGDAUB(trunk, 3)
    mgdaub(losses, representation=shared).backward()
    torch.testing.assert_close(mgdaub.weights, (1 / squared) / (1 / squared).sum())


@pytest.mark.parametrize("normalize", ["l2", "loss", "loss+"])
def test_normalised_gradients_of_the_representation(normalize):
    model = network()
    trunk = list(model.trunk.parameters())
    losses, shared = model(*batch())
    rows, on_trunk = naive_jacobian(losses, [shared]), naive_jacobian(losses, trunk)
    norms, values = rows.norm(dim=1), losses.detach()
    sizes = {"l2": norms, "loss": values, "loss+": values * norms}[normalize]
    scaled = rows / sizes[:, None]
    expected = min_norm(scaled @ scaled.T)
    mgdaub = trimol.MGDAUB(trunk, 3, normalize=normalize)
    mgdaub(losses, representation=shared).backward()
    torch.testing.assert_close(mgdaub.weights, expected)
    torch.testing.assert_close(flat_gradient(trunk), expected @ on_trunk)


def test_without_a_representation_it_is_mgda_and_says_so():
    model = network()
    mgdaub, mgda = trimol.MGDAUB(model.parameters(), 3), trimol.MGDA(model.parameters(), 3)
    for method in (mgdaub, mgda):
        method(model.losses(batch()))
    assert torch.equal(mgdaub.weights, mgda.weights)
    assert mgdaub.info.reason == "no representation was given: these are the parameters' gradients"


def test_a_representation_is_of_one_step_only():
    model = network()
    mgdaub = trimol.MGDAUB(model.trunk.parameters(), 3)
    losses, shared = model(*batch())
    mgdaub(losses, representation=shared)
    assert mgdaub.info.reason == ""
    mgdaub(model.losses(batch(seed=1)))
    assert "no representation" in mgdaub.info.reason


@pytest.mark.parametrize("tasks", [2, 5])
def test_backwards_reach_the_trunk_once(tasks):
    """Counted, not timed: the trunk's weight gets a gradient in `backward()` and nowhere else."""
    model = network(tasks)
    calls = []
    losses, shared = model(*batch(tasks=tasks))
    (addmm, _), *_ = shared.grad_fn.next_functions  # the node of the trunk's linear layer
    addmm.register_hook(lambda *_: calls.append(1))
    scalar = trimol.MGDAUB(model.trunk.parameters(), tasks)(losses, representation=shared)
    assert not calls
    scalar.backward()
    assert len(calls) == 1


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_nasty_scales_and_duplicates(scale):
    model = network()
    x, _ = batch()
    shared = model.trunk(x)
    first = model.heads[0](shared).square().mean()
    losses = torch.stack([first, first * 1.0, (model.heads[1](shared)).square().mean() * scale])
    mgdaub = trimol.MGDAUB(model.trunk.parameters(), 3)
    rows = naive_jacobian(losses, [shared])
    mgdaub(losses, representation=shared)
    direction = mgdaub.weights @ rows
    best = min_norm(rows[1:] @ rows[1:].T) @ rows[1:]
    torch.testing.assert_close(direction, best, rtol=1e-6, atol=1e-12 * rows.norm().item())
    assert mgdaub.weights.sum().item() == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda h: [], ValueError, "representation must hold at least one tensor, found none"),
        (lambda h: h.detach(), ValueError, "representation must require grad: .* at place 0"),
        (lambda h: [h, "h"], TypeError, "representation must hold tensors, found str at place 1"),
        (lambda h: h * 1, ValueError, "objective 0 reaches none of the given tensors"),
    ],
)
def test_wrong_representations_are_named(make, error, message):
    model = network()
    mgdaub = trimol.MGDAUB(model.trunk.parameters(), 3)
    losses, shared = model(*batch())
    with pytest.raises(error, match=message):
        mgdaub(losses, representation=make(shared))
    assert int(mgdaub.step) == 0


class Wrapped(torch.autograd.Function):
    """All outputs of one node, as of torch.compile and of DistributedDataParallel's sink."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return grads


@pytest.mark.parametrize("stacked", [False, True])
def test_a_representation_that_came_out_beside_the_losses_is_refused(stacked):
    """They do not depend on it: λ came out uniform, without a word."""
    model = network()
    losses, shared = Wrapped.apply(*model(*batch()))
    mgdaub = trimol.MGDAUB(model.trunk.parameters(), 3)
    given = torch.stack(list(losses)) if stacked else losses
    with pytest.raises(ValueError, match=r"^objective 0 reaches none of the given tensors: its"):
        mgdaub(given, representation=shared)
    (own,) = Wrapped.apply(model.trunk(batch()[0]))  # losses computed from what came out
    rows = torch.stack([head(own).square().mean() for head in model.heads])
    mgdaub(rows, representation=own).backward()
    jacobian = naive_jacobian(
        torch.stack([head(own).square().mean() for head in model.heads]), [own]
    )
    torch.testing.assert_close(mgdaub.weights, min_norm(jacobian @ jacobian.T))
