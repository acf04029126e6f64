"""A multi-task table as a study: a tiny one end to end; rows, words, claims on made-up data."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest

from trimol import paper as reproduce
from trimol import report
from trimol.compare import TuningPlan
from trimol.compare._tuned_problem import ALONE, PAPERS_BUDGET
from trimol.compare._tuned_tables import describe_trials
from trimol.paper import _multitask_report as multitask_report
from trimol.paper import claims
from trimol.paper import multitask_tables as multitask
from trimol.paper._studies import Context
from trimol.runs import study as results
from trimol.runs.study import Study
from trimol.search import Setting, Trial

HERE = Path(__file__).parent
GOALS = {"near": {"near accuracy": "higher"}, "far": {"far error": "lower"}}
LARGER = PAPERS_BUDGET.format("modo")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 4 of a small world."""

    def entry(cell: str, **more: float) -> dict[str, Any]:
        return {
            "chosen": {"lr": 0.05, "weight_decay": 0.0, **more},
            "cells": {"near accuracy": cell, "ΔA_id": "2.5 ± 0.4"},
        }

    said = {
        "grids": {
            "main": {
                "lr": [0.05],
                "weight_decay": [0.0],
                "tuning_seeds": 1,
                "extend": 0,
                "methods": {"modo": {"gamma": [0.1, 1.0]}},
            }
        },
        "regimes": {
            name: {
                "as_paper": name == "finetune",
                "epochs": 3,
                "points": 3,
                "grid": name == "frozen",
                "options": {"regime": name},
                "quick": {"epochs": 2, "points": 1, "seeds": 1, "options": {}},
            }
            for name in ("frozen", "finetune")
        },
        "baselines": {
            f"{HERE / 'tiny_domains.py'}:Tiny": {
                "unit": 0.01,
                "validation": {"near accuracy": "90.0", "far accuracy": "50.0"},
            },
        },
        "tables": {
            "table4": {
                "task": f"{HERE / 'tiny_domains.py'}:Tiny",
                "grid": "main",
                "batch_size": 4,
                "runs": 2,
                "unit": 0.01,
                "units": {"ΔA_id": 1},
                "methods": {
                    "static": entry("84.6 ± 0.7"),
                    "mgda": entry("79.4"),
                    "modo": entry("85.1 ± 0.6", gamma=0.1),
                },
            }
        },
    }
    monkeypatch.setattr(multitask, "stated", lambda: said)
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)  # starting processes takes long


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_table_from_runs_to_the_page(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    study = reproduce.run("table4", tmp_path, budget="paper", watch=lambda *now: seen.append(now))
    assert study.command == "trimol reproduce table4 --budget paper"
    assert study.name == "table4"
    assert seen[-1][0] == seen[-1][1]
    assert {(row["method"], row["budget"]) for row in study.rows} == {
        *((name, "equal") for name in (ALONE, "static", "mgda", "modo")),
        ("modo", "paper"),
    }
    labels = {"equal": "{}", "paper": PAPERS_BUDGET}
    by_key = {
        (labels[row["budget"]].format(row["method"]), row["metric"]): row for row in study.rows
    }
    metrics = [
        "near accuracy",
        "far accuracy",
        "ΔA_id",
        "ΔA_id (paper's baselines, validation)",
        "ΔA_st",
    ]
    shares = [f"{name}/{task}" for name in ("ΔA_id", "ΔA_st") for task in ("near", "far")]
    assert [metric for method, metric in by_key if method == "modo"] == [*metrics, *shares]
    # Drops are of the very numbers that stand beside them.
    for method in ("static", "mgda", "modo", LARGER):
        drops = [
            100 * (1 - by_key[method, metric]["mean"] / by_key[ALONE, metric]["mean"])
            for metric in metrics[:2]
        ]
        assert by_key[method, "ΔA_id"]["mean"] == pytest.approx(sum(drops) / 2)
        for task, own in zip(("near", "far"), drops, strict=True):
            assert by_key[method, f"ΔA_id/{task}"]["mean"] == pytest.approx(own)
        papers = [
            100 * (1 - by_key[method, metric]["mean"] / base)
            for metric, base in (("near accuracy", 0.9), ("far accuracy", 0.5))
        ]
        assert by_key[method, metrics[3]]["mean"] == pytest.approx(sum(papers) / 2)
    assert by_key["static", "ΔA_st"]["mean"] == pytest.approx(0, abs=1e-9)
    assert by_key["modo", "near accuracy"]["paper"] == 0.851
    assert by_key[LARGER, "near accuracy"]["paper_std"] == 0.006
    assert "paper_std" not in by_key["mgda", "near accuracy"]
    assert by_key["modo", "ΔA_id"]["paper"] == by_key["modo", metrics[3]]["paper"] == 2.5
    assert by_key[ALONE, "far accuracy"]["paper"] == 0.5
    assert by_key["modo", "near accuracy"]["gamma"] in (0.1, 1.0)
    assert len(study.tables["tuning"].filter(polars.col("method") == "modo")) == 2
    assert not any(row.get("verdict") for row in study.rows)  # another network than the paper's
    steps = study.tables["curves"].group_by("method").agg(polars.col("step").max())
    assert dict(steps.iter_rows())[LARGER] == 2 * dict(steps.iter_rows())["modo"]
    page = report.write(tmp_path).read_text(encoding="utf-8")
    assert page.count('class="picture"') == 4
    assert "2 seeds cannot tell a difference from luck" in page
    assert "<section" in page
    assert "seed-0" not in page  # the study's runs are the study's to report on


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without figures, which take most of the time of a tiny study."""
    monkeypatch.setattr(multitask_report, "draw", lambda *_: [])


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "undrawn")
def test_regimes_have_folders_of_their_own(tmp_path: Path) -> None:
    study = reproduce.run("table4", tmp_path, regime="finetune", seeds=2)
    assert study.folder == tmp_path / "table4-finetune"
    assert study.name == "table4-finetune"
    assert study.command == "trimol reproduce table4 --regime finetune --seeds 2"
    assert study.title.endswith("(finetune)")
    judged = {(row["method"], row["metric"]) for row in study.rows if row.get("verdict")}
    # The paper's experiment is judged by the paper's spread, where it prints one.
    assert ("modo", "near accuracy") in judged
    assert ("mgda", "near accuracy") not in judged
    configs = [json.loads(file.read_text()) for file in study.folder.rglob("config.json")]
    assert {config["task_options"]["regime"] for config in configs} == {"finetune"}
    assert any("nothing was tuned" in note for note in study.notes)
    assert not (tmp_path / "table4").exists()


@pytest.mark.usefixtures("tiny", "undrawn")
def test_a_quick_run_says_that_it_is_one(tmp_path: Path) -> None:
    study = reproduce.run("table4", tmp_path, quick=True)
    assert study.notes[0].startswith("A quick run")
    assert {row["n"] for row in study.rows} == {1}
    assert any("One seed" in note for note in study.notes)
    assert study.tables["scores"]["epoch"].max() == 2


def test_the_comparison_is_what_the_file_says(tmp_path: Path) -> None:
    context = Context(tmp_path, tmp_path, tmp_path)
    planned = multitask.planned_comparison("table4", context, "frozen")
    assert (planned.task, planned.batch_size, planned.seeds) == ("office-31", 64, 5)
    assert {name: len(tried) for name, tried in planned.methods.items()} == {
        "static": 6,
        "mgda": 6,
        "modo": 12,
    }
    assert (planned.tuning_seeds, planned.extend) == (3, 4)
    assert planned.reference == "static"
    assert planned.epochs / planned.measure_epochs == 5
    assert set(planned.baselines) == {"paper's baselines, validation", "paper's baselines, test"}
    finetune = multitask.planned_comparison("table4", context, "finetune")
    (chosen,) = finetune.methods["modo"]
    assert (chosen.lr, chosen.hyperparameters) == (1e-4, {"gamma": 1e-3})
    assert chosen.task_options == {"weight_decay": 1e-5}
    assert (finetune.epochs, finetune.options["backbone"]) == (100, "resnet18")
    full = multitask.planned_comparison("table4", replace(context, full=True), "finetune")
    assert len(full.methods["modo"]) == 12
    quick = multitask.planned_comparison("table4", replace(context, quick=True), "finetune")
    assert (quick.epochs, quick.seeds, quick.options["image_size"]) == (2, 1, 64)
    assert len(quick.methods["static"]) == 1
    name = "table-appendix-officehome"  # overrules its regime
    assert multitask.planned_comparison(name, context, "frozen").epochs == 10
    assert multitask.planned_comparison(name, context, "finetune").epochs == 100
    hurried = multitask.planned_comparison(name, replace(context, quick=True), "frozen")
    assert hurried.epochs == 2


# --- on made-up numbers ---------------------------------------------------------------------------


def seeds(**shifts: tuple[float, float]) -> polars.DataFrame:
    """Two metrics of five seeds: the reference's plus a shift, with a little noise."""
    rows = []
    for method, (near, far) in {ALONE: (0.02, -0.01), "static": (0.0, 0.0), **shifts}.items():
        for seed in range(5):
            wave = 0.01 * ((seed * 7) % 5 - 2)
            jitter = 0.001 * ((seed * 3 + len(method)) % 5 - 2)
            values = {"near accuracy": 0.8 + near + wave + jitter, "far error": 0.2 + far - wave}
            drop = 100 * (1 - values["near accuracy"] / 0.82 + values["far error"] / 0.19 - 1) / 2
            values["far error"] += jitter
            if method != ALONE:
                values |= {"ΔA_id": drop, "ΔA_st": drop}
            rows += [
                {"method": method, "seed": seed, "metric": m, "value": v, "joint": v + 0.5}
                for m, v in values.items()
            ]
    return polars.DataFrame(rows)


def test_drops_have_one_direction() -> None:
    table = multitask.tidy(seeds(modo=(0.08, 0.05)), GOALS, "static")
    means = {
        key: value
        for *key, value in table.group_by("method", "metric")
        .agg(polars.col("drop").mean())
        .iter_rows()
        for key in [tuple(key)]
    }
    assert means["static", "near accuracy"] == pytest.approx(0, abs=1e-9)
    assert means["modo", "near accuracy"] == pytest.approx(-10, abs=0.2)  # higher is better
    assert means["modo", "far error"] == pytest.approx(25, abs=0.5)  # lower is better
    assert means["modo", "ΔA_id"] is None
    assert set(table.filter(polars.col("kind") == "overall")["metric"]) == {"ΔA_id", "ΔA_st"}


def test_differences_are_told_from_noise() -> None:
    table = multitask.tidy(seeds(mgda=(-0.05, 0.0), modo=(0.0, 0.0)), GOALS, "static")
    found = {
        (each.method, each.metric): each for each in multitask_report.differences(table, "static")
    }
    assert len(found) == 6  # two methods, two metrics and ΔA_id
    assert found["mgda", "near accuracy"].clear
    # Paired: the spread over seeds, ten times the jitter, is common to both.
    assert found["mgda", "near accuracy"].ci < 0.01
    assert not found["modo", "near accuracy"].clear
    first, mgda, modo = multitask_report.compared(list(found.values()), GOALS)
    assert "all 6 differences" in first
    assert mgda.startswith("mgda: larger than its noise: near accuracy −0.0500 ± ")
    assert "(worse)" in mgda
    assert modo.startswith("modo: not told apart from noise: near accuracy ")
    assert multitask_report.compared([], GOALS) == []


def tuned(scores: Mapping[float, list[float]]) -> polars.DataFrame:
    """Trials of one method by their γ, with scores seed by seed."""
    settings = [Setting("modo", 0.1, {"gamma": gamma}) for gamma in scores]
    trials = [Trial(number, setting) for number, setting in enumerate(settings)]
    return polars.DataFrame(describe_trials(trials, list(scores.values())))


def test_how_stable_a_choice_is() -> None:
    scores = {
        0.1: [1.0, 2.0, 3.0, 1.1, 2.1],
        1.0: [1.5, 1.75, 3.5, 1.6, 1.85],
        10.0: [-9.0, -8.1, -7.2, -9.1, -8.0],
    }
    table = tuned(scores)
    assert table["chosen"].to_list() == [False, True, False]
    assert table["first_of_seeds"].to_list() == [2, 3, 0]
    assert table["behind"].to_list() == pytest.approx([0.2, 0.0, 10.32])
    assert table["worse"].to_list() == [False, None, True]
    (said,) = multitask_report.stability(table)
    assert "modo: first with 3 of 5 seeds alone, the next is 0.2 ± 0.51 behind, 1 of 2" in said
    few = tuned({rate: own[:3] for rate, own in scores.items()})
    assert few["worse"].to_list() == [False, None, False]
    alone = tuned({0.1: [1.0], 1.0: [1.5]})
    assert multitask_report.stability(alone)[0].startswith("One seed chose the settings")


def test_added_settings_and_edges_are_told() -> None:
    tried = [Setting("modo", 0.1, {"gamma": gamma}) for gamma in (0.1, 1.0)]
    planned = TuningPlan("x", tried, 1, 4, extend=4, reference="modo")
    table = tuned({0.1: [1.0, 2.0], 1.0: [1.5, 2.75], 10.0: [0.0, 1.0]})
    (said,) = multitask_report.extended(planned, table)
    assert said.endswith("up to 4 times, from that setting on and one number at a time: modo 1.")
    still = tuned({0.1: [1.0, 2.0], 1.0: [1.5, 2.75]})
    assert multitask_report.extended(planned, still)[1].endswith("beyond: modo (gamma).")


def test_one_seed_says_nothing() -> None:
    table = multitask.tidy(seeds(modo=(0.1, 0.1)).filter(polars.col("seed") == 0), GOALS, "static")
    said = multitask_report.compared(multitask_report.differences(table, "static"), GOALS)
    (text,) = said
    assert text.startswith("One seed cannot tell a difference from luck: 5 seeds at least")


@pytest.mark.parametrize(
    ("shift", "better", "worse"),
    [((0.05, -0.05), "holds", "does not hold"), ((-0.05, 0.05), "does not hold", "holds")],
)
def test_claims_follow_the_data(shift: tuple[float, float], better: str, worse: str) -> None:
    table = multitask.tidy(seeds(modo=shift, mgda=(0.0, 0.0)), GOALS, "static")
    study = Study("table4", "", rows=[], tables={"seeds": table})
    listed = {claim.id: claim for claim in claims.ledger()}
    for name in ("office31-modo-best", "office31-modo-par-static", "office31-modo-par-mgda"):
        assert claims.judge(listed[name], study).verdict == better, name
    swapped = table.with_columns(polars.col("method").replace({"modo": "mgda", "mgda": "modo"}))
    study = Study("table4", "", rows=[], tables={"seeds": swapped})
    for name in ("office31-static-some", "office31-static-overall"):
        assert claims.judge(listed[name], study).verdict == worse, name


def test_every_claim_reads_a_table_that_the_study_has(tmp_path: Path) -> None:
    own = [claim for claim in claims.ledger() if claim.study.startswith("table-app")]
    own += [claim for claim in claims.ledger() if claim.study in ("table4", "table5", "table6")]
    assert len(own) >= 20
    for claim in own:
        methods = multitask.methods(claim.study)
        goals = {m: {m: "higher"} for m in multitask.cells(claim.study, "modo") if "ΔA" not in m}
        rows = [
            {"method": m, "seed": s, "metric": metric, "value": 0.5 + s / 9 + i / 7, "joint": 0.5}
            for i, m in enumerate(methods)
            for s in range(3)
            for metric in (*goals, "ΔA_id", "ΔA_st")
        ]
        curves = polars.DataFrame(
            [{"method": m, "seed": s, "weight/normals": 0.9} for m in methods for s in (0, 1)]
        )
        table = multitask.tidy(polars.DataFrame(rows), goals, methods[0])
        study = Study(claim.study, "", rows=[], tables={"seeds": table, "curves": curves})
        finding = claims.judge(claim, study)
        assert finding.verdict in ("holds", "does not hold", "inconclusive")
        assert "value" not in finding.words  # a reader is told what it is


def test_figures_show_means_intervals_and_the_paper(tmp_path: Path) -> None:
    table = multitask.tidy(seeds(modo=(0.1, 0.0)), GOALS, "static")
    found = multitask_report.bars(table, "near accuracy", {("modo", "near accuracy"): 0.95})
    assert [bar.method for bar in found] == [ALONE, "static", "modo"]
    assert found[2].number.estimate == pytest.approx(0.9, abs=2e-3)
    assert found[2].number.half == pytest.approx(0.02, abs=5e-3)  # 2.776 · 0.0158/√5
    assert (found[1].paper, found[2].paper) == (None, 0.95)
    curves = polars.DataFrame(
        {
            "method": ["modo"] * 4,
            "seed": [0, 1, 0, 1],
            "epoch": [0.0, 0.0, 1.0, 1.0],
            "weight/near": [0.5, 0.5, 0.2, 0.4],
            "R_gen": [-1.0, 1.0, 0.5, -0.7],
            "E_ca": [0.0, 0.0, 0.1, 0.1],
        }
    )
    line = multitask_report.curve(curves, "modo", "weight/near")
    assert line.epochs == [0.0, 1.0]
    assert [point.estimate for point in line.points] == pytest.approx([0.5, 0.3])
    assert line.points[1].high - line.points[1].estimate == pytest.approx(12.706 * 0.1, rel=1e-3)
    sizes = multitask_report.curve(curves, "modo", "R_gen").points
    assert [point.estimate for point in sizes] == pytest.approx([1.0, 0.6])
    names = multitask_report.draw("t", table, curves, {}, tmp_path)
    assert names[::2] == ["t-tasks.svg", "t-drop.svg", "t-weights.svg", "t-errors.svg"]
    assert all((tmp_path / name).stat().st_size > 3000 for name in names)


def test_rows_can_be_saved(tmp_path: Path) -> None:
    table = multitask.tidy(
        seeds(mgda=(0.0, 0.0), modo=(0.1, 0.0)).with_columns(
            polars.col("metric").replace({"near accuracy": "amazon accuracy"})
        ),
        {"near": {"amazon accuracy": "higher"}, "far": GOALS["far"]},
        "static",
    )
    rows = multitask.rows("table4", table, {("modo", "ΔA_id"): {"lr": 0.1}}, judge=True)
    saved = results.load(results.save(Study("table4", "T", rows), tmp_path).folder).rows
    modo = {row["metric"]: row for row in saved if row["method"] == "modo"}
    assert modo["amazon accuracy"]["verdict"] == "differs"  # 0.9 here, 0.8513 there
    assert modo["amazon accuracy"]["ci"] == pytest.approx(0.02, abs=5e-3)
    assert modo["ΔA_id"]["lr"] == 0.1


def test_weights_that_do_not_move_are_said_to_be_static() -> None:
    curves = polars.DataFrame(
        {
            "method": ["static", "modo", "modo", "mgda"],
            "weight/near": [0.5, 0.5, 0.502, 0.5],
            "weight/far": [0.5, 0.5, 0.498, 0.4],
        }
    )
    (said,) = multitask_report.resting(curves, "static")
    assert "modo (at most 0.002 away)" in said
    assert "mgda" not in said
    assert multitask_report.resting(curves[:1], "static") == []


def test_what_is_relative_to_zero_is_said_and_not_shown() -> None:
    table = polars.DataFrame(
        {
            "method": ["static", "modo"] * 2,
            "seed": [0] * 4,
            "metric": ["near accuracy"] * 2 + ["ΔA_id"] * 2,
            "value": [0.0, 0.5, float("nan"), float("nan")],
            "joint": [0.0, 0.5, float("nan"), float("nan")],
            "kind": ["task"] * 2 + ["overall"] * 2,
        }
    )
    (said,) = multitask_report.undefined(table)
    assert said.startswith("Not defined: ΔA_id. A metric of the baseline is 0")
    assert "NaN" not in multitask_report.joint(table)
    assert multitask_report.undefined(table[:2]) == []
