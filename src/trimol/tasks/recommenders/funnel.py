r"""A funnel that is made up: shown, clicked, bought, with the true chances known.

.. math::
    P(\text{click}) = \sigma(a_c + s\, (\alpha_c + \beta_c + u_c^\top i_c)), \qquad
    P(\text{buy} \mid \text{click}) = \sigma(a_b + s\, (\alpha_b + \beta_b + u_b^\top i_b))

Every user has a habit α and a taste u for clicking, and others for buying; every item a quality β
and traits i. Those of buying are r times those of clicking and √(1 − r²) times others
(r = ``relation``). Whether an item would be bought is seen where it was clicked, and nowhere else.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trimol._checks import positive, whole_number
from trimol._failures import BadValue
from trimol.tasks._binary import auc, calibration_error, score_sums
from trimol.tasks.recommenders.labels import Labels, Network
from trimol.tasks.recommenders.shards import Shards, write_shards
from trimol.tasks.task import Batch, Data

TASTES = 2  # numbers of a taste
HISTORY = 5  # items that a user liked before
BLOCK = 1 << 16  # rows that are drawn at once, and of a file
CLICK, BUY = -2.0, -1.0  # log-odds of an average row


class Funnel(Labels):
    """Click and conversion, made up; the chances that made the labels are known.

    A row is a user, an item and the items that the user liked before (a bag of five). The test
    rows, a fifth, have labels like the training rows: of conversion where there was a click.

    Args:
        rows: How many, training and test rows together.
        users: How many users.
        items: How many items.
        relation: r, from −1 to 1: how far buying follows clicking.
        strength: s: how far tastes decide.
        network: ``"shared"`` (shared bottom) or ``"mmoe"`` (multi-gate mixture of experts).
        width: Numbers of an embedding.
        hidden: Width of the shared layer, or of each expert.
        experts: How many, for ``"mmoe"``.
        sparse: Whether the table's gradients are sparse, and SparseAdam moves it.
        shards: A folder of files, made there once, from which rows are read as they are needed;
            None: all rows are held in memory.
        seed: Names all that is made up.
        only: Train and measure this objective alone.

    Example:
        >>> task = Funnel(rows=1000, users=50, items=20)
        >>> x, click, conversion = task.data().train
        >>> x.shape, bool((conversion[click == 0] == -1).all())
        (torch.Size([800, 3, 5]), True)
    """

    name: ClassVar[str] = "funnel"
    objectives: tuple[str, ...] = ("click", "conversion")

    def __init__(
        self,
        *,
        rows: int = 100_000,
        users: int = 1000,
        items: int = 200,
        relation: float = 0.5,
        strength: float = 1.0,
        network: Network = "shared",
        width: int = 8,
        hidden: int = 64,
        experts: int = 4,
        sparse: bool = True,
        shards: str | None = None,
        seed: int = 0,
        only: str | None = None,
    ) -> None:
        super().__init__(
            network=network, width=width, hidden=hidden, experts=experts, sparse=sparse, only=only
        )
        self.rows = whole_number("rows", rows, least=10)
        self.users = whole_number("users", users, least=1)
        self.items = whole_number("items", items, least=HISTORY)
        self.strength = positive("strength", strength)
        if not -1 <= relation <= 1:
            raise BadValue(f"relation must be from -1 to 1, found {relation}")
        self.relation, self.shards = float(relation), shards
        self.seed = whole_number("seed", seed, least=0)

    def words(self) -> tuple[int, int]:
        """No word, all users, all items; the user, the item and the history."""
        return 1 + self.users + self.items, 3

    @cached_property
    def _world(self) -> dict[str, Tensor]:
        """Tastes and traits of clicking and buying, and what users liked before."""
        random = torch.Generator().manual_seed(self.seed)
        other = (1 - self.relation**2) ** 0.5
        world = {}
        for kind, count in (("user", self.users), ("item", self.items)):
            click, free = torch.randn(2, count, TASTES + 1, generator=random, dtype=torch.float64)
            world[f"{kind} click"] = _factors(kind, click)
            world[f"{kind} buy"] = _factors(kind, self.relation * click + other * free)
        liking = world["user click"] @ world["item click"].T
        world["history"] = liking.topk(HISTORY, 1).indices
        return world

    def log_odds(self, x: Tensor) -> dict[str, Tensor]:
        """The true log-odds of each objective, of a conversion whether or not there was a click."""
        user, item = x[:, 0, 0].long() - 1, x[:, 1, 0].long() - 1 - self.users
        found = {}
        for name, kind, base in (("click", "click", CLICK), ("conversion", "buy", BUY)):
            fits = self._world[f"user {kind}"][user] * self._world[f"item {kind}"][item]
            found[name] = base + self.strength * fits.sum(1)
        return found

    def best(self, part: Batch) -> dict[str, float]:
        """What the true chances reach on some rows: no model is better, but for luck.

        An AUC is the expected one over all labels that the measured rows could have had; that of a
        conversion is over the rows that were clicked, as a model's is.
        """
        truth, found = self.log_odds(part[0][:]), {}
        for name, column in zip(self.objectives, part[1:], strict=True):
            y = column[:]
            known = self.known(name, y)
            z = truth[name][known]
            found[f"{name} AUC"] = auc(score_sums(z, z.sigmoid()))
            found[f"{name} calibration error"] = calibration_error(score_sums(z, y[known]))
        return found

    def data(self) -> Data:
        """Four fifths to train, the others to test; in memory, or training rows from files."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        held = self.rows // 5
        train, test = self._drawn("train", self.rows - held), self._drawn("test", held)
        if self.shards is None:
            return Data(train=_together(train), test=_together(test))
        told = (self.rows, self.users, self.items, self.relation, self.strength, self.seed)
        folder = Path(self.shards, f"funnel-{'-'.join(map(str, (*told, *self.objectives)))}")
        kept = Shards(folder) if Shards.there(folder) else write_shards(folder, train)
        return Data(train=kept.columns, test=_together(test))

    def _drawn(self, part: str, rows: int) -> Iterator[Batch]:
        """Rows in blocks, each from a stream of random numbers of its own."""
        for block, first in enumerate(range(0, rows, BLOCK)):
            named = np.random.SeedSequence([self.seed, part == "test", block])
            random = torch.Generator().manual_seed(int(named.generate_state(1)[0]))
            yield self._block(min(BLOCK, rows - first), random)

    def _block(self, count: int, random: torch.Generator) -> Batch:
        user = torch.randint(self.users, (count,), generator=random)
        item = torch.randint(self.items, (count,), generator=random)
        x = torch.zeros(count, 3, HISTORY, dtype=torch.int32)
        x[:, 0, 0], x[:, 1, 0] = 1 + user, 1 + self.users + item
        x[:, 2] = 1 + self.users + self._world["history"][user]
        chances = {name: z.sigmoid() for name, z in self.log_odds(x).items()}
        luck = torch.rand(2, count, generator=random, dtype=torch.float64)
        click = (luck[0] < chances["click"]).to(torch.int8)
        bought = (luck[1] < chances["conversion"]).to(torch.int8)
        labels = {"click": click, "conversion": bought.masked_fill(click == 0, -1)}
        return x, *(labels[name] for name in self.objectives)


def _factors(kind: str, drawn: Tensor) -> Tensor:
    """Tastes, and the habit beside a 1 that meets the other side's: α + β + uᵀi is one product."""
    ones, tastes = torch.ones_like(drawn[:, :1]), drawn[:, 1:] * TASTES**-0.25
    ends = (drawn[:, :1], ones) if kind == "user" else (ones, drawn[:, :1])
    return torch.cat([tastes, *ends], 1)


def _together(blocks: Iterator[Batch]) -> Batch:
    return tuple(torch.cat(columns) for columns in zip(*blocks, strict=True))
