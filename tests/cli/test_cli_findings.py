"""What a comparison found, on made-up runs whose answer is known."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console, RenderableType

from trimol.cli import _findings as findings
from trimol.cli import _outcome as summary
from trimol.cli import _tables as tables
from trimol.cli._lines import plain_console
from trimol.report._runs import unmoved
from trimol.runs import Comparison, Row, RunConfig, StoredRun, summarise
from trimol.runs.store import table

NOISE = (0.01, -0.02, 0.015, -0.005, 0.0)


def drawn(*parts: RenderableType, width: int = 80) -> list[str]:
    file = io.StringIO()
    Console(width=width, file=file).print(*parts, sep="\n")
    return file.getvalue().splitlines()


def made_up(method: str, seed: int, fit: float, opt: float, accuracy: float = 0.5) -> StoredRun:
    record = {
        "step": 10,
        "loss/fit": fit,
        "test_loss/fit": fit,
        "metric/accuracy": accuracy,
        "weight/fit": 1.0,
        "avoiding/fit": 0.5,
        "R_opt": opt,
        "E_ca": opt**2,
        "cosine/fit/slope": -0.5,
        "cosine/fit/other": math.nan,
    }
    config = RunConfig(task="digits", method=method, lr=0.1, steps=10, seed=seed)
    run = StoredRun(Path("x"), config, {}, table([record]), {"record": record}, ("fit",))
    run.__dict__["direction"] = torch.tensor([opt])
    return run


def comparison(**levels: float) -> Comparison:
    """R_opt of each method at its level, with the same noise in all, as paired runs have; the loss
    is all noise.
    """
    runs = {
        method: [
            made_up(method, seed, fit=1 + NOISE[(seed + i) % 5], opt=level + NOISE[seed] * (i + 1))
            for seed in range(5)
        ]
        for i, (method, level) in enumerate(levels.items())
    }
    return Comparison("digits", runs, [])


def test_the_best_is_marked_where_it_is_clear() -> None:
    assert findings.best(comparison(static=3.0, mgda=2.0, modo=1.0)) == {
        ("modo", "R_opt"),
        ("modo", "E_ca"),
    }


def test_nothing_is_marked_within_the_noise() -> None:
    assert findings.best(comparison(static=3.0, mgda=1.0, modo=1.0)) == set()
    assert findings.best(comparison(static=3.0)) == set()


def test_metrics_are_not_marked() -> None:
    runs = {
        method: [made_up(method, seed, 1.0, 1.0, level + noise) for seed, noise in enumerate(NOISE)]
        for method, level in {"static": 0.9, "modo": 0.1}.items()
    }
    runs["modo"][0] = made_up("modo", 0, 1.0, 1.0, 0.12)  # noise of its own, or t is infinite
    found = Comparison("digits", runs, [])
    assert findings.best(found) == set()
    assert "accuracy" in findings.sentences(found)[0]


def test_differences_in_words() -> None:
    found = comparison(static=3.0, mgda=3.0, modo=1.0)
    first, second = findings.sentences(found)
    assert first == "mgda − static: no difference larger than noise"
    assert second.startswith("modo − static: R_opt −2.000 ± 0.0")
    assert second.endswith("(lower)")
    assert "fit" not in second


@pytest.mark.parametrize("order", [("static", "mgda", "modo"), ("modo", "mgda", "static")])
@pytest.mark.parametrize(("level", "worse"), [(1.036, False), (1.2, True)])
def test_what_is_worse_above_is_a_difference_below(
    level: float, worse: bool, order: tuple[str, ...]
) -> None:
    """1.036 is beyond the interval of this difference alone, not beyond the noise of all."""
    loss = {"static": 1.0, "mgda": 1.0, "modo": level}
    runs = {
        method: [
            made_up(method, seed, loss[method] + NOISE[(seed + i) % 5], 1.0) for seed in range(5)
        ]
        for i, method in enumerate(loss)
    }
    found = Comparison("digits", {method: runs[method] for method in order}, [])
    (below,) = (line for line in findings.sentences(found) if line.startswith("modo − static: "))
    assert ("fit 0.200 ± " in below) is worse
    assert ("no difference larger than noise" in below) is not worse
    assert ("modo is worse" in " ".join(findings.verdict(found))) is worse


def test_without_chance_no_noise_is_spoken_of() -> None:
    runs = {m: [made_up(m, seed, 1.0, 1.0) for seed in range(3)] for m in ("static", "modo")}
    assert findings.sentences(Comparison("digits", runs, [])) == []
    assert findings.verdict(Comparison("digits", runs, []))[0].startswith("All 3 seeds gave")


def test_one_seed_says_nothing_about_noise() -> None:
    found = comparison(static=3.0, modo=1.0)
    single = Comparison("digits", {m: runs[:1] for m, runs in found.runs.items()}, [])
    assert findings.sentences(single) == []
    assert findings.verdict(single)[0].startswith("one seed cannot tell a difference from luck: 5")
    assert findings.best(single) == set()


def test_a_method_all_of_whose_runs_diverged_is_not_called_a_single_seed() -> None:
    found = comparison(static=3.0, modo=1.0)
    nothing = Comparison("digits", {**found.runs, "static": []}, [])
    assert findings.sentences(nothing) == ["modo − static: no seed that both finished"]


def test_both_readings_of_the_conflict() -> None:
    rows = {row["metric"]: row["mean"] for row in summarise(comparison(modo=1.0))}
    mean, definition = rows["E_ca"], rows["E_ca_definition"]
    unbiased = rows["E_ca_unbiased"]
    values = torch.tensor([1 + noise for noise in NOISE], dtype=torch.float64)
    assert mean == pytest.approx(values.square().mean().item(), rel=1e-6)
    assert definition == pytest.approx(values.mean().square().item(), rel=1e-6)
    assert unbiased == pytest.approx(definition - values.var().item() / 5, rel=1e-5)


def test_weights_are_means_over_seeds() -> None:
    assert findings.weights(comparison(modo=1.0)) == [("modo", [1.0], [0.5])]


def test_diverged_runs_are_named() -> None:
    found = comparison(modo=1.0)
    config = found.runs["modo"][0].config
    failed = Comparison("digits", found.runs, [(config, "the loss 'fit' is nan")])
    assert findings.failures(failed) == ["modo, seed 0: the loss 'fit' is nan"]


def test_a_summary_says_what_became_of_the_run() -> None:
    said = "\n".join(drawn(*summary.render(made_up("modo", 0, fit=1.0, opt=2.0))))
    assert "digits, trained with modo (lr=0.1): 10 steps of 64 samples, seed 0" in said
    assert "R_opt  2  how much all losses could still fall together" in said
    assert "Conflict: the gradients of 1 of 2 pairs of losses have a negative cosine." in said
    assert "R_pop" not in said  # it was not measured


@pytest.mark.parametrize(
    ("spent", "said"), [(40.0, "Measuring on all data took 1 min 20 s of 2 min"), (29.0, "")]
)
def test_measuring_that_takes_most_of_the_time_is_said(spent: float, said: str) -> None:
    took = {"seconds": 60.0, "measuring": spent}
    runs = [replace(made_up("modo", seed, fit=1.0, opt=2.0), summary=took) for seed in (0, 1)]
    assert summary.measuring(runs).startswith(said)
    assert bool(summary.measuring(runs)) == bool(said)
    assert not summary.measuring([replace(runs[0], summary={"seconds": 0.1, "measuring": 0.1})])


ROWS = [
    {"method": method, "metric": metric, "mean": mean, "ci": mean / 10}
    for method in ("static", "modo")
    for metric, mean in {"cross-entropy": 0.13, "R_opt": 2e-3, "[b]odd": 3.0}.items()
]


def text(rows: list[Row], width: int) -> list[str]:
    return drawn(tables.draw(tables.grid(rows, {("modo", "R_opt")}), width), width=width)


def test_a_column_has_one_unit_and_the_best_a_mark() -> None:
    found = tables.grid(ROWS, {("modo", "R_opt")})
    assert found.units == {"cross-entropy": 0, "R_opt": -3, "[b]odd": 0}
    assert found.cells["modo", "R_opt"] == ("2.00*", "±0.20")
    assert found.cells["static", "R_opt"] == ("2.00", "±0.20")


def test_methods_go_down_where_the_width_allows_it() -> None:
    lines = text(ROWS, 80)
    assert any(line.split()[:1] == ["method"] for line in lines)
    assert any("[b]odd" in line for line in lines)
    assert any(line.split() == ["modo", "0.130", "2.00*", "3.00"] for line in lines)


def test_metrics_go_down_where_it_does_not() -> None:
    many = [
        {"method": method, "metric": f"objective {i}", "mean": float(i), "ci": 0.1}
        for method in ("static", "modo")
        for i in range(12)
    ]
    lines = text(many, 60)
    assert any(line.split() == ["objective", "11", "11.00", "11.00"] for line in lines)
    assert not any("…" in line for line in lines)


def moving(method: str, last: float, first: float = 0.5) -> StoredRun:
    """A run of two objectives whose λ ends at (last, 1 − last)."""
    rows = [
        {"step": step, "loss/a": 1.0, "loss/b": 1.0, "weight/a": weight, "weight/b": 1 - weight}
        for step, weight in enumerate((first, first, last))
    ]
    config = RunConfig(task="digits", method=method, lr=0.1, steps=2, seed=0)
    return StoredRun(Path("x"), config, {}, table(rows), {"record": rows[-1]}, ("a", "b"))


@pytest.mark.parametrize(
    ("method", "last", "said"),
    [("modo", 0.5049, True), ("modo", 0.5051, False), ("static", 0.5, False), ("mgda", 0.5, True)],
)
def test_a_run_says_where_its_weights_hardly_moved(method: str, last: float, said: bool) -> None:
    lines = " ".join(drawn(*summary.render(moving(method, last))))
    assert ("λ stayed within 1 % of its start: in effect, weights that do not" in lines) is said


def test_a_comparison_says_whose_weights_hardly_moved() -> None:
    runs = {"static": [moving("static", 0.5)], "modo": [moving("modo", 0.5)] * 2}
    runs["mgda"] = [moving("mgda", 0.5), moving("mgda", 0.7)]
    (line,) = findings.about_weights(Comparison("digits", runs, []))
    assert line.startswith("λ stayed within 1 % of its start in every run of modo: in effect")
    assert findings.about_weights(Comparison("digits", {"mgda": runs["mgda"]}, [])) == []


def test_weights_that_are_all_on_one_objective_from_the_first_step_on_have_moved() -> None:
    """The start is λ0, uniform here, not what was measured first."""
    runs = {"static": [moving("static", 0.0, 0.0)] * 2, "mgda": [moving("mgda", 0.0, 0.0)] * 2}
    told = findings.about_weights(Comparison("digits", runs, []))
    assert told == ["mgda puts all weight on 'b' (at the end of every run)."]
    lines = " ".join(drawn(*summary.render(runs["mgda"][0])))
    assert "All weight is on 'b' at the end." in lines
    assert "within 1 %" not in lines
    runs["mgda"][1] = moving("mgda", 1.0)
    assert findings.about_weights(Comparison("digits", runs, [])) == []
    began = moving("modo", 0.25, 0.25)  # where λ0 was given
    own = began.config.model_copy(update={"hyperparameters": {"weights": [0.25, 0.75]}})
    assert unmoved(replace(began, config=own))
    assert not unmoved(began)


@pytest.mark.parametrize("order", [("static", "modo", "mgda"), ("modo", "mgda", "static")])
def test_the_verdict_is_beside_static_whatever_comes_first(order: tuple[str, ...]) -> None:
    """As the headline of a report, which does not know what was typed first."""
    made = comparison(static=3.0, modo=1.0, mgda=2.9).runs
    found = Comparison("digits", {method: made[method] for method in order}, [])
    usual = Comparison("digits", made, [])
    first, second = findings.verdict(found)
    assert "than static" in first
    assert second.startswith("Errors that differ from static's beyond noise: ")
    assert sorted(second.split()) == sorted(findings.verdict(usual)[1].split())


def test_no_method_is_judged_by_one_that_never_finished() -> None:
    found = comparison(static=3.0, modo=1.0, mgda=2.9)
    nothing = Comparison("digits", {**found.runs, "static": []}, [])
    assert "than modo" in findings.verdict(nothing)[0]


def test_what_a_user_named_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    plain_console().print("tasks.py:Two: losses [a]")
    assert capsys.readouterr().out == "tasks.py:Two: losses [a]\n"
