"""The search around the best setting, on scores that are known in closed form."""

import math
from types import SimpleNamespace

import pytest

from trimol.runs._attempts import Attempt
from trimol.runs._candidates import Candidate
from trimol.runs._near_best import NearBest
from trimol.runs._trying import FEW_REACHES, REACHES


def score(candidate: Candidate) -> float:
    """Best at a step size of 1, falling by a cosine, with 100 times the weight on the second."""
    first, second = candidate.hyperparameters["weights"]
    ratio = math.log10(second / first) - 2
    return -(math.log10(candidate.lr) ** 2) - ratio**2 + 0.3 * (candidate.schedule == "cosine")


class Tried:
    """What was tried, as the search sees it."""

    def __init__(self, *candidates: Candidate) -> None:
        self.own: dict[str, Attempt] = {}
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        self.own[repr(candidate)] = Attempt(candidate, [], "", score(candidate))

    def of(self, name: str) -> dict[str, Attempt]:
        return self.own

    def best(self, name: str) -> Attempt:
        return max(self.own.values(), key=lambda own: own.value)

    def worth(self) -> float:
        return 1e-3


def searched(reaches: object, most: int | None) -> tuple[Tried, list[list[Candidate]]]:
    tried = Tried(
        *(Candidate(lr, {"weights": [0.5, 0.5]}, schedule="linear") for lr in (0.01, 9.0))
    )
    series = {"static": SimpleNamespace(key=repr)}
    search = NearBest(series, tried, ["static"], reaches, most=most, last=False)  # type: ignore[arg-type]
    rounds = []
    while more := search.wanted():
        rounds.append(more["static"])
        for candidate in more["static"]:
            tried.add(candidate)
        search.conclude(more)
    return tried, rounds


def test_without_a_limit_it_finds_the_best() -> None:
    tried, _ = searched(REACHES, None)
    assert tried.best("static").value == pytest.approx(0.3, abs=0.01)


def test_few_settings_are_spent_around_what_is_best_so_far() -> None:
    tried, rounds = searched(FEW_REACHES, 40)
    assert len(tried.own) <= 40
    assert tried.best("static").value > 0.2
    # Four neighbours a round, by half a decade, until none of them gains; then schedules, too.
    far = [own for own in rounds if len(own) <= 4]
    assert len(far) >= 3
    assert {c.schedule for own in far[:3] for c in own} == {"linear"}
    assert any(c.schedule == "cosine" for own in rounds for c in own)
    together, _ = searched(REACHES, 14)
    assert searched(FEW_REACHES, 14)[0].best("static").value > together.best("static").value + 0.5
