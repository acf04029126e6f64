"""IMTL-L, GLS, SoftAdapt and ReLoBRaLo: weights from the losses' values, by slow references."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, clear, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.gls import gls_weights
from trimol.methods.imtll import imtll_step
from trimol.methods.relobralo import uniform
from trimol.methods.softadapt import softadapt_weights

positive = st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=6)


def steps(method, model, seeds, lr=0.1):
    """The losses of each step, the weights after it, and that x moved along them as told."""
    params, found = list(model.parameters()), []
    for seed in seeds:
        clear(params)
        before, losses = method.weights.clone(), model.losses(batch(seed=seed))
        rows = naive_jacobian(losses, params)
        method(losses).backward()
        found.append((losses.detach(), before, method.weights.clone(), flat_gradient(params), rows))
        with torch.no_grad():
            for p in params:
                p -= lr * p.grad
    return found


class TestIMTLL:
    def test_is_gradient_descent_on_the_papers_objective(self):
        """By autograd on s, for steps that do not come to the bounds."""
        model = network()
        s = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        method = trimol.IMTLL(model.parameters(), 3, lr=0.05)
        for losses, before, after, gradient, rows in steps(method, model, range(4)):
            torch.testing.assert_close(before, s.detach().exp())
            torch.testing.assert_close(gradient, before @ rows)
            (slope,) = torch.autograd.grad((s.exp() * losses - s).sum(), [s])
            s = (s - 0.05 * slope).detach().requires_grad_(True)
            torch.testing.assert_close(after, s.detach().exp())

    def test_is_torchjds(self):
        scalarization = pytest.importorskip("torchjd.scalarization")
        model = network()
        theirs = scalarization.IMTLL(3).double()
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
        method = trimol.IMTLL(model.parameters(), 3, lr=0.05)
        for losses, before, _, _, _ in steps(method, model, range(4)):
            torch.testing.assert_close(theirs.log_scale.detach().exp(), before)
            optimizer.zero_grad()
            theirs(losses).backward()
            optimizer.step()

    @settings(derandomize=True, deadline=None, max_examples=100)
    @given(positive)
    def test_ends_where_every_weighted_loss_is_one(self, values):
        losses = torch.tensor(values, dtype=torch.float64)
        weights = torch.ones_like(losses)
        for _ in range(200):
            weights = imtll_step(weights, losses, 0.5)
        torch.testing.assert_close(weights * losses, torch.ones_like(losses), rtol=1e-6, atol=0)


class TestGLS:
    def test_the_gradient_is_that_of_the_geometric_mean(self):
        """And so is the value; TorchJD has the same formula."""
        model = network()
        params = list(model.parameters())
        method = trimol.GLS(params, 3)
        losses = model.losses(batch())
        expected = torch.exp(losses.log().mean())
        clear(params)
        expected.backward(retain_graph=True)
        gradient = flat_gradient(params)
        clear(params)
        scalar = method(losses)
        scalar.backward()
        torch.testing.assert_close(flat_gradient(params), gradient)
        assert scalar.item() == pytest.approx(expected.item(), rel=1e-12)
        mean = pytest.importorskip("torchjd.scalarization").GeometricMean()
        assert mean(losses).item() == pytest.approx(scalar.item(), rel=1e-12)

    @settings(derandomize=True, deadline=None, max_examples=100)
    @given(positive, st.integers(-12, 12))
    def test_units_change_the_length_alone(self, values, power):
        losses = torch.tensor(values, dtype=torch.float64)
        losses = losses.clamp_min(1e-6 * losses.max())
        scale = torch.ones_like(losses)
        scale[0] = 10.0 ** (power / 12)
        first, second = gls_weights(losses), gls_weights(losses * scale) * scale
        torch.testing.assert_close(second / second.norm(), first / first.norm())

    def test_a_loss_of_zero_leaves_finite_weights(self):
        for values in ([0.0, 1.0], [0.0, 0.0], [1e-300, 1e300]):
            assert gls_weights(torch.tensor(values, dtype=torch.float64)).isfinite().all()


class TestSoftAdapt:
    @pytest.mark.parametrize("period", [1, 2])
    @pytest.mark.parametrize("variant", ["original", "normalized", "loss weighted"])
    def test_steps_are_the_papers(self, variant, period):
        model = network()
        method = trimol.SoftAdapt(model.parameters(), 3, beta=2.0, variant=variant, period=period)
        seen, want = [], [1 / 3] * 3
        for losses, _, after, gradient, rows in steps(method, model, range(8)):
            seen.append(losses.tolist())
            if len(seen) % period == 0 and len(seen) > period:
                means = [
                    [sum(x) / period for x in zip(*seen[a : a + period], strict=True)]
                    for a in (len(seen) - 2 * period, len(seen) - period)
                ]
                slopes = [new - old for old, new in zip(*means, strict=True)]
                if variant == "normalized":
                    slopes = [s / sum(map(abs, slopes)) for s in slopes]
                tilted = [math.exp(2.0 * s) for s in slopes]
                if variant == "loss weighted":
                    tilted = [f * e for f, e in zip(means[1], tilted, strict=True)]
                want = [e / sum(tilted) for e in tilted]
            assert after.tolist() == pytest.approx(want, rel=1e-10)
            torch.testing.assert_close(gradient, after @ rows)

    @settings(derandomize=True, deadline=None, max_examples=100)
    @given(
        st.lists(st.tuples(st.floats(0, 1e300), st.floats(0, 1e300)), min_size=1, max_size=5),
        st.floats(-1e3, 1e3),
        st.sampled_from(["original", "normalized", "loss weighted"]),
    )
    def test_any_losses_give_a_point_of_the_simplex(self, pairs, beta, variant):
        now, before = torch.tensor(pairs, dtype=torch.float64).T
        weights = softadapt_weights(now, before, beta, variant)
        assert (weights >= 0).all()
        assert weights.sum().item() == pytest.approx(1, abs=1e-12)


class TestReLoBRaLo:
    @pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
    def test_steps_are_the_papers(self, rho):
        model, alpha, temperature = network(), 0.7, 0.4
        method = trimol.ReLoBRaLo(
            model.parameters(), 3, alpha=alpha, rho=rho, temperature=temperature, seed=5
        )

        def balance(now, then):
            e = [math.exp(a / (temperature * b)) for a, b in zip(now, then, strict=True)]
            return [3 * x / sum(e) for x in e]

        first = last = want = None
        looks = 0
        for step, (losses, _, after, gradient, rows) in enumerate(steps(method, model, range(9))):
            now = losses.tolist()
            if first is None:
                first, want = now, [1.0] * 3
            else:
                back = uniform(5, step) >= rho
                looks += back
                past = balance(now, first) if back else want
                pairs = zip(past, balance(now, last), strict=True)
                want = [alpha * p + (1 - alpha) * q for p, q in pairs]
            last = now
            assert after.tolist() == pytest.approx(want, rel=1e-10)
            torch.testing.assert_close(gradient, after @ rows)
        assert looks == {0.0: 8, 1.0: 0}.get(rho, looks)
        assert rho != 0.5 or 0 < looks < 8

    def test_the_looks_back_are_as_many_as_asked_for(self):
        drawn = [uniform(0, step) for step in range(4000)]
        assert min(drawn) >= 0
        assert max(drawn) < 1
        assert sum(u >= 0.9 for u in drawn) / 4000 == pytest.approx(0.1, abs=0.02)

    def test_losses_that_come_to_zero(self):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        method = trimol.ReLoBRaLo([x], 2, alpha=0.0)
        for value in (1.0, 0.0, 0.0, 1.0):
            method(torch.stack([x[0] - 1 + value, x[1]]))
            assert method.weights.isfinite().all()
            assert method.weights.sum().item() == pytest.approx(2)
        assert method.weights.tolist() == [2.0, 0.0]  # it has left zero


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("IMTLL", {"lr": -1.0}, "lr must be a finite number of at least 0, found -1"),
        ("IMTLL", {"weights": [1.0, 0.0]}, "weights must be above 0"),
        ("SoftAdapt", {"beta": math.inf}, "beta must be a finite number, found inf"),
        ("SoftAdapt", {"variant": "best"}, "variant must be 'original' or .*, found 'best'"),
        ("SoftAdapt", {"period": 0}, "period must be a whole number of at least 1, found 0"),
        ("ReLoBRaLo", {"alpha": 1.5}, "alpha must be a number from 0 to 1, found 1.5"),
        ("ReLoBRaLo", {"rho": -0.5}, "rho must be a number from 0 to 1, found -0.5"),
        ("ReLoBRaLo", {"temperature": 0.0}, "temperature must be a finite number above 0"),
    ],
)
def test_bad_hyperparameters(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(trimol, kind)([torch.zeros(1, requires_grad=True)], 2, **arguments)


@pytest.mark.parametrize("kind", ["IMTLL", "GLS", "ReLoBRaLo"])
def test_negative_losses_are_refused_by_name(kind):
    x = torch.ones(2, requires_grad=True)
    method = getattr(trimol, kind)([x], ["a", "b"])
    with pytest.raises(ValueError, match=r"losses must be at least 0, .* found -2 for .*'b'"):
        method(torch.stack([x[0], -2 * x[1]]))
