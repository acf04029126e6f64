"""Income and marital status of the same people: the pair of the mixture-of-experts literature."""

import os
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol._checks import one_of, whole_number
from trimol.data._files.datasets import locate
from trimol.tasks import _tabular as tabular
from trimol.tasks._tabular import Columns
from trimol.tasks.fairness.people import ADULT_NUMBERS, adult_rows
from trimol.tasks.recommenders.labels import Labels, Network
from trimol.tasks.task import Batch, Data

Source = Literal["census", "adult"]
BUCKETS = 20  # of equal size, that a number is put into


class Census(Labels):
    """Income above 50 000 dollars, and never married; from 40 columns of a census, or Adult's 12.

    Every column is one bag of one word: a category, or the twentieth of the training rows that a
    number is in. Words that fewer than 10 training rows have are one. The columns of the two labels
    (and the weight of a row in the census) are left out. Training rows are those of the official
    file, less a tenth to choose on; test rows those of the official test file.

    Census-Income (KDD) is for you to fetch: ``trimol data get census`` says how. ``source="adult"``
    is the same pair of labels from Adult's smaller files.

    Args:
        source: ``"census"`` or ``"adult"``.
        network: ``"shared"`` (shared bottom) or ``"mmoe"`` (multi-gate mixture of experts).
        width: Numbers of an embedding.
        hidden: Width of the shared layer, or of each expert.
        experts: How many, for ``"mmoe"``.
        sparse: Whether the table's gradients are sparse, and SparseAdam moves it.
        seed: Names which rows are to choose on.
        only: Train and measure this objective alone.
    """

    name: ClassVar[str] = "census"
    objectives: tuple[str, ...] = ("income", "marital")

    def __init__(
        self,
        *,
        source: Source = "census",
        network: Network = "shared",
        width: int = 8,
        hidden: int = 64,
        experts: int = 4,
        sparse: bool = True,
        seed: int = 0,
        only: str | None = None,
    ) -> None:
        super().__init__(
            network=network, width=width, hidden=hidden, experts=experts, sparse=sparse, only=only
        )
        one_of("source", source, get_args(Source))
        self.source: Source = source
        self.seed = whole_number("seed", seed, least=0)

    def words(self) -> tuple[int, int]:
        """All words of the training rows, each column's own; a bag a column."""
        words, data = self._coded
        return words, data.train[0].shape[1]

    def data(self) -> Data:
        """The official parts; labels of ``self.objectives`` only."""
        data = self._coded[1]
        return Data(*(self._own(part) for part in (data.train, data.test, data.validation)))

    @property
    def _coded(self) -> tuple[int, Data]:
        return _coded(self.source, self.seed, os.environ.get("TRIMOL_DATA"))

    def _own(self, part: Batch | None) -> Batch:
        assert part is not None
        x, *labels = part
        return x, *(labels[Census.objectives.index(name)] for name in self.objectives)


@lru_cache(4)
def _coded(source: Source, seed: int, home: str | None) -> tuple[int, Data]:
    """How many words there are, and all rows as words."""
    rows, numbers, labels = _census() if source == "census" else _adult()
    held, rest = (torch.from_numpy(np.flatnonzero(rows["part"] == p)) for p in ("test", "train"))
    own = tabular.split_by(seed, len(rest), {"train": 0.9, "validation": 0.1})
    parts = {**{name: rest[places] for name, places in own.items()}, "test": held}
    words, x = _words(rows, numbers, parts["train"])
    made = {name: (x[p], *(label[p] for label in labels)) for name, p in parts.items()}
    return words, Data(**made)


def _words(rows: Columns, numbers: tuple[str, ...], train: Tensor) -> tuple[int, Tensor]:
    """Every column as the places of its words in one table, by what the training rows have."""
    total, columns = 1, []
    for name, column in rows.items():
        if name == "part":
            continue
        told = _bucket(name, column, train) if name in numbers else column
        known = tabular.common(told[train.numpy()])
        # Word 0 of each column is any other than those known.
        columns.append(total + tabular.codes(told, known))
        total += 1 + len(known)
    return total, torch.stack(columns, 1)[..., None].to(torch.int32)


def _bucket(name: str, column: NDArray[np.str_], train: Tensor) -> NDArray[np.str_]:
    """A number as the name of the bucket that it is in; buckets of training rows, equal in size."""
    values = tabular.number(name, column)
    own = values[train.numpy()]
    edges = np.unique(np.nanquantile(own, np.linspace(0, 1, BUCKETS + 1)[1:-1]))
    return np.where(np.isnan(values), "?", np.searchsorted(edges, values).astype(str))


def _adult() -> tuple[Columns, tuple[str, ...], tuple[Tensor, Tensor]]:
    rows = adult_rows()
    income = tabular.told("income", rows.pop("income"), [">50K", ">50K."], ["<=50K", "<=50K."])
    marital = rows.pop("marital-status") == "Never-married"
    del rows["fnlwgt"]
    return rows, ADULT_NUMBERS, (income, torch.from_numpy(marital.astype(np.int64)))


def _census() -> tuple[Columns, tuple[str, ...], tuple[Tensor, Tensor]]:
    tables = []
    for part, file in {"train": "data", "test": "test"}.items():
        path = locate("tabular/census", f"census-income.{file}.gz")
        rows = tabular.read(path, CENSUS)
        tables.append({**rows, "part": np.full(len(rows["age"]), part)})
    rows = tabular.joined(*tables)
    income = tabular.told("income", rows.pop("income"), ["50000+."], ["- 50000."])
    marital = rows.pop("marital_stat") == "Never married"
    del rows["instance_weight"]
    return rows, CENSUS_NUMBERS, (income, torch.from_numpy(marital.astype(np.int64)))


CENSUS_NUMBERS = (
    "age",
    "wage_per_hour",
    "capital_gains",
    "capital_losses",
    "stock_dividends",
    "num_emp",
    "weeks_worked",
)
# fmt: off
CENSUS = (
    "age", "class_worker", "det_ind_code", "det_occ_code", "education", "wage_per_hour",
    "hs_college", "marital_stat", "major_ind_code", "major_occ_code", "race", "hisp_origin", "sex",
    "union_member", "unemp_reason", "full_or_part_emp", "capital_gains", "capital_losses",
    "stock_dividends", "tax_filer_stat", "region_prev_res", "state_prev_res", "det_hh_fam_stat",
    "det_hh_summ", "instance_weight", "mig_chg_msa", "mig_chg_reg", "mig_move_reg", "mig_same",
    "mig_prev_sunbelt", "num_emp", "fam_under_18", "country_father", "country_mother",
    "country_self", "citizenship", "own_or_self", "vet_question", "vet_benefits", "weeks_worked",
    "year", "income",
)
# fmt: on
