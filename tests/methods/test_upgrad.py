import pytest
import torch
from gramians import KINDS, jacobian, jacobians
from hypothesis import given, settings
from problems import batch, flat_gradient, naive_jacobian, network
from scipy.optimize import lsq_linear

import trimol
from trimol.maths import cone
from trimol.methods.upgrad import upgrad_weights
from trimol.testing import low_rank


def projections(J):
    """Each gradient projected onto the dual cone, by bounded least squares on the gradients."""
    return torch.stack(
        [
            g + torch.from_numpy(lsq_linear(J.T, -g, (0, torch.inf), "bvls", tol=1e-14).x) @ J
            for g in J
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_one_step_is_the_mean_of_the_projections(seed):
    model = network(seed=seed)
    params = list(model.parameters())
    jacobian = naive_jacobian(model.losses(batch()), params)
    expected = projections(jacobian).mean(0)
    losses = model.losses(batch())
    upgrad = trimol.UPGrad(params, 3)
    scalar = upgrad(losses)
    scalar.backward()
    torch.testing.assert_close(flat_gradient(params), expected)
    assert scalar.item() == pytest.approx((upgrad.weights @ losses).item(), rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(jacobians)
def test_every_projection_is_optimal(J):
    """The optimality conditions: v ≥ 0, no conflict, and vⱼ = 0 where gⱼ is not touched."""
    G, norms = J @ J.T, J.norm(dim=1)
    v = torch.from_numpy(cone.pushes(G.numpy()))
    projected = J + v @ J
    magnitude = norms * (norms + v @ norms)[:, None]  # the rounding of each inner product
    inner = projected @ J.T
    assert (v >= 0).all()
    assert (inner >= -1e-12 * magnitude).all()
    assert (v * inner <= 1e-12 * (v * magnitude).sum(1, keepdim=True)).all()
    torch.testing.assert_close(upgrad_weights(G), (1 + v.sum(0)) / len(J))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objectives", [17, 40])
def test_many_objectives(monkeypatch, kind, objectives):
    """Block pivoting and NNLS find the same projections."""
    J = jacobian(kind, objectives, 3)
    G = (J @ J.T).numpy()
    together = torch.from_numpy(cone.pushes(G))
    monkeypatch.setattr(cone, "_ONE_BY_ONE_UP_TO", objectives)
    alone = torch.from_numpy(cone.pushes(G))
    norms = J.norm(dim=1)
    size = norms + together @ norms + alone @ norms
    assert ((together - alone) @ J).norm(dim=1).le(1e-9 * size).all()


@pytest.mark.parametrize("stationary", [None, "not", "weakly", "strongly"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_low_rank_does_not_conflict(stationary, dtype):
    """20 × 10 of rank 5: rounding to float32 must not make weights of 1e7 that cancel."""
    for seed in range(15):
        J = low_rank(20, 10, 5, stationary, seed).to(dtype)
        x = torch.zeros(10, dtype=dtype, requires_grad=True)
        upgrad = trimol.UPGrad([x], 20)
        upgrad(J @ x).backward()
        exact, d = J.double(), x.grad.double()
        allowed = 1e-6 * exact.norm(dim=1) * (d.norm() + exact.norm(dim=1).max())
        assert (exact @ d >= -allowed).all()


def test_without_conflict_is_the_mean():
    J = torch.rand(5, 3, dtype=torch.float64)
    assert upgrad_weights(J @ J.T).tolist() == [0.2] * 5


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e8])
def test_does_not_depend_on_the_scale(scale):
    torch.manual_seed(1)
    J = torch.randn(4, 6, dtype=torch.float64)
    G = J @ J.T
    torch.testing.assert_close(upgrad_weights(scale**2 * G), upgrad_weights(G))


def test_stationary_points():
    assert upgrad_weights(torch.zeros(3, 3)).tolist() == [1 / 3] * 3
    J = torch.tensor([[1.0, 0.0], [-0.5, 0.75], [-0.5, -0.5]], dtype=torch.float64)
    assert (upgrad_weights(J @ J.T) @ J).norm() < 1e-14


def test_agrees_with_torchjd_but_for_its_epsilons():
    torchjd = pytest.importorskip("torchjd.linalg")
    weighting = pytest.importorskip("torchjd.aggregation").UPGradWeighting
    projector = torchjd.QuadprogProjector(norm_eps=0.0, reg_eps=1e-13)
    for seed in range(30):
        torch.manual_seed(seed)
        J = torch.randn(2 + seed % 7, 12, dtype=torch.float64)
        G = J @ J.T
        theirs = weighting(projector=projector)(G)
        torch.testing.assert_close(upgrad_weights(G), theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("objectives", [2, 3])
def test_many_gramians_at_once_are_solved_as_one_by_one(objectives):
    """Conflicting or not, zero, opposite up to rounding, and of very different lengths."""
    random = torch.Generator().manual_seed(objectives)
    rows = torch.randn(60, objectives, 4, generator=random, dtype=torch.float64)
    rows[10:20, 1] = -rows[10:20, 0] * (1 + 1e-9 * torch.arange(10)[:, None])
    rows[20:25, 0] = 0
    rows[25:35, 0] *= 1e-8
    rows[35:40] = rows[35:40].abs()
    gramian = rows @ rows.mT
    upgrad = trimol.UPGrad([torch.zeros(1, requires_grad=True)], objectives)
    found = upgrad.solve_rounded(gramian, 2.0**-52)
    one_by_one = torch.stack([upgrad_weights(own, 2.0**-52) for own in gramian])
    torch.testing.assert_close(found, one_by_one, rtol=1e-9, atol=1e-12)
