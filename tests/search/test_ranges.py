"""What may be tried of a setting: grids that have every point once, proposals that stay inside."""

import math
from itertools import product

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.search import RangeSpace, Setting
from trimol.search._ranges import Choice, Dimension, Range, Simplex, parse_dimension, share_out

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(st.integers(1, 6), st.integers(1, 5))
def test_a_lattice_has_every_multiple_once(steps: int, objectives: int) -> None:
    found = Simplex(steps).values(objectives)
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
    found = Range(low, high, kind, points).values(2)
    assert (found[0], found[-1]) == (low, high)
    assert found == sorted(set(found)) or high - low < 1e-3 * abs(high)
    if kind == "lin":
        assert found[1] - low == pytest.approx((high - low) / (points - 1), rel=1e-3, abs=1e-6)
    if kind == "log" and points > 2:
        assert found[1] / low == pytest.approx((high / low) ** (1 / (points - 1)), rel=1e-6)
    if kind == "int":
        assert all(value == int(value) for value in found)


def space(dimensions: dict[str, Dimension], method: str = "static") -> RangeSpace:
    return RangeSpace(method, dimensions, ("a", "b", "c"), 0.5)


def test_a_grid_is_the_product() -> None:
    own = {"lr": Range(0.1, 10, "log", 3), "schedule": Choice(("constant", "linear"))}
    assert space(own).grid() == [
        Setting("static", lr, {}, schedule)
        for lr in (0.1, 1.0, 10.0)
        for schedule in (None, "linear")
    ]
    assert space(own).size == 6
    assert space({}).grid() == [Setting("static", 0.5)]


def test_a_setting_and_its_values_are_one() -> None:
    """Bounds go by objective; a hyper-parameter may have the name of one of the run's."""
    names = ("lr", "schedule", "method.lr", "bounds.a", "bounds.b", "weights")
    every = space({name: Choice((1,)) for name in names})
    values = {"lr": 0.1, "schedule": "constant", "method.lr": 0.2, "bounds.a": 1, "bounds.b": 2}
    values["weights"] = [0.5, 0.25, 0.25]
    setting = every.setting(values)
    assert (setting.lr, setting.schedule) == (0.1, None)
    weights = [0.5, 0.25, 0.25]
    assert setting.hyperparameters == {"lr": 0.2, "bounds": {"a": 1, "b": 2}, "weights": weights}
    assert every.values(setting) == values


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
def test_what_is_typed_is_read_again(own: Dimension) -> None:
    text = str(own)
    again = parse_dimension(text)
    if isinstance(own, Choice):
        assert again is None
        assert [float(part) for part in text.split(",")] == list(own.options)
    else:
        assert again == own


@settings(max_examples=30, deadline=None)
@given(SPACES, st.integers(0, 2**31))
def test_proposals_are_inside(own: Dimension, seed: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    value = own.suggest(study.ask(), "s", ("a", "b", "c"))
    if isinstance(own, Simplex):
        assert sum(value) == pytest.approx(1, abs=1e-9)  # `prefer` wants 1e-6
        assert min(value) >= 0
    elif isinstance(own, Range):
        assert own.low <= value <= own.high
    else:
        assert value in own.options


def test_weights_are_uniform_on_the_simplex() -> None:
    """Dirichlet(1, 1, 1): every weight has mean 1/3 and variance 1/18, and P(w > 1/2) = 1/4."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [Simplex().suggest(study.ask(), "w", "abc") for _ in range(1500)]
    for weights in zip(*drawn, strict=True):
        mean = sum(weights) / len(weights)
        assert mean == pytest.approx(1 / 3, abs=0.02)
        assert sum((w - mean) ** 2 for w in weights) / 1500 == pytest.approx(1 / 18, rel=0.1)
        assert sum(w > 0.5 for w in weights) / 1500 == pytest.approx(1 / 4, abs=0.04)


@given(st.lists(st.floats(1e-12, 30), min_size=1, max_size=40))
def test_no_weight_is_rounded_to_nothing(waits: list[float]) -> None:
    """Methods that divide by their preferences take no 0."""
    shares = share_out(waits)
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
def test_an_edge_is_noticed(value: object, own: Dimension, at: bool) -> None:
    assert own.is_edge(value) == at
