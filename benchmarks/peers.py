"""Where peers are inexact or depart from the paper: every row of docs/reference/peers.md, computed.

    python benchmarks/peers.py                             # prints the tables
    python benchmarks/peers.py --json results/peers.json   # then: python docs/measured.py

A row is a function: its docstring says what the peer does, what it returns is the figure. Measured
in float64 unless the row says otherwise. TorchJD comes from the ``bench`` extra, with cvxpy for its
CAGrad. LibMTL's releases lack the methods in question: its rows are read in its source, or computed
by its update written down from there.
"""

import argparse
import copy
import json
import statistics
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torchjd
import torchjd.aggregation as theirs
import torchjd.scalarization as scalarizers
from solvers import ours, peer
from torch import Tensor

import trimol
from trimol.runs._environment import environment, now
from trimol.simplex import min_norm

LIBMTL = "LibMTL at commit 4336804"
DEPARTURES: dict[str, Callable[[], str]] = {}
AGREEMENTS: dict[str, Callable[[], str]] = {}

Row = Callable[[], str]


def departs(peer: str) -> Callable[[Row], Row]:
    """Register a row on where a peer is inexact."""
    return lambda row: DEPARTURES.setdefault(peer, row)


def agrees(peer: str) -> Callable[[Row], Row]:
    """Register a row on where a peer is exact."""
    return lambda row: AGREEMENTS.setdefault(peer, row)


def jacobian(objectives: int, seed: int, kind: str = "plain") -> Tensor:
    """Random gradients: plain, with rows of very different lengths, or all short."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(objectives, 2 * objectives, generator=generator, dtype=torch.float64)
    if kind == "rows 1e±3":
        rows *= 10 ** (6 * torch.rand(objectives, 1, generator=generator, dtype=torch.float64) - 3)
    elif kind == "short":
        rows *= 1e-3
    return rows


def gaps(name: str, objectives: int, kind: str, trials: int = 60) -> tuple[float, float]:
    """Median and largest distance of their direction from ours, relative to ours (float64)."""
    mine, other = ours(name, objectives), peer(name)
    found = []
    for seed in range(trials):
        rows = jacobian(objectives, seed, kind)
        one, two = mine(rows) @ rows, other(rows) @ rows
        found.append(float((one - two).norm() / one.norm()))
    return statistics.median(found), max(found)


def size(number: float) -> str:
    """A relative error as people say it."""
    if number >= 10:
        return f"{number:.0f} times"
    if number >= 0.1:
        return f"{100 * number:.0f} %"
    return f"{100 * number:.2g} %" if number >= 1e-3 else f"{number:.0e}"


def both(name: str, kind: str) -> str:
    """Median and largest distance of their direction from ours, M = 4, 60 Gramians."""
    median, largest = gaps(name, 4, kind)
    return f"{size(median)} in the median, {size(largest)} at worst"


def uniform(objectives: int) -> Tensor:
    return torch.full((objectives,), 1 / objectives, dtype=torch.float64)


@departs("TorchJD MGDA")
def mgda() -> str:
    """a Frank–Wolfe that stops early"""
    return (
        f"direction off by {both('mgda', 'plain')}; rows scaled 1e±3: {both('mgda', 'rows 1e±3')}"
    )


@departs("TorchJD UPGrad")
def upgrad() -> str:
    """`reg_eps` added to the Gramian, absolute `norm_eps`"""
    conflicts, weighting = 0, theirs.UPGradWeighting()
    for seed in range(200):
        rows = jacobian(4, seed, "rows 1e±3")
        direction = weighting(rows @ rows.T) @ rows
        cosines = rows @ direction / rows.norm(dim=1) / direction.norm()
        conflicts += bool((cosines < -1e-6).any())
    return (
        f"direction off by {both('upgrad', 'plain')}; rows scaled 1e±3: "
        f"{both('upgrad', 'rows 1e±3')}, and it conflicts with an objective in {conflicts} of 200 "
        f"cases; gradients a thousand times shorter: {both('upgrad', 'short')}"
    )


@departs("TorchJD CAGrad")
def cagrad() -> str:
    """absolute `norm_eps`"""
    return (
        f"direction off by {both('cagrad', 'plain')}; rows scaled 1e±3: "
        f"{both('cagrad', 'rows 1e±3')}; gradients a thousand times shorter: "
        f"{both('cagrad', 'short')}"
    )


@departs("TorchJD FairGrad")
def fairgrad() -> str:
    """stops by an absolute residual"""
    return f"gradients a thousand times shorter: {both('fairgrad', 'short')}"


@departs("TorchJD IMTLG")
def imtlg() -> str:
    """opposed gradients"""
    rows = torch.tensor([[2.0], [-1.0]], dtype=torch.float64)
    said = theirs.IMTLGWeighting()(rows @ rows.T)
    exact = ours("imtlg", 2)(rows)
    return (
        f"gradients 2 and −1: weights {_listed(said)}, a direction of {(said @ rows).item():.2g}; "
        f"{_listed(exact)} gives {abs((exact @ rows).item()):.2g}"
    )


@departs("TorchJD AlignedMTL")
def alignedmtl() -> str:
    """a rank tolerance relative to the longest gradient (float32)"""
    rows = torch.tensor([[1.0, 0.0], [0.0, 1e-4]])
    said, exact = theirs.AlignedMTLWeighting()(rows @ rows.T), ours("alignedmtl", 2)(rows)
    return (
        "of two orthogonal gradients one is 1e-4 as long as the other: weights "
        f"{_listed(said)}, it is dropped; exact {_listed(exact)}"
    )


@departs("TorchJD CR-MOGM over its MGDA")
def crmogm() -> str:
    """inherits the early stop"""
    distances = []
    for seed in range(30):
        rows = jacobian(8, seed, "rows 1e±3")
        gramian = rows @ rows.T
        weighting = theirs.CRMOGMWeighting(theirs.MGDAWeighting(), alpha=0.9)
        exact, mine = min_norm(gramian), uniform(8)
        for _ in range(200):
            said = weighting(gramian)
            mine = 0.9 * mine + 0.1 * exact
        distances.append((said - mine).abs().sum().item())
    return (
        "M = 8, rows scaled 1e±3: λ off by "
        f"{statistics.median(distances):.2f} (L1) in the median of 30 after 200 steps"
    )


@departs("TorchJD FAMO, resumed")
def famo_resumed() -> str:
    """Adam's moments are not in `state_dict()`"""
    whole, half = scalarizers.FAMO(3), scalarizers.FAMO(3)
    generator = torch.Generator().manual_seed(0)
    pairs = torch.rand(50, 2, 3, generator=generator) + torch.tensor([0.5, 1.0, 2.0])
    for number, (before, after) in enumerate(pairs):
        if number == 30:
            half.load_state_dict(whole.state_dict())
        for scalarizer in (whole, half) if number >= 30 else (whole,):
            scalarizer(before)
            scalarizer.update(after)
    gap = (whole._w.softmax(0) - half._w.softmax(0)).abs().max().item()
    return f"20 steps after a resume at step 30 a weight differs by {gap:.2g}"


@departs("TorchJD FAMO, small losses")
def famo_small() -> str:
    """ε = 1e-8, absolute"""
    losses = torch.tensor([1e-8, 3e-8], requires_grad=True)
    (said,) = torch.autograd.grad(scalarizers.FAMO(2)(losses), losses)
    return f"losses 1e-8 and 3e-8: weights {_listed(said)} instead of (0.75, 0.25)"


@departs("TorchJD DWA")
def dwa() -> str:
    """its history is not in `state_dict()`"""
    scalarizer = scalarizers.DWA()
    for values in (torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.9])):
        scalarizer(values)
        scalarizer.step()
    return f"after two epochs `state_dict()` has {len(scalarizer.state_dict())} entries"


@departs("TorchJD SDMGrad")
def sdmgrad() -> str:
    """divides by the root of a clamped diagonal (float32)"""
    totals = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        matrix = torch.randn(3, 3, generator=generator)
        matrix -= torch.diag(matrix.diagonal() + matrix.diagonal().abs())  # a negative diagonal
        totals.append(theirs.SDMGradWeighting()(matrix).sum().item())
    wrong = sum(abs(total - 1) > 1e-3 for total in totals)
    return (
        f"independent batches with a negative diagonal: in {wrong} of 200 cases weights that do "
        f"not sum to one, down to {min(totals):.2f}"
    )


@departs("TorchJD MoDo, SDMGrad, GradVac, ExcessMTL, PCD")
def not_loaded() -> str:
    """`load_state_dict` into a fresh object"""
    kinds = {
        "MoDo": theirs.MoDoWeighting,
        "SDMGrad": theirs.SDMGradWeighting,
        "GradVac": theirs.GradVac,
        "ExcessMTL": theirs.ExcessMTL,
        "PCD": theirs.PCD,
    }
    said = {name: _loaded(kind) for name, kind in kinds.items()}
    groups = {how: [name for name, what in said.items() if what == how] for how in said.values()}
    listed = "; ".join(f"{', '.join(names)}: {how}" for how, names in groups.items())
    return f"{listed}; inside trimol they resume (`tests/integrations`)"


@departs("TorchJD MoDo, M = 1")
def modo_alone() -> str:
    """the projection of 1 − 10¹⁷"""
    said = theirs.MoDoWeighting(gamma=1.0, rho=0.0)(torch.tensor([[1e17]], dtype=torch.float64))
    return f"λ = {said.item():g}"


@departs("TorchJD Random")
def random() -> str:
    """draws from the global random numbers"""
    before = torch.get_rng_state()
    theirs.RandomWeighting()(torch.eye(3))
    changed = not torch.equal(before, torch.get_rng_state())
    torch.set_rng_state(before)
    return f"the global generator {'moves' if changed else 'stays'}; ours are of (seed, step)"


@departs("LibMTL MoCo")
def libmtl_moco() -> str:
    """a softmax of λ minus a falling step, instead of the projection"""
    ratios = []
    for seed in range(200):
        rows = jacobian(4, seed)
        gramian, weights = rows @ rows.T, uniform(4)
        for step in range(1, 1001):
            weights = torch.softmax(weights - 0.1 / step**0.5 * gramian @ weights, 0)
        best = min_norm(gramian)
        ratios.append(((weights @ gramian @ weights) / (best @ gramian @ best)).item())
    return (
        f"{LIBMTL}, its update on a constant Gramian, 1000 steps: ‖Yλ‖² "
        f"{statistics.median(ratios):.2g} times the optimum in the median of 200"
    )


@departs("LibMTL MoDo, SDMGrad")
def libmtl_samples() -> str:
    """three batches a step, where the other methods take one"""
    return f"read in the source of {LIBMTL}: its trainer"


@departs("LibMTL RLW")
def libmtl_rlw() -> str:
    """draws from the global random numbers"""
    return f"read in the source of {LIBMTL}: its weighting"


@agrees("IMTLG")
def same_imtlg() -> str:
    """plain gradients, M = 4"""
    return _apart(gaps("imtlg", 4, "plain")[1])


@agrees("AlignedMTL")
def same_alignedmtl() -> str:
    """plain gradients, M = 4"""
    return _apart(gaps("alignedmtl", 4, "plain")[1])


@agrees("FairGrad")
def same_fairgrad() -> str:
    """plain gradients, M = 4"""
    return _apart(gaps("fairgrad", 4, "plain")[1])


@agrees("UPGrad")
def same_upgrad() -> str:
    """plain gradients, M = 4; its epsilons set to 0 and 1e-13"""
    projector = torchjd.linalg.QuadprogProjector(norm_eps=0.0, reg_eps=1e-13)
    weighting = theirs.UPGradWeighting(projector=projector)
    return _apart(max(_distances(ours("upgrad", 4), weighting)))


@agrees("UW")
def same_uw() -> str:
    """four steps"""
    peer, losses = scalarizers.UW(3).double(), _losses()
    optimizer = torch.optim.SGD(peer.parameters(), lr=0.3)
    mine = trimol.UW([losses], 3, lr=0.3)
    for step in range(4):
        optimizer.zero_grad()
        peer((1 + step) * losses.detach()).backward()
        optimizer.step()
        mine((1 + step) * losses)
    said = 0.5 * (-peer.log_var.detach()).exp()
    return _apart(((said - mine.weights).norm() / said.norm()).item())


@agrees("STCH")
def same_stch() -> str:
    """the gradient, over its sum (theirs prefers 1/M: our μ is M times theirs)"""
    losses = _losses()
    (said,) = torch.autograd.grad(scalarizers.STCH(mu=1.0)(losses), losses)
    (mine,) = torch.autograd.grad(trimol.STCH([losses], 3, mu=3.0)(losses * 1.0), losses)
    return _apart((said / said.sum() - mine / mine.sum()).norm().item())


@agrees("DWA")
def same_dwa() -> str:
    """the gradient after two epochs (theirs is M times ours)"""
    losses, peer = _losses(), scalarizers.DWA()
    mine = trimol.DWA([losses], 3, period=1)
    for factor in (1.0, torch.tensor([0.9, 0.5, 0.7], dtype=torch.float64), 0.3):
        (said,) = torch.autograd.grad(peer(factor * losses), losses)
        (own,) = torch.autograd.grad(mine(factor * losses), losses)
        peer.step()
    return _apart((said / said.sum() - own / own.sum()).norm().item())


def _losses() -> Tensor:
    return torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64, requires_grad=True)


def _apart(distance: float) -> str:
    return f"{distance:.0e}" if distance else "0"


def _distances(mine: Any, other: Any) -> Iterator[float]:
    for seed in range(60):
        rows = jacobian(4, seed)
        one, two = mine(rows) @ rows, other(rows @ rows.T) @ rows
        yield ((one - two).norm() / one.norm()).item()


def _loaded(kind: Any) -> str:
    """What comes of putting a used object's state into a fresh one."""
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(3, 3, 3, generator=generator) + torch.eye(3)
    used = kind()
    for matrix in matrices[:2]:
        used(matrix)
    fresh = kind()
    try:
        fresh.load_state_dict(copy.deepcopy(used.state_dict()))
    except RuntimeError:
        return "raises"
    torch.manual_seed(0)
    expected = used(matrices[2])
    torch.manual_seed(0)
    return "resumes" if torch.equal(fresh(matrices[2]), expected) else "goes on differently"


def _listed(numbers: Tensor) -> str:
    return f"({', '.join(f'{number:.3g}' for number in numbers.tolist())})"


def rows_of(registered: dict[str, Row]) -> list[dict[str, str]]:
    """The rows of a table, computed."""
    return [
        {"peer": peer, "what": str(row.__doc__), "figure": row()}
        for peer, row in registered.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Where peers are inexact.")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    peer("cagrad")  # needs cvxpy: said before anything is computed
    found: dict[str, Any] = {
        "study": "peers",
        "rows": rows_of(DEPARTURES),
        "agreements": rows_of(AGREEMENTS),
        "command": "python benchmarks/peers.py",
        "created": now(),
        "environment": environment() | {"torchjd": version("torchjd")},
    }
    for row in [*found["rows"], *found["agreements"]]:
        print(f"| {row['peer']} | {row['what']} | {row['figure']} |")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
