"""Comparing methods: the numbers, their names, their means."""

import statistics

import pytest

from trimol.study import compare, summarise
from trimol.tasks import get
from trimol.training import assess, start, train


def test_runs_are_those_of_the_tasks_settings() -> None:
    task, watched = get("digits")(), []
    results = compare(task, ["modo"], seeds=2, steps=5, watch=watched.append)
    assert watched == ["modo"] * 10
    settings = task.settings["modo"]
    for seed, found in enumerate(results["modo"]):
        run = start(task, "modo", lr=settings.lr, hyperparameters=settings.method, seed=seed)
        assert found == assess(train(run, 5))


def test_rows() -> None:
    results = compare(get("digits")(), ["static", "mgda"], seeds=3, steps=2)
    rows = summarise(results)
    names = ["cross-entropy", "MSE", "Huber", "accuracy", "R_opt", "R_pop", "R_gen", "E_ca"]
    assert [row.metric for row in rows] == names * 2
    assert [row.method for row in rows] == ["static"] * 8 + ["mgda"] * 8
    gaps = [abs(run.errors.gen or 0.0) for run in results["static"]]
    row = rows[6]
    assert (row.mean, row.n, row.paper) == (statistics.mean(gaps), 3, None)
    assert row.std == pytest.approx(statistics.stdev(gaps))


def test_one_seed_has_no_spread() -> None:
    rows = summarise(compare(get("digits")(), ["static"], seeds=1, steps=1))
    assert {row.std for row in rows} == {None}


def test_a_method_without_settings_has_the_defaults() -> None:
    class Bare(get("digits")):  # type: ignore[misc]
        settings = {}  # noqa: RUF012

    assert len(compare(Bare(), ["static"], seeds=1, steps=1)["static"]) == 1
