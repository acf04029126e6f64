"""Hessian-vector products and the spectrum's ends, against Hessians written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trimol.gradients.curvature import Hessian, Spectrum, spectrum


def quadratic(eigenvalues, seed=0):
    """½ xᵀHx with H of these eigenvalues, in a random basis."""
    generator = torch.Generator().manual_seed(seed)
    d = len(eigenvalues)
    basis, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    matrix = basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.T
    x = torch.randn(d, generator=generator, dtype=torch.float64).requires_grad_()
    return x, matrix, x @ matrix @ x / 2


def test_products_with_a_network_match_the_hessian_written_out():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    inputs, targets = torch.randn(5, 3).double(), torch.randint(0, 2, (5,))
    names = [name for name, _ in model.named_parameters()]
    params = list(model.parameters())

    def loss(flat):
        parts = flat.split([p.numel() for p in params])
        values = {n: v.reshape(p.shape) for n, v, p in zip(names, parts, params, strict=True)}
        out = torch.func.functional_call(model, values, (inputs,))
        return nn.functional.cross_entropy(out, targets)

    flat = torch.cat([p.detach().reshape(-1) for p in params])
    exact = torch.autograd.functional.hessian(loss, flat)
    hessian = Hessian(nn.functional.cross_entropy(model(inputs), targets), params)
    for column in torch.eye(len(flat), dtype=torch.float64)[::7]:
        torch.testing.assert_close(hessian @ column, exact @ column)
    values = torch.linalg.eigvalsh(exact)
    ends = spectrum(hessian, products=len(flat))
    assert ends.smallest == pytest.approx(float(values[0]), abs=1e-10)
    assert ends.largest == pytest.approx(float(values[-1]), abs=1e-10)
    assert all(p.grad is None for p in params)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_as_many_products_as_parameters_are_exact(eigenvalues, seed):
    x, _, loss = quadratic(eigenvalues, seed)
    ends = spectrum(Hessian(loss, [x]), products=50)
    scale = 1e-7 * max(1.0, *map(abs, eigenvalues))
    assert ends.smallest == pytest.approx(min(eigenvalues), abs=scale)
    assert ends.largest == pytest.approx(max(eigenvalues), abs=scale)
    assert ends.norm == pytest.approx(max(map(abs, eigenvalues)), abs=scale)
    assert ends.products <= len(eigenvalues)


@pytest.mark.parametrize("products", [1, 2, 5, 10, 20])
def test_fewer_products_see_the_ends_from_inside_and_say_how_well(products):
    eigenvalues = [float(i) for i in range(1, 61)]
    x, matrix, loss = quadratic(eigenvalues)
    ends = spectrum(Hessian(loss, [x]), products=products)
    assert 1 - 1e-9 <= ends.smallest <= ends.largest <= 60 + 1e-9
    assert ends.products == products
    values = torch.linalg.eigvalsh(matrix)
    for end in (ends.smallest, ends.largest):
        assert float((values - end).abs().min()) <= ends.error + 1e-9


def test_more_products_see_more():
    x, _, loss = quadratic([float(i) for i in range(1, 61)])
    seen = [spectrum(Hessian(loss, [x]), products=k) for k in (2, 5, 10, 30)]
    assert [s.largest for s in seen] == sorted(s.largest for s in seen)
    assert [s.smallest for s in seen] == sorted((s.smallest for s in seen), reverse=True)
    assert seen[-1].largest == pytest.approx(60, rel=1e-3)


def test_parameters_that_a_loss_does_not_reach_or_reaches_linearly():
    x, y, z = (torch.ones(2, requires_grad=True) for _ in range(3))
    hessian = Hessian((x**2).sum() + y.sum(), [x, y, z])
    product = hessian @ torch.arange(6.0)
    assert product.tolist() == [0.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    flat = Hessian(y.sum(), [y])
    assert (flat @ torch.ones(2)).tolist() == [0.0, 0.0]
    assert spectrum(flat) == Spectrum(0.0, 0.0, 0.0, 1)


def test_mixed_second_derivatives_are_kept():
    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    hessian = Hessian(x * y, [x, y])
    assert (hessian @ torch.tensor([1.0, 0.0])).tolist() == [0.0, 1.0]
    assert spectrum(hessian).smallest == pytest.approx(-1)


def test_it_is_the_same_every_time_and_leaves_the_random_state_alone():
    x, _, loss = quadratic([float(i) for i in range(1, 31)])
    before = torch.get_rng_state()
    first, second = (spectrum(Hessian(loss, [x]), products=5) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())
    other = spectrum(Hessian(loss, [x]), products=5, generator=torch.Generator().manual_seed(1))
    assert other != first


def test_frozen_parameters_are_left_out():
    x, y = torch.ones(2, requires_grad=True), torch.ones(3)
    hessian = Hessian((x**2).sum() * y.sum(), [x, y])
    assert hessian.size == 2


def test_bad_input():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"loss must be a scalar, found shape \(2,\)"):
        Hessian(x**2, [x])
    hessian = Hessian((x**2).sum(), [x])
    with pytest.raises(ValueError, match=r"vector must have 2 entries.*found shape \(3,\)"):
        hessian @ torch.ones(3)
    with pytest.raises(ValueError, match="products must be a whole number of at least 1, found 0"):
        spectrum(hessian, products=0)
    bad = Hessian((x * torch.tensor([1.0, float("inf")])).square().sum(), [x])
    with pytest.raises(ValueError, match="finite Hessian"):
        spectrum(bad)
