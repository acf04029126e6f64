"""Settings and where they lie in a search space."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimol.methods import names
from trimol.search import SearchSpace, Setting
from trimol.search._space import RATES, RATIOS, space_of

SPACE = SearchSpace("static", 3, 0.1, weighs="weights")


@given(
    st.floats(-RATES, RATES),
    st.lists(st.floats(-RATIOS, RATIOS), min_size=2, max_size=2),
    st.sampled_from([None, (1.0, 10.0, 0.1)]),
)
def test_a_place_and_its_setting_are_one(rate, ratios, lengths):
    space = SearchSpace("static", 3, 0.1, weighs="weights", lengths=lengths)
    place = {"lr": rate - 1, "weights.1": ratios[0], "weights.2": ratios[1]}
    setting = space.setting(place)
    assert sum(setting.weights) == pytest.approx(1, abs=2e-3)
    again = space.place(setting)
    assert again == pytest.approx(place, abs=2e-3)


def test_steps_of_other_weights_are_as_long_as_those_of_equal_ones():
    space = SearchSpace("static", 2, 0.1, weighs="weights", lengths=(1.0, 100.0))
    equal, balanced = space.start(), space.start(None, [1.0, 0.01])
    assert equal.lr == 0.1
    length = [
        s.lr * math.hypot(s.weights[0] * 1.0, s.weights[1] * 100.0) for s in (equal, balanced)
    ]
    assert length[0] == pytest.approx(length[1], rel=1e-3)


@pytest.mark.parametrize("method", names())
def test_every_method_has_a_space_to_begin_in(method):
    space = space_of(method, 3, 0.1)
    start = space.start()
    assert start.method == method
    inside = space.place(start)
    assert all(low <= inside[n] <= high for n, (low, high) in space.dimensions.items())


def test_a_setting_outside_is_moved_to_the_bound():
    far = Setting("static", 1e6, {"weights": [1.0, 1e-9, 1e-9]})
    assert SPACE.place(far) == {"lr": -1 + RATES, "weights.1": -RATIOS, "weights.2": -RATIOS}


def test_a_setting_says_what_to_type():
    setting = Setting("modo", 0.03, {"gamma": "auto", "length": "mean gradient"}, "cosine")
    assert setting.command("mine.py:Mine") == (
        "trimol run mine.py:Mine --method modo --lr 0.03 --gamma auto --length 'mean gradient' "
        "--schedule cosine"
    )
