"""How often steps raise a loss of their batch, drawn as ``docs/understand/steps-study.svg``.

    python docs/step_conflicts.py

From ``results/steps.json``; a test holds the picture to it.
"""

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from trimol.report._style import COLOURS, GRID

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "understand" / "steps-study.svg"
VARIANTS = {"published": "as published", "metric": "in the metric", "guarded": "guarded"}
COLOUR = {"published": COLOURS[1], "metric": COLOURS[4], "guarded": COLOURS[0]}
LONG_RUN = "burgers, long"
ACROSS, PANEL, LEFT, TOP, ROW, LEGEND = 3, 190, 78, 30, 34, 34
TICKS = (0, 25, 50, 75, 100)


class Share(NamedTuple):
    """Of the steps of a variant, by task and optimizer: over methods, the least, mean, largest."""

    task: str
    optimizer: str
    variant: str
    least: float
    mean: float
    largest: float


def shares(found: dict[str, Any]) -> list[Share]:
    """What is drawn: of the tuned runs."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in found["rows"]:
        if row["task"] != LONG_RUN and row["batch step"] is not None:
            key = row["task"], row["optimizer"], row["variant"]
            groups.setdefault(key, []).append(100 * row["batch step"])
    return [Share(*key, min(own), fmean(own), max(own)) for key, own in groups.items()]


def picture(found: dict[str, Any]) -> str:
    """A panel for every task, a row for every optimizer, a line for every variant."""
    drawn = shares(found)
    names = list(dict.fromkeys(share.task for share in drawn))
    optimizers = list(dict.fromkeys(share.optimizer for share in drawn))
    height = TOP + ROW * len(optimizers) + 34
    down = -(-len(names) // ACROSS)
    size = LEFT + ACROSS * PANEL, down * height + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
        'font-family="sans-serif" font-size="11">',
        "<title>Share of steps that raise some loss of their own batch</title>",
        f'<rect width="{size[0]}" height="{size[1]}" fill="white"/>',
    ]
    for place, name in enumerate(names):
        x, y = LEFT + place % ACROSS * PANEL, place // ACROSS * height + TOP
        own = [share for share in drawn if share.task == name]
        parts += [*_frame(name, x, y, optimizers, labelled=place % ACROSS == 0)]
        for share in own:
            parts += _mark(share, x, y + ROW * optimizers.index(share.optimizer))
    parts += _legend(size[1] - 12)
    return "\n".join([*parts, "</svg>", ""])


def _at(share: float) -> float:
    return share * (PANEL - 36) / TICKS[-1]


def _frame(name: str, x: int, y: int, optimizers: list[str], *, labelled: bool) -> Iterator[str]:
    end = y + ROW * len(optimizers)
    yield f'<text x="{x}" y="{y - 10}" font-weight="bold">{escape(name)}</text>'
    for tick in TICKS:
        at = x + _at(tick)
        yield f'<path d="M{at:.1f} {y}V{end}" stroke="{GRID}"/>'
        yield f'<text x="{at:.1f}" y="{end + 14}" text-anchor="middle" fill="#555">{tick}</text>'
    for place, optimizer in enumerate(optimizers if labelled else []):
        middle = y + ROW * (place + 0.5) + 4
        yield f'<text x="{x - 10}" y="{middle}" text-anchor="end">{escape(optimizer)}</text>'


def _mark(share: Share, x: int, y: int) -> list[str]:
    """From the least to the largest, and a dot at the mean."""
    colour, level = COLOUR[share.variant], y + 8 + 9 * list(VARIANTS).index(share.variant)
    ends = x + _at(share.least), x + _at(share.largest)
    return [
        f'<path d="M{ends[0]:.1f} {level}H{ends[1]:.1f}" stroke="{colour}" stroke-width="2.5"/>',
        f'<circle cx="{x + _at(share.mean):.1f}" cy="{level}" r="3.5" fill="{colour}"/>',
    ]


def _legend(y: int) -> Iterator[str]:
    for place, (variant, name) in enumerate(VARIANTS.items()):
        x = LEFT + 110 * place
        yield f'<circle cx="{x}" cy="{y - 4}" r="3.5" fill="{COLOUR[variant]}"/>'
        yield f'<text x="{x + 9}" y="{y}">{name}</text>'
    told = "% of steps; line: over methods, dot: their mean"
    yield f'<text x="{LEFT + 110 * len(VARIANTS)}" y="{y}" fill="#555">{told}</text>'


if __name__ == "__main__":
    results = json.loads((ROOT / "results" / "steps.json").read_text(encoding="utf-8"))
    PICTURE.write_text(picture(results), encoding="utf-8")
