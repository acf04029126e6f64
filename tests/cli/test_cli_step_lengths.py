"""One step size is not one step: `compare` says so where directions differ much in length."""

from pathlib import Path
from typing import Any

import pytest

from trimol.cli import _step_lengths as step_lengths
from trimol.cli import compare
from trimol.runs import Comparison, RunConfig, StoredRun
from trimol.runs.store import table
from trimol.training._optimizers import OptimizerName

NAMES = ("fit", "slope")


def made_up(
    method: str,
    weights: tuple[float, float],
    *,
    lr: float = 0.1,
    cosine: float = 0.0,
    optimizer: OptimizerName | None = None,
    task: str = "digits",
    **hyperparameters: float | str,
) -> StoredRun:
    """A run whose gradients are 3 and 4 long at its first measurement."""
    first = {
        "step": 0,
        "loss/fit": 1.0,
        "loss/slope": 1.0,
        **dict(zip((f"weight/{name}" for name in NAMES), weights, strict=True)),
        "norm/fit": 3.0,
        "norm/slope": 4.0,
        "cosine/fit/slope": cosine,
    }
    last = {**first, "step": 10, "norm/fit": 1e6}
    config = RunConfig(
        task=task,
        method=method,
        lr=lr,
        steps=10,
        hyperparameters=hyperparameters,
        optimizer=optimizer,
    )
    return StoredRun(Path("x"), config, {}, table([first, last]), {"record": last}, NAMES)


def said(*runs: StoredRun) -> list[str]:
    return step_lengths.lines(Comparison("digits", {run.config.method: [run] for run in runs}, []))


def test_a_direction_that_is_much_longer_is_said_with_the_remedy() -> None:
    (line,) = said(made_up("static", (0.5, 0.5)), made_up("fairgrad", (5.0, 5.0)))
    assert line == (
        "At the step size 0.1 that they share, the direction of fairgrad is 10 times as long as "
        "that of static (at the first measurement): compare at step sizes of their own, or at one "
        "length, --set 'fairgrad.length=mean gradient' and so for each"
    )


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        ({"optimizer": "sgd"}, 1),
        ({"optimizer": "momentum"}, 1),
        ({"optimizer": "adam"}, 0),
        ({"optimizer": "rmsprop"}, 0),
        ({"task": "poisson"}, 0),  # whose own optimizer is Adam
    ],
)
def test_lengths_do_not_matter_where_the_optimizer_takes_them_out(
    how: dict[str, Any], lines: int
) -> None:
    pair = made_up("static", (0.5, 0.5), **how), made_up("fairgrad", (5.0, 5.0), **how)
    assert len(said(*pair)) == lines


def test_nothing_is_said_at_one_length_nor_at_other_step_sizes() -> None:
    static = made_up("static", (0.5, 0.5))
    assert said(static, made_up("fairgrad", (1.4, 1.4))) == []
    assert said(static, made_up("fairgrad", (5.0, 5.0), length="mean gradient")) == []
    assert said(static, made_up("fairgrad", (5.0, 5.0), max_norm=2.0)) == []
    assert said(static, made_up("fairgrad", (5.0, 5.0), lr=0.01)) == []
    # NashMTL's own clipping, at 1, is not much less than 2.5.
    assert said(static, made_up("nashmtl", (5.0, 5.0))) == []
    assert said(static) == []


@pytest.mark.parametrize(("cosine", "length"), [(0.0, 5.0), (1.0, 7.0), (-1.0, 1.0)])
def test_the_length_of_a_sum(cosine: float, length: float) -> None:
    assert step_lengths.of_run(made_up("static", (1.0, 1.0), cosine=cosine)) == length


def test_without_norms_there_is_nothing_to_say() -> None:
    run = made_up("static", (0.5, 0.5))
    without = table([{"step": 0, "loss/fit": 1.0, "weight/fit": 1.0}])
    bare = StoredRun(run.path, run.config, {}, without, {}, NAMES)
    assert step_lengths.of_run(bare) is None
    empty = StoredRun(run.path, run.config, {}, table([]), None, ())
    assert said(bare, empty) == []


@pytest.mark.parametrize(("weight", "longer"), [(0.9, False), (2.0, True)])
def test_compare_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], weight: float, longer: bool
) -> None:
    """The sum of three losses is 2.7 or 6 times as long as their mean."""
    options = [f"static.weights={weight},{weight},{weight}", "static.lr=0.01", "modo.lr=0.01"]
    given = ["digits", "--methods", "modo,static", "--seeds", "1", "--steps", "2", "--jobs", "1"]
    given += [text for option in options for text in ("--set", option)]
    assert compare.main([*given, "--quiet", "--out", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ("Steps of different lengths: At the step size 0.01 that they share" in out) == longer
