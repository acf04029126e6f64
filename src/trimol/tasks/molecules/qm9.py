"""QM9: eleven properties of small organic molecules, computed by density functional theory."""

import csv
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol._files import make_folder, writing
from trimol.data._files.datasets import BadData, MissingData, cache, locate
from trimol.tasks._settings import read_settings
from trimol.tasks.molecules.schnet import SchNet
from trimol.tasks.multitask import MultiTask, SingleInput
from trimol.tasks.task import Data, Settings

Array = NDArray[np.float64]
MOLECULES = 130_831
MOST_ATOMS = 29
NUMBERS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
EV = 27.211386245988  # electronvolts of a hartree
# The column of each property, what its numbers are multiplied by, and the unit that gives.
TARGETS: dict[str, tuple[str, float, str]] = {
    "mu": ("Dipole_debye", 1, "D"),
    "alpha": ("Polarizability_bohr3", 1, "a0³"),
    "homo": ("HOMO_au", EV, "eV"),
    "lumo": ("LUMO_au", EV, "eV"),
    "r2": ("R2_bohr2", 1, "a0²"),
    "zpve": ("ZPVE_au", EV, "eV"),
    "u0": ("InternalEnergy_0K_au", EV, "eV"),
    "u": ("InternalEnergy_298K_au", EV, "eV"),
    "h": ("Enthalphy_298K_au", EV, "eV"),
    "g": ("GibbsFreeEnergy_298K_au", EV, "eV"),
    "cv": ("Heatcapacity_Cv_cal_mol_K", 1, "cal/mol/K"),
}
PARTS = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")


class QM9(SingleInput):
    """Eleven properties of a molecule from its atoms and their places, by a small SchNet.

    The targets are standardised by the training molecules; the losses are mean squared errors of
    these. Metrics are mean absolute errors in the usual units (energies in electronvolts, whole
    ones, not those of atomisation). A tenth of the molecules is to choose on, a tenth to test; of
    all 130 831 it is 110 000, 10 000 and 10 831, as in the literature.

    Needs the three files of the package ``qm9pack`` (``pip install --no-deps qm9pack``, 104 MB), or
    the same in ``$TRIMOL_DATA/qm9``. They are read once and kept in the cache.

    Args:
        molecules: How many, drawn at random, always the same; None for all.
        width: Numbers of an atom.
        blocks: How often atoms hear their neighbours.
        seed: Names the split.
        only: Train and measure this property alone: the single-task baseline.
    """

    name: ClassVar[str] = "qm9"
    objectives: tuple[str, ...] = tuple(TARGETS)
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "qm9")
    at_once: int = 256

    def __init__(
        self,
        *,
        molecules: int | None = 10_000,
        width: int = 64,
        blocks: int = 3,
        seed: int = 0,
        only: str | None = None,
    ) -> None:
        self.goals = {name: {f"{name} MAE": "lower"} for name in self.objectives}
        super().__init__(only=only)
        if molecules is not None:
            whole_number("molecules", molecules, least=10)
        self.molecules = molecules
        self.width = whole_number("width", width, least=1)
        self.blocks = whole_number("blocks", blocks, least=1)
        self.seed = whole_number("seed", seed, least=0)

    def model(self) -> MultiTask:
        """A SchNet, and two layers for each property."""
        heads = {name: _head(2 * self.width) for name in self.objectives}
        return MultiTask(SchNet(self.width, blocks=self.blocks), heads)

    def data(self) -> Data:
        """Molecules, and the standardised targets of ``self.objectives``."""
        places = [list(TARGETS).index(name) for name in self.objectives]
        held = self._held
        made = {
            name: (x, *(((y - held.mean) / held.spread).float()[:, place] for place in places))
            for name, (x, y) in held.parts.items()
        }
        return Data(**made)

    @property
    def _held(self) -> "_Held":
        return _held(self.molecules, self.seed, os.environ.get("TRIMOL_DATA"))

    def loss(self, objective: str, output: Tensor, y: Tensor) -> Tensor:
        """The squared error."""
        return (output - y).square()

    def scores(self, objective: str, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The absolute error in the property's unit."""
        unit = float(self._held.spread[list(TARGETS).index(objective)])
        return {f"{objective} MAE": (output - y).abs() * unit}

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam."""
        return Adam(params, lr=lr)


def _head(width: int) -> nn.Module:
    half = width // 2
    return nn.Sequential(nn.Linear(width, half), nn.SiLU(), nn.Linear(half, 1), nn.Flatten(0))


class _Held(NamedTuple):
    """The parts, each with molecules and targets in their units; and what standardises these."""

    parts: dict[str, tuple[Tensor, Tensor]]
    mean: Tensor
    spread: Tensor


@lru_cache(2)
def _held(molecules: int | None, seed: int, home: str | None) -> _Held:
    x, y = kept(molecules)
    count = len(x)
    held = 10_000 if count == MOLECULES else count // 10
    train = 110_000 if count == MOLECULES else count - 2 * held
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    own, chosen, rest = order[:train], order[train:][:held], order[train + held :]
    cut = {"train": own, "validation": chosen, "test": rest}
    parts = {name: (x[rows], y[rows]) for name, rows in cut.items()}
    return _Held(parts, y[own].mean(0), y[own].std(0))


def kept(molecules: int | None) -> tuple[Tensor, Tensor]:
    """Molecules and targets, from the cache if they were read before.

    They are read again where the files have changed.
    """
    files = [_file(name) for name in PARTS]
    stamp = "-".join(str(path.stat().st_size) for path in files)
    path = cache() / "qm9" / f"{molecules or 'all'}-{stamp}.npz"
    if not path.is_file():
        make_folder(path.parent)
        with FileLock(path.with_suffix(".lock")):  # several runs ask for them at once
            if not path.is_file():
                x, y = read(files, molecules)
                with writing(path) as file:
                    np.savez(file, x=x, y=y)
    with np.load(path) as found:
        return torch.from_numpy(found["x"]), torch.from_numpy(found["y"])


def _file(name: str) -> Path:
    """Where a file is: with the other data sets, or in the installed package."""
    try:
        return locate("qm9", name)
    except MissingData:
        # Only found, not imported: it imports what need not be there.
        package = importlib.util.find_spec("qm9pack")
        for folder in (package.submodule_search_locations or []) if package else []:
            path = Path(folder, "data", name)
            if path.is_file():
                return path
        raise


def read(files: Iterable[Path], molecules: int | None) -> tuple[NDArray[np.float32], Array]:
    """Molecules (N × atoms × 4) and their targets, from files as ``qm9pack`` has them."""
    rows = list(_rows(files))
    wanted = len(rows) if molecules is None else molecules
    if not 0 < wanted <= len(rows):
        raise BadValue(f"molecules must be at most {len(rows)}, found {wanted}")
    chosen = [rows[n] for n in sorted(np.random.default_rng(0).permutation(len(rows))[:wanted])]
    columns = [(column, unit) for column, unit, _ in TARGETS.values()]
    y = [[float(row[column]) * unit for column, unit in columns] for row in chosen]
    return np.stack([_atoms(row) for row in chosen]), np.array(y)


def _rows(files: Iterable[Path]) -> Iterator[dict[str, str]]:
    wanted = ("Index", "Elements", "XYZ_Ang", *(column for column, _, _ in TARGETS.values()))
    for path in files:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.reader(lines)
            header = next(reader, [])
            missing = [name for name in wanted if name not in header]
            if missing:
                raise BadData(
                    f"{path} must have the column {missing[0]}, found {len(header)} others"
                )
            places = {name: header.index(name) for name in wanted}
            for row in reader:
                yield {name: row[place] for name, place in places.items()}


def _atoms(row: Mapping[str, str]) -> NDArray[np.float32]:
    """Atomic number and place of each atom, then zeros."""
    symbols = row["Elements"].strip("[]").replace("'", "").replace(" ", "").split(",")
    places = np.array(row["XYZ_Ang"].replace("[", "").replace("]", "").split(","), dtype=np.float32)
    unknown = [symbol for symbol in symbols if symbol not in NUMBERS]
    if unknown or len(places) != 3 * len(symbols) or len(symbols) > MOST_ATOMS:
        raise BadData(
            f"molecule {row['Index']} must have up to {MOST_ATOMS} atoms of {', '.join(NUMBERS)} "
            f"with three numbers each, found {len(symbols)} and {len(places)} numbers"
        )
    atoms = np.zeros((MOST_ATOMS, 4), np.float32)
    atoms[: len(symbols), 0] = [NUMBERS[symbol] for symbol in symbols]
    atoms[: len(symbols), 1:] = places.reshape(-1, 3)
    return atoms
