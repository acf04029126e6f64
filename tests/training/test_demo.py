"""The commands that a user types: the demo and the example, from end to end."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import trimol
from trimol import _extras, demo, tasks
from trimol.study import Row

METHODS = list(tasks.get("digits").settings)
ROOT = pathlib.Path(__file__).parents[2]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(pathlib.Path(trimol.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        timeout=120,
    )


def test_demo_shows_a_table() -> None:
    done = command("-m", "trimol.demo", "--steps", "30", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.stdout
    header = " ".join(lines[:3])
    for name in ("entropy", "MSE", "Huber", "accuracy", "R_opt", "R_pop", "R_gen", "E_ca"):
        assert name in header
    for name in METHODS:
        values = next(line for line in lines if line.strip().startswith(name)).split()
        assert len(values) == 9
        assert all(float(value) >= 0 for value in values[1:])
        assert f"training {name}" in done.stderr
    assert done.stdout.count("±") == 8 * len(METHODS) + 2
    assert "64 samples" in done.stdout
    assert done.stderr.count("60/60") == len(METHODS)


def test_demo_for_machines() -> None:
    done = command("-m", "trimol.demo", "--steps", "5", "--seeds", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"study", "rows", "files"}
    assert [row["method"] for row in found["rows"][::8]] == METHODS
    assert found["rows"][4].keys() == {"method", "metric", "mean", "std", "n", "paper"}
    assert found["rows"][4]["metric"] == "R_opt"


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--seeds", "-1"], ["--steps", "many"]])
def test_demo_refuses_bad_numbers(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        demo.main(arguments)
    assert stop.value.code == 2
    expected = f"argument {arguments[0]}: must be a whole number of at least 1, found"
    assert expected in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("missing", ["rich", "sklearn.datasets"])
def test_demo_without_the_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = _extras.import_module

    def some(module: str) -> object:
        if module == missing:
            raise ModuleNotFoundError(f"No module named {module!r}")
        return real(module)

    monkeypatch.setattr(_extras, "import_module", some)
    assert demo.main(["--steps", "1"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(
        r"the .* needs (rich|scikit-learn): pip install 'trimol\[studies\]'\n", said.err
    )


def test_demo_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "compare", stop)
    assert demo.main([]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


@pytest.mark.parametrize(
    ("mean", "std", "unit", "shown"),
    [
        (0.13014, 0.0038, 0, "0.1301 ±0.0038"),
        (6.36e-3, 3.3e-4, -3, "6.36 ±0.33"),
        (0.0, 0.0, -3, "0 ±0"),
        (1.5, None, 0, "1.5"),
        (123.456, 45.6, 0, "123 ±46"),
        (1.0, 0.0996, 0, "1.000 ±0.100"),
    ],
)
def test_cells(mean: float, std: float | None, unit: int, shown: str) -> None:
    cell = demo._cell(Row("static", "MSE", mean, std, 3), unit)
    assert re.sub(r"\[.*?\]", "", cell).replace("\n", " ") == shown


@pytest.mark.parametrize(
    ("largest", "unit"), [(0.0, 0), (0.95, 0), (80.0, 0), (6e-3, -3), (9.9e-4, -3), (2e-6, -6)]
)
def test_units(largest: float, unit: int) -> None:
    assert demo._unit([Row("a", "x", 0.0, None, 1), Row("b", "x", largest, None, 1)]) == unit


def test_example_runs() -> None:
    done = command(str(ROOT / "examples" / "plain_loop.py"))
    assert done.returncode == 0, done.stderr
    *_, accuracy, errors = done.stdout.splitlines()
    assert float(accuracy.split()[1]) > 0.9
    assert re.fullmatch(r"opt \S+ · pop \S+ · gen \S+ · conflict \S+", errors)
