"""The constants seen on problems where they are known in closed form."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trimol.theory import estimate_constants, plan

D, N = 4, 60
EIGENVALUES = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
B = torch.tensor([1.0, 2.0], dtype=torch.float64)
C = torch.tensor([1.0, 3.0], dtype=torch.float64)


@pytest.fixture
def problem():
    """½ b_m xᵀAx − c_m zᵀx: Hessians b_m A, gradients b_m A x − c_m z."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(N, D, generator=generator, dtype=torch.float64) + 1
    x = torch.ones(D, dtype=torch.float64, requires_grad=True)

    def losses(z):
        return B * (EIGENVALUES * x**2).sum() / 2 - C * (z @ x).mean()

    return x, data, losses


def sample_gradients(x, data):
    """(N, M, D) in closed form."""
    return B[:, None] * (EIGENVALUES * x.detach()) - C[:, None] * data[:, None, :]


def test_closed_forms_with_batches_of_one(problem):
    x, data, losses = problem
    found = estimate_constants(losses, [x], data.split(1), floor=-100.0)
    exact = sample_gradients(x, data)
    assert found.ell_f.most == pytest.approx(float(exact.norm(dim=2).max()))
    assert found.ell_f.least == pytest.approx(float(exact.norm(dim=2).min()))
    assert found.ell_f.count == 2 * N
    assert found.G.most == pytest.approx(float(exact.flatten(1).norm(dim=1).max()))
    assert found.ell_f1.most == pytest.approx(8.0)
    assert found.mu == pytest.approx(0.5)
    assert found.variance == pytest.approx(float(exact.var(0).sum()))
    assert (found.M, found.n, found.points) == (2, N, 1)
    values = torch.stack([losses(z[None]).detach() for z in data]).mean(0)
    assert found.c_F == pytest.approx(float(values.mean()) + 100)


def test_batches_hide_the_largest_gradients_but_not_the_variance(problem):
    x, data, losses = problem
    alone = estimate_constants(losses, [x], data.split(1), floor=-100.0)
    ragged = estimate_constants(losses, [x], data.split(7), floor=-100.0)
    assert ragged.ell_f.most < alone.ell_f.most
    assert ragged.G.most < alone.G.most
    # The mean over many shuffles of the estimate from batches is the variance of single samples.
    generator = torch.Generator().manual_seed(1)
    shuffled = [data[torch.randperm(N, generator=generator)].split(7) for _ in range(25)]
    means = [
        estimate_constants(losses, [x], batches, products=1, floor=-100.0).variance
        for batches in shuffled
    ]
    assert sum(means) / len(means) == pytest.approx(alone.variance, rel=0.15)


def test_further_points_are_at_the_radius_and_parameters_come_back(problem):
    x, data, losses = problem
    before = x.detach().clone()
    seen = []

    def watched(z):
        seen.append(x.detach().clone())
        return losses(z)

    near = estimate_constants(watched, [x], [data], floor=-100.0)
    far = estimate_constants(watched, [x], [data], points=4, radius=5.0, floor=-1e4)
    assert torch.equal(x, before)
    distances = [float((point - before).norm()) for point in seen]
    assert distances == pytest.approx([0, 0, 5, 5, 5])
    assert len({tuple(point.tolist()) for point in seen}) == 4
    assert far.ell_f.most > near.ell_f.most
    assert far.ell_f.spread > 0
    assert (far.n, far.points) == (N, 4)


def test_parameters_come_back_when_losses_fail(problem):
    x, data, _ = problem
    before = x.detach().clone()

    def failing(z):
        if not torch.equal(x, before):
            raise RuntimeError("far away")
        return torch.stack([(x**2).sum(), (x * z).sum()])

    with pytest.raises(RuntimeError, match="far away"):
        estimate_constants(failing, [x], [data], points=2, radius=1.0, floor=-1e4)
    assert torch.equal(x, before)


def test_a_network_is_not_strongly_convex_and_is_left_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    loader = DataLoader(TensorDataset(torch.randn(40, 5), torch.randint(0, 3, (40,))), 8)

    def losses(batch):
        out = model(batch[0])
        hot = nn.functional.one_hot(batch[1], 3)
        squares = (out.softmax(1) - hot).square().mean()
        return torch.stack([nn.functional.cross_entropy(out, batch[1]), squares])

    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    found = estimate_constants(losses, model.parameters(), loader, points=2, radius=0.1)
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert found.mu is None
    assert "not strongly convex" in found.mu_reason
    assert found.n == 40
    text = str(found)
    assert "at least" in text
    assert "none: a Hessian has the eigenvalue -" in text
    made = plan(constants=found.constants(safety=2.0))
    assert made.bounds.keys() == {"R_opt", "R_gen", "R_pop", "E_ca"}


def test_constants_with_safety(problem):
    x, data, losses = problem
    found = estimate_constants(losses, [x], data.split(1), floor=-100.0)
    c = found.constants(safety=2.0)
    assert c.ell_f == 2 * found.ell_f.most
    assert c.ell_f1 == 2 * found.ell_f1.most
    assert c.mu == found.mu / 2
    assert c.c_F == 2 * found.c_F
    with pytest.raises(ValueError, match="safety must be a finite number above 0, found 0"):
        found.constants(safety=0)


def test_one_batch_has_no_variance(problem):
    x, data, losses = problem
    found = estimate_constants(losses, [x], [data], floor=-100.0)
    assert found.variance is None
    assert "not to be told" in str(found)
    assert found.constants().gradient_variance == pytest.approx(found.G.most**2)


def test_size_and_floor(problem):
    x, data, losses = problem
    batches = [{"z": z, "n": len(z)} for z in data.split(25)]
    found = estimate_constants(
        lambda b: losses(b["z"]), [x], batches, size=lambda b: b["n"], floor=[-100.0, -300.0]
    )
    plain = estimate_constants(losses, [x], data.split(25), floor=-200.0)
    assert found.n == N
    assert found.c_F == pytest.approx(plain.c_F)
    assert found.variance == pytest.approx(plain.variance)


def test_bad_input(problem):
    x, data, losses = problem
    with pytest.raises(ValueError, match=r"loader must hold at least one batch, found none$"):
        estimate_constants(losses, [x], [])
    with pytest.raises(ValueError, match="found none again"):
        estimate_constants(losses, [x], iter([data]), points=2, radius=1.0, floor=-1e4)
    with pytest.raises(TypeError, match=r"losses must be a function from a batch .* found float"):
        estimate_constants(1.0, [x], [data])
    with pytest.raises(ValueError, match="points must be a whole number of at least 1, found 0"):
        estimate_constants(losses, [x], [data], points=0)
    with pytest.raises(ValueError, match=r"floor must be at most the mean losses, \[.*found 1000"):
        estimate_constants(losses, [x], [data], floor=1000.0)
    with pytest.raises(ValueError, match="floor must be one number or 2"):
        estimate_constants(losses, [x], [data], floor=[0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="found NaN or infinity in batch 1"):
        estimate_constants(losses, [x], [data, data * math.nan], floor=-1e4)
