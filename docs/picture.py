"""The README's picture: the three errors of one comparison as a triangle, and its verdict.

    trimol compare toy --steps 2000
    python docs/picture.py runs/toy docs/_static/verdict.png

The triangle and the sentences are those of ``trimol report runs/toy``.
"""

import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from trimol.report._reading import read
from trimol.report._runs import Comparison, comparisons
from trimol.report._style import looks
from trimol.report._summary import headline
from trimol.report._triangle import AXES, triangle


def shapes(ax: Axes, comparison: Comparison) -> None:
    """Three axes from one centre, a line for each method."""
    figure = triangle(comparison)
    assert figure is not None
    style = looks(comparison.labels)
    for xs, ys, shade in figure.grid():
        ax.plot(xs, ys, color=shade, linewidth=0.8)
    for i, shape in enumerate(figure.shapes):
        look = style[shape.label]
        ax.plot(*figure.outline(i), color=look.colour, marker=look.marker, label=shape.label)
    for (name, symbol), (x, y) in zip(AXES, figure.ends(), strict=True):
        side = "bottom" if y > 0 else "top"
        ax.annotate(f"{name}\n{symbol}", (x, y), ha="center", va=side, fontsize=11)
    across, upright = figure.window()
    ax.set(xlim=across, ylim=upright, aspect="equal")
    ax.set_title("what you trade away (nearer the centre is better)", fontsize=11, pad=14)
    ax.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.14), frameon=False, fontsize=11)
    ax.axis("off")


def said(ax: Axes, lines: tuple[str, ...]) -> None:
    """The command and its verdict, as a terminal shows them."""
    typed = "$ trimol compare toy --steps 2000"
    text = "\n\n".join([typed, *(textwrap.fill(line, 44) for line in lines)])
    ax.text(0, 0.5, text.replace("$", r"\$"), va="center", family="monospace", fontsize=12)
    ax.axis("off")


def main(folder: str, file: str) -> None:
    """Draw what is in the folder into the file."""
    (comparison,) = comparisons(read(Path(folder)).runs)
    canvas, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4.4), width_ratios=(1, 1), layout="constrained"
    )
    shapes(left, comparison)
    counted, verdict, *_ = headline(comparison)
    said(right, (counted, *verdict.split("; ")))
    canvas.savefig(file, dpi=110, facecolor="white", bbox_inches="tight", pad_inches=0.15)


if __name__ == "__main__":
    main(*sys.argv[1:])
