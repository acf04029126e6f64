"""What all samplers have in common: see `trimol.search.Sampler`."""

import math
from collections.abc import Callable

import pytest

from trimol.search import (
    GridSampler,
    OptunaSampler,
    RangeSampler,
    RangeSpace,
    Sampler,
    SearchSpace,
    Setting,
    Trial,
    TrialState,
)
from trimol.search._ranges import Choice, Range, Simplex

OBJECTIVES = ("a", "b")
ONE, TWO = {"loss": "lower"}, {"loss": "lower", "size": "higher"}
RANGES = RangeSpace(
    "static",
    {
        "lr": Range(1e-3, 10, "log"),
        "schedule": Choice(("constant", "linear")),
        "every": Range(1, 8, "int"),
        "max_norm": Range(0, 1, "lin", 3),
        "weights": Simplex(),
    },
    OBJECTIVES,
    0.1,
)
FEW = RangeSpace("static", {"lr": Choice((0.1, 1, 10)), "weights": Simplex(1)}, OBJECTIVES, 0.1)
BOX = SearchSpace("static", 2, 0.1, weighs="weights")
SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "grid": lambda seed: GridSampler([Setting("static", 0.1 * 2**k) for k in range(11)]),
    **{
        f"box by {kind}": lambda seed, kind=kind: OptunaSampler(
            BOX, [BOX.start()], kind=kind, seed=seed
        )
        for kind in ("gp", "tpe", "random")
    },
    **{
        f"{name} by {kind}, {len(ways)} goals": lambda seed, kind=kind, space=space, ways=ways: (
            RangeSampler(space, ways, kind=kind, seed=seed)
        )
        for kind in ("tpe", "random")
        for name, space in (("ranges", RANGES), ("few", FEW))
        for ways in (ONE, TWO)
    },
}
SIZES = {"grid": 11} | {name: 6 for name in SAMPLERS if name.startswith("few")}


def outcome(number: int, setting: Setting) -> Trial:
    """A trial; each third one did not come to its end."""
    if number % 3 == 1:
        state = (TrialState.FAILED, TrialState.PRUNED)[number % 2]
        return Trial(number, setting, state, note="it diverged")
    loss = abs(math.log(setting.lr))
    points = {seed: {"loss": loss + seed, "size": setting.lr} for seed in (0, 1)}
    return Trial(number, setting, TrialState.COMPLETE, points, -loss)


def play(sampler: Sampler, counts: tuple[int, ...]) -> list[Trial]:
    """Ask and tell in turn."""
    trials: list[Trial] = []
    for count in counts:
        asked = sampler.ask(count)
        assert len(asked) <= count
        trials += [outcome(len(trials) + place, setting) for place, setting in enumerate(asked)]
        sampler.tell(trials)
    return trials


def keys(trials: list[Trial]) -> list[str]:
    return [trial.setting.key for trial in trials]


@pytest.mark.parametrize("name", SAMPLERS)
def test_nothing_is_proposed_twice_and_all_that_there_is(name: str) -> None:
    trials = play(SAMPLERS[name](0), (1, 4, 4, 0, 4, 4))
    assert len(set(keys(trials))) == len(trials) == min(17, SIZES.get(name, 17))


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_trials_lead_to_the_same_proposals(name: str) -> None:
    once, again, fewer, other = (
        keys(play(SAMPLERS[name](seed), counts))
        for seed, counts in ((0, (4, 4, 4)), (0, (4, 4, 4)), (0, (4, 2)), (1, (4, 4, 4)))
    )
    assert once == again
    assert once[:6] == fewer  # a larger number of trials begins with those of a smaller one
    assert name == "grid" or once != other


@pytest.mark.parametrize("name", SAMPLERS)
def test_where_all_trials_failed_others_are_proposed(name: str) -> None:
    sampler = SAMPLERS[name](0)
    trials = [
        Trial(number, setting, TrialState.FAILED, note="it diverged")
        for number, setting in enumerate(sampler.ask(3))
    ]
    sampler.tell(trials)
    more = sampler.ask(3)
    assert len(more) == 3
    assert not {setting.key for setting in more} & set(keys(trials))


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_proposals_are_inside_the_ranges(kind: str) -> None:
    for trial in play(RangeSampler(RANGES, TWO, kind=kind), (4,) * 5):
        values = RANGES.values(trial.setting)
        assert 1e-3 <= values["lr"] <= 10
        assert values["schedule"] in ("constant", "linear")
        assert values["every"] in range(1, 9)
        assert values["max_norm"] in (0, 0.5, 1)
        assert sum(values["weights"]) == pytest.approx(1)


def test_tpe_finds_the_front_of_two_goals() -> None:
    """Larger is better of one goal, and near 1 of the other: nothing below 1 is on the front."""
    above = {}
    for kind in ("tpe", "random"):
        late = [
            trial.setting.lr >= 0.5
            for seed in range(3)
            for trial in play(RangeSampler(RANGES, TWO, kind=kind, seed=seed), (4,) * 10)[20:]
        ]
        above[kind] = sum(late) / len(late)
    assert above["tpe"] > above["random"] + 0.15


def test_a_space_of_one_setting_is_asked_once() -> None:
    alone = RangeSampler(RangeSpace("mgda", {"lr": Choice((0.1,))}, OBJECTIVES, 0.1), ONE)
    assert keys(play(alone, (4, 4))) == [Setting("mgda", 0.1).key]
