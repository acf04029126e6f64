import pytest
import torch
from problems import batch, flat_gradient, naive_jacobian, network

import trimol
from trimol.data import GrowingBatches


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_step_is_that_of_mgda_without_regularisation(chunk):
    model = network()
    params = list(model.parameters())
    smg, mgda = trimol.SMG(params, 3, chunk=chunk), trimol.MGDA(params, 3, rho=0.0)
    for seed, size in enumerate((4, 6, 8)):
        drawn = batch(size, seed=seed)
        jacobian = naive_jacobian(model.losses(drawn), params)
        expected = trimol.simplex.min_norm(jacobian @ jacobian.T)
        mgda(model.losses(drawn))
        for p in params:
            p.grad = None
        scalar = smg(model.losses(drawn))
        scalar.backward()
        torch.testing.assert_close(smg.weights, expected)
        torch.testing.assert_close(smg.weights, mgda.weights)
        torch.testing.assert_close(flat_gradient(params), expected @ jacobian)
        assert scalar.item() == pytest.approx((expected @ model.losses(drawn)).item(), rel=1e-10)


def test_bias_vanishes_with_growing_batches_only():
    """The mean of the direction over batches comes to that of the whole data as batches grow."""
    torch.manual_seed(3)
    z = torch.randn(200, 2, dtype=torch.float64)
    z -= z.mean(0)
    x = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    goals = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)

    def losses(drawn):
        return ((x - goals[:, None] + 2 * drawn).square().sum(-1) / 2).mean(-1)

    def direction(drawn):
        x.grad = None
        trimol.SMG([x], 2)(losses(drawn)).backward()
        return x.grad.clone()

    exact = direction(z)
    sampler = GrowingBatches(z, 2, growth=1, steps=200, seed=1)

    def bias(first):
        steps = range(first, first + 40)
        found = [direction(z[sampler.indices(step)[0]]) for step in steps]
        return (torch.stack(found).mean(0) - exact).norm()

    assert bias(150) < bias(0) / 3
    torch.testing.assert_close(direction(z[sampler.indices(198)[0]]), exact)


def test_it_reaches_the_pareto_set():
    torch.manual_seed(5)
    z = torch.randn(300, 2, dtype=torch.float64)
    x = torch.tensor([3.0, 2.0], dtype=torch.float64, requires_grad=True)
    smg, sgd = trimol.SMG([x], 2), torch.optim.SGD([x], lr=0.1)
    for (indices,) in GrowingBatches(z, 4, growth=2, steps=150).sets():
        drawn = z[indices]
        smg([(x - drawn).square().sum(1).mean(), (x - drawn - 1).square().sum(1).mean()]).backward()
        sgd.step()
        sgd.zero_grad()
    along = (x - z.mean(0)).detach()  # the Pareto set: mean + s(1, 1) with s in [0, 1]
    assert abs(along[0] - along[1]) < 1e-2
    assert -1e-2 < along.mean() < 1 + 1e-2


def test_there_is_no_rho():
    with pytest.raises(TypeError, match="rho"):
        trimol.SMG([torch.zeros(1, requires_grad=True)], 2, rho=0.1)
    with pytest.raises(ValueError, match="chunk must be a whole number of at least 1, found 0"):
        trimol.SMG([torch.zeros(1, requires_grad=True)], 2, chunk=0)
