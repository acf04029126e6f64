"""What has become of a run, for a reader with ten seconds."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trimol._words import count
from trimol.cli._tables import plain_table
from trimol.report._numbers import duration, number, short
from trimol.training._tally import percent
from trimol.training.records import Record

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trimol.runs.config import RunConfig
    from trimol.runs.store import StoredRun

# The three errors in plain words; what is not measured (no test data, no ρ) is not shown.
SENTENCES = {
    "R_opt": "how much all losses could still fall together (0: no further)",
    "R_pop": "the same on test data",
    "R_gen": "generalization: R_pop − R_opt, the part lost on new data",
    "E_ca": "distance from the conflict-avoiding direction",
    "E_caw": "distance of λ from the weights MGDA would choose",
}
UNMOVED = (
    "λ stayed within 1 % of its start: in effect, weights that do not change. If the method has a "
    "step size for λ, it is too small for losses of this size."
)
MOST_NAMED = 8  # losses in a sentence
LONG = 30.0  # seconds of measuring, of which a reader may want to save some
_KINDS = ("loss", "test_loss", "weight", "avoiding")


def of_loss(record: Record, name: str) -> tuple[float | None, ...]:
    """A loss on training data and on test data, its weight λ and its λ*, as far as recorded.

    >>> of_loss({"loss/fit": 0.5, "weight/fit": 1.0}, "fit")
    (0.5, None, 1.0, None)
    """
    return tuple(record.get(f"{kind}/{name}") for kind in _KINDS)


def conflicts(record: Record) -> str:
    """How many pairs of losses are in conflict, in words; empty for a single loss.

    >>> conflicts({"cosine/a/b": -0.5, "cosine/a/c": 0.1, "cosine/b/c": 0.9})
    'Conflict: the gradients of 1 of 3 pairs of losses have a negative cosine.'
    >>> conflicts({"conflicting": 0.25, "least_cosine": -0.5})  # of very many losses
    'Conflict: the gradients of 25 % of all pairs of losses have a negative cosine.'
    >>> conflicts({})
    ''
    """
    if "least_cosine" in record:
        against = percent(record["conflicting"])
        return (
            f"Conflict: the gradients of {against} of all pairs of losses have a negative cosine."
        )
    cosines = [value for name, value in record.items() if name.startswith("cosine/")]
    if not cosines:
        return ""
    some = f"{sum(value < 0 for value in cosines)} of {count(len(cosines), 'pair')}"
    return f"Conflict: the gradients of {some} of losses have a negative cosine."


def worse(first: Record, last: Record) -> str:
    """Which training losses ended above their start, in words; empty if none did.

    >>> worse({"loss/a": 1.0, "loss/b": 1.0}, {"loss/a": 2.0, "loss/b": 0.1})
    'Not trained well: a ended above its start. Errors near 0 mean little there; try a smaller lr.'
    >>> worse({"loss/a": 1.0, "loss/b": 1.0}, {"loss/a": 2.0, "loss/b": 0.1, "cosine/a/b": -0.9})
    'Traded: a ended above its start, where its gradient opposes that of a loss that fell.'
    """
    moved = {
        name.removeprefix("loss/"): last[name] - first[name]
        for name in last
        if name.startswith("loss/") and name in first
    }
    rose = [name for name, change in moved.items() if change > 0]
    if not rose:
        return ""
    fell = [name for name, change in moved.items() if change < 0]
    some = [*rose[:MOST_NAMED], *([f"{len(rose) - MOST_NAMED} more"] * (len(rose) > MOST_NAMED))]
    told = f"{', '.join(some)} ended above {'its' if len(rose) == 1 else 'their'} start"
    if last.get("least_cosine", 0.0) < 0:  # so many losses that no pair is known
        return f"Traded or not trained well: {told}."
    if all(any(_opposed(last, one, other) for other in fell) for one in rose):
        whose = "its gradient opposes" if len(rose) == 1 else "their gradients oppose"
        return f"Traded: {told}, where {whose} that of a loss that fell."
    return f"Not trained well: {told}. Errors near 0 mean little there; try a smaller lr."


def _opposed(record: Record, one: str, other: str) -> bool:
    pairs = (f"cosine/{one}/{other}", f"cosine/{other}/{one}")
    return any(record.get(pair, 0.0) < 0 for pair in pairs)


def rising(first: Record, last: Record) -> str:
    """Why an R_opt that ended above its start need not be bad; empty where it fell.

    >>> rising({"R_opt": 0.1}, {"R_opt": 0.3})
    'R_opt ended above its start: a flat start was left for steeper slopes. The losses decide.'
    """
    if last.get("R_opt", 0.0) <= first.get("R_opt", float("inf")):
        return ""
    return (
        "R_opt ended above its start: a flat start was left for steeper slopes. The losses decide."
    )


def setting(config: "RunConfig") -> str:
    """How a method was run, in a few words."""
    own = {(f"method.{k}" if k == "lr" else k): v for k, v in config.hyperparameters.items()}
    named = {"lr": short(config.lr), **config.movement, **own}
    return ", ".join(f"{name}={value}" for name, value in named.items())


def samples_a_step(run: "StoredRun") -> int:
    """What a step took: more than the batch size, where that is of each of several data sets."""
    took, config = run.summary or {}, run.config
    return took["samples"] // config.steps if took.get("samples") else config.batch_size


def headline(run: "StoredRun") -> str:
    """What was trained, in a sentence."""
    config, took = run.config, run.summary or {}
    return (
        f"{run.task}, trained with {config.method} ({setting(config)}): {config.steps} steps of "
        f"{samples_a_step(run)} samples, seed {config.seed}, in {duration(took.get('seconds', 0))}."
    )


def measuring(runs: Iterable["StoredRun"]) -> str:
    """How to spend less on measuring, where that took most of a long time; empty elsewhere."""
    took = [run.summary for run in runs if run.summary]
    spent, total = (sum(own.get(name, 0.0) for own in took) for name in ("measuring", "seconds"))
    if spent < LONG or 2 * spent < total:
        return ""
    return (
        f"Measuring on all data took {duration(spent)} of {duration(total)}: a larger "
        "--measure-every, or 0 for the end alone, is faster."
    )


def render(run: "StoredRun") -> list["RenderableType"]:
    """The summary, ready to be printed by rich."""
    from rich.padding import Padding
    from rich.text import Text

    from trimol.report._runs import favourite, unmoved
    from trimol.training._tally import from_record

    record = run.record
    parts: list[RenderableType] = [
        Text(headline(run), style="bold"),
        _losses(record, run.objectives),
        _errors(record),
    ]
    if conflicts(record):
        parts.append(Padding(Text(conflicts(record)), (0, 0, 0, 2)))
    if "steps_looked" in record:
        parts.append(Padding(Text(f"Steps: {from_record(record)}."), (0, 0, 0, 2)))
    if unmoved(run):
        parts.append(Text(UNMOVED, style="yellow"))
    if name := favourite(run):
        parts.append(Text(f"All weight is on {name!r} at the end.", style="yellow"))
    first = run.metrics.row(0, named=True)
    if warning := worse(first, record):
        parts.append(Text(warning, style="yellow"))
    elif reason := rising(first, record):
        parts.append(Padding(Text(reason), (0, 0, 0, 2)))
    if spent := measuring([run]):
        parts.append(Text(spent))
    return parts


def _losses(record: Record, names: Sequence[str]) -> "RenderableType":
    from rich.text import Text

    table = plain_table("loss", "training", "test", "λ", "MGDA's λ*")
    for name in names:
        table.add_row(Text(name), *map(number, of_loss(record, name)))
    for name, value in record.items():
        if name.startswith("metric/"):
            table.add_row(Text(name.removeprefix("metric/")), "", number(value), "", "")
    return table


def _errors(record: Record) -> "RenderableType":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for name, sentence in SENTENCES.items():
        if name in record:
            table.add_row(f"  {name}", number(record[name]), sentence)
    return table
