"""Our step beside the one of the authors' code, written out by hand: what the step size becomes.

``docs/reference/methods.md`` tells the factors. Here each is computed: the direction that the
authors' code gives to the shared parameters, from its formula, is the factor times ours.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import flat_gradient
from scipy.optimize import least_squares, minimize, nnls
from table import TABLE

from trimol.testing import Linear

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "methods.md"
M, D = 3, 5
C, LAM, GAMMA, MU, BETA = 0.4, 0.3, 0.05, 0.7, 0.5
LOSSES = np.array([0.8, 1.9, 0.4])


def gradients(seed=0, count=M):
    """Gradients of which some oppose each other."""
    rows = np.random.default_rng(seed).normal(size=(count, D))
    rows[1] -= 1.2 * rows[0]
    return rows


def on_simplex(v):
    """The nearest point of the simplex: the threshold by bisection."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(v - low, 0)


def best_on_simplex(objective):
    start = np.full(M, 1 / M)
    total = {"type": "eq", "fun": lambda w: 1 - w.sum()}
    options = {"ftol": 1e-15, "maxiter": 1000}
    return minimize(objective, start, bounds=[(0, 1)] * M, constraints=total, options=options).x


def min_norm(J):
    return best_on_simplex(lambda w: w @ J @ J.T @ w) @ J


def moco(J):
    tracked = BETA * J
    weights = np.full(M, 1 / M)
    return on_simplex(weights - GAMMA * (tracked @ tracked.T @ weights)) @ tracked


def modo(J):
    """Both draws are J: their sum, not their mean."""
    weights = np.full(M, 1 / M)
    return on_simplex(weights - GAMMA * J @ J.T @ weights) @ (J + J)


def sdmgrad(J):
    G, w = J @ J.T, np.full(M, 1 / M)
    w = on_simplex(w - GAMMA * (G @ w + LAM * G.mean(1)))
    return M * (w @ J + LAM * J.mean(0)) / (1 + LAM)


def pcgrad(J):
    """Two gradients: no order to choose."""
    first, second = J
    overlap = min(first @ second, 0)
    return first - overlap / (second @ second) * second + second - overlap / (first @ first) * first


def cagrad(J):
    G, mean = J @ J.T, J.mean(0)
    radius = C * np.linalg.norm(mean)
    w = best_on_simplex(lambda w: w @ G.mean(1) + radius * math.sqrt(w @ G @ w))
    return M * (mean + radius * w @ J / np.linalg.norm(w @ J)) / (1 + C**2)


def fair(alpha):
    def weights(J):
        found = least_squares(
            lambda a: J @ J.T @ a - a ** (-1 / alpha),
            np.full(M, 1 / M),
            bounds=(1e-9, np.inf),
            **dict.fromkeys(("ftol", "xtol", "gtol"), 1e-15),
        )
        return found.x

    return weights


def nash(J):
    direction = fair(1.0)(J) @ J
    return direction * min(1, 1 / np.linalg.norm(direction))


def famo(J):
    share = np.full(M, 1 / M) / LOSSES
    return share / share.sum() @ J


def upgrad(J):
    return np.mean([g + nnls(J.T, -g)[0] @ J for g in J], 0)


def aligned(J):
    U, singular, Vt = np.linalg.svd(J, full_matrices=False)
    return (singular.min() * U @ Vt).sum(0)


def imtlg(J):
    units = J / np.linalg.norm(J, axis=1, keepdims=True)
    away, turned = J[0] - J[1:], units[0] - units[1:]
    rest = J[0] @ turned.T @ np.linalg.inv(away @ turned.T)
    return np.array([1 - rest.sum(), *rest]) @ J


def stch(J):
    shares = np.exp(LOSSES / MU)
    return M * shares / shares.sum() @ J


@dataclass(frozen=True)
class Case:
    """What the authors' code makes of a Jacobian, and by how much that is longer than ours."""

    told: str  # as in the docs
    factor: float
    theirs: Callable
    settings: dict = field(default_factory=dict)
    count: int = M


def geometric(J):
    return LOSSES.prod() ** (1 / M) / M * (J / LOSSES[:, None]).sum(0)


def config(J):
    d = np.linalg.pinv(J / np.linalg.norm(J, axis=1)[:, None]).sum(1)
    u = d / np.linalg.norm(d)
    return (J @ u).sum() * u


def dualproj(J):
    """The projection's dual: nonnegative least squares of J[added] on what conflicts."""
    mean = J.mean(0)
    return mean + nnls(J.T, -mean)[0] @ J


CASES = {
    "static": Case("M", M, lambda J: J.sum(0)),
    "mgda": Case("1 (nash-mtl: M)", 1, min_norm),
    "modo": Case("2 (three draws: 1)", 2, modo, {"gamma": GAMMA}),
    "smg": Case("1", 1, min_norm),
    "moco": Case("1", 1, moco, {"beta": BETA, "gamma": GAMMA, "zero_start": True}),
    "crmogm": Case("1", 1, lambda J: 0.9 * J.mean(0) + 0.1 * min_norm(J), {"alpha": 0.9}),
    "mgdaub": Case("1", 1, min_norm),
    "gradnorm": Case("1", 1, lambda J: J.sum(0)),
    "pcgrad": Case("1", 1, pcgrad, count=2),
    "cagrad": Case("M/(1 + c²)", M / (1 + C**2), cagrad, {"c": C}),
    "sdmgrad": Case("M", M, sdmgrad, {"gamma": GAMMA, "lam": LAM}),
    "famo": Case("1", 1, famo),
    "fairgrad": Case("M", M, lambda J: M * fair(2.0)(J) @ J, {"alpha": 2.0}),
    "nashmtl": Case("1", 1, nash),
    "upgrad": Case("1", 1, upgrad),
    "alignedmtl": Case("M", M, aligned, {"preference": [1 / M] * M}),
    "imtlg": Case("1", 1, imtlg),
    "dwa": Case("M", M, lambda J: J.sum(0)),
    "uw": Case("1", 1, lambda J: J.sum(0) / 2, {"weights": [0.5] * M}),
    "imtll": Case("1", 1, lambda J: J.sum(0)),
    "gls": Case("1", 1, geometric),
    "config": Case("1", 1, config),
    "dualproj": Case("1", 1, dualproj, {"preference": [1 / M] * M}),
    "excessmtl": Case("M", M, lambda J: J.sum(0)),
    "stch": Case("M", M, stch, {"mu": MU}),
}
# Drawn at random; formulas whose own tests compute them; lengths of our own; ours.
FORMULAS = dict.fromkeys(
    [
        *("rgw", "tchebycheff", "pbi", "epo", "softadapt", "relobralo", "lra", "mconfig"),
        *("gradvac", "graddrop"),
    ],
    "1",
)
NOT_COMPARED = FORMULAS | dict.fromkeys(["pmgda", "hvgrad", "preference", "ntk"], "—")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_authors_step_is_the_factor_times_ours(name, seed):
    case, J = CASES[name], gradients(seed, CASES[name].count)
    problem = Linear(torch.from_numpy(J), torch.from_numpy(LOSSES[: len(J)]))
    method = TABLE[name].make(problem.parameters(), len(J), **case.settings)
    TABLE[name].call(method, problem.step(method.draws)).backward()
    ours = flat_gradient(problem.parameters()).numpy()
    theirs = case.theirs(J)
    error = np.linalg.norm(theirs - case.factor * ours) / np.linalg.norm(theirs)
    assert error < 1e-5, f"theirs {theirs}, ours {ours} times {case.factor}"


def test_three_draws_are_no_sum():
    J = gradients()
    problem = Linear(torch.from_numpy(J), torch.from_numpy(LOSSES))
    method = TABLE["modo"].make(problem.parameters(), M, gamma=GAMMA, draws=3)
    method(*problem.step(3).losses).backward()
    ours = flat_gradient(problem.parameters())
    torch.testing.assert_close(ours, torch.from_numpy(modo(J) / 2))


def test_a_factor_before_clipping():
    """Their step clips M d to 1: ours, M times as large, clips d to 1/M."""
    J = gradients()
    theirs = CASES["fairgrad"].theirs(J)
    theirs = theirs / np.linalg.norm(theirs)
    problem = Linear(torch.from_numpy(J), torch.from_numpy(LOSSES))
    method = TABLE["fairgrad"].make(problem.parameters(), M, alpha=2.0, max_norm=1 / M)
    method(*problem.step(1).losses).backward()
    ours = M * flat_gradient(problem.parameters()).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_docs_tell_these_factors():
    row = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
    told = dict(row.findall(DOCS.read_text(encoding="utf-8")))
    names = {row.make.__name__: name for name, row in TABLE.items()}
    want = {name: case.told for name, case in CASES.items()} | NOT_COMPARED
    assert {names[method]: factor for method, factor in told.items()} == want
