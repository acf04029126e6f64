"""ConFIG and M-ConFIG against pseudo-inverses of the gradients and the published loop."""

import copy

import numpy as np
import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from problems import batch, clear, flat_gradient, naive_jacobian, network

import trimol
from trimol.methods.config import config_weights


def config(J, preference=None):
    """Eq. (2) and (3) on the gradients themselves, by numpy's pseudo-inverse."""
    J = np.asarray(J, dtype=np.float64)
    norms = np.linalg.norm(J, axis=1)
    U = J / np.where(norms > 0, norms, 1)[:, None]
    wanted = np.ones(len(J)) if preference is None else np.asarray(preference)
    d = np.linalg.pinv(U, rcond=1e-7) @ wanted
    if np.linalg.norm(d) <= 1e-9 * len(J):
        return np.zeros_like(d)
    u = d / np.linalg.norm(d)
    return (J @ u).sum() * u


def ones(J):
    return torch.ones(len(J), dtype=torch.float64)


def test_steps_are_the_papers():
    model = network(tasks=4)
    params = list(model.parameters())
    method = trimol.ConFIG(params, 4)
    for seed in range(3):
        clear(params)
        losses = model.losses(batch(tasks=4, seed=seed))
        J = naive_jacobian(losses, params)
        method(losses).backward()
        d = flat_gradient(params)
        np.testing.assert_allclose(d, config(J), rtol=1e-7, atol=1e-12)
        cosines = J @ d / J.norm(dim=1) / d.norm()
        torch.testing.assert_close(cosines, cosines[:1].expand(4))
        assert cosines[0] > 0


@settings(derandomize=True, deadline=None, max_examples=300)
@given(jacobians)
def test_agrees_with_the_pseudo_inverse(J):
    found = (config_weights(J @ J.T, ones(J)) @ J).numpy()
    expected = config(J)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(np.asarray(J)).sum()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_rank_is_told_by_angles_not_by_lengths(scale):
    """A gradient 1e12 times shorter than the others has the same say in the direction."""
    J = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    J[0] *= scale
    d = config_weights(J @ J.T, ones(J)) @ J
    cosines = J @ d / J.norm(dim=1) / d.norm()
    torch.testing.assert_close(cosines, cosines[:1].expand(3), rtol=1e-6, atol=0)


def test_float32_duplicates_are_one_gradient():
    """Their difference is rounding: taken at its word, the direction would be noise."""
    g = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    third = torch.tensor([1 / 3])
    J = torch.stack([g[0], g[1], (3 * (g[0] * third))])
    assert not torch.equal(J[0], J[2])
    wide = J.double()
    eps = torch.finfo(torch.float32).eps
    d = config_weights(wide @ wide.T, ones(J), eps) @ wide
    exact = config(torch.stack([wide[0], wide[1], wide[0]]))
    assert np.linalg.norm(d.numpy() - exact) < 1e-5 * np.linalg.norm(exact)


def test_opposed_and_zero_gradients():
    opposed = torch.tensor([[1.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    assert config_weights(opposed @ opposed.T, ones(opposed)).tolist() == [0.0, 0.0]
    zero = torch.zeros(2, 2, dtype=torch.float64)
    assert config_weights(zero, ones(zero)).tolist() == [0.0, 0.0]
    half = torch.tensor([[2.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    assert (config_weights(half @ half.T, ones(half)) @ half).tolist() == pytest.approx([2.0, 1.0])


def test_a_preference_is_a_ratio_of_cosines():
    J = torch.randn(3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    d = config_weights(J @ J.T, p) @ J
    cosines = J @ d / J.norm(dim=1) / d.norm()
    torch.testing.assert_close(cosines / cosines[2], p)
    np.testing.assert_allclose(d, config(J, p), rtol=1e-9)


def test_torchjd_agrees_where_gradients_are_independent():
    theirs = pytest.importorskip("torchjd.aggregation").ConFIG()
    for seed in range(10):
        J = torch.randn(4, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(config_weights(J @ J.T, ones(J)) @ J, theirs(J))


class Published:
    """The momentum operator of the authors, from Algorithm 1: plain lists, one loss a step."""

    def __init__(self, first, beta1, beta2):
        self.beta1, self.beta2 = beta1, beta2
        self.m = [(1 - beta1) * g for g in first]
        self.counts = [1] * len(first)
        self.t, self.fake, self.s = 0, 0 * first[0], 0 * first[0]

    def direction(self, turn=None, gradient=None):
        if turn is not None:
            self.counts[turn] += 1
            self.m[turn] = self.beta1 * self.m[turn] + (1 - self.beta1) * gradient
        self.t += 1
        pairs = zip(self.m, self.counts, strict=True)
        d = config(np.stack([m / (1 - self.beta1**c) for m, c in pairs]))
        if self.beta2 is None:
            return d
        fake = d * (1 - self.beta1**self.t)
        pseudo = (fake - self.beta1 * self.fake) / (1 - self.beta1)
        self.fake = fake
        self.s = self.beta2 * self.s + (1 - self.beta2) * pseudo**2
        return d / (np.sqrt(self.s / (1 - self.beta2**self.t)) + 1e-8)


@pytest.mark.parametrize("given_all", [True, False])
@pytest.mark.parametrize("beta2", [0.999, 0.9, None])
def test_mconfig_is_algorithm_1(beta2, given_all):
    model = network()
    params = list(model.parameters())
    method = trimol.MConFIG(params, 3, beta1=0.8, beta2=beta2)
    published = None
    for step in range(9):
        clear(params)
        losses = model.losses(batch(seed=step))
        J = naive_jacobian(losses, params).numpy()
        wanted = method.wanted
        assert wanted == ((0, 1, 2) if step == 0 else (step % 3,))
        if published is None:
            published = Published(list(J), 0.8, beta2)
            expected = published.direction()
        else:
            expected = published.direction(step % 3, J[step % 3])
        given = (
            list(losses)
            if given_all
            else [f if m in wanted else None for m, f in enumerate(losses)]
        )
        method(given).backward()
        np.testing.assert_allclose(flat_gradient(params), expected, rtol=1e-6, atol=1e-9)
        assert method.info.updated
        assert int(method.kept) == 0
        absent = () if given_all or step == 0 else tuple(m for m in range(3) if m != step % 3)
        assert method.info.absent == absent
        with torch.no_grad():
            for p in params:
                p -= 0.01 * p.grad


def test_mconfig_goes_back_through_one_loss_alone():
    """The others' graphs are not entered: a backward through them would raise."""

    class Forbidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("went back through a loss whose turn it is not")

    model = network()
    params = list(model.parameters())
    method = trimol.MConFIG(params, 3)
    method(model.losses(batch())).backward()
    for step in range(1, 4):
        losses = list(model.losses(batch(seed=step)).unbind())
        others = [m for m in range(3) if m != step % 3]
        given = [
            Forbidden.apply(model.losses(batch(seed=step))[m]) if m in others else f
            for m, f in enumerate(losses)
        ]
        clear(params)
        method(given).backward()
        assert flat_gradient(params).any()
        assert method.info.extra == 0.0


def test_mconfig_keeps_its_second_moment_where_it_would_overflow():
    x = torch.ones(2, requires_grad=True)
    method = trimol.MConFIG([x], 2)
    method(x * x)
    before = copy.deepcopy(method.state_dict())
    with pytest.warns(RuntimeWarning, match="NaN or infinity; λ is kept"):
        method(1e20 * x)
    for name in ("weights", "momenta", "squares", "last", "turn"):
        assert torch.equal(method.state_dict()[name], before[name])


def test_mconfig_wants_all_losses_for_a_step_between():
    x = torch.ones(2, requires_grad=True)
    method = trimol.MConFIG([x], ["a", "b"], every=2)
    seen = []
    for _ in range(4):
        seen.append(method.wanted)
        method(x * x)
    assert seen == [("a", "b"), ("a", "b"), ("b",), ("a", "b")]


def test_mconfig_keeps_its_weights_without_the_loss_whose_turn_it_is():
    model = network()
    params = list(model.parameters())
    method = trimol.MConFIG(params, 3)
    method(model.losses(batch())).backward()
    before = copy.deepcopy(method.state_dict())
    clear(params)
    losses = model.losses(batch(seed=1))
    method([losses[0], None, losses[2]]).backward()
    assert (method.info.updated, int(method.kept), method.info.absent) == (False, 1, (1,))
    for name in ("weights", "momenta", "counts", "last", "squares", "turn"):
        assert torch.equal(method.state_dict()[name], before[name])
    assert method.wanted == (1,)


@pytest.mark.parametrize("beta2", [0.999, None])
def test_mconfig_resumes_bit_for_bit_in_the_middle_of_a_round(beta2):
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method = trimol.MConFIG(params, 3, beta2=beta2)
    optimizer = torch.optim.SGD(params, lr=0.01)

    def steps(method, model, optimizer, seeds):
        for seed in seeds:
            optimizer.zero_grad()
            method(model.losses(batch(seed=seed, dtype=torch.float32))).backward()
            optimizer.step()

    steps(method, model, optimizer, range(5))
    twin = copy.deepcopy(model)
    other = trimol.MConFIG(twin.parameters(), 3, beta2=beta2)
    other.load_state_dict(method.state_dict())
    steps(other, twin, torch.optim.SGD(twin.parameters(), lr=0.01), range(5, 12))
    steps(method, model, optimizer, range(5, 12))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )
    assert all(torch.equal(a, other.state_dict()[k]) for k, a in method.state_dict().items())


def test_mconfig_begins_a_parameter_that_is_unfrozen_with_its_first_gradients():
    model = network()
    params = list(model.parameters())
    size = params[0].numel()
    params[0].requires_grad_(False)
    method = trimol.MConFIG(params, 3, beta2=None)
    for seed in range(4):
        method(model.losses(batch(seed=seed)))
    assert not method.momenta[:, :size].any()
    params[0].requires_grad_(True)
    turn = int(method.turn) % 3
    J = naive_jacobian(model.losses(batch(seed=9)), params)
    method(model.losses(batch(seed=9)))
    torch.testing.assert_close(method.momenta[turn, :size], J[turn, :size])
    assert method.momenta[(turn + 1) % 3, :size].eq(0).all()
    assert not torch.equal(method.momenta[turn, size:], J[turn, size:])


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("ConFIG", {"preference": [1.0]}, "preference must have 2 entries"),
        ("MConFIG", {"beta1": 1.0}, "beta1 must be a number of at least 0 and below 1, found 1"),
        (
            "MConFIG",
            {"beta2": -0.1},
            "beta2 must be a number of at least 0 and below 1, found -0.1",
        ),
    ],
)
def test_bad_hyperparameters(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(trimol, kind)([torch.zeros(1, requires_grad=True)], 2, **arguments)


def test_mconfig_has_no_metric_but_a_guard():
    x = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.1)
    with pytest.raises(ValueError, match="for MConFIG, whose direction has a second moment of its"):
        trimol.MConFIG([x], 2, optimizer=optimizer)
    method = trimol.MConFIG([x], 2, optimizer=optimizer, guard=True)
    method(torch.stack([x[0] ** 2, (x[1] - x[0] - 3) ** 2])).backward()
    assert (method.info.effect <= 1e-12).all()
