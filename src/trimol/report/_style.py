"""What both drawings share: a colour and a marker for each method on the whole page."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trimol._extras import require

# M. Okabe, K. Ito, Color Universal Design (2008), without the yellow, which white paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# By their names in plotly and in matplotlib. Five and seven have no common factor: 35 pairs.
MARKERS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("x", "x"),
)
GRID = "#e6e6e6"
# Orange for conflict, blue for agreement: everybody tells these apart.
DIVERGING = (
    (0.0, "#b35806"),
    (0.25, "#f1a340"),
    (0.5, "#f7f7f7"),
    (0.75, "#67a9cf"),
    (1.0, "#2166ac"),
)


@dataclass(frozen=True)
class Look:
    """How a method is drawn everywhere."""

    colour: str  # ``#rrggbb``
    symbol: str  # the marker's name in plotly
    marker: str  # the same marker's in matplotlib

    def faint(self, opacity: float) -> str:
        """The colour, see-through, as CSS writes it.

        >>> looks(["modo"])["modo"].faint(0.2)
        'rgba(0, 114, 178, 0.2)'
        """
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red}, {green}, {blue}, {opacity:g})"


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for every label, in the order they first appear; distinct for the first 35."""
    unique = dict.fromkeys(labels)
    return {
        label: Look(COLOURS[i % len(COLOURS)], *MARKERS[i % len(MARKERS)])
        for i, label in enumerate(unique)
    }


def needed(module: str) -> Any:
    """A library that the extra ``report`` installs."""
    return require(module, extra="report", purpose="the report")
