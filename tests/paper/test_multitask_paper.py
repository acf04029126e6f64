"""The paper's multi-task cells: they give the paper's own ΔA, and every setting can be run."""

import math

import pytest

from trimol import paper as reproduce
from trimol.compare import drop
from trimol.paper import multitask_tables as paper
from trimol.paper._dense.dense_task import GOALS
from trimol.runs.config import hyperparameters_of
from trimol.tasks import Goals

TABLES = list(paper.stated()["tables"])
PRINTED = [name for name in TABLES if paper.stated()["tables"][name]["label"]]


def goals(name: str) -> Goals:
    if paper.stated()["tables"][name]["task"] == "nyuv2":
        return GOALS
    metrics = [m for m in paper.cells(name, "static") if not m.startswith("ΔA")]
    return {metric.removesuffix(" accuracy"): {metric: "higher"} for metric in metrics}


def means(name: str, method: str) -> dict[str, float]:
    return {metric: cell.mean for metric, cell in paper.cells(name, method).items()}


@pytest.mark.parametrize("name", PRINTED)
def test_the_cells_give_their_own_drops(name: str) -> None:
    # A cell that was copied wrongly would show. Printed drops are of numbers not yet rounded: an
    # accuracy of four digits moves them by 0.01 at most, Table 6's depth of three by 0.1.
    near = 0.1 if name == "table6" else 0.05
    baseline = paper.baselines(paper.stated()["tables"][name]["task"])
    against = baseline.get("validation", baseline.get("test"))
    assert against is not None
    for method in paper.methods(name):
        own = means(name, method)
        assert drop(own, against, goals(name)) == pytest.approx(own["ΔA_id"], abs=near), method
        if "ΔA_st" in own:
            found = drop(own, means(name, "static"), goals(name))
            assert found == pytest.approx(own["ΔA_st"], abs=near), method


def test_baselines_on_test_are_other_numbers() -> None:
    found = paper.baselines("office-31")
    assert found["validation"]["dslr accuracy"] == 0.9888
    assert found["test"]["dslr accuracy"] == 0.9426
    assert set(paper.baselines("office-home")) == {"validation"}
    assert paper.baselines("scenes") == {}


def test_cells_are_in_plain_units() -> None:
    cell = paper.cells("table6", "modo")["abs err"]
    assert (cell.mean, cell.std, cell.rounding) == (0.398, 0.002, 0.0005)
    assert paper.cells("table6", "modo")["angle mean"].mean == 23.45
    alone = paper.cells("table-appendix-nyuv2", "modo")["abs err"]
    assert alone.mean == 0.3739
    assert math.isnan(alone.std)
    assert alone.runs == 1
    assert paper.cells("table4", "mgda")["amazon accuracy"].std == 0.0107  # not the printed 0.11 %


@pytest.mark.parametrize("name", TABLES)
def test_settings_can_be_run(name: str) -> None:
    assert name in reproduce.names()
    for method in paper.methods(name):
        for grid in (True, False):
            tried = paper.list_values(name, method, grid=grid)
            assert len({tuple(sorted(flat.items())) for flat in tried}) == len(tried)
            for flat in tried:
                known = {"lr", "weight_decay", *hyperparameters_of(method)}
                assert set(flat) <= known


def test_all_methods_of_an_appendix_have_the_same_step_sizes() -> None:
    for name in (name for name in TABLES if "appendix" in name):
        lrs = {
            method: [flat["lr"] for flat in paper.list_values(name, method, grid=True)]
            for method in paper.methods(name)
        }
        assert set(map(tuple, lrs.values())) == {(1e-4, 5e-4)}
    (chosen,) = paper.list_values("table-appendix-officehome", "modo", grid=False)
    assert chosen == {"lr": 5e-4, "weight_decay": 1e-5, "gamma": 1e-3}
