"""The statistics of theorems on made-up data whose verdict is known; every verdict is reached."""

import polars
import pytest

from trimol.paper import _theory_verdicts as verdicts
from trimol.paper._verdicts import get


def verdict(name, table, **arguments):
    return get(name)(table, **arguments).verdict


def fitted(exponent, half=0.01, **more):
    line = {"exponent": exponent, "low": exponent - half, "high": exponent + half, "n": 5}
    return {**line, "promised": 0.25, "error": "R_opt", "in": "T", **more}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.3, 0.5, "holds"), (0.1, 0.2, "inconclusive"), (0.1, 0.5, "inconclusive")],
)
def test_exponent(low, high, expected):
    """A slope that is not there yet refutes no rate, which allows any constant."""
    line = {**fitted(0.0), "exponent": (low + high) / 2, "low": low, "high": high}
    assert verdict("exponent", polars.DataFrame([line]), slack=0.0) == expected
    assert verdict("exponent", polars.DataFrame([fitted(0.24, 0.005)])) == "holds"
    assert verdict("exponent", polars.DataFrame([fitted(0.24, 0.005)]), slack=0.0) != "holds"
    with pytest.raises(ValueError, match="exponent needs one row, found 2"):
        get("exponent")(polars.DataFrame([line, line]))


@pytest.mark.parametrize(
    ("measured", "side", "expected"),
    [
        (-1.0, "at least", "holds"),
        (-1.9, "at least", "inconclusive"),
        (-1.0, "at most", "holds"),
        (-0.5, "at most", "inconclusive"),
        (-1.9, "at most", "holds"),
    ],
)
def test_exponents_of_what_grows_have_slack_on_the_right_side(measured, side, expected):
    table = polars.DataFrame([fitted(measured, 0.05, promised=-1.0)])
    assert verdict("exponent", table, side=side) == expected


def test_slower_compares_two_courses():
    table = polars.DataFrame([fitted(0.08, course="conflict"), fitted(0.24, course="best")])
    found = get("slower")(table, first="conflict", second="best")
    assert (found.verdict, found.interval.estimate) == ("holds", 0.08)
    assert verdict("slower", table, first="best", second="conflict") == "does not hold"
    near = polars.DataFrame([fitted(0.24, course="conflict"), fitted(0.25, course="best")])
    assert verdict("slower", near, first="conflict", second="best") == "inconclusive"


@pytest.mark.parametrize(
    ("bound", "expected"),
    [(10.0, "holds"), (8.0, "does not hold"), (9.1e3, "holds, vacuous"), (8.9e3, "holds")],
)
def test_bounded(bound, expected):
    """A bound that nothing comes within a thousandth of is vacuous."""
    table = polars.DataFrame({"measured": [1.0, 9.0, 99.0], "bound": [bound, bound, None]})
    found = get("bounded")(table)
    assert found.verdict == expected
    assert found.interval.estimate == pytest.approx(9.0 / bound)
    renamed = table.rename({"measured": "ours", "bound": "theirs"})
    assert verdict("bounded", renamed, measured="ours", bound="theirs") == expected


def means(**bounds):
    table = {"measured": [1.0, 3.0], "error": [0.1, 0.1], "runs": [100, 100]}
    return polars.DataFrame({**table, **{name: [each] * 2 for name, each in bounds.items()}})


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (0.5, "holds"),
        (2.0, "does not hold"),
        (1.0, "inconclusive"),
        (1e-4, "holds, vacuous"),
    ],
)
def test_bounded_below(bound, expected):
    assert verdict("bounded_below", means(low=bound), bound="low") == expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [(5.0, "holds"), (1.0, "does not hold"), (3.0, "inconclusive"), (1e4, "holds, vacuous")],
)
def test_bounded_above(bound, expected):
    table = means(high=bound)
    assert verdict("bounded_above", table, bound="high") == expected
    missing = table.with_columns(high=polars.Series([None, bound]))
    assert get("bounded_above")(missing, bound="high").interval.estimate == 3.0 / bound


def test_cells_tell_those_that_differ():
    table = polars.DataFrame(
        {"row": ["a", "b"], "column": ["x", "y"], "ours": ["1", "2"], "paper": ["1", "3"]}
    )
    found = get("cells")(table)
    assert (found.verdict, found.interval.estimate) == ("does not hold", 0.5)
    assert "b, y: 2 for 3" in found.words
    assert verdict("cells", table[:1]) == "holds"


@pytest.mark.parametrize(
    ("conflict", "half", "expected"),
    [(-0.5, 0.1, "holds"), (0.5, 0.1, "does not hold"), (-0.05, 0.1, "inconclusive")],
)
def test_arrows_ask_for_the_sign_of_every_exponent(conflict, half, expected):
    lines = [fitted(0.2, error="R_opt"), fitted(conflict, half, error="E_ca")]
    table = polars.DataFrame(lines)
    found = get("arrows")(table, R_opt="falls", E_ca="rises")
    assert found.verdict == expected
    assert found.words.startswith("exponent e of ")
    with pytest.raises(ValueError, match="arrows needs rows for R_opt, R_gen, found not all"):
        get("arrows")(table, R_opt="falls", R_gen="rises")


def levels(**by_weights):
    """E_caw of each λ at three T, for four data sets."""
    return polars.DataFrame(
        [
            {"weights": name, "T": T, "dataset": i, "measured": level * (1 + 0.001 * i * (-1) ** T),
             "problem": "p", "lower": 0.4}
            for name, own in by_weights.items()
            for T, level in zip((4, 5, 6), own, strict=True)
            for i in range(4)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("worst", "expected"),
    [((0.9, 0.8, 0.8), "holds"), ((0.9, 0.8, 0.5), "does not hold")],
)
def test_constant_looks_at_the_largest(worst, expected):
    table = levels(near=(0.3, 0.2, 0.1), far=worst)
    arguments = {"x": "T", "by": "weights", "unit": "dataset", "tolerance": 0.1}
    found = get("constant")(table, **arguments)
    assert found.verdict == expected
    assert "weights far" in found.words


def test_somewhere_above_needs_one_member_in_every_group():
    one = levels(near=(0.1,) * 3, far=(0.8,) * 3)
    arguments = {"by": "problem", "within": "weights", "bound": "lower"}
    assert verdict("somewhere_above", one, **arguments) == "holds"
    other = levels(near=(0.1,) * 3, far=(0.2,) * 3).with_columns(problem=polars.lit("q"))
    found = get("somewhere_above")(polars.concat([one, other]), **arguments)
    assert found.verdict == "does not hold"
    assert "(far), on the problem q" in found.words


@pytest.mark.parametrize(
    ("growth", "half", "expected"),
    [(0.3, 0.05, "holds"), (0.02, 0.05, "inconclusive"), (0.2, 0.1, "inconclusive")],
)
def test_what_may_be_lost_is_not_refuted_by_one_problem(growth, half, expected):
    table = polars.DataFrame([fitted(-growth, half)])  # what grows has a negative exponent
    found = get("may_lose")(table, promised=1 / 3)
    assert found.verdict == expected
    assert found.words.endswith("not on this problem") == (growth == 0.02)
    assert found.interval.estimate == growth
    assert verdicts.VACUOUS == 1000
