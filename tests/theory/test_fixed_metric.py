"""docs/howto/steps.md: in a fixed metric D, MoDo is the paper's MoDo of y = D^{1/2} x."""

import pytest
import torch
from torch import optim

import trimol

D = torch.tensor([0.1, 4.0, 1.0, 30.0], dtype=torch.float64)


def losses(x, z):
    a = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
    return torch.stack([(x - a[m] * z).square().mean() * (1 + m) for m in range(3)])


def fixed(x):
    """An optimizer whose metric never changes: RMSprop that forgets nothing and learns nothing."""
    optimizer = optim.RMSprop([x], lr=0.01, alpha=1.0, eps=0.0)
    optimizer.state[x] = {"step": torch.tensor(1.0), "square_avg": D.square()}
    return optimizer


@pytest.mark.filterwarnings("ignore:.*at its first step:RuntimeWarning")
def test_modo_in_a_fixed_metric_is_modo_of_the_transformed_losses():
    start = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    x, y = start.clone().requires_grad_(), (D.sqrt() * start).requires_grad_()
    steps = [(x, lambda p: p, fixed(x)), (y, lambda p: p / D.sqrt(), optim.SGD([y], lr=0.01))]
    ends = []
    for p, seen, optimizer in steps:
        more = {"optimizer": optimizer} if p is x else {}
        method = trimol.MoDo([p], 3, gamma=0.05, **more)
        data = torch.Generator().manual_seed(0)
        for _ in range(20):
            batches = torch.randn(2, 5, 4, generator=data, dtype=torch.float64)
            method(*(losses(seen(p), z) for z in batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append((seen(p.detach()), method.weights))
    (x_end, x_weights), (y_end, y_weights) = ends
    torch.testing.assert_close(x_end, y_end, rtol=1e-10, atol=0)
    torch.testing.assert_close(x_weights, y_weights, rtol=1e-10, atol=1e-12)
    assert (x_weights - 1 / 3).abs().max() > 0.01


def test_stationarity_in_a_metric_lies_between_the_plain_one_s_multiples():
    torch.manual_seed(0)
    for _ in range(20):
        rows = torch.randn(3, 4, dtype=torch.float64)
        plain = trimol.simplex.min_norm(rows @ rows.T)
        metric = trimol.simplex.min_norm(rows / D @ rows.T)
        r = (plain @ rows).norm()
        r_metric = ((metric @ rows).square() / D).sum().sqrt()
        assert r / D.max().sqrt() <= r_metric * (1 + 1e-12)
        assert r_metric <= r / D.min().sqrt() * (1 + 1e-12)
        # D⁻¹∇F λ*_D lowers every loss by at least the squared norm.
        assert (rows @ ((metric @ rows) / D) >= r_metric**2 - 1e-9).all()
