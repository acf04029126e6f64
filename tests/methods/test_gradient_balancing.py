"""LRA, NTK, DualProj, GradVac, GradDrop and ExcessMTL against their formulas, slowly."""

import numpy as np
import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, clear, flat_gradient, naive_jacobian, network
from scipy.optimize import minimize

import trimol
from trimol.methods.dualproj import dualproj_weights
from trimol.methods.graddrop import drawn, masks
from trimol.methods.gradvac import gradvac_step
from trimol.methods.ntk import ntk_weights


def steps(method, model, seeds, lr=0.1):
    """Losses, gradients, direction and weights of each step, x moving along."""
    params = list(model.parameters())
    for seed in seeds:
        clear(params)
        losses = model.losses(batch(seed=seed))
        J = naive_jacobian(losses, params)
        method(losses).backward()
        yield losses.detach(), J, flat_gradient(params), method.weights.clone()
        with torch.no_grad():
            for p in params:
                p -= lr * p.grad


class TestLRA:
    @pytest.mark.parametrize("against", ["max", "mean"])
    def test_steps_are_algorithm_1(self, against):
        model = network()
        method = trimol.LRA(model.parameters(), 3, residual=1, alpha=0.3, against=against)
        weights = [1.0] * 3
        for _, J, d, found in steps(method, model, range(4)):
            size = getattr(J[1].abs(), against)()
            for m in (0, 2):
                weights[m] = 0.7 * weights[m] + 0.3 * float(size / J[m].abs().mean())
            assert found.tolist() == pytest.approx(weights, rel=1e-10)
            torch.testing.assert_close(d, found @ J)

    def test_by_name(self):
        x = torch.ones(2, requires_grad=True)
        method = trimol.LRA([x], ["pde", "bc"], residual="bc", alpha=1.0)
        method({"pde": 2 * x.sum(), "bc": x[0]})
        assert method.weights.tolist() == [0.5, 1.0]
        with pytest.raises(ValueError, match="residual must be one of 'pde', 'bc', found 'ic'"):
            trimol.LRA([x], ["pde", "bc"], residual="ic")
        with pytest.raises(ValueError, match="residual must be one of 0, 1, found 2"):
            trimol.LRA([x], 2, residual=2)

    def test_a_loss_without_a_gradient_keeps_its_weight(self):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        method = trimol.LRA([x], 3, alpha=0.5)
        method(torch.stack([x[0], 1 + (x[1] - 1) ** 2, 1e-300 * x[1]]))
        assert method.weights[:2].tolist() == [1.0, 1.0]
        assert method.weights.isfinite().all()


class TestNTK:
    def test_weights_are_inverse_speeds(self):
        """κ by autograd of √f; for a mean of squares it is the kernel's own quotient."""
        model = network()
        method = trimol.NTK(model.parameters(), 3)
        for losses, J, d, found in steps(method, model, range(3)):
            kappa = (J / (2 * losses.sqrt()[:, None])).square().sum(1)
            torch.testing.assert_close(found, kappa.sum() / kappa)
            torch.testing.assert_close(d, found @ J)

    def test_kappa_is_the_tangent_kernel_along_the_residual(self):
        generator = torch.Generator().manual_seed(0)
        A = torch.randn(7, 4, generator=generator, dtype=torch.float64)
        x = torch.randn(4, generator=generator, dtype=torch.float64, requires_grad=True)
        r = A @ x
        (gradient,) = torch.autograd.grad(r.square().mean(), [x])
        kappa = gradient.square().sum() / (4 * r.square().mean())
        by_kernel = r @ (A @ A.T) @ r / (r @ r) / 7
        torch.testing.assert_close(kappa, by_kernel)

    @settings(derandomize=True, deadline=None, max_examples=100)
    @given(st.lists(st.tuples(st.floats(0, 1e200), st.floats(0, 1e100)), min_size=1, max_size=5))
    def test_any_speeds_give_finite_weights(self, pairs):
        squared, losses = torch.tensor(pairs, dtype=torch.float64).T
        start = torch.full_like(losses, 0.5)
        weights = ntk_weights(start, squared, losses)
        trains = (squared > torch.finfo(torch.float64).tiny) & (losses > 0)
        assert weights.isfinite().all()
        assert (weights[trains] >= 1 - 1e-9).all()
        assert (weights[~trains] == 0.5).all()

    def test_in_an_optimizers_metric_it_is_the_speed_of_its_steps(self):
        x = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([{"params": [x]}], lr=0.1)
        plain, metric = trimol.NTK([x], 2), trimol.NTK([x], 2, optimizer=optimizer)
        for method in (plain, metric):
            method(torch.stack([x[0] ** 2, 4 * x[1] ** 2]))
        torch.testing.assert_close(plain.weights, metric.weights)  # SGD changes nothing


class TestDualProj:
    @settings(derandomize=True, deadline=None, max_examples=60)
    @given(jacobians, st.integers(0, 3))
    def test_is_the_nearest_direction_without_conflict(self, J, which):
        J = J / J.norm(dim=1).max().clamp_min(1e-300)
        u = torch.full((len(J),), 1 / len(J), dtype=torch.float64)
        if which:
            u = torch.nn.functional.one_hot(torch.tensor(which % len(J)), len(J)).double()
        weights = dualproj_weights(J @ J.T, u)
        d, target = weights @ J, u @ J
        size = float(weights.abs() @ J.norm(dim=1)) + 1e-8
        assert (weights >= u - 1e-12).all()
        assert (J @ d >= -1e-8 * J.norm(dim=1) * size).all()
        # Moreau: what was added is a combination of gradients that d has no product with.
        assert abs(float((d - target) @ d)) <= 1e-8 * size**2

    def test_slsqp_agrees(self):
        for seed in range(5):
            J = np.random.default_rng(seed).normal(size=(3, 5))
            J[1] -= 2 * J[0]
            target = J.mean(0)
            d = minimize(
                lambda d, t=target: ((d - t) ** 2).sum(),
                target,
                constraints={"type": "ineq", "fun": lambda d, J=J: J @ d},
                options={"ftol": 1e-14, "maxiter": 500},
            ).x
            G = torch.from_numpy(J @ J.T)
            found = dualproj_weights(G, torch.full((3,), 1 / 3, dtype=torch.float64)).numpy() @ J
            np.testing.assert_allclose(found, d, atol=1e-6)

    def test_torchjd_agrees_to_its_tolerance(self):
        weighting = pytest.importorskip("torchjd.aggregation").DualProjWeighting()
        for seed in range(10):
            J = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).double()
            J[1] -= 1.5 * J[0]
            ours = dualproj_weights(J @ J.T, torch.full((4,), 0.25, dtype=torch.float64))
            torch.testing.assert_close(ours @ J, weighting(J @ J.T) @ J, rtol=0, atol=1e-3)

    @pytest.mark.parametrize("optimizer", ["momentum", "adam"])
    def test_the_step_that_is_taken_conflicts_with_none(self, optimizer):
        from optimizer_steps import Problem

        problem = Problem(optimizer, seed=3)
        method = trimol.DualProj(problem.params, 3, optimizer=problem.optimizer)
        rows = problem.rows()
        known, scale = method.steps.flat(problem.params)(method.weights @ rows)
        method(problem.losses()).backward()
        assert (rows @ (known + scale * (method.weights @ rows)) >= -1e-10).all()


class TestGradVac:
    def by_hand(self, J, targets, order, beta):
        """Algorithm 1 on the gradients themselves."""
        total, targets = torch.zeros_like(J[0]), targets.clone()
        for i, g in enumerate(J):
            turned = g.clone()
            for j in order[i]:
                if j == i or not J[j].any() or not turned.any():
                    continue
                phi = float(turned @ J[j] / turned.norm() / J[j].norm())
                goal = float(targets[i, j])
                if phi < goal:
                    a, b = (max(1 - v**2, 0.0) ** 0.5 for v in (phi, goal))
                    share = turned.norm() * (goal * a - phi * b) / (J[j].norm() * max(b, 1e-8))
                    turned = turned + share * J[j]
                targets[i, j] = (1 - beta) * goal + beta * phi
            total += turned
        return total, targets

    @pytest.mark.parametrize("beta", [0.0, 0.3, 0.5])
    def test_steps_are_algorithm_1(self, beta):
        model = network()
        method = trimol.GradVac(model.parameters(), 3, beta=beta, seed=2)
        targets = torch.zeros(3, 3, dtype=torch.float64)
        order = method.order()
        for _, J, d, _ in steps(method, model, range(5)):
            expected, targets = self.by_hand(J, targets, order, beta)
            torch.testing.assert_close(d, expected)
            torch.testing.assert_close(method.targets, targets)
            order = method.order()

    def test_without_memory_it_is_pcgrad(self):
        model = network()
        params = list(model.parameters())
        ours, pcgrad = trimol.GradVac(params, 3, beta=0.0), trimol.PCGrad(params, 3)
        for seed in range(4):
            for method in (ours, pcgrad):
                method(model.losses(batch(seed=seed)))
            torch.testing.assert_close(ours.weights, pcgrad.weights)

    def test_two_objectives_are_torchjds(self):
        """With two there is one order only; its absolute 1e-8 in denominators is the difference."""
        theirs = pytest.importorskip("torchjd.aggregation").GradVacWeighting(beta=0.4)
        targets = torch.zeros(2, 2, dtype=torch.float64)
        order = np.array([[0, 1], [1, 0]])
        for seed in range(6):
            J = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)).double()
            found = gradvac_step(J @ J.T, targets, order, 0.4)
            targets = found[1:]
            torch.testing.assert_close(found[0], theirs(J @ J.T), rtol=1e-6, atol=1e-6)

    @settings(derandomize=True, deadline=None, max_examples=200)
    @given(jacobians, st.floats(-1, 1), st.integers(0, 100))
    def test_nasty_gradients_and_targets_give_finite_weights(self, J, target, seed):
        each = np.tile(np.arange(len(J)), (len(J), 1))
        order = np.random.default_rng(seed).permuted(each, axis=1)
        targets = torch.full((len(J), len(J)), target, dtype=torch.float64)
        found = gradvac_step(J @ J.T, targets, order, 0.5)
        assert found.isfinite().all()
        assert (found[1:].abs() <= 1 + 1e-12).all()
        if target <= 0 and len(J) == 2:
            expected, _ = self.by_hand(J, targets, order, 0.5)
            size = found[0].abs() @ J.norm(dim=1)
            assert (found[0] @ J - expected).abs().max() <= 1e-6 * size


class TestGradDrop:
    def by_hand(self, J, uniform, leak):
        d = torch.zeros_like(J[0])
        for k in range(J.shape[1]):
            column = J[:, k].tolist()
            size = sum(map(abs, column))
            purity = 0.5 * (1 + sum(column) / size) if size else 0.5
            for m, g in enumerate(column):
                kept = g > 0 if purity > uniform[k] else g < 0
                d[k] += (leak[m] + (1 - leak[m]) * kept) * g
        return d

    @pytest.mark.parametrize("leak", [[0.0, 0.0, 0.0], [0.1, 0.5, 1.0]])
    def test_steps_are_algorithm_1(self, leak):
        model = network()
        method = trimol.GradDrop(model.parameters(), 3, leak=leak, seed=4)
        for step, (_, J, d, weights) in enumerate(steps(method, model, range(4))):
            uniform = drawn(J.shape[1], 4, step)
            torch.testing.assert_close(d, self.by_hand(J, uniform, leak))
            kept = masks(J, uniform, torch.tensor(leak).double()) * J
            torch.testing.assert_close(weights, kept.abs().sum(1) / J.abs().sum(1))

    def test_it_is_the_sum_of_what_torchjd_keeps(self):
        """The same signs from the same random numbers."""
        aggregation = pytest.importorskip("torchjd.aggregation")
        J = torch.randn(4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        torch.manual_seed(3)
        theirs = aggregation.GradDrop()(J)
        torch.manual_seed(3)
        uniform = torch.rand(30, dtype=torch.float64)
        ours = (masks(J, uniform, torch.zeros(4)) * J).sum(0)
        torch.testing.assert_close(ours, theirs)

    def test_on_average_a_sign_is_kept_by_its_purity(self):
        """E[d] = Σ P g⁺ + (1 − P) g⁻."""
        J = torch.tensor([[3.0, -1.0], [-1.0, -2.0]], dtype=torch.float64)
        found = torch.stack(
            [(masks(J, drawn(2, 0, step), torch.zeros(2)) * J).sum(0) for step in range(4000)]
        ).mean(0)
        assert found.tolist() == pytest.approx([0.75 * 3 - 0.25, -3.0], abs=0.1)

    def test_leaks_are_checked(self):
        with pytest.raises(ValueError, match=r"leak must be from 0 to 1, found \[0.0, 1.5\]"):
            trimol.GradDrop([torch.zeros(1, requires_grad=True)], 2, leak=[0.0, 1.5])


class TestExcessMTL:
    @pytest.mark.parametrize("warmup", [0, 2])
    def test_steps_are_algorithm_1(self, warmup):
        model = network()
        method = trimol.ExcessMTL(model.parameters(), 3, lr=0.4, warmup=warmup)
        squares, measured = 0.0, []
        logs = torch.full((3,), 1 / 3, dtype=torch.float64).log()
        for step, (_, J, d, found) in enumerate(steps(method, model, range(6))):
            squares = squares + J**2
            e = (J * J / squares.sqrt()).nan_to_num().sum(1)
            if step < max(warmup, 1):
                measured.append(e)
            base = torch.stack(measured).mean(0)
            if step >= warmup:
                logs = logs + 0.4 * e / base
            torch.testing.assert_close(found, logs.softmax(0))
            torch.testing.assert_close(d, found @ J)

    def test_torchjd_agrees_after_a_warm_up(self):
        """Its ratio has an absolute 1e-7; without a warm-up its first step has a unit."""
        theirs = pytest.importorskip("torchjd.aggregation").ExcessMTLWeighting(0.3, 2)
        model = network()
        method = trimol.ExcessMTL(model.parameters(), 3, lr=0.3, warmup=2)
        for _, J, _, found in steps(method, model, range(6)):
            torch.testing.assert_close(found, theirs(J), rtol=1e-4, atol=1e-5)

    def test_units_do_not_matter(self):
        model = network()
        params = list(model.parameters())
        plain, scaled = (trimol.ExcessMTL(params, 3, lr=0.5) for _ in range(2))
        units = torch.tensor([1e-6, 1.0, 1e6]).double()
        for seed in range(4):
            plain(model.losses(batch(seed=seed)))
            scaled(units * model.losses(batch(seed=seed)))
            torch.testing.assert_close(plain.weights, scaled.weights)

    def test_a_loss_without_a_gradient_at_the_start(self):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        method = trimol.ExcessMTL([x], 2, lr=1e9)
        for value in (1.0, 0.0, 0.5):
            method(torch.stack([1 + (x[0] - value) ** 2, x[1]]))
            assert method.weights.isfinite().all()
            assert method.weights.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["LRA", "GradDrop", "ExcessMTL"])
def test_optimizers_are_refused_with_a_reason(kind):
    x = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([x])
    with pytest.raises(ValueError, match=f"guard True, for {kind}, whose .*, found Adam"):
        getattr(trimol, kind)([x], 2, optimizer=optimizer)
    method = getattr(trimol, kind)([x], 2, optimizer=optimizer, guard=True)
    method(torch.stack([x[0] ** 2, (x[1] - 3) ** 2])).backward()
    assert method.info.guarded == "free"


def test_an_overflow_does_not_hide_an_entry_from_excessmtl_for_good():
    x = torch.ones(2, requires_grad=True)
    method = trimol.ExcessMTL([x], 2, lr=1.0)
    method(x * x)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    with pytest.warns(RuntimeWarning, match="NaN or infinity; λ is kept"):
        method(x * torch.tensor([1e20, 1.0]))
    for name in ("weights", "squares", "initial", "seen"):
        assert torch.equal(method.state_dict()[name], before[name])
