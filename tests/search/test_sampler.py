"""What every sampler owes: nothing twice, the same again, given settings first, all inside."""

from collections.abc import Sequence

import pytest

from trimol.search import OptunaSampler, SearchSpace, Setting, Trial, TrialState

SPACE = SearchSpace("static", 3, 0.1, weighs="weights")
KINDS = ("gp", "tpe", "random")


def value(setting: Setting) -> float:
    """Best at weights (0.6, 0.3, 0.1) and a learning rate of 0.3."""
    return -sum(
        abs(a - b)
        for a, b in zip((*setting.weights, setting.lr), (0.6, 0.3, 0.1, 0.3), strict=True)
    )


def played(kind: str, count: int, at_once: int = 1, first: Sequence[Setting] = (), seed=0):
    """The trials of a search, each told before the next is asked for."""
    sampler = OptunaSampler(SPACE, first, kind=kind, seed=seed)
    trials: list[Trial] = []
    while len(trials) < count:
        for setting in sampler.ask(min(at_once, count - len(trials))):
            score = value(setting)
            trials.append(Trial(len(trials), setting, TrialState.COMPLETE, {0: {}}, score))
        sampler.tell(trials)
    return trials


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_asked_twice_and_all_is_inside(kind, at_once):
    settings = [trial.setting for trial in played(kind, 12, at_once)]
    assert len({setting.key for setting in settings}) == 12
    for setting in settings:
        place = SPACE.place(setting)
        assert SPACE.setting(place).lr == pytest.approx(setting.lr, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_results_lead_to_the_same_settings(kind):
    one, two, other = (
        [trial.setting.key for trial in played(kind, 8, seed=seed)] for seed in (0, 0, 1)
    )
    assert one == two
    assert one != other
    assert one[:6] == [trial.setting.key for trial in played(kind, 6)]  # a larger budget goes on


@pytest.mark.parametrize("kind", KINDS)
def test_given_settings_come_first_and_once(kind):
    first = [SPACE.start(), SPACE.start(0.3), SPACE.start()]
    settings = [trial.setting for trial in played(kind, 4, first=first)]
    assert settings[:2] == first[:2]
    assert len({setting.key for setting in settings}) == 4


@pytest.mark.parametrize("kind", ["gp", "tpe"])
def test_learning_beats_luck(kind):
    best = {
        own: max(trial.score for seed in range(3) for trial in played(own, 20, seed=seed))
        for own in (kind, "random")
    }
    assert best[kind] > best["random"]


def test_failed_trials_are_learned_from():
    sampler = OptunaSampler(SPACE, [SPACE.start()])
    (first,) = sampler.ask(1)
    sampler.tell([Trial(0, first, TrialState.FAILED, note="it diverged")])
    smaller = sampler.ask(2)  # most often, the learning rate is too large
    assert [(own.weights, own.lr) for own in smaller] == [
        (first.weights, 0.03162),
        (first.weights, 0.01),
    ]
    sampler.tell(
        [
            Trial(0, first, TrialState.FAILED, note="it diverged"),
            Trial(1, smaller[0], TrialState.FAILED, note="it diverged"),
            Trial(2, smaller[1], TrialState.COMPLETE, {0: {}}, 0.0),
        ]
    )
    assert [setting.lr for setting in sampler.ask(1)] == [0.003162]


def test_what_comes_then_has_the_learning_rate_that_was_found():
    sampler = OptunaSampler(SPACE, [SPACE.start()], then=[SPACE.start(None, [3, 2, 1])])
    trials = [Trial(0, *sampler.ask(1), TrialState.COMPLETE, {0: {}}, 0.0)]
    sampler.tell(trials)
    for lr, score in ((0.3162, 1.0), (0.9999, 0.5)):
        (setting,) = sampler.ask(1)
        assert (setting.lr, setting.weights[0]) == (lr, setting.weights[1])
        trials.append(Trial(len(trials), setting, TrialState.COMPLETE, {0: {}}, score))
        sampler.tell(trials)
    (then,) = sampler.ask(1)
    assert then.lr == pytest.approx(0.3162, rel=1e-3)
    assert then.weights == pytest.approx((0.5, 1 / 3, 1 / 6), rel=1e-3)
