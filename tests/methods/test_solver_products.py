"""Solved by products: a gap that is true, at fewer passes than there are objectives."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from problems import flat_gradient, naive_jacobian
from torch import Tensor, nn

import trimol
from python_functions import Doubled
from trimol._failures import BadValue
from trimol.gradients import _product, _tangents
from trimol.methods import replicated


class Net(nn.Module):
    """A trunk and M regressions of random functions of the input: they share, and conflict."""

    def __init__(self, objectives: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh()]
        self.trunk = nn.Sequential(*layers).to(dtype)
        self.heads = nn.Linear(16, objectives).to(dtype)
        self.truth = torch.randn(12, objectives, dtype=dtype) / 3

    def batch(self, seed: int, size: int = 32) -> Tensor:
        random = torch.Generator().manual_seed(seed)
        return torch.randn(size, 12, generator=random, dtype=self.truth.dtype)

    def losses(self, x: Tensor) -> Tensor:
        return (self.heads(self.trunk(x)) - (x @ self.truth).sin()).square().mean(0)


def made(objectives: int, dtype: torch.dtype = torch.float64, **options):
    net = Net(objectives, dtype)
    method = trimol.MGDA(net.trunk.parameters(), objectives, solver="products", **options)
    return net, method, torch.optim.SGD(net.parameters(), lr=0.05)


def trained(net, method, optimizer, seeds) -> list[trimol.methods.Info]:
    told = []
    for seed in seeds:
        optimizer.zero_grad()
        method(net.losses(net.batch(seed))).backward()
        optimizer.step()
        told.append(method.info)
    return told


class Passes:
    """How many backwards and tangent passes there were."""

    def __init__(self) -> None:
        self.backwards = self.tangents = 0


@contextmanager
def counted(monkeypatch) -> Iterator[Passes]:
    """Count what really runs: autograd's own backwards through the trunk, and pushes."""
    passes, grad, push = Passes(), torch.autograd.grad, _tangents.push

    def counting_grad(*args, **options):
        batch = len(args[2]) if options.get("is_grads_batched") else 1
        passes.backwards += batch
        return grad(*args, **options)

    def counting_push(*args):
        passes.tangents += 1
        return push(*args)

    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd, "grad", counting_grad)
        patch.setattr(_product, "push", counting_push)
        yield passes


@pytest.mark.parametrize(("objectives", "most"), [(16, 0.95), (32, 0.6), (64, 0.4)])
def test_fewer_passes_than_objectives(monkeypatch, objectives, most):
    """After the first step, and less of them relative to M the more objectives there are."""
    net, method, optimizer = made(objectives, torch.float32, heads="weighted")
    trained(net, method, optimizer, [0])
    assert method.info.route == "rows"
    trained(net, method, optimizer, [1])  # hooks that others have made are looked for once
    total = 0
    for seed in range(2, 14):
        with counted(monkeypatch) as passes:
            scalar = method(net.losses(net.batch(seed)))
        used = method.info.products
        total += passes.backwards + passes.tangents
        if method.info.reason:
            continue
        # One backward and one tangent pass each; one backward more, which visits the heads alone.
        assert (passes.backwards, passes.tangents) == (used + 1, used)
        assert passes.backwards + passes.tangents <= objectives + 1
        with counted(monkeypatch) as passes:
            optimizer.zero_grad()
            scalar.backward()
        assert passes.backwards == 0
        optimizer.step()
    assert total <= most * objectives * 12


@pytest.mark.parametrize("objectives", [3, 8, 16, 32])
@pytest.mark.parametrize("gap", [0.5, 0.1, 0.01])
def test_the_gap_is_true_and_nothing_conflicts(objectives, gap):
    net, method, optimizer = made(objectives, gap=gap)
    params = list(net.trunk.parameters())
    ways = set()
    for seed in range(12):
        rows = naive_jacobian(net.losses(net.batch(seed)), params)
        trained(net, method, optimizer, [seed])
        info, direction = method.info, flat_gradient(params)
        torch.testing.assert_close(direction, method.weights @ rows)
        falls, squared = rows @ direction, direction @ direction
        assert info.gap == pytest.approx(float(1 - falls.min() / squared), abs=1e-9)
        assert info.gap <= gap
        assert (falls >= (1 - info.gap - 1e-9) * squared).all()
        best = trimol.simplex.min_norm(rows @ rows.T) @ rows
        assert (direction - best).square().sum() <= (info.gap + 1e-9) * squared
        ways.add(info.route)
        assert (info.route == "rows") == bool(info.reason)
    assert "rows" in ways
    assert objectives < 16 or "tangents" in ways or gap == 0.01


def test_in_float32_the_gap_is_true_to_rounding():
    net, method, optimizer = made(32, torch.float32)
    for seed in range(10):
        losses = net.losses(net.batch(seed))
        gramian = trimol.gradients.gramian(losses, net.trunk.parameters())
        trained(net, method, optimizer, [seed])
        reached = gramian @ method.weights
        plain = float(1 - reached.min() / (method.weights @ reached))
        assert method.info.gap == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_exact_mgda_says_its_gap_too(rho):
    net = Net(5)
    method = trimol.MGDA(net.trunk.parameters(), 5, rho=rho)
    method(net.losses(net.batch(0)))
    assert method.info.gap == 0
    assert method.info.products == 0


def test_a_step_without_new_weights_has_no_gap():
    net, method, optimizer = made(16, every=2)
    first, second, third = trained(net, method, optimizer, range(3))
    assert (first.gap, second.gap) == (0, None)
    assert third.products > 0
    assert third.gap <= 0.1


def test_rho_is_part_of_the_gap():
    net, method, optimizer = made(24, rho=0.05)
    for seed in range(6):
        rows = naive_jacobian(net.losses(net.batch(seed)), list(net.trunk.parameters()))
        (info,) = trained(net, method, optimizer, [seed])
        slope = rows @ (rows.T @ method.weights) + 0.05 * method.weights
        plain = float(1 - slope.min() / (method.weights @ slope))
        assert info.gap == pytest.approx(plain, abs=1e-9)
    assert info.products > 0


def test_a_small_gap_comes_to_the_exact_weights():
    net, method, optimizer = made(48, gap=1e-7)
    method.wait.fill_(0)
    exact = trimol.MGDA(net.trunk.parameters(), 48, rho=0.0)
    trained(net, method, optimizer, [0])
    losses = net.losses(net.batch(0))  # all but the Gramian of the step before
    for other in (method, exact):
        other(losses)
    assert method.info.products > 0
    torch.testing.assert_close(method.weights, exact.weights, atol=1e-3, rtol=0)


@pytest.mark.parametrize("steps", [1, 4])
def test_resumes_bit_for_bit(steps):
    """Also amid a pause after products that were in vain: gap 0.003 does not pay at M = 16."""
    net, method, optimizer = made(16, torch.float32, gap=0.003)
    trained(net, method, optimizer, range(steps))
    saved = [copy.deepcopy(each.state_dict()) for each in (net, method, optimizer)]
    told = trained(net, method, optimizer, range(steps, steps + 6))
    again = made(16, torch.float32, gap=0.003)
    for each, state in zip(again, saved, strict=True):
        each.load_state_dict(state)
    resumed = trained(*again, range(steps, steps + 6))
    for one, two in zip(told, resumed, strict=True):
        assert torch.equal(one.weights, two.weights)
        assert (one.gap, one.products, one.reason) == (two.gap, two.products, two.reason)
    for name, tensor in method.state_dict().items():
        assert torch.equal(again[1].state_dict()[name], tensor), name


def test_products_in_vain_are_tried_ever_less_often():
    net, method, optimizer = made(8, gap=1e-6)
    told = trained(net, method, optimizer, range(40))
    tried = [step for step, info in enumerate(told) if info.products]
    assert tried == [1, 3, 7, 15, 31]
    assert all(info.gap == 0 and info.reason for info in told)
    assert told[1].reason == "gap 1e-06 was not reached by 3 products"
    assert told[1].product is None
    assert told[2].reason == "products were dearer than 8 backwards of late"


@pytest.mark.parametrize("objectives", [1, 2])
def test_few_objectives_are_solved_exactly(objectives):
    net, method, optimizer = made(objectives)
    told = trained(net, method, optimizer, range(3))
    for info in told:
        assert (info.products, info.gap) == (0, 0)
        assert info.reason == f"products cost no less than {objectives} backwards"


def test_accumulated_micro_batches_are_their_whole():
    """To rounding: the second step's λ is that of the same products."""
    net, method, optimizer = made(24)
    other_net, other, other_optimizer = made(24)
    for seed in range(4):
        trained(net, method, optimizer, [seed])
        other_optimizer.zero_grad()
        parts = [[part] for part in net.batch(seed).chunk(4)]
        other.accumulate(other_net.losses, parts).backward()
        other_optimizer.step()
        if seed < 3 or other.info.products == method.info.products:
            assert other.info.gap <= 0.1
            torch.testing.assert_close(other.weights, method.weights, atol=1e-6, rtol=0)
    assert other.info.products > 0


def test_heads_and_grad_scaler_get_what_exact_weights_would_give_them():
    net, method, optimizer = made(24, torch.float32)
    trained(net, method, optimizer, [0])
    losses = net.losses(net.batch(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    optimizer.zero_grad()
    scaler.scale(method(losses)).backward()
    assert method.info.products > 0
    found = [p.grad.clone() for p in net.parameters()]
    optimizer.zero_grad()
    trunk, heads = list(net.trunk.parameters()), list(net.heads.parameters())
    again = net.losses(net.batch(1))
    wanted = torch.autograd.grad(again, trunk, method.weights.float(), retain_graph=True)
    wanted += torch.autograd.grad(again.sum(), heads)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, 256 * want, atol=1e-5, rtol=1e-4)


def test_hooks_on_parameters_act_once_on_what_is_delivered():
    net, method, optimizer = made(24)
    trained(net, method, optimizer, [0])
    params = list(net.trunk.parameters())
    rows = naive_jacobian(net.losses(net.batch(1)), params)
    for p in params:
        p.register_hook(lambda gradient: 2 * gradient)
    (info,) = trained(net, method, optimizer, [1])
    assert info.products > 0
    torch.testing.assert_close(flat_gradient(params), 2 * info.weights @ rows)


def test_half_precision_is_solved_exactly():
    """A tangent in bf16 knows no gap of 10 %."""
    net, method, _ = made(24, torch.float32)
    for seed in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            losses = net.losses(net.batch(seed))
        method(losses.float()).backward()
    assert method.info.products == 1
    assert method.info.reason.startswith("gap 0.1 was not reached")
    assert method.info.gap == 0


def test_a_graph_without_tangents_is_solved_exactly():
    """A product by M backwards costs more than all gradients: one is enough to know."""
    net, method, _ = made(24)
    for seed in range(2):
        method(Doubled.apply(net.losses(net.batch(seed)))).backward()
    assert method.info.products == 1
    assert method.info.gap == 0


def test_gradients_that_are_not_finite_change_nothing():
    net, method, optimizer = made(16)
    trained(net, method, optimizer, [0, 1])
    before = copy.deepcopy(method.state_dict())
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        method(net.losses(net.batch(2) * torch.inf))
    assert method.info.gap is None
    for name in ("weights", "guess", "wait", "pause"):
        assert torch.equal(method.state_dict()[name], before[name])


def test_a_guard_is_beside_it():
    net = Net(24)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    method = trimol.MGDA(
        net.trunk.parameters(),
        24,
        solver="products",
        optimizer=optimizer,
        metric="gradient",
        guard=True,
    )
    told = trained(net, method, optimizer, range(4))
    assert told[-1].guarded in ("free", "changed")
    assert any(info.products for info in told)
    assert (told[-1].effect <= 1e-9).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "newton"}, "solver must be 'exact' or 'products', found 'newton'"),
        ({"gap": 0}, "gap must be a finite number above 0, found 0"),
        ({"gap": 1.5}, "gap must be a number from 0 to 1, found 1.5"),
        (
            {"normalize": "l2"},
            "solver must be 'exact' with normalize='l2', which needs the gradients themselves, "
            "found 'products'",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(options, message):
    net = Net(3)
    with pytest.raises(BadValue) as caught:
        trimol.MGDA(net.trunk.parameters(), 3, **{"solver": "products", **options})
    assert str(caught.value) == message


def test_the_metric_of_an_optimizer_is_refused_also_if_it_comes_later():
    net, method, optimizer = made(3)
    with pytest.raises(BadValue, match="solver must be 'exact' with an optimizer's metric"):
        trimol.MGDA(net.trunk.parameters(), 3, solver="products", optimizer=optimizer)
    method.optimizer = optimizer
    with pytest.raises(BadValue, match="solver must be 'exact' with an optimizer's metric"):
        method(net.losses(net.batch(0)))


def test_replicas_are_refused():
    runs = replicated("mgda", replicas=2, objectives=3, solver="products")
    with pytest.raises(BadValue, match="solver must be 'exact' with replicas"):
        runs.direction([torch.randn(2, 3, 4)])


def worst_off(rows: Tensor, point: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """F(w) = g_wᵀg₀ + c‖g₀‖‖g_w‖ and the direction of w, from the gradients."""
    mean, own = rows.mean(0), point @ rows
    radius = c * mean.norm()
    return own @ mean + radius * own.norm(), mean + radius * own / own.norm()


@pytest.mark.parametrize("c", [0.2, 0.4, 1.0, 2.0])
def test_cagrads_gap_is_true(c):
    """min ⟨g, d⟩ ≥ F(w) − gap·s, which is at least that of the exact direction, less gap·s."""
    net = Net(24)
    params = list(net.trunk.parameters())
    method = trimol.CAGrad(params, 24, c=c, solver="products")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    used = 0
    for seed in range(8):
        rows = naive_jacobian(net.losses(net.batch(seed)), params)
        (info,) = trained(net, method, optimizer, [seed])
        used += info.products
        direction = flat_gradient(params)
        torch.testing.assert_close(direction, info.weights @ rows)
        point = info.weights - 1 / 24
        value, expected = worst_off(rows, point / point.sum(), c)
        torch.testing.assert_close(direction, expected)
        size = float(value if c >= 1 else rows.mean(0).square().sum())
        worst = float((rows @ direction).min())
        assert info.gap == pytest.approx((float(value) - worst) / size, abs=1e-9)
        assert info.gap <= 0.1
        best = trimol.CAGrad(params, 24, c=c).solve(rows @ rows.T) @ rows
        assert worst >= float((rows @ best).min()) - info.gap * size - 1e-12
        assert c < 1 or worst >= 0
    assert used > 0


def test_cagrad_takes_fewer_passes_than_objectives(monkeypatch):
    """The product of the mean gradient, those of w, and the backward of what comes of both."""
    net = Net(32, torch.float32)
    method = trimol.CAGrad(net.trunk.parameters(), 32, solver="products", heads="weighted")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    trained(net, method, optimizer, [0, 1])
    with counted(monkeypatch) as passes:
        method(net.losses(net.batch(2)))
    assert method.info.products == passes.tangents == passes.backwards
    assert passes.tangents + passes.backwards + 1 <= 24


def test_cagrad_without_a_ball_needs_no_products():
    with pytest.raises(BadValue, match="solver must be 'exact' with c=0"):
        trimol.CAGrad(Net(3).trunk.parameters(), 3, c=0, solver="products")
