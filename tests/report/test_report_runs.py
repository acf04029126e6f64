"""Which runs are put together, which count, and what they are called."""

import math

import pytest
from report_samples import OBJECTIVES, compared, config, record, records, save

from trimol.report._runs import comparisons, last, trajectory
from trimol.runs.store import find


def test_runs_that_differ_in_their_seed_are_one_setting(tmp_path):
    (found,) = comparisons(compared(tmp_path, seeds=3))
    assert found.title == found.slug == "digits"
    assert found.objectives == OBJECTIVES
    assert found.labels == ("static", "mgda", "modo")
    assert [setting.seeds for setting in found.settings] == [(0, 1, 2)] * 3


def test_methods_come_in_the_order_of_the_library_and_settings_by_size(tmp_path):
    rows = records(OBJECTIVES, 100)
    given = [
        ("modo", {"gamma": 0.5}),
        ("modo", {"gamma": 0.01}),
        ("mgda", {}),
        ("static", {}),
    ]
    runs = [
        save(tmp_path / str(i), config(method, hyperparameters=more, steps=100), rows)
        for i, (method, more) in enumerate(given)
    ]
    (found,) = comparisons(runs)
    assert found.labels == ("static", "mgda", "modo gamma=0.01", "modo gamma=0.5")


def test_rho_of_the_method_is_told_from_that_of_the_measure(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [
        save(tmp_path / str(rho), config(hyperparameters={"rho": rho}, rho=0.5), rows)
        for rho in (0.0, 0.1)
    ]
    (found,) = comparisons(runs)
    assert found.labels == ("modo method's rho=0", "modo method's rho=0.1")


def test_how_often_a_run_was_measured_does_not_tell_settings_apart(tmp_path):
    runs = [
        save(tmp_path / "0", config(seed=0, measure_every=50), records(OBJECTIVES, 100)),
        save(tmp_path / "1", config(seed=1, measure_every=25), records(OBJECTIVES, 100, every=25)),
    ]
    (found,) = comparisons(runs)
    values = trajectory(found.settings[0].runs, "R_opt")
    assert {step: len(found) for step, found in values.items()} == {
        0: 2,
        25: 1,
        50: 2,
        75: 1,
        100: 2,
    }


def test_tasks_with_other_options_or_another_source_are_told_apart(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [
        save(tmp_path / "a", config(task_options={"hidden": 8}), rows),
        save(tmp_path / "b", config(task_options={"hidden": 16}), rows),
        save(tmp_path / "c", config(task="/home/me/mine.py:Mine", source="ab" * 32), rows),
    ]
    found = comparisons(runs)
    assert [c.title for c in found] == ["digits (hidden=8)", "digits (hidden=16)", "mine.py:Mine"]
    assert len({c.slug for c in found}) == 3


def test_a_users_task_is_its_content_wherever_the_file_lies(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [
        save(tmp_path / place, config(task=f"/{place}/mine.py:Mine", source="ab", seed=i), rows)
        for i, place in enumerate("ab")
    ]
    (found,) = comparisons(runs)
    assert found.settings[0].seeds == (0, 1)


def test_names_without_a_plain_letter_get_distinct_slugs(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [
        save(tmp_path / str(i), config(task=t), rows) for i, t in enumerate(("目标", "??", "A"))
    ]
    assert [c.slug for c in comparisons(runs)] == ["task", "task-2", "a"]


def test_unfinished_runs_do_not_count_beside_finished_ones(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [
        save(tmp_path / "0", config(seed=0), rows),
        save(tmp_path / "1", config(seed=1), rows[:1], finished=False),
    ]
    (found,) = comparisons(runs)
    (setting,) = found.settings
    assert setting.finished
    assert setting.seeds == (0,)
    assert [run.config.seed for run in setting.left_out] == [1]


def test_without_a_finished_run_the_unfinished_ones_count(tmp_path):
    runs = [
        save(tmp_path / "0", config(), [], finished=False),
        save(tmp_path / "1", config(seed=1), records(OBJECTIVES, 50), finished=False),
    ]
    (found,) = comparisons(runs)
    (setting,) = found.settings
    assert not setting.finished
    assert setting.seeds == (0, 1)
    assert found.objectives == OBJECTIVES


def test_a_seed_that_is_there_twice_counts_once(tmp_path):
    rows = records(OBJECTIVES, 100)
    runs = [save(tmp_path / place, config(), rows) for place in "ab"]
    (found,) = comparisons(runs)
    assert len(found.settings[0].runs) == 1


def test_values_are_taken_as_recorded(tmp_path):
    rows = [record(0, OBJECTIVES), record(10, OBJECTIVES)]
    rows[0]["R_gen"], rows[1]["R_gen"] = -0.25, math.nan
    del rows[1]["E_ca"]
    run = save(tmp_path, config(), rows)
    assert trajectory([run], "R_gen")[0] == [-0.25]
    assert trajectory([run], "|R_gen|")[0] == [0.25]
    assert math.isnan(last([run], "|R_gen|")[0])
    assert last([run], "E_ca") == [rows[0]["E_ca"]]  # the last that was measured
    assert trajectory([run], "nowhere") == {}
    assert last([run], "nowhere") == pytest.approx([])


def test_how_often_was_looked_is_named_only_where_nothing_else_differs(tmp_path):
    for name, steps, every in (("a", 4, 4), ("b", 8, 8)):
        save(
            tmp_path / name, config("modo", steps=steps, score_every=every), records(OBJECTIVES, 4)
        )
    (found,) = comparisons(find(tmp_path))
    assert set(found.labels) == {"modo steps=4", "modo steps=8"}
    save(tmp_path / "c", config("modo", steps=8, score_every=2), records(OBJECTIVES, 4))
    (found,) = comparisons(find(tmp_path))
    assert len(set(found.labels)) == 3
