"""One look per method on the whole page: a colour that everybody can tell apart, and a marker."""

from collections.abc import Iterable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Look:
    """How a method is drawn everywhere.

    Attributes:
        colour: ``#rrggbb``.
        symbol: The marker's name in plotly.
        marker: The same marker's in matplotlib.
    """

    colour: str
    symbol: str
    marker: str

    def faint(self, opacity: float) -> str:
        """The colour, see-through, as CSS writes it.

        >>> looks(["modo"])["modo"].faint(0.2)
        'rgba(0, 114, 178, 0.2)'
        """
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red}, {green}, {blue}, {opacity:g})"


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for every label, in the order they first appear; distinct for the first 35.

    Args:
        labels: The methods' labels, over all tasks of the page.
    """
    unique = dict.fromkeys(labels)
    return {
        label: Look(COLOURS[i % len(COLOURS)], *MARKERS[i % len(MARKERS)])
        for i, label in enumerate(unique)
    }
