"""What a search may try: grids that have every point once, and proposals that stay inside."""

import math
from itertools import product

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.runs import _spaces as spaces
from trimol.runs._judging import gains
from trimol.runs._spaces import Choice, Range, Simplex

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(st.integers(1, 6), st.integers(1, 5))
def test_a_lattice_has_every_multiple_once(steps: int, objectives: int) -> None:
    found = spaces.values(Simplex(steps), objectives)
    expected = [
        [part / steps for part in parts]
        for parts in product(range(steps + 1), repeat=objectives)
        if sum(parts) == steps
    ]
    assert sorted(found) == sorted(expected)
    assert len(found) == math.comb(steps + objectives - 1, objectives - 1)


@given(NUMBERS, NUMBERS, st.integers(2, 30), st.sampled_from(["lin", "log", "int"]))
def test_points_rise_evenly_from_end_to_end(a: float, b: float, points: int, kind: str) -> None:
    low, high = sorted((a, b))
    if kind == "log":
        low, high = sorted((abs(a), abs(b)))
    if kind == "int":
        low, high = float(round(low)), float(round(high))
    if not low < high * (1 - 1e-6) or (kind == "log" and low < 1e-9) or high - low < 1e-6:
        return
    found = spaces.values(Range(low, high, kind, points), 2)
    assert (found[0], found[-1]) == (low, high)
    assert found == sorted(set(found)) or high - low < 1e-3 * abs(high)
    if kind == "lin":
        assert found[1] - low == pytest.approx((high - low) / (points - 1), rel=1e-3, abs=1e-6)
    if kind == "log" and points > 2:
        assert found[1] / low == pytest.approx((high / low) ** (1 / (points - 1)), rel=1e-6)
    if kind == "int":
        assert all(value == int(value) for value in found)


def test_a_grid_is_the_product() -> None:
    own = {"lr": Range(0.1, 10, "log", 3), "schedule": Choice(("constant", "linear"))}
    found = spaces.grid(own, 2)
    expected = [
        {"lr": lr, "schedule": name} for lr in (0.1, 1.0, 10.0) for name in ("constant", "linear")
    ]
    assert found == expected
    assert spaces.grid({}, 2) == [{}]


SPACES = st.one_of(
    st.builds(Simplex, st.none() | st.integers(1, 9)),
    st.lists(st.integers(-9, 9) | st.sampled_from([0.5, 1e-7]), min_size=1, unique=True).map(
        lambda values: Choice(tuple(values))
    ),
    st.tuples(st.floats(1e-6, 1), st.floats(1.5, 1e6), st.sampled_from(["lin", "log"])).map(
        lambda ends: Range(*ends)
    ),
)


@given(SPACES)
def test_what_is_typed_is_read_again(own: spaces.Space) -> None:
    text = spaces.text(own)
    again = spaces.parse(text)
    if isinstance(own, Choice):
        assert again is None
        assert [float(part) for part in text.split(",")] == list(own.values)
    else:
        assert again == own


@settings(max_examples=30, deadline=None)
@given(SPACES, st.integers(0, 2**31))
def test_proposals_are_inside(own: spaces.Space, seed: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    value = spaces.suggest(study.ask(), "s", own, ("a", "b", "c"))
    if isinstance(own, Simplex):
        assert sum(value) == pytest.approx(1, abs=1e-9)  # `prefer` wants 1e-6
        assert min(value) >= 0
    elif isinstance(own, Range):
        assert own.low <= value <= own.high
    else:
        assert value in own.values


def test_weights_are_uniform_on_the_simplex() -> None:
    """Dirichlet(1, 1, 1): every weight has mean 1/3 and variance 1/18, and P(w > 1/2) = 1/4."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [spaces.suggest(study.ask(), "w", Simplex(), "abc") for _ in range(1500)]
    for weights in zip(*drawn, strict=True):
        mean = sum(weights) / len(weights)
        assert mean == pytest.approx(1 / 3, abs=0.02)
        assert sum((w - mean) ** 2 for w in weights) / 1500 == pytest.approx(1 / 18, rel=0.1)
        assert sum(w > 0.5 for w in weights) / 1500 == pytest.approx(1 / 4, abs=0.04)


@given(st.lists(st.floats(1e-12, 30), min_size=1, max_size=40))
def test_no_weight_is_rounded_to_nothing(waits: list[float]) -> None:
    """Methods that divide by their preferences take no 0."""
    shares = spaces._shares(waits)
    assert min(shares) >= 1e-4
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("value", "own", "at"),
    [
        (0.1, Range(0.1, 10, "log"), True),
        (9.9, Range(0.1, 10, "log"), True),
        (1.0, Range(0.1, 10, "log"), False),
        (0.25, Range(0.1, 10, "lin"), True),
        (3, Choice((1, 2, 3)), True),
        (2, Choice((1, 2, 3)), False),
        (1, Choice((1,)), False),
        ("linear", Choice(("constant", "linear")), False),
        (True, Choice((True, False)), False),
        ([1.0, 0.0], Simplex(), False),
    ],
)
def test_an_edge_is_noticed(value: object, own: spaces.Space, at: bool) -> None:
    assert spaces.at_edge(value, own) == at


POSITIVE = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=9), POSITIVE, POSITIVE)
def test_scores_know_no_units_and_reward_what_is_better(
    pairs: list[tuple[float, float]], a: float, b: float
) -> None:
    goals = {"x": {"up": "higher"}, "y": {"down": "lower"}}
    each = [{"up": u, "down": d} for u, d in pairs]
    scores = gains(each, goals)
    scaled = gains([{"up": a * own["up"], "down": b * own["down"]} for own in each], goals)
    assert scaled == pytest.approx(scores, rel=1e-6, abs=1e-6)
    for i, one in enumerate(each):
        for j, other in enumerate(each):
            if one["up"] >= other["up"] and one["down"] <= other["down"]:
                assert scores[i] >= scores[j] - 1e-9


def test_one_setting_astray_changes_no_choice() -> None:
    goals = {"x": {"a": "lower"}, "y": {"b": "lower"}}
    each = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, {"a": 3.0, "b": 1.5}]
    before = gains(each, goals)
    after = gains([*each, {"a": 1e30, "b": 50.0}, {"a": 2.0, "b": 2.0}], goals)
    assert after[:3] == pytest.approx(before)


def test_who_tells_everybody_the_same_is_not_the_best_trial() -> None:
    goals = {"loss": {"AUC": "higher"}, "gap": {"gap": "lower"}}
    found = ((0.5, 0.0), (0.70, 0.06), (0.72, 0.2), (0.45, 0.9))
    each = [{"AUC": auc, "gap": gap} for auc, gap in found]
    by_size, by_spread = gains(each, goals), gains(each, goals, spread=True)
    assert by_size.index(max(by_size)) == 0
    assert by_spread.index(max(by_spread)) == 1
    # The median of the AUC is 0.6, of the gap 0.13; what no other dominates is 0.22 and 0.2 apart.
    by_hand = [50 * ((auc - 0.6) / 0.22 - (gap - 0.13) / 0.2) for auc, gap in found]
    assert by_spread == pytest.approx(by_hand)
