"""Replicas that step together against ordinary methods that step alone, on the same gradients."""

import copy
from contextlib import nullcontext
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covering import in_turn
from trimol import methods
from trimol.gradients import Evidence
from trimol.methods._replicated import Jacobians, replicated
from trimol.testing._state import assert_same

M, D, STEPS = 3, 5, 12

CASES = {
    "static": ("static", {}),
    "mgda": ("mgda", {}),
    "mgda-rho": ("mgda", {"rho": 0.3}),
    "smg": ("smg", {}),
    "modo": ("modo", {"gamma": 0.2, "rho": 0.1}),
    "modo-three": ("modo", {"gamma": 0.2, "draws": 3}),
    "modo-simultaneous": ("modo", {"gamma": 0.2, "simultaneous": True}),
    "modo-every": ("modo", {"gamma": 0.2, "every": 3}),
    "moco": ("moco", {"beta": 0.3}),
    "moco-rho": ("moco", {"beta": 0.7, "rho": 0.2}),
    "moco-gamma": ("moco", {"beta": 0.3, "gamma": 0.1, "rho": 0.1, "zero_start": True}),
    "crmogm": ("crmogm", {"alpha": 0.7, "rho": 0.1}),
    "cagrad": ("cagrad", {"c": 0.4}),
    "pcgrad": ("pcgrad", {"seed": 3}),
    "upgrad": ("upgrad", {}),
    "imtlg": ("imtlg", {}),
    "alignedmtl": ("alignedmtl", {"scale_mode": "rmse"}),
    "nashmtl": ("nashmtl", {}),
    "fairgrad": ("fairgrad", {"alpha": 1.5}),
    "sdmgrad": ("sdmgrad", {"gamma": 0.2, "inner": 2}),
    "sdmgrad-authors": (
        "sdmgrad",
        {"gamma": 10.0, "inner": 20, "momentum": 0.5, "normalize": True},
    ),
    "mgda-normalised": ("mgda", {"normalize": "l2"}),
    "uw": ("uw", {"lr": 0.1}),
    "imtll": ("imtll", {"lr": 0.1}),
    "gls": ("gls", {}),
    "softadapt": ("softadapt", {"beta": 2.0, "period": 2}),
    "relobralo": ("relobralo", {"alpha": 0.5, "rho": 0.5, "seed": 3}),
    "lra": ("lra", {"alpha": 0.3}),
    "ntk": ("ntk", {}),
    "config": ("config", {}),
    "mconfig": ("mconfig", {"beta1": 0.5}),
    "mconfig-direction": ("mconfig", {"beta2": None, "every": 2}),
    "dualproj": ("dualproj", {}),
    "gradvac": ("gradvac", {"beta": 0.3, "seed": 3}),
    "graddrop": ("graddrop", {"seed": 3}),
    "excessmtl": ("excessmtl", {"lr": 0.5, "warmup": 2}),
    "stch": ("stch", {"mu": 0.5}),
    "tchebycheff": ("tchebycheff", {}),
    "pbi": ("pbi", {"theta": 2.0}),
    "epo": ("epo", {}),
    "pmgda": ("pmgda", {"sigma": 0.5}),
    "hvgrad": ("hvgrad", {}),
    "dwa": ("dwa", {"period": 2}),
    "famo": ("famo", {"beta": 0.1}),
    "famo-plain": ("famo", {"beta": 0.1, "adam": False}),
    "gradnorm": ("gradnorm", {"lr": 0.05}),
    "gradnorm-sequential": ("gradnorm", {"lr": 0.05, "simultaneous": False}),
    "preference": ("preference", {"bounds": {0: 0.9}, "kappa": 9.0}),
    "preference-progress": ("preference", {"progress": {0: 0.9, 1: 0.5}}),
    "rgw": ("rgw", {"seed": 4}),
    "fairgrad-length": ("fairgrad", {"length": "mean gradient"}),
    "modo-length-every": ("modo", {"gamma": 0.2, "every": 3, "length": "mean gradient"}),
    "moco-length": ("moco", {"length": "mean gradient", "max_norm": 1.0}),
    "modo-clipped": ("modo", {"gamma": 0.2, "draws": 3, "max_norm": 0.4}),
}


def test_all_methods_but_those_of_a_representation_are_cases():
    alone_only = {n for n in methods.names() if methods.get(n).needs == "representation"}
    assert {name for name, _ in CASES.values()} == set(methods.names()) - alone_only


def gradients(replicas, draws, objectives=M, size=D):
    """Some gradients, (steps, draws, R, M, d)."""
    generator = torch.Generator().manual_seed(0)
    shape = (STEPS, draws, replicas, objectives, size)
    return torch.randn(shape, generator=generator, dtype=torch.float64) + 0.3


def losses_at(step, replicas=(), objectives=M):
    """Some losses above zero, which differ from step to step."""
    generator = torch.Generator().manual_seed(1000 + step)
    own = torch.rand(objectives, generator=generator, dtype=torch.float64) + 0.5
    return own.expand(*replicas, objectives)


def alone(name, rows, **hyperparameters):
    """λ and directions of an ordinary method on losses whose gradients are ``rows``."""
    x = torch.zeros(rows.shape[-1], dtype=rows.dtype, requires_grad=True)
    method = methods.get(name)([x], rows.shape[2], **hyperparameters)
    found, directions = [], []
    for t, step in enumerate(rows):
        used = step if method.due else step.mean(0, keepdim=True)
        x.grad = None
        value = losses_at(t, objectives=rows.shape[2])
        method(*[row @ x + value for row in used]).backward()
        found.append(method.weights)
        directions.append(x.grad)
    return torch.stack(found), torch.stack(directions)


def together(method, rows, first=0):
    found, directions = [], []
    for t, step in enumerate(rows, first):
        used = step if method.due else step.mean(0, keepdim=True)
        losses = losses_at(t, step.shape[1:2], step.shape[2])
        directions.append(method.direction(Jacobians(used, losses)))
        found.append(method.weights)
    return torch.stack(found), torch.stack(directions)


def assert_equal_to_alone(name, method, rows, **each):
    weights, directions = together(method, rows)
    assert weights.dtype == torch.float64
    for r in range(rows.shape[2]):
        own = {key: values[r] for key, values in each.items()}
        expected = alone(name, rows[:, :, r], **own)
        # Batched products round otherwise than single ones, how depends on the CPU: 9e-12 was seen.
        torch.testing.assert_close(weights[:, r], expected[0], rtol=0, atol=5e-11)
        torch.testing.assert_close(directions[:, r], expected[1], rtol=0, atol=5e-11)


@pytest.mark.parametrize(
    ("case", "objectives", "replicas"),
    [(*pair, replicas) for pair, replicas in in_turn(product(CASES, [2, 3, 6]), [1, 5])],
)
def test_every_replica_is_the_ordinary_method(case, objectives, replicas):
    name, hyperparameters = CASES[case]
    method = replicated(name, replicas=replicas, objectives=objectives, **hyperparameters)
    # Weights of dependent gradients are not unique where they may be negative.
    rows = gradients(replicas, method.draws, objectives, size=8 if name == "imtlg" else D)
    each = {key: [value] * replicas for key, value in hyperparameters.items()}
    assert_equal_to_alone(name, method, rows, **each)


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("modo", {"gamma": [0.0, 0.1, 2.0], "rho": [0.0, 0.5, 0.0]}),
        ("mgda", {"rho": [0.0, 0.1, 10.0]}),
        ("moco", {"beta": [0.1, 0.5, 1.0], "rho": [0.0, 0.1, 1.0]}),
        ("moco", {"gamma": [0.0, 0.1, 1.0], "beta": [0.1, 0.5, 1.0]}),
        ("crmogm", {"alpha": [0.0, 0.5, 1.0], "rho": [0.1, 0.0, 1.0]}),
        ("cagrad", {"c": [0.0, 0.4, 1.0]}),
        ("fairgrad", {"alpha": [0.5, 1.0, 2.0]}),
        ("sdmgrad", {"gamma": [0.0, 0.1, 1.0], "lam": [0.0, 0.3, 3.0]}),
        ("stch", {"mu": [0.1, 1.0, 10.0]}),
        ("pbi", {"theta": [0.0, 1.0, 10.0]}),
        ("epo", {"eps": [1e-4, 0.1, 10.0]}),
        ("pmgda", {"sigma": [0.0, 0.5, 1.0], "tol": [0.01, 0.3, 0.01]}),
        ("dwa", {"temperature": [0.5, 1.0, 2.0]}),
        ("famo", {"beta": [0.0, 0.1, 1.0], "gamma": [0.1, 0.0, 0.0]}),
        ("gradnorm", {"alpha": [0.0, 0.5, 1.5], "lr": [0.1, 0.0, 0.01]}),
        ("nashmtl", {"max_norm": [0.1, 1.0, 10.0]}),
        ("pcgrad", {"max_norm": [0.1, 1.0, 10.0]}),
    ],
)
def test_a_tensor_holds_one_hyperparameter_a_replica(name, each):
    tensors = {key: torch.tensor(values, dtype=torch.float64) for key, values in each.items()}
    method = replicated(name, replicas=3, objectives=M, **tensors)
    rows = gradients(3, method.draws)
    assert_equal_to_alone(name, method, rows, **each)


@pytest.mark.parametrize("name", ["pcgrad", "rgw"])
def test_a_seed_for_each_replica(name):
    method = replicated(name, replicas=3, objectives=M, seed=torch.tensor([0, 7, 2**40 + 1]))
    assert_equal_to_alone(name, method, gradients(3, 1), seed=[0, 7, 2**40 + 1])


@pytest.mark.parametrize("case", CASES)
def test_weigh_changes_nothing(case):
    """New values are returned: only `commit` takes them over."""
    name, hyperparameters = CASES[case]
    rows = gradients(1, 3)[:, :, 0]
    x = torch.zeros(D, dtype=torch.float64, requires_grad=True)
    method = methods.get(name)([x], M, **hyperparameters)
    for t, step in enumerate(rows[:4]):
        each = [[row @ x + losses_at(t) for row in step[: method.draws]] for _ in range(3)]
        before = copy.deepcopy(method.state_dict())
        told = [method.weigh(Evidence(losses, [x], M)) for losses in each[:2]]
        assert_same(method.state_dict(), before)
        first, second = (one if isinstance(one, dict) else {"weights": one} for one in told)
        assert_same(first, second)
        method(*each[2])


def test_weights_of_each_replica():
    start = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64)
    method = replicated("modo", replicas=2, objectives=3, weights=start, gamma=0.1)
    rows = gradients(2, 2)
    assert_equal_to_alone("modo", method, rows, weights=start, gamma=[0.1, 0.1])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=12, max_size=12),
    st.integers(-6, 6),
    st.sampled_from(["mgda", "modo"]),
)
def test_nasty_gradients(entries, exponent, name):
    """Zero, equal, opposite and badly scaled gradients: as good as the ordinary method's."""
    rows = torch.tensor(entries, dtype=torch.float64).reshape(1, 2, 3, 2).repeat(2, 1, 1, 1)
    rows[:, :, 0] *= 10.0**exponent
    method = replicated(name, replicas=2, objectives=3)
    rows = rows[:1] if method.draws == 1 else rows
    direction = method.direction(list(rows))
    for r in range(2):
        own = rows[None, :, r]
        expected = alone(name, own)[1][0]
        scale = float(own.abs().max()) + 1e-300
        # λ need not be unique, the direction is.
        torch.testing.assert_close(direction[r] / scale, expected / scale, rtol=0, atol=1e-9)


class Lazy(Jacobians):
    """Evidence of a trainer that never forms Jacobians for MoDo."""

    def jacobian(self):
        raise AssertionError("not asked for")

    gramian = jacobian


def test_evidence_that_computes_what_is_asked_for():
    rows = gradients(4, 2)
    first = replicated("modo", replicas=4, objectives=M, gamma=0.3)
    second = replicated("modo", replicas=4, objectives=M, gamma=0.3)
    for step in rows:
        torch.testing.assert_close(second.direction(Lazy(step)), first.direction(list(step)))
    torch.testing.assert_close(second.weights, first.weights)


@pytest.mark.parametrize(
    "case", ["mgda", "modo", "moco", "crmogm", "pcgrad", "dwa", "famo", "gradnorm", "sdmgrad"]
)
def test_resuming_is_exact(case):
    name, hyperparameters = CASES[case]
    whole = replicated(name, replicas=3, objectives=M, **hyperparameters)
    rows = gradients(3, whole.draws)
    expected = together(whole, rows)
    first = replicated(name, replicas=3, objectives=M, **hyperparameters)
    together(first, rows[:5])
    second = replicated(name, replicas=3, objectives=M, **hyperparameters)
    second.load_state_dict(first.state_dict())
    found = together(second, rows[5:], first=5)
    assert torch.equal(found[0], expected[0][5:])
    assert torch.equal(found[1], expected[1][5:])


@pytest.mark.parametrize(
    "case", ["mgda", "modo", "moco", "crmogm", "upgrad", "sdmgrad", "gradnorm", "preference"]
)
def test_a_replica_with_nan_keeps_its_weights_and_harms_no_other(case):
    name, hyperparameters = CASES[case]
    method = replicated(name, replicas=2, objectives=M, **hyperparameters)
    rows = gradients(2, method.draws)
    rows[[0, 3], :, 0, 0, 0] = float("nan")
    before = method.weights[0]
    with pytest.warns(RuntimeWarning, match=r"NaN or infinity in replicas \[0\]"):
        first = method.direction(Jacobians(rows[0], losses_at(0, (2,))))
    assert torch.equal(method.weights[0], before)
    assert first[0].isnan().any()
    assert first[1].isfinite().all()
    weights, directions = together(method, rows[1:], first=1)
    assert method.skipped.tolist() == [2, 0]
    for r in range(2):
        with pytest.warns(RuntimeWarning) if r == 0 else nullcontext():
            expected = alone(name, rows[:, :, r], **hyperparameters)
        torch.testing.assert_close(weights[:, r], expected[0][1:], rtol=0, atol=1e-12)
        torch.testing.assert_close(
            directions[:, r], expected[1][1:], rtol=0, atol=1e-12, equal_nan=True
        )


def test_draws_and_needs():
    method = replicated("modo", replicas=2, objectives=2, draws=3)
    assert (method.draws, method.needs, method.replicas) == (3, "product", 2)
    assert not replicated("static", replicas=2, objectives=2).due


def test_bad_arguments():
    with pytest.raises(ValueError, match="replicas must be a whole number of at least 1, found 0"):
        replicated("mgda", replicas=0, objectives=2)
    with pytest.raises(ValueError, match=r"gamma must be one value, .* found shape \(3,\)"):
        replicated("modo", replicas=2, objectives=2, gamma=torch.ones(3))
    with pytest.raises(ValueError, match="gamma must be a finite number of at least 0, found -1"):
        replicated("modo", replicas=2, objectives=2, gamma=torch.tensor([1.0, -1.0]))
    with pytest.raises(NotImplementedError, match="run replicated, found 'mgdaub'"):
        replicated("mgdaub", replicas=2, objectives=2)
    with pytest.raises(ValueError, match=r"draws must be the same .* found \[2, 3\]"):
        replicated("modo", replicas=2, objectives=2, draws=torch.tensor([2, 3]))


def test_evidence_without_losses():
    method = replicated("uw", replicas=2, objectives=3)
    with pytest.raises(ValueError, match=r"evidence must tell the losses, .* found none"):
        method.direction([torch.zeros(2, 3, 4)])


def test_bad_evidence():
    method = replicated("modo", replicas=2, objectives=3)
    with pytest.raises(ValueError, match="must hold 2 tensors, one per draw, found 1"):
        method.direction([torch.zeros(2, 3, 4)])
    with pytest.raises(ValueError, match=r"shape \(2, 3, d\), found \(3, 2, 4\)"):
        method.direction([torch.zeros(3, 2, 4)] * 2)
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3\), found \(1, 3\)"):
        method.load_state_dict(replicated("modo", replicas=1, objectives=3).state_dict())
