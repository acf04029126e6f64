"""Evidence of stacked replicas; on whole networks: tests/training/test_replicas.py."""

import naive
import pytest
import torch
from torch import Tensor

from trimol.gradients import _stacked as stacked

R, M = 3, 2


def problem() -> tuple[Tensor, list[Tensor]]:
    """R × M losses, and stacked parameters of which the last is not reached."""
    torch.manual_seed(0)
    shapes = ((R, 4, 5), (R, 4), (R, 2, 3))
    params = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weight, bias, _ = params
    y = (torch.randn(R, 6, 5, dtype=torch.float64) @ weight.mT + bias[:, None]).sin()
    return torch.stack([y.square().mean((1, 2)), y.exp().mean((1, 2))], 1), params


def expected(losses: Tensor, params: list[Tensor]) -> Tensor:
    """R × M × d, from the naive Jacobian of all R·M losses in all parameters."""
    rows = naive.jacobian(losses.flatten(), params).view(R, M, -1)
    parts = rows.split([p.numel() for p in params], -1)
    own = [part.view(R, M, R, -1)[range(R), :, range(R)] for part in parts]
    return torch.cat(own, -1)


@pytest.mark.parametrize("large", [True, False])
def test_rows_and_gramians_with_a_parameter_that_no_loss_reaches(
    monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.setattr(stacked, "_LARGE", 1 if large else 2**19)
    losses, params = problem()
    want = expected(losses, params)
    torch.testing.assert_close(stacked.jacobians(losses, params), want)
    torch.testing.assert_close(stacked.gramians(losses, params), want @ want.mT)


def test_products_and_combinations_are_those_of_the_rows() -> None:
    losses, params = problem()
    want = expected(losses, params)
    weights = torch.rand(R, M, dtype=torch.float64)
    evidence = stacked.StackedEvidence([losses, losses], params[:1], params[1:])
    trunk = want[..., : params[0][0].numel()]
    along = (weights[:, None] @ trunk)[:, 0]
    product = evidence.product(weights)
    torch.testing.assert_close(product, (trunk @ along[..., None])[..., 0])
    (moved,) = evidence.combined(weights)
    torch.testing.assert_close(moved.flatten(1), along)
    evidence.weigh_heads(weights)
    on_heads = torch.cat([g.flatten(1) for g in evidence.on_others], 1)
    heads = want[..., params[0][0].numel() :]
    torch.testing.assert_close(on_heads, (weights[:, None] @ heads)[:, 0])
