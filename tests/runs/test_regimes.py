"""The rule that says which regime a training is in, on evidence written by hand."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.errors import Bracket
from trimol.runs import _regimes as regimes
from trimol.runs._moments import Geometry, Moment
from trimol.runs._regimes import Shares, judge, warned

CALM = Shares(looked=40, batch=0.0, full_looked=20, full=0.0)


def known(value, half=0.01):
    return Bracket(value, half / 3, value - half, value + half)


def shortest(cosine, norms):
    """λ* and R_opt of two gradients."""
    (a, b), inner = norms, cosine * norms[0] * norms[1]
    apart = a**2 + b**2 - 2 * inner
    first = min(max((b**2 - inner) / apart, 0.0), 1.0) if apart > 0 else 0.5
    square = first**2 * a**2 + (1 - first) ** 2 * b**2 + 2 * first * (1 - first) * inner
    return {"a": first, "b": 1 - first}, math.sqrt(max(square, 0.0))


def geometry(cosine=0.8, *, half=0.05, norms=(1.0, 1.0), noise=0.1):
    """Two gradients."""
    weights, opt = shortest(cosine, norms)
    low, high = max(cosine - half, -1.0), min(cosine + half, 1.0)
    long, short = (0, 1) if norms[0] >= norms[1] else (1, 0)
    names = ("a", "b")
    return Geometry(
        norms=dict(zip(names, map(known, norms), strict=True)),
        cosines={names: Bracket(cosine, half / 3, low, high)},
        along={"a": known(0.5), "b": known(0.5)},
        noise={"a": known(noise), "b": known(noise)},
        ratio=known(norms[long] / norms[short]),
        longest=names[long],
        shortest=names[short],
        opt=known(opt),
        conflict=known(0.1),
        min_norm=weights,
    )


def moment(step=0, metric=None, losses=(1.0, 1.0), **given):
    name = f"step {step}"
    own = dict(zip(("a", "b"), losses, strict=True))
    return Moment(name, step, own, geometry(**given), metric, samples=100)


def regime(*moments, raised=CALM):
    return judge(moments, raised)[0]


def test_gradients_that_agree_are_in_no_conflict():
    found, reason = judge([moment(0), moment(10)], CALM)
    assert found == "none"
    assert reason.startswith("gradients agree at 2 of 2 checkpoints (lowest cosine ")
    assert "lowest cosine 0.8, 95 % CI 0.75 to 0.85, at step 0" in reason


def test_gradients_that_oppose_each_other_off_the_front_are_a_matter_of_direction():
    found, reason = judge([moment(0), moment(10, cosine=-0.5)], CALM)
    assert found == "direction"
    assert "cosine -0.5 (-0.55 to -0.45) at step 10" in reason


@pytest.mark.parametrize(
    ("cosine", "half", "expected"),
    [
        (-0.5, 0.49, "direction"),
        (-0.5, 0.51, "none"),  # the interval has 0 in it
        (-0.5, 0.5, "none"),  # ends at 0
        (-0.09, 0.01, "none"),  # certain, but slight
        (-0.11, 0.01, "direction"),
    ],
)
def test_a_conflict_counts_only_if_it_is_certain_and_not_slight(cosine, half, expected):
    assert regime(moment(0, cosine=cosine, half=half)) == expected


def test_gradients_that_cancel_are_on_the_front():
    found, reason = judge([moment(0), moment(9, cosine=-0.99)], CALM)
    assert found == "stationary"
    assert "7 % of their length" in reason


def test_a_front_that_is_not_certain_is_not_called_so():
    """The bound counts: of 0 to 0.6 nobody may read that the gradients cancel to 0 %."""
    found = moment(9, cosine=-0.99)
    loose = replace(found, plain=replace(found.plain, opt=Bracket(0.0, 0.1, 0.0, 0.6)))
    regime_, reason = judge([loose], CALM)
    assert regime_ == "stationary"
    assert "to 0 % of their length, as far as the samples tell (at most 60 %)" in reason
    assert "as far as" not in judge([found], CALM)[1]


def test_a_conflict_on_the_way_goes_before_the_front_at_the_end():
    way = moment(5, cosine=-0.6)
    assert regime(moment(0), way, moment(9, cosine=-0.99)) == "direction"


def test_gradients_that_are_all_zero_are_stationary():
    zero = Bracket(0.0, 0.0, 0.0, 0.0)
    unknown = Bracket(math.nan, math.nan, -1.0, 1.0)
    nothing = replace(
        geometry(), norms={"a": zero, "b": zero}, cosines={("a", "b"): unknown}, opt=zero
    )
    found, reason = judge([Moment("step 0", 0, {"a": 1.0, "b": 1.0}, nothing, None, 9)], CALM)
    assert found == "stationary"
    assert "all gradients are zero" in reason


@pytest.mark.parametrize(
    ("ratio", "cosine", "expected"),
    [(12.0, 0.1, "scales"), (9.0, 0.1, "none"), (12.0, 0.9, "none"), (12.0, 0.46, "none")],
)
def test_a_loss_drowns_another_that_does_not_fall_along(ratio, cosine, expected):
    assert regime(moment(0, norms=(ratio, 1.0), cosine=cosine)) == expected


def test_scales_go_before_a_conflict_that_comes_of_them():
    first = moment(0, norms=(50.0, 1.0), cosine=-0.2)
    later = moment(9, norms=(4.0, 1.0), cosine=-0.5)
    assert regime(first, later) == "scales"


def test_an_r_opt_that_may_be_zero_is_no_certain_conflict():
    """At the end of a drowned training, noise hides that the gradients cancel."""
    first = moment(0, norms=(50.0, 1.0), cosine=-0.2)
    last = moment(9, norms=(1.0, 1.05), cosine=-0.9)
    hidden = replace(last.plain, opt=Bracket(0.23, 0.2, 0.0, 1.0))
    last = replace(last, plain=hidden)
    assert regime(first, last) == "scales"
    found, reason = judge([moment(0), last], CALM)
    assert found == "direction"  # nothing more certain is known
    assert "may exist (R_opt 0.23 (0 to 1))" in reason
    front = moment(20, cosine=-0.99)
    assert regime(moment(0), last, front) == "stationary"


def test_losses_that_drown_each_other_by_turns_are_a_matter_of_direction():
    first = moment(0, norms=(50.0, 1.0), cosine=-0.2)
    later = moment(9, norms=(1.0, 50.0), cosine=-0.2)
    assert regime(first, later) == "direction"


def test_noise_that_hides_the_conflict():
    hidden = {"cosine": -0.1, "half": 0.8, "noise": 20.0}
    found, reason = judge([moment(0, **hidden), moment(9, **hidden)], CALM)
    assert found == "noise"
    assert "20 times" in reason


def test_uncertainty_without_noise_is_no_noise():
    """A few samples that differ little from batch to batch."""
    assert regime(moment(0, cosine=0.2, half=0.8, noise=0.1)) == "none"


def test_noisy_batches_whose_gradients_agree_are_no_conflict():
    assert regime(moment(0, noise=20.0), moment(9, noise=20.0)) == "none"


def test_steps_that_raise_losses_though_gradients_agree():
    raising = replace(CALM, full=0.4)
    assert regime(moment(0, noise=5.0), raised=raising) == "noise"
    assert regime(moment(0, noise=0.0), raised=raising) == "direction"
    # All losses at once: the step is too long, or has momentum.
    assert regime(moment(0, noise=0.0), raised=replace(raising, full_all=0.4)) == "none"


def test_what_counts_is_how_the_optimizer_has_the_gradients():
    opposed = geometry(cosine=-0.6)
    assert regime(moment(0, metric=opposed)) == "direction"
    assert regime(moment(0, metric=geometry(), cosine=-0.6)) == "none"


def test_a_late_conflict_is_said_to_be_late():
    early = [moment(step) for step in (0, 10, 300)]
    _, reason = judge([*early, moment(9000, cosine=-0.6)], CALM)
    assert reason.startswith("conflict appears late (none up to step 300)")
    _, reason = judge([moment(0), moment(10, cosine=-0.6), moment(300)], CALM)
    assert "late" not in reason


def test_many_looks_at_the_end_count_as_one():
    hidden = {"cosine": 0.0, "half": 1.0, "noise": 20.0}
    look = [moment(step) for step in (0, 1, 3, 10)]
    assert regime(*look, *[moment(500, **hidden)] * 30) == "none"


def test_unknown_is_said():
    _, reason = judge([moment(0), moment(1), moment(2, cosine=0.0, half=1.0)], CALM)
    assert reason.endswith("; the other is too noisy to tell")


@given(
    st.lists(
        st.tuples(st.floats(-1, 1), st.floats(0, 1), st.floats(0.1, 99), st.floats(0, 50)),
        min_size=1,
        max_size=5,
    ),
    st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_nothing_uncertain_is_called_a_conflict(rows, share):
    moments = [
        moment(step, cosine=cosine, half=half, norms=(ratio, 1.0), noise=noise)
        for step, (cosine, half, ratio, noise) in enumerate(rows)
    ]
    found, reason = judge(moments, replace(CALM, full=share, full_all=share))
    certain = any(cosine + half < 0 for cosine, half, *_ in rows)
    assert found not in ("direction", "stationary") or certain
    assert reason
    # The names of the objectives do not matter.
    shares = replace(CALM, full=share, full_all=share)
    assert regime(*map(turned, moments), raised=shares) == found


def turned(given):
    """The same with a and b exchanged."""
    other = {"a": "b", "b": "a"}
    old = given.plain
    new = replace(
        old,
        norms={other[k]: v for k, v in old.norms.items()},
        cosines={("b", "a"): old.cosines["a", "b"]},
        longest=other[old.longest],
        shortest=other[old.shortest],
        min_norm={other[k]: v for k, v in old.min_norm.items()},
    )
    return replace(given, plain=new)


def test_evidence_is_ready_for_json():
    infinite = replace(geometry(), ratio=Bracket(math.inf, math.nan, 2.0, math.inf))
    record = replace(moment(0), plain=infinite).record
    assert json.loads(json.dumps(record, allow_nan=False))["norm_ratio"]["high"] is None
    assert json.dumps(Shares().record, allow_nan=False)


def test_a_trivial_solution_is_warned_of():
    (text,) = warned([moment(0, norms=(80.0, 1.0), cosine=0.0)])
    assert text.startswith("MGDA may run to a trivial solution: at step 0 λ* is 1.00 on 'b'")
    # Along with the longer one it is none; then the step size has to be larger.
    (text,) = warned([moment(0, norms=(80.0, 1.0), cosine=0.9)])
    assert "need a step size that much larger" in text


def test_negative_losses_are_warned_of():
    (text,) = warned([moment(0), moment(1, losses=(1.0, -2.0))])
    assert text.startswith("the loss 'b' is negative (-2)")


def test_nothing_is_warned_of_without_need():
    assert warned([moment(0), moment(1, norms=(8.0, 1.0))]) == ()


def test_the_thresholds_are_those_of_the_page():
    """Chosen on seeds from 100 on of ``benchmarks/known_answers.py``: do not move them lightly."""
    found = {name: value for name, value in vars(regimes).items() if isinstance(value, float)}
    assert found == {
        "SLIGHT": 0.1,
        "CANCEL": 0.2,
        "DROWNS": 10.0,
        "ALIGNED": 0.5,
        "RAISED": 0.15,
        "NOISY": 1.0,
        "HALF": 0.5,
    }
