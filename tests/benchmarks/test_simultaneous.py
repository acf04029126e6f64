"""The claim of docs/understand/cost.md about ``simultaneous=True``, on fewer trials."""

import pytest


@pytest.fixture(scope="module")
def study(load_script):
    return load_script("benchmarks/simultaneous.py")


@pytest.mark.slow
def test_errors_do_not_differ_beyond_noise(study):
    for name, found in study.differences(trials=15, gamma=0.001).items():
        assert abs(found.gap) < 0.25 * found.spread, name


def test_trials_are_reproducible(study):
    once, again = (study.trial(3, simultaneous=True, gamma=0.01, steps=20) for _ in range(2))
    assert once == again
