"""What a user typed, read: numbers, names, flags, hyper-parameters."""

import io
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tyro.conf import Positional

from trimol import methods
from trimol.cli import _hyperparameters as hyperparameters
from trimol.cli._parse import parse, split_flags
from trimol.cli._reporting import UsageError
from trimol.cli._setup import checked_options
from trimol.cli._values import any_value, names, real_number, typed, whole_number


@given(st.integers(0, 10**12))
def test_whole_numbers_are_read_exactly(value: int) -> None:
    assert whole_number(str(value), least=0) == value


@pytest.mark.parametrize("text", ["", "x", "1.5", "nan", "inf", "-1", "0", "1e400"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a whole number of at least 1, found '"):
        whole_number(text, least=1)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_exactly(value: float) -> None:
    assert real_number(repr(value)) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "one", ""])
def test_what_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"must be a finite number above 0, found '{text}'"):
        real_number(text, above=0)


@pytest.mark.parametrize("text", ["", ",", "a,a", " , "])
def test_names_must_differ(text: str) -> None:
    with pytest.raises(ValueError, match="must be different names"):
        names(text)


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()))
def test_any_value_reads_what_python_writes(value: float) -> None:
    found = any_value(repr(value))
    assert found == value
    assert type(found) is type(value)


@dataclass(frozen=True)
class Options:
    """Do it."""

    task: Positional[Annotated[str, typed(str, "TASK")]]
    """What."""
    batch_size: Annotated[int, typed(lambda text: whole_number(text, least=1), "N")] = 64
    """How many."""
    kind: Literal["a", "b"] = "a"
    """Which."""
    json: bool = False
    """For machines."""


def test_flags_of_others_are_found_wherever_they_stand() -> None:
    arguments = ["--gamma", "-0.5", "digits", "--zero-start", "--batch_size", "3", "--rho=1", "--z"]
    own, others = split_flags(arguments, Options)
    assert own == ["digits", "--batch_size", "3"]
    assert others == {"gamma": "-0.5", "zero-start": None, "rho": "1", "z": None}
    assert parse(Options, own, "do") == Options("digits", 3)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["digits", "--batch-size", "x"], "--batch-size must be a whole number of at least 1"),
        (["digits", "--batch-size"], "--batch-size must have a value, found none (see"),
        ([], "missing TASK: What (see"),
        (["digits", "--kind", "c"], "--kind must be one of a, b, found 'c' (see"),
        (["digits", "more"], "Unrecognized options: more"),
        (["digits", "--jsn"], "--jsn"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], said: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(UsageError) as error:
        parse(Options, arguments, "do")
    line = str(error.value)
    assert said in line
    assert line.endswith("(see trimol do --help)")
    assert not set(line) & set("\n╭│─\x1b")
    assert "full helptext" not in line


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(Options, ["--help"], "do")
    assert not stop.value.code
    assert "TASK" in capsys.readouterr().out


@pytest.mark.parametrize("method", methods.names())
def test_a_default_given_as_a_flag_is_the_default(method: str) -> None:
    known = hyperparameters.of(method)
    flags = {name: str(known[name].default) for name in known}
    assert hyperparameters.read(method, flags) == {n: p.default for n, p in known.items()}


@pytest.mark.parametrize(
    ("task", "text", "value"),
    [
        ("quadratic", "std=2", 2),
        ("quadratic", "samples=1e3", 1000),
        ("quadratic", "b1=1,2,3", [1, 2, 3]),
        ("quadratic", "eigenvalues=none", None),
        ("toy", "start=[1.5, 2]", [1.5, 2]),
        ("mnist", "activation=none", "none"),
        ("office-31", "only=none", None),
        ("office-31", "only=31", "31"),
        ("scenes", "pretrained=yes", True),
    ],
)
def test_options_of_tasks_are_of_their_types(task: str, text: str, value: object) -> None:
    (found,) = checked_options(task, [text]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("method", "flags", "said"),
    [
        ("modo", {"gama": "1"}, "unknown flag --gama (did you mean --gamma?): the hyper"),
        ("modo", {"max_nrm": "1"}, "--every, --cost, --length, --max-norm, --heads"),
        ("modo", {"max-nrm": "1"}, "unknown flag --max-nrm (did you mean --max-norm?): the"),
        ("modo", {"max_nrm": "1"}, "unknown flag --max_nrm (did you mean --max-norm?): the"),
        ("modo", {"gamma": "x"}, "--gamma must be a finite number, found 'x'"),
        ("modo", {"gamma": "none"}, "--gamma must be a finite number, found 'none'"),
        ("modo", {"every": "1.5"}, "--every must be a whole number of at least 0, found '1.5'"),
        ("modo", {"weights": "1,x"}, "--weights must be numbers with commas between them"),
        ("modo", {"simultaneous": "maybe"}, "--simultaneous must be true or false, found 'maybe'"),
        ("alignedmtl", {"scale_mode": "max"}, "--scale_mode must be one of min, median, rmse"),
        ("rgw", {"x": "1"}, "are --method.seed, --every"),
        ("mgdaub", {"layer": "1"}, "unknown flag --layer"),
    ],
)
def test_bad_hyperparameters_are_one_line(
    method: str, flags: dict[str, str | None], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        hyperparameters.read(method, flags, taken={"seed", "lr"})
    assert said in str(error.value)


def test_hidden_hyperparameters_have_a_longer_name() -> None:
    assert hyperparameters.read("gradnorm", {"method.lr": "0.5"}) == {"lr": 0.5}
    assert hyperparameters.read("modo", {"max-norm": "0.5"}) == {"max_norm": 0.5}
    assert hyperparameters.read("moco", {"gamma": "none", "zero_start": None}) == {
        "gamma": None,
        "zero_start": True,
    }
