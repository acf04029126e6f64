"""The sentences and tables at the top, and what the reader is warned of."""

import math
import random

import pytest
import torch
from report_samples import OBJECTIVES, compared, config, record, records, save

from trimol.cli import _findings as findings
from trimol.report import _summary as summary
from trimol.report._runs import comparisons
from trimol.report._triangle import triangle
from trimol.runs import Comparison as Compared


def ended(tmp_path, ends, **options):
    """Runs of one record each, with these last values, by method and seed."""
    runs = [
        save(
            tmp_path / f"{method}-{seed}",
            config(method, seed=seed),
            [record(1000, OBJECTIVES) | values],
            **options,
        )
        for method, all_values in ends.items()
        for seed, values in enumerate(all_values)
    ]
    (found,) = comparisons(runs)
    return found


def cell(table, row, column):
    (place,) = (i for i, name in enumerate(table.columns) if name.startswith(column))
    return next(cells[place] for cells in table.rows if cells[0] == row)


def test_the_table_has_means_and_intervals_in_the_columns_unit(tmp_path):
    found = ended(tmp_path, {"modo": [{"R_opt": 1e-3}, {"R_opt": 3e-3}], "mgda": [{"R_opt": 5e-3}]})
    table = summary.final(found)
    assert "R_opt ×10⁻³" in table.columns
    assert cell(table, "modo", "R_opt") == "2 ± 13"  # 12.7062 · √2 / √2
    assert cell(table, "mgda", "R_opt") == "5"
    assert cell(table, "modo", "seeds") == "2"
    assert [name for name in table.columns if "test loss" in name]


def test_generalization_is_averaged_without_its_sign(tmp_path):
    found = ended(tmp_path, {"modo": [{"R_gen": -0.5}, {"R_gen": 0.5}]})
    assert cell(summary.final(found), "modo", "|R_gen|") == "0.5 ± 0"


def test_one_reading_of_the_conflict(tmp_path):
    """The mean over runs; the definition's, with the mean inside the norm, is for ``--json``."""
    runs = [
        save(
            tmp_path / str(seed),
            config(seed=seed),
            [record(0, OBJECTIVES) | {"E_ca": 1.0}],
            direction=torch.tensor([sign, 0.5]),
        )
        for seed, sign in enumerate((0.75**0.5, -(0.75**0.5)))
    ]
    table = summary.final(*comparisons(runs))
    assert cell(table, "modo", "E_ca") == "1 ± 0"


def test_without_test_data_the_table_says_training(tmp_path):
    (found,) = comparisons(compared(tmp_path, seeds=2, steps=50, test=False))
    table = summary.final(found)
    assert any("training loss" in name for name in table.columns)
    assert not any(name.startswith("R_pop") for name in table.columns)
    assert summary.absent(found) == ["There is no test data: R_pop and R_gen are not known."]


def test_numbers_that_are_not_finite_are_told(tmp_path):
    found = ended(tmp_path, {"modo": [{"R_opt": 1.0}, {"R_opt": math.nan}, {"R_opt": 3.0}]})
    assert cell(summary.final(found), "modo", "R_opt").endswith("(2 of 3 finite)")
    (text,) = summary.warnings(found)
    assert text.startswith("modo: 1 of 3 runs recorded numbers that are not finite, from step 1000")


def test_unfinished_runs_are_told(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [
        save(tmp_path / "a", config("mgda"), rows),
        save(tmp_path / "b", config("mgda", seed=1), rows[:2], finished=False),
        save(tmp_path / "c", config("mgda", seed=2), rows),
        save(tmp_path / "d", config("modo"), rows[:2], finished=False),
        save(tmp_path / "e", config("modo", seed=1), [], finished=False),
    ]
    (found,) = comparisons(runs)
    assert summary.warnings(found) == [
        "mgda: unfinished and left out: seed 1.",
        "modo: no run is finished; shown as far as measured (step 50 and 0 of 1000).",
    ]


def test_what_failed_early_is_not_called_the_best(tmp_path):
    """A network that has not begun to learn has small errors: a run that diverged won by them."""
    rows = records(OBJECTIVES, 100, noise=random.Random(1))  # weights that move
    early = [rows[0] | {"R_opt": 1e-9, "R_gen": 0.0, "E_ca": 0.0}]
    runs = [
        *(save(tmp_path / m, config(m), rows) for m in ("static", "mgda")),
        save(tmp_path / "bad", config("modo"), early, finished=False),
    ]
    (found,) = comparisons(runs)
    assert "modo" not in summary.headline(found)[1]
    assert [shape.label for shape in triangle(found).shapes] == ["static", "mgda"]
    assert cell(summary.final(found), "modo (step 0 of 1000)", "R_opt")
    (found,) = comparisons(runs[1:])
    assert len(summary.headline(found)) == 1
    assert triangle(found) is None
    assert "One method that is finished makes no trade-off" in summary.absent(found)[0]


def test_a_single_seed_is_warned_of(tmp_path):
    found = ended(tmp_path, {"modo": [{}], "mgda": [{}, {}]})
    (text,) = summary.warnings(found)
    assert text.startswith("One seed only for modo:")


def test_the_headline_says_what_was_compared_and_what_differs_beyond_noise(tmp_path):
    apart = [{"R_opt": 1e-3 + i * 1e-6, "R_gen": 0.1 * i, "E_ca": 0.2} for i in range(5)]
    other = [{"R_opt": 2e-3 + i * 1.1e-6, "R_gen": 0.2 * i, "E_ca": 0.2} for i in range(5)]
    first, second, third = summary.headline(ended(tmp_path, {"mgda": apart, "modo": other}))
    assert first == (
        "2 methods on digits with 3 objectives: cross-entropy, MSE and Huber; 5 seeds each, "
        "1000 steps of 64 samples."
    )
    assert second.startswith("modo is not better")
    assert third.startswith("Errors that differ from mgda's beyond noise: modo: R_opt +1.00e-03")
    assert "R_gen" not in third


def test_the_headline_is_what_compare_prints(tmp_path):
    ends = {
        "static": [{"R_opt": 1e-3 + i * 1e-6, "test_loss/MSE": 0.5 + 0.01 * i} for i in range(5)],
        "modo": [
            {"R_opt": 1e-3 - i * 1e-6, "test_loss/MSE": 0.3 + 0.0101 * i, "R_gen": 2e-16}
            for i in range(5)
        ],
    }
    found = ended(tmp_path, ends)
    runs = {setting.method: list(setting.runs) for setting in found.settings}
    _, *told = summary.headline(found)
    assert told == findings.verdict(Compared("digits", runs, []))
    assert told[0].startswith("modo is better than static beyond noise (MSE −0.19")


def test_the_baseline_of_the_headline_is_static_weighting(tmp_path):
    ends = [{"test_loss/MSE": 0.5 + 0.01 * i} for i in range(5)]
    worse = [{"test_loss/MSE": 0.9 + 0.011 * i} for i in range(5)]
    found = ended(tmp_path, {"modo": worse, "static": ends})
    assert "modo is worse than static (MSE +0.4" in summary.headline(found)[1]


def test_one_method_has_no_winner(tmp_path):
    found = ended(tmp_path, {"modo": [{}, {}]})
    assert len(summary.headline(found)) == 1
    assert summary.absent(found) == [
        "One method alone makes no trade-off: no triangle of the three errors."
    ]


def test_nothing_measured_is_said(tmp_path):
    (found,) = comparisons([save(tmp_path, config(), [], finished=False)])
    assert summary.absent(found) == ["Nothing has been measured yet."]
    assert summary.final(found).columns == ("method", "seeds")
    assert summary.headline(found)[0].startswith("1 method on digits with 0 objectives")


def test_the_triangles_table_is_relative(tmp_path):
    found = ended(
        tmp_path,
        {
            "modo": [{"R_opt": 1.0, "R_gen": 4.0, "E_ca": 1.0}],
            "mgda": [{"R_opt": 4.0, "R_gen": 1.0, "E_ca": 1.0}],
        },
    )
    table = summary.relative(triangle(found))
    assert table.rows == (
        ("mgda", "1 (worst)", "0.25", "1 (worst)"),
        ("modo", "0.25", "1 (worst)", "1 (worst)"),
    )


@pytest.mark.parametrize("seeds", [1, 2])
def test_every_row_has_as_many_cells_as_there_are_columns(tmp_path, seeds):
    (found,) = comparisons(compared(tmp_path, seeds=seeds, steps=50, rho=0.1))
    table = summary.final(found)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert any(name.startswith("E_caw") for name in table.columns)


def test_the_page_says_whose_weights_hardly_moved(tmp_path):
    def run(method, last):
        rows = [record(step, OBJECTIVES) for step in (0, 500, 1000)]
        for row, change in zip(rows, (0.0, 0.001, last), strict=True):
            shares = (1 / 3 + change, 1 / 3 - change, 1 / 3)
            row |= {f"weight/{o}": share for o, share in zip(OBJECTIVES, shares, strict=True)}
        return save(tmp_path / method, config(method), rows)

    (found,) = comparisons([run("modo", 0.0033), run("mgda", 0.0034), run("static", 0.0)])
    (*_, said) = summary.headline(found)
    assert said == (
        "λ stayed within 1 % of its start in every run of modo: in effect, weights that do not "
        "change."
    )
