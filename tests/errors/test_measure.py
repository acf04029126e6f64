"""`measure`: closed forms, nothing disturbed, misuse refused in one line."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trimol
from trimol import Errors, measure
from trimol._generators import Generators
from trimol.errors._measure import short

exact = settings(derandomize=True, deadline=None, max_examples=60)

# The paper's strongly convex toy: f_m(x) = ½ b1m xᵀx − b2m zᵀx, with gradient b1m x − b2m E[z].
B1 = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
B2 = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)


def quadratic(x: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda z: 0.5 * B1 * (x @ x) - B2 * (z @ x).mean()


def gradients(x: Tensor, z: Tensor) -> Tensor:
    return torch.outer(B1, x.detach()) - torch.outer(B2, z.mean(0))


def test_the_strongly_convex_toy_in_closed_form() -> None:
    generator = torch.Generator().manual_seed(1)
    train, test = 1 + torch.randn(2, 20, 2, generator=generator, dtype=torch.float64)
    x = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    weights, rho = torch.tensor([0.2, 0.5, 0.3]), 0.1
    found = measure(
        quadratic(x), [x], train=train.split(6), test=test.split(7), weights=weights, rho=rho
    )
    G, G_test = gradients(x, train), gradients(x, test)
    best = trimol.simplex.min_norm(G @ G.T)
    best_test = trimol.simplex.min_norm(G_test @ G_test.T)
    avoiding = trimol.simplex.min_norm(G @ G.T, rho)
    difference = weights.double() - avoiding
    assert found.opt == pytest.approx((best @ G).norm().item(), rel=1e-12)
    assert found.pop == pytest.approx((best_test @ G_test).norm().item(), rel=1e-12)
    assert found.gen == found.pop - found.opt  # type: ignore[operator]
    assert found.conflict == pytest.approx((difference @ G).square().sum().item(), rel=1e-12)
    assert found.conflict_weight == pytest.approx(difference.square().sum().item(), rel=1e-12)
    assert found.min_norm == pytest.approx(avoiding.tolist())
    assert found.norms == pytest.approx(G.norm(dim=1).tolist())
    assert found.test_norms == pytest.approx(G_test.norm(dim=1).tolist())
    assert found.losses == pytest.approx(quadratic(x)(train).tolist())
    assert found.test_losses == pytest.approx(quadratic(x)(test).tolist())
    torch.testing.assert_close(found.gramian, G @ G.T)


@exact
@given(st.integers(0, 10_000), st.floats(0, 3), st.floats(0, 3))
def test_the_gap_is_within_its_bound(seed: int, spread: float, shift: float) -> None:
    """|R_gen| ≤ ‖∇F_test − ∇F_S‖_F, the paper's first proposition."""
    random_ = torch.Generator().manual_seed(seed)
    train, test = spread * torch.randn(2, 12, 2, generator=random_, dtype=torch.float64)
    x = torch.randn(2, generator=random_, dtype=torch.float64, requires_grad=True)
    found = measure(quadratic(x), [x], train=[train], test=[test + shift])
    apart = gradients(x, train) - gradients(x, test + shift)
    assert found.bound == pytest.approx(apart.norm().item(), abs=1e-12)
    assert found.gen is not None
    assert abs(found.gen) <= found.bound + 1e-12


def test_the_bound_is_attained() -> None:
    # One objective, gradients in line: the gap is the whole difference.
    x = torch.tensor([3.0], requires_grad=True)
    found = measure(
        lambda z: [(x - z).square().mean()], [x], train=[torch.ones(1)], test=[torch.zeros(1)]
    )
    assert (found.gen, found.bound) == (2.0, 2.0)


def test_direction_and_cosines() -> None:
    x = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    z = torch.ones(5, 2, dtype=torch.float64)
    weights = torch.tensor([0.2, 0.5, 0.3])
    found = measure(quadratic(x), [x], train=[z], weights=weights, rho=0.1)
    G = gradients(x, z)
    expected = (weights.double() - torch.tensor(found.min_norm)) @ G
    assert found.direction is not None
    torch.testing.assert_close(found.direction, expected)
    assert found.conflict == pytest.approx(found.direction.square().sum().item())
    unit = G / G.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found.cosines, unit @ unit.T)
    assert found.conflicting == 0.0
    assert measure(quadratic(x), [x], train=[z]).direction is None


def test_rho_is_for_the_conflict_only() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    losses = quadratic_pair(x)
    plain = measure(losses, [x], train=[torch.ones(3)])
    assert measure(losses, [x], train=[torch.ones(3)], rho=10.0).opt == plain.opt


def quadratic_pair(x: Tensor) -> Callable[[Tensor], Tensor]:
    """(x − z)² and (x + z)²: Pareto stationary exactly between −E[z] and E[z]."""
    return lambda z: torch.stack([(x - z).square().mean(), (x + z).square().mean()])


@exact
@given(st.floats(-1, 1), st.integers(1, 10))
def test_zero_to_rounding_on_the_pareto_set(point: float, size: int) -> None:
    x = torch.tensor([point], dtype=torch.float64, requires_grad=True)
    z = torch.linspace(0.5, 1.5, 11, dtype=torch.float64)
    found = measure(quadratic_pair(x), [x], train=z.split(size), test=z.split(4))
    assert found.opt == pytest.approx(0, abs=1e-14)
    assert found.gen == pytest.approx(0, abs=1e-14)


@exact
@given(st.floats(1, 50))
def test_outside_the_pareto_set(point: float) -> None:
    x = torch.tensor([point], dtype=torch.float64, requires_grad=True)
    found = measure(quadratic_pair(x), [x], train=[torch.ones(2).double()], weights=[0.5, 0.5])
    assert found.opt == pytest.approx(2 * (point - 1))
    # ½ + ½ pulls with 2x, (1, 0) with 2(x − 1): they differ by 2, wherever x is.
    assert found.conflict == pytest.approx(4)


def test_one_objective() -> None:
    x = torch.tensor([2.0, 0.0], requires_grad=True)
    found = measure(lambda z: [(x - z).square().sum()], [x], train=[torch.ones(1)], weights=[1.0])
    assert found.opt == pytest.approx(8**0.5)
    assert (found.conflict, found.min_norm) == (0, (1.0,))


def test_none_where_not_asked() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    found = measure(quadratic_pair(x), [x], train=[torch.ones(3)])
    assert (found.pop, found.gen, found.conflict, found.conflict_weight) == (None,) * 4
    assert (found.test_losses, found.test_gramian, found.test_norms) == (None,) * 3


def test_no_weight_distance_without_rho() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    ask = {"train": [torch.ones(3)], "weights": [0.5, 0.5]}
    assert measure(quadratic_pair(x), [x], **ask).conflict_weight is None
    assert measure(quadratic_pair(x), [x], **ask, rho=1e-3).conflict_weight is not None


def test_in_a_loop_as_in_the_readme() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    data = TensorDataset(torch.randn(50, 3), torch.randn(50, 2))

    def losses(batch: Any) -> Tensor:
        x, y = batch
        error = model(x) - y
        return torch.stack([error.square().mean(), error.abs().mean()])

    modo = trimol.MoDo(model.parameters(), objectives=2, gamma=0.1)
    loader = DataLoader(data, batch_size=16)
    found = measure(losses, model.parameters(), train=loader, test=loader, weights=modo.weights)
    assert found.opt == found.pop
    assert found.gen == 0


# --- nothing disturbed ----------------------------------------------------------------------------


def network() -> tuple[nn.Sequential, Callable[[Tensor], Tensor]]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    return model, lambda x: torch.stack([model(x).square().mean(), model(x).abs().mean()])


def test_gradients_and_values_untouched() -> None:
    model, losses = network()
    model.eval()
    losses(torch.randn(5, 3)).sum().backward()
    before = {
        n: (p.detach().clone(), p.grad.clone())
        for n, p in model.named_parameters()
        if p.grad is not None
    }
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    measure(losses, model.parameters(), train=torch.randn(9, 3).split(4))
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name][0])
        assert p.grad is not None
        assert torch.equal(p.grad, before[name][1])
    assert all(torch.equal(b, buffers[n]) for n, b in model.named_buffers())


@pytest.mark.parametrize("training", [True, False])
def test_mode_left_as_found(training: bool) -> None:
    model, losses = network()
    model.train(training)
    model[1].eval()
    modes = [module.training for module in model.modules()]
    measure(losses, model.parameters(), train=torch.randn(9, 3).split(4))
    assert [module.training for module in model.modules()] == modes


def test_random_state_put_back() -> None:
    model, losses = network()
    own, of_loader = np.random.default_rng(0), torch.Generator().manual_seed(0)

    def noisy(x: Tensor) -> Tensor:
        return losses(x) * (random.random() + np.random.rand() + own.random())

    loader: Any = DataLoader(
        torch.randn(10, 3),  # type: ignore[arg-type]
        batch_size=4,
        shuffle=True,
        generator=of_loader,
    )
    states = Generators(own, of_loader)
    first = measure(noisy, model.parameters(), train=loader)
    assert states.now().state_dict() == states.state_dict()
    # Which also makes it repeatable, dropout and all.
    model.load_state_dict(network()[0].state_dict())
    states.put_back()
    assert measure(noisy, model.parameters(), train=loader) == first


def test_works_where_gradients_are_off() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    with torch.no_grad():
        assert measure(quadratic_pair(x), [x], train=[torch.ones(3)]).opt == 2
        assert not torch.is_grad_enabled()


def test_no_graph_is_kept() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    found = measure(
        quadratic_pair(x), [x], train=[torch.ones(3)], weights=x.new_ones(2) * x.detach()
    )
    assert not found.gramian.requires_grad


def test_memory_is_that_of_one_batch() -> None:
    """No batch's graph is alive when the next is computed."""
    x = torch.tensor([2.0], requires_grad=True)
    alive: list[int] = []
    count = 0

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            nonlocal count
            count += 1
            ctx.keep = Keep()
            return value.clone()

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> Tensor:  # type: ignore[override]
            return upstream

    class Keep:
        def __del__(self) -> None:
            nonlocal count
            count -= 1

    def losses(z: Tensor) -> Tensor:
        alive.append(count)
        return quadratic_pair(Counted.apply(x))(z)

    measure(losses, [x], train=[torch.ones(3)] * 5)
    assert max(alive) <= 1


# --- misuse ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": []}, "train must hold at least one batch, found none"),
        ({"test": []}, "test must hold at least one batch, found none"),
        ({"weights": [1.0]}, "weights must have 2 entries, one per objective, found 1"),
        ({"weights": [[0.5, 0.5]]}, "weights must be finite numbers in one dimension"),
        ({"weights": [0.5, float("nan")]}, "weights must be finite numbers in one dimension"),
        ({"rho": -1.0}, "rho must be a finite number of at least 0, found -1.0"),
        ({"rho": float("inf")}, "rho must be a finite number of at least 0, found inf"),
        ({"rho": "1"}, "rho must be a finite number of at least 0, found '1'"),
        ({"params": []}, "params must hold at least one tensor"),
        ({"test": [torch.full((2,), float("nan"))]}, "objective 0 .* batch 0 of test"),
    ],
)
def test_values_that_will_not_do(change: dict[str, Any], message: str) -> None:
    x = torch.tensor([2.0], requires_grad=True)
    right = {"losses": quadratic_pair(x), "params": [x], "train": [torch.ones(3)]}
    with pytest.raises(ValueError, match=message):
        measure(**{**right, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": torch.ones(2)}, "losses must be a function .*, found Tensor"),
        ({"train": torch.ones(3)}, "train must be an iterable of batches .*, found Tensor"),
        ({"train": None}, "train must be an iterable of batches .*, found NoneType"),
        (
            {"test": TensorDataset(torch.ones(3))},
            "test must be an iterable of batches .*, found TensorDataset",
        ),
    ],
)
def test_types_that_will_not_do(change: dict[str, Any], message: str) -> None:
    x = torch.tensor([2.0], requires_grad=True)
    right = {"losses": quadratic_pair(x), "params": [x], "train": [torch.ones(3)]}
    with pytest.raises(TypeError, match=message):
        measure(**{**right, **change})


def test_weights_are_checked_on_the_first_batch() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    seen = []

    def losses(z: Tensor) -> Tensor:
        seen.append(z)
        return quadratic_pair(x)(z)

    with pytest.raises(ValueError, match="weights must have 2 entries"):
        measure(losses, [x], train=[torch.ones(3)] * 10, weights=[1.0, 2.0, 3.0])
    assert len(seen) == 1


def test_number_of_losses_must_not_change() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    with pytest.raises(ValueError, match="as many losses on every batch, found 2 and 3"):
        measure(lambda z: x * z, [x], train=[torch.ones(2), torch.ones(3)])


def test_an_objective_without_parameters_is_no_stationary_point() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    other = torch.tensor([2.0], requires_grad=True)
    with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
        measure(lambda z: torch.stack([x.sum(), other.sum()]), [x], train=[torch.ones(1)])


def test_losses_without_a_graph() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    with pytest.raises(ValueError, match="losses must require grad"):
        measure(lambda z: x.detach(), [x], train=[torch.ones(1)])


# --- how it looks ---------------------------------------------------------------------------------


def errors(**values: float | None) -> Errors:
    known = dict.fromkeys(["pop", "gen", "conflict", "conflict_weight"]) | values
    return Errors(
        losses=(1.0,),
        test_losses=None,
        min_norm=(1.0,),
        gramian=torch.eye(1),
        test_gramian=None,
        **known,  # type: ignore[arg-type]
    )


def test_prints_one_line() -> None:
    shown = errors(opt=1.9e-3, pop=2.1e-3, gen=2e-4, conflict=4e-5)
    assert str(shown) == "opt 1.9e-3 · pop 2.1e-3 · gen 2e-4 · conflict 4e-5"
    assert str(errors(opt=0.0)) == "opt 0"
    assert str(errors(opt=1.0, conflict=2.0, conflict_weight=0.25)).endswith("conflict weight 0.25")


def test_equal_if_the_errors_are() -> None:
    assert errors(opt=1.0) == errors(opt=1.0)
    assert errors(opt=1.0) != errors(opt=2.0)
    assert len({errors(opt=1.0), errors(opt=1.0)}) == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-2e-4, "-2e-4"),
        (0.0099, "9.9e-3"),
        (0.5, "0.5"),
        (99.4, "99"),
        (123.4, "123"),
        (12345.0, "1.2e4"),
        (9.96e-5, "1e-4"),
        (1e-300, "1e-300"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_short_numbers(value: float, shown: str) -> None:
    assert short(value) == shown


@exact
@given(st.floats(-1e6, 1e6))
def test_short_numbers_are_right_to_two_digits(value: float) -> None:
    assert float(short(value)) == pytest.approx(value, rel=0.051, abs=1e-320)


def test_weights_of_any_sum_are_compared_on_the_simplex() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)

    def losses(z: Tensor) -> Tensor:
        return torch.stack([(x - z).square().sum(), (x + 2 * z).square().sum()])

    train = [torch.ones(1, dtype=torch.float64)]
    one, ten = (
        trimol.measure(losses, [x], train=train, weights=weights)
        for weights in ([0.25, 0.75], [2.5, 7.5])
    )
    assert one.conflict is not None
    assert one.conflict > 0.1
    assert ten.conflict == pytest.approx(one.conflict, rel=1e-12)
    near, below = (
        trimol.measure(losses, [x], train=train, weights=weights).conflict
        for weights in ([-5.0, 5.0 + 1e-9], [-5.0, 5.0 - 1e-9])
    )
    assert near == pytest.approx(below, rel=1e-6)  # no matter on which side of zero their sum is
    still = trimol.measure(losses, [x], train=train, weights=[0.0, 0.0])  # as ConFIG may say
    assert still.conflict == pytest.approx(still.opt**2, rel=1e-12)


def test_a_difference_within_rounding_is_none() -> None:
    """The same samples in other batches: neither the gap nor its bound is a finding."""
    data = torch.randn(21, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    found = measure(quadratic(x), [x], train=data.split(4), test=data.flip(0).split(5))
    assert found.opt > 0
    assert (found.gen, found.bound) == (0.0, 0.0)
