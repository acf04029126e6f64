import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, clear, flat_gradient, naive_jacobian, network

import trimol
from trimol import _checks as checks
from trimol.methods.gradnorm import gradnorm_step


def reference_step(weights, norms, ratios, alpha, lr):
    """Algorithm 1 by autograd: L_grad with its target held constant, one SGD step, rescaled."""
    w = weights.clone().requires_grad_()
    sizes = w * norms
    target = (sizes.mean() * (ratios / ratios.mean()) ** alpha).detach()
    (sizes - target).abs().sum().backward()
    moved = (w - lr * w.grad).detach().clamp_min(0)
    return moved * len(w) / moved.sum()


@pytest.mark.parametrize("simultaneous", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.5])
def test_steps_are_algorithm_1(alpha, simultaneous):
    model = network()
    params = list(model.parameters())
    gradnorm = trimol.GradNorm(params, 3, alpha=alpha, lr=0.05, simultaneous=simultaneous)
    optimizer = torch.optim.SGD(params, lr=0.1)
    weights, initial = torch.ones(3, dtype=torch.float64), None
    for seed in range(5):
        clear(params)
        losses = model.losses(batch(seed=seed))
        jacobian = naive_jacobian(losses, params)
        initial = losses.detach() if initial is None else initial
        before = weights
        ratios = losses.detach() / initial
        weights = reference_step(weights, jacobian.norm(dim=1), ratios, alpha, 0.05)
        used = before if simultaneous else weights
        scalar = gradnorm(losses)
        scalar.backward()
        torch.testing.assert_close(gradnorm.weights, weights)
        torch.testing.assert_close(flat_gradient(params), used @ jacobian)
        assert scalar.item() == pytest.approx((used @ losses).item(), rel=1e-10)
        optimizer.step()
    torch.testing.assert_close(gradnorm.initial, initial)


def test_norms_are_those_of_the_layer():
    model = network()
    trunk, layer = list(model.trunk.parameters()), [model.trunk[0].weight]
    gradnorm = trimol.GradNorm(trunk, 3, lr=0.05, layer=layer)
    losses = model.losses(batch())
    jacobian, on_layer = naive_jacobian(losses, trunk), naive_jacobian(losses, layer)
    gradnorm(losses).backward()
    ones = torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(
        gradnorm.weights, reference_step(ones, on_layer.norm(dim=1), ones, 1.5, 0.05)
    )
    torch.testing.assert_close(flat_gradient(trunk), jacobian.sum(0))
    torch.testing.assert_close(gradnorm.info.norms, on_layer.norm(dim=1))


def test_the_weights_balance_the_norms():
    """With constant norms and one pace, w_m n_m become equal: w ∝ 1/n."""
    norms = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)
    weights = ratios = torch.ones(3, dtype=torch.float64)
    for _ in range(3000):
        weights = gradnorm_step(weights, norms, ratios, 1.5, 1e-3)
    expected = (1 / norms) * 3 / (1 / norms).sum()
    torch.testing.assert_close(weights, expected, rtol=0, atol=5e-3)


def test_slow_objectives_gain_weight():
    ones = torch.ones(2, dtype=torch.float64)
    slow = torch.tensor([1.0, 0.2], dtype=torch.float64)  # the second has learnt more
    moved = gradnorm_step(ones, ones, slow, 1.5, 0.1)
    assert moved.tolist() == pytest.approx([1.1, 0.9])
    assert gradnorm_step(ones, ones, slow, 0.0, 0.1).tolist() == [1.0, 1.0]


def test_balanced_norms_do_not_move_by_rounding():
    norms = torch.full((3,), 0.1, dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    assert gradnorm_step(ones, norms, ones * 0.7, 1.5, 10.0).tolist() == [1.0, 1.0, 1.0]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    jacobians,
    st.sampled_from([0.0, 0.5, 1.5, 10.0]),
    st.sampled_from([0.0, 0.025, 1e3]),
    st.sampled_from([0.0, 1e-8, 1.0, 1e8]),
    st.integers(0, 1000),
)
def test_weights_sum_to_the_objectives_on_nasty_gradients(jacobian, alpha, lr, last, seed):
    generator = torch.Generator().manual_seed(seed)
    norms, m = jacobian.norm(dim=1), len(jacobian)
    ratios = torch.rand(m, generator=generator, dtype=torch.float64)
    ratios[-1] = last
    weights = torch.ones(m, dtype=torch.float64)
    for _ in range(3):
        weights = gradnorm_step(weights, norms, ratios, alpha, lr)
        assert (weights >= 0).all()
        assert weights.sum().item() == pytest.approx(m, rel=1e-12)
    assert m > 1 or weights.tolist() == [1.0]


def test_where_every_weight_would_vanish_they_are_kept():
    """α < 1: the targets may all lie below the sizes."""
    norms = torch.tensor([1.0, 1.0], dtype=torch.float64)
    ratios = torch.tensor([1.0, 0.0], dtype=torch.float64)
    weights = torch.tensor([1.9, 0.1], dtype=torch.float64)
    moved = gradnorm_step(weights, norms, ratios, 0.5, 100.0)  # targets 1.41 and 0
    assert torch.equal(moved, weights)


def test_step_is_batchable():
    weights = torch.ones(7, 3, dtype=torch.float64)
    norms, ratios = torch.rand(7, 3).double(), torch.rand(7, 3).double()
    together = torch.func.vmap(lambda w, n, r: gradnorm_step(w, n, r, 1.5, 0.1))(
        weights, norms, ratios
    )
    for moved, w, n, r in zip(together, weights, norms, ratios, strict=True):
        torch.testing.assert_close(moved, reference_step(w, n, r, 1.5, 0.1))


def test_first_losses_are_state():
    model = network()
    gradnorm = trimol.GradNorm(model.parameters(), 3)
    first = model.losses(batch(seed=0)).detach()
    for seed in range(2):
        gradnorm(model.losses(batch(seed=seed)))
    fresh = trimol.GradNorm(model.parameters(), 3)
    fresh.load_state_dict(gradnorm.state_dict())
    torch.testing.assert_close(fresh.initial, first)
    for method in (gradnorm, fresh):
        method(model.losses(batch(seed=2)))
    assert torch.equal(fresh.weights, gradnorm.weights)
    assert not gradnorm.reset().initial.any()


def test_first_losses_may_be_given():
    model = network()
    gradnorm = trimol.GradNorm(model.parameters(), 3, initial=[1.0, 2.0, 3.0])
    gradnorm(model.losses(batch()))
    assert gradnorm.initial.tolist() == [1.0, 2.0, 3.0]
    assert gradnorm.reset().initial.tolist() == [1.0, 2.0, 3.0]


def test_a_first_step_that_is_not_finite_is_no_start():
    model = network()
    gradnorm = trimol.GradNorm(model.parameters(), 3)
    with pytest.warns(RuntimeWarning, match="losses with NaN or infinity; λ is kept as it is"):
        gradnorm(model.losses(batch()) * float("nan"))
    assert not gradnorm.initial.any()
    gradnorm(model.losses(batch(seed=1)))
    torch.testing.assert_close(gradnorm.initial, model.losses(batch(seed=1)).detach())


def test_weights_are_rescaled():
    gradnorm = trimol.GradNorm([torch.zeros(1, requires_grad=True)], 2, weights=[0.25, 0.75])
    assert gradnorm.weights.tolist() == [0.5, 1.5]
    ones = trimol.GradNorm([torch.zeros(1, requires_grad=True)], 3)
    assert ones.weights.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (-9.0, "losses must be at least 0, since GradNorm compares their ratios, found -"),
        (0.0, "above 0"),
    ],
)
def test_losses_without_a_ratio_are_refused(shift, message):
    x = torch.zeros(2, requires_grad=True)
    gradnorm = trimol.GradNorm([x], 2)
    with pytest.raises(ValueError, match=message):
        gradnorm(torch.stack([x[0] + 1, x[1] + shift]))
    assert not gradnorm.initial.any()


def test_a_first_loss_of_zero_is_named_in_one_line_whatever_the_replicas():
    x = torch.zeros(200, 2, requires_grad=True)
    losses = torch.ones(200, 2).index_put((torch.tensor(150), torch.tensor(1)), torch.tensor(0.0))
    with pytest.raises(ValueError, match="above 0") as caught:
        checks.first_losses_above_zero(losses + 0 * x.sum(), "being compared", ("fit", "size"))
    message = str(caught.value)
    assert message == (
        "the first losses must be above 0, being compared, found 0 for objective 'size'"
    )
    y = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="found 0 for objective 'size'"):
        trimol.GradNorm([y], ["fit", "size"])(torch.stack([y[0] + 1, y[1]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -1.0}, "alpha must be a finite number of at least 0, found -1"),
        ({"lr": float("inf")}, "lr must be a finite number of at least 0, found inf"),
        ({"initial": [1.0, 0.0, 1.0]}, r"initial must be above 0, found \[1.0, 0.0, 1.0\]"),
        ({"initial": [1.0]}, "initial must have 3 entries"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.GradNorm([torch.zeros(2, requires_grad=True)], 3, **arguments)
