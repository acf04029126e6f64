"""A scalar with a given value and a given gradient."""

import pytest
import torch
from torch import Tensor, nn

from trimol.gradients._scalar import attached, weighted


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


# -- weighted ------------------------------------------------------------------------------------


def test_weighted_is_the_inner_product_with_its_graph() -> None:
    x, weights = leaf(3), torch.tensor([0.2, 0.3, 0.5])
    scalar = weighted(x.square(), weights)
    torch.testing.assert_close(scalar, (weights * x.square()).sum())
    scalar.backward()
    torch.testing.assert_close(x.grad, 2 * weights * x.detach())


@pytest.mark.parametrize(
    ("losses", "weights", "result"),
    [
        (torch.bfloat16, torch.float64, torch.float32),
        (torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_weighted_is_float32_at_least(
    losses: torch.dtype, weights: torch.dtype, result: torch.dtype
) -> None:
    x = leaf(4, dtype=losses)
    scalar = weighted(x * 1, torch.full((4,), 0.25, dtype=weights))
    assert scalar.dtype == result
    torch.testing.assert_close(scalar.double(), x.double().mean(), rtol=1e-6, atol=1e-7)


# -- attached ------------------------------------------------------------------------------------


def test_value_and_gradient_are_the_given_ones() -> None:
    params, direction = [leaf(2, 3), leaf()], [torch.randn(2, 3), torch.tensor(3.0)]
    scalar = attached(torch.tensor(1.5), params, direction)
    assert scalar.item() == 1.5
    assert scalar.shape == ()
    scalar.backward()
    for p, d in zip(params, direction, strict=True):
        assert torch.equal(p.grad, d)


def test_backward_scales_accumulates_and_repeats() -> None:
    x, direction = leaf(3), torch.randn(3)
    scalar = attached(torch.tensor(0.0), [x], [direction])
    (scalar * 2).backward(retain_graph=True)
    (scalar / 4).backward(retain_graph=True)
    scalar.backward(torch.tensor(-0.5))
    torch.testing.assert_close(x.grad, 1.75 * direction)


def test_the_direction_itself_is_neither_handed_out_nor_changed() -> None:
    """``.grad`` may be clipped in place; the next backward must not see that."""
    x, direction = leaf(3), torch.randn(3)
    copy = direction.clone()
    scalar = attached(torch.tensor(0.0), [x], [direction])
    scalar.backward(retain_graph=True)
    x.grad.zero_()
    assert torch.equal(direction, copy)
    scalar.backward()
    assert torch.equal(x.grad, copy)


def test_a_graph_of_the_value_is_kept_and_added_to() -> None:
    x, y = leaf(3), leaf(3)
    value = x.square().sum() + y.prod()
    scalar = attached(value, [x], [torch.ones(3)])
    torch.testing.assert_close(scalar, value)
    scalar.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() + 1)
    torch.testing.assert_close(y.grad, torch.autograd.grad(y.prod(), y)[0])


def test_a_value_without_a_graph_frees_the_losses() -> None:
    x = leaf(3)
    scalar = attached(x.square().sum().detach(), [x], [torch.ones(3)])
    sources = {node.name() for node, _ in scalar.grad_fn.next_functions if node is not None}
    assert sources == {"torch::autograd::AccumulateGrad"}


def test_mixed_dtypes() -> None:
    """Each parameter gets its gradient in its own type, whatever the direction's."""
    half, double = leaf(3, dtype=torch.bfloat16), leaf(3, dtype=torch.float64)
    scalar = attached(torch.tensor(1.0), [half, double], [torch.ones(3), torch.ones(3)])
    (2 * scalar).backward()
    assert half.grad.dtype == torch.bfloat16
    assert double.grad.dtype == torch.float64
    assert half.grad.tolist() == double.grad.tolist() == [2, 2, 2]


def test_hooks_clipping_and_optimizers_see_an_ordinary_loss() -> None:
    model = nn.Linear(3, 1)
    params = list(model.parameters())
    direction = [torch.full_like(p, 3.0) for p in params]
    seen: list[float] = []
    params[1].register_hook(lambda g: seen.append(g.item()))
    before = [p.detach().clone() for p in params]
    attached(torch.tensor(0.0), params, direction).backward()
    assert seen == [3.0]
    assert nn.utils.clip_grad_norm_(params, 1.0).item() == 6.0
    torch.optim.SGD(params, lr=0.1).step()
    for p, old in zip(params, before, strict=True):
        torch.testing.assert_close(p, old - 0.05, rtol=1e-5, atol=1e-6)


def test_a_scaled_loss_is_unscaled_exactly() -> None:
    x, direction = leaf(3), torch.randn(3)
    optimizer = torch.optim.SGD([x], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    scaler.scale(attached(torch.tensor(1.0), [x], [direction])).backward()
    scaler.unscale_(optimizer)
    assert torch.equal(x.grad, direction)


def test_a_derivative_of_its_gradient_is_refused_not_wrong() -> None:
    x, scale = leaf(3), leaf()
    scalar = attached(torch.tensor(1.0), [x], [torch.ones(3)])
    with pytest.raises(ValueError, match=r"^create_graph must be False: this method's grad"):
        torch.autograd.grad(scalar, x, create_graph=True)
    with pytest.raises(ValueError, match=r"^create_graph must be False"):
        (scalar * scale).backward(create_graph=True)
    with pytest.raises(ValueError, match=r"^create_graph must be False"):
        torch.autograd.functional.hvp(
            lambda x: attached(x.detach().sum(), [x], [torch.ones(3)]), x, torch.ones(3)
        )
    assert x.grad is None


def test_a_second_backward_is_an_error_unless_the_first_one_keeps_the_graph() -> None:
    x = leaf(3)
    scalar = attached(torch.tensor(1.0), [x], [torch.ones(3)])
    scalar.backward(retain_graph=True)
    scalar.backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        scalar.backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
