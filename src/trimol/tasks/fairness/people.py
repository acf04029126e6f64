"""Adult, COMPAS, German credit, Credit: will it be yes, and do both groups get it alike?"""

import os
from abc import abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from trimol._checks import one_of, whole_number
from trimol.data._files.datasets import locate
from trimol.tasks import _tabular as tabular
from trimol.tasks._tabular import Columns, Encoder
from trimol.tasks.fairness.fair import Fair, network
from trimol.tasks.fairness.gaps import Fairness, Relaxation
from trimol.tasks.task import Data

Split = Literal["random", "official"]
SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}


class People(Fair):
    """Rows of a table about people, split and encoded.

    The group itself is not among the inputs. All statistics of the inputs (means, spreads, which
    words are common) are of training rows alone.

    Args:
        fairness: ``"parity"``, ``"opportunity"`` or ``"odds"`` (:mod:`trimol.tasks.fairness.gaps`).
        group: Which groups are compared, such as ``"sex"``; each task says which it has.
        relaxation: ``"rates"``, differences of mean chances; or ``"sums"``, as was published.
        sharpness: k of the rates: the larger, the nearer are chances to decisions.
        hidden: Width of the two hidden layers.
        split: ``"random"``: 70 % to train, 10 % to choose on, 20 % to test; or ``"official"``,
            where there is one: its test rows, and a tenth of the others to choose on.
        seed: Names the split. None: each run splits by its own seed.
    """

    groups: ClassVar[tuple[str, ...]] = ("sex",)
    official: ClassVar[bool] = False

    def __init__(
        self,
        *,
        fairness: Fairness = "opportunity",
        group: str = "sex",
        relaxation: Relaxation = "rates",
        sharpness: float = 1.0,
        hidden: int = 128,
        split: Split = "random",
        seed: int | None = 0,
    ) -> None:
        super().__init__(fairness=fairness, relaxation=relaxation, sharpness=sharpness)
        one_of("group", group, self.groups)
        one_of("split", split, get_args(Split) if self.official else ("random",))
        self.group = group
        self.split: Split = split
        self.hidden = whole_number("hidden", hidden, least=1)
        self.seed = None if seed is None else whole_number("seed", seed, least=0)

    @abstractmethod
    def table(self) -> Columns:
        """All rows; those of the official test part have ``test`` in the column ``part``."""

    @abstractmethod
    def told(self, rows: Columns) -> tuple[Tensor, Tensor]:
        """Label and group of each row, 0 and 1."""

    @abstractmethod
    def inputs(self) -> tuple[list[str], list[str]]:
        """Which columns are inputs: numbers, and categories."""

    def model(self) -> nn.Module:
        """A network with two hidden layers."""
        return network(self.data().train[0].shape[1], self.hidden)

    def data(self) -> Data:
        """The split that ``seed`` names; the first one where each run has its own."""
        return self.data_for(0)

    def data_for(self, seed: int) -> Data:
        """The split of the run with this seed."""
        named = seed if self.seed is None else self.seed
        return _encoded(type(self), self.group, self.split, named, os.environ.get("TRIMOL_DATA"))


@lru_cache(8)
def _encoded(kind: type[People], group: str, split: Split, seed: int, home: str | None) -> Data:
    """The parts of a data set, encoded by the training rows; held for the last few splits."""
    task = kind(group=group, split=split, seed=seed)
    rows = task.table()
    label, member = task.told(rows)
    parts = _parts(rows, split, seed)
    encoder = Encoder(tabular.chosen(rows, parts["train"]), *task.inputs())
    made = {
        name: (encoder(tabular.chosen(rows, own)), label[own], member[own])
        for name, own in parts.items()
    }
    return Data(**made)


def _parts(rows: Columns, split: Split, seed: int) -> dict[str, Tensor]:
    """The numbers of the rows of each part."""
    if split == "random":
        return tabular.split_by(seed, len(next(iter(rows.values()))), SHARES)
    held, rest = (torch.from_numpy(np.flatnonzero(rows["part"] == p)) for p in ("test", "train"))
    own = tabular.split_by(seed, len(rest), {"train": 0.9, "validation": 0.1})
    return {**{name: rest[places] for name, places in own.items()}, "test": held}


def _file(dataset: str, name: str) -> Path:
    return locate(f"tabular/{dataset}", name)


class Adult(People):
    """48 842 people of a census: income above 50 000 dollars; sexes, or white and other races.

    Inputs: five numbers and eight categories (``fnlwgt``, the weight of a row in the census, is
    left out), less the column of the group. ``relationship`` (husband, wife) tells most people's
    sex all the same. Needs the files of ``trimol data get adult``.
    """

    name: ClassVar[str] = "adult"
    batch_size: int = 1024
    groups: ClassVar[tuple[str, ...]] = ("sex", "race")
    official: ClassVar[bool] = True

    def table(self) -> Columns:
        """The rows of both files."""
        return adult_rows()

    def told(self, rows: Columns) -> tuple[Tensor, Tensor]:
        """Income above 50 000; women, or races that are not white."""
        label = tabular.told("income", rows["income"], [">50K", ">50K."], ["<=50K", "<=50K."])
        if self.group == "race":
            return label, torch.from_numpy((rows["race"] != "White").astype(np.int64))
        return label, tabular.told("sex", rows["sex"], ["Female"], ["Male"])

    def inputs(self) -> tuple[list[str], list[str]]:
        """All columns but the census weight and the group's."""
        words = [name for name in ADULT[:-1] if name not in (*ADULT_NUMBERS, "fnlwgt", self.group)]
        return list(ADULT_NUMBERS), words


def adult_rows() -> Columns:
    """The rows of both of Adult's files; the column ``part`` says of which."""
    tables = []
    for part, file in {"train": "adult.data", "test": "adult.test"}.items():
        rows = tabular.read(_file("adult", file), ADULT)
        tables.append({**rows, "part": np.full(len(rows["age"]), part)})
    return tabular.joined(*tables)


class Compas(People):
    """6172 defendants: not charged again within two years; sexes, or African-Americans and others.

    Rows as ProPublica chose them. Inputs are what was known of a person at the screening: age,
    the counts of earlier offences, the degree of the charge, and sex or race where it is not the
    group. Neither the scores of the tool COMPAS nor ``is_recid``, which nearly is the label, nor
    the time in jail, which was not over. Needs the file of ``trimol data get compas``.
    """

    name: ClassVar[str] = "compas"
    batch_size: int = 1024
    groups: ClassVar[tuple[str, ...]] = ("sex", "race")

    def table(self) -> Columns:
        """The rows that ProPublica's analysis kept."""
        rows = tabular.read(_file("compas", "compas-scores-two-years.csv"))
        days = tabular.number("days_b_screening_arrest", rows["days_b_screening_arrest"])
        kept = (np.abs(days) <= 30) & (rows["is_recid"] != "-1")
        kept &= (rows["c_charge_degree"] != "O") & (rows["score_text"] != "N/A")
        return tabular.chosen(rows, kept)

    def told(self, rows: Columns) -> tuple[Tensor, Tensor]:
        """Not charged again; men, or African-Americans."""
        label = tabular.told("two_year_recid", rows["two_year_recid"], ["0"], ["1"])
        if self.group == "race":
            return label, torch.from_numpy((rows["race"] == "African-American").astype(np.int64))
        return label, tabular.told("sex", rows["sex"], ["Male"], ["Female"])

    def inputs(self) -> tuple[list[str], list[str]]:
        """What was known at the screening."""
        counts = ["juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
        other = [name for name in self.groups if name != self.group]
        return ["age", *counts], ["c_charge_degree", *other]


class German(People):
    """1000 applicants for a loan: a good risk; sexes, or up to 25 years and older.

    Inputs: seven numbers and thirteen categories, less the column of the group. That of the sex
    holds marital status, too: it goes with it. Needs the file of ``trimol data get german``.
    """

    name: ClassVar[str] = "german"
    batch_size: int = 512
    groups: ClassVar[tuple[str, ...]] = ("sex", "age")

    def table(self) -> Columns:
        """All rows."""
        return tabular.read(_file("german", "german.data"), GERMAN, separator=" ")

    def told(self, rows: Columns) -> tuple[Tensor, Tensor]:
        """A good risk; women, or people up to 25."""
        label = tabular.told("risk", rows["risk"], ["1"], ["2"])
        if self.group == "age":
            young = tabular.number("age", rows["age"]) <= 25
            return label, torch.from_numpy(young.astype(np.int64))
        women, men = ["A92", "A95"], ["A91", "A93", "A94"]
        return label, tabular.told("personal status", rows["sex"], women, men)

    def inputs(self) -> tuple[list[str], list[str]]:
        """All columns but the group's."""
        numbers = [name for name in GERMAN_NUMBERS if name != self.group]
        words = [name for name in GERMAN[:-1] if name not in (*GERMAN_NUMBERS, self.group)]
        return numbers, words


class Credit(People):
    """30 000 holders of credit cards: the next payment is made; the sexes.

    Inputs: fourteen numbers (limit, age, bills, payments) and eight categories (education,
    marriage, months of delay). Needs ``tabular/credit/credit.csv``; ``trimol data get credit`` says
    where to get it.
    """

    name: ClassVar[str] = "credit"
    batch_size: int = 1024

    def table(self) -> Columns:
        """All rows."""
        return tabular.read(_file("credit", "credit.csv"))

    def told(self, rows: Columns) -> tuple[Tensor, Tensor]:
        """Payment; men, of whom more fail to pay."""
        label = tabular.told("default", rows["default.payment.next.month"], ["0"], ["1"])
        return label, tabular.told("SEX", rows["SEX"], ["1"], ["2"])

    def inputs(self) -> tuple[list[str], list[str]]:
        """All columns but the number of the row and the sex."""
        bills, paid = ([f"{kind}_AMT{n}" for n in range(1, 7)] for kind in ("BILL", "PAY"))
        delays = [f"PAY_{n}" for n in (0, 2, 3, 4, 5, 6)]
        return ["LIMIT_BAL", "AGE", *bills, *paid], ["EDUCATION", "MARRIAGE", *delays]


# The columns of files that do not name them, and which of them are numbers.
ADULT_NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
# fmt: off
ADULT = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)
GERMAN_NUMBERS = ("months", "amount", "rate", "residence", "age", "credits", "dependants")
GERMAN = (
    "account", "months", "history", "purpose", "amount", "savings", "employment", "rate", "sex",
    "others", "residence", "property", "age", "plans", "housing", "credits", "job", "dependants",
    "telephone", "foreign", "risk",
)
# fmt: on
