"""A grid that goes on beyond its edges, on scores that are known in closed form."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from trimol.search import BudgetStudy, FunctionProblem, GridSampler, Setting
from trimol.search._grid import exhaust, find_edges, step_beyond


def search(
    loss: Callable[[Setting], float], settings: list[Setting], budget: int = 100, **how: Any
) -> BudgetStudy:
    """Try all that a grid proposes, by one loss."""
    problem = FunctionProblem(lambda setting: {"loss": loss(setting)}, ["loss"], lr=1.0)
    study = BudgetStudy(problem, {"static": GridSampler(settings, **how)}, budget)
    exhaust(study, ["static"])
    return study


def rates(study: BudgetStudy) -> list[float]:
    return [trial.setting.lr for trial in study.trials["static"]]


def at(*lrs: float, **own: Any) -> list[Setting]:
    return [Setting("static", lr, own) for lr in lrs]


def bowl(best: float) -> Callable[[Setting], float]:
    """Rise with the distance from the best learning rate, in powers of ten."""
    return lambda setting: 1 + abs(math.log10(setting.lr / best))


@pytest.mark.parametrize(
    ("best", "tried"),
    [
        (1.0, [0.1, 1.0, 10.0]),
        (100.0, [0.1, 1.0, 10.0, 100.0, 1000.0]),
        (1e-2, [0.1, 1.0, 10.0, 0.01, 0.001]),
        (1e9, [0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0]),
    ],
)
def test_the_best_ends_inside_or_the_limit_is_reached(best: float, tried: list[float]) -> None:
    study = search(bowl(best), at(0.1, 1.0, 10.0), extend=3)
    assert rates(study) == tried
    nearest = min(tried, key=lambda lr: abs(math.log10(lr / best)))
    assert study.best("static").setting.lr == nearest


def test_a_plain_grid_is_not_extended() -> None:
    assert rates(search(bowl(100.0), at(0.1, 1.0))) == [0.1, 1.0]


def test_the_ratio_is_that_of_the_edge() -> None:
    assert step_beyond(0.5, [0.1, 0.4, 0.5]) == 0.625
    assert step_beyond(0.1, [0.1, 0.4, 0.5]) == 0.025
    assert step_beyond(5e-4, [1e-4, 5e-4]) == 0.0025  # and not 0.0025000000000000005
    assert step_beyond(0.1, [0.0, 0.1]) is None  # no ratio leads there from 0


def test_a_ladder_says_what_comes_next_and_where_it_ends() -> None:
    ladder = (0.03, 0.1, 0.3, 1.0, 3.0)
    study = search(bowl(100.0), at(0.1, 0.3), extend=9, axes={"lr": ladder})
    assert rates(study) == [0.1, 0.3, 1.0, 3.0]
    study = search(bowl(1e-9), at(0.1, 0.3), extend=9, axes={"lr": ladder})
    assert rates(study) == [0.1, 0.3, 0.03]


def grid(method: str = "static") -> list[Setting]:
    return [Setting(method, lr, {"mu": mu}) for lr in (0.1, 1.0) for mu in (2.0, 4.0)]


def test_every_number_moves_by_itself() -> None:
    def loss(setting: Setting) -> float:
        return 1 + abs(math.log(setting.lr)) + abs(math.log(setting.values["mu"] / 8))

    study = search(loss, grid(), extend=1)
    added = [trial.setting.values for trial in study.trials["static"][4:]]
    assert added == [{"lr": 10.0, "mu": 4.0}, {"lr": 1.0, "mu": 8.0}]
    assert study.best("static").setting.values == {"lr": 1.0, "mu": 8.0}
    only = search(loss, grid(), extend=1, axes={"mu": (1.0, 2.0, 4.0, 8.0)})
    assert [trial.setting.values for trial in only.trials["static"][4:]] == [{"lr": 1.0, "mu": 8.0}]


def test_the_whole_edge_moves() -> None:
    ladder = (0.1, 1.0, 10.0, 100.0)
    study = search(bowl(10.0), grid(), extend=5, axes={"lr": ladder}, whole=True)
    added = [trial.setting.values for trial in study.trials["static"][4:]]
    moved = [{"lr": lr, "mu": mu} for lr in (10.0, 100.0) for mu in (2.0, 4.0)]
    assert added == moved


def test_numbers_of_one_value_and_lists_stay() -> None:
    tried = [Setting("static", lr, {"mu": 1.0, "weights": [0.5, 0.5]}) for lr in (0.1, 1.0)]
    assert find_edges(tried[0], tried) == ["lr"]
    assert find_edges(tried[0], tried, {"mu"}) == []
    options = [Setting("static", 0.1, task_options={"decay": own}) for own in (0.01, 0.1)]
    study = search(lambda setting: setting.values["decay"], options, extend=1)
    assert study.best("static").setting == Setting("static", 0.1, task_options={"decay": 0.001})


def test_where_all_fail_smaller_learning_rates_are_tried() -> None:
    def loss(setting: Setting) -> float:
        return 1.0 if setting.lr < 0.01 else math.nan

    study = search(loss, at(1.0, 0.1), extend=5)
    assert rates(study) == [1.0, 0.1, 0.01, 0.001, 0.0001]
    assert study.best("static").setting.lr == 0.001


def test_a_search_again_asks_for_the_same() -> None:
    first, second = (search(bowl(100.0), at(0.1, 1.0), extend=3) for _ in range(2))
    assert rates(first) == rates(second)


def test_a_budget_ends_the_search() -> None:
    assert len(rates(search(bowl(1e9), at(0.1, 1.0), budget=4, extend=9))) == 4
