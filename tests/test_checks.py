"""Arguments that only look like numbers are refused in one line."""

import pytest

from trimol import _checks as checks
from trimol._failures import BadValue

REAL = (checks.finite, checks.nonnegative, checks.fraction, checks.below_one, checks.positive)


@pytest.mark.parametrize("check", REAL)
@pytest.mark.parametrize("value", [True, False, "1", None, float("nan"), 10**400])
def test_what_is_no_number_is_named(check, value):
    with pytest.raises(BadValue, match=r"rho must be .* found "):
        check("rho", value)


@pytest.mark.parametrize("check", REAL)
def test_numbers_pass(check):
    assert check("rho", 0.5) == 0.5


@pytest.mark.parametrize("value", [True, 0, -1, 1.0, "3"])
def test_whole_numbers_are_whole(value):
    with pytest.raises((BadValue, TypeError), match="every must be a whole number of at least 1"):
        checks.count("every", value)
