"""The engine's and the methods' tests under other releases of torch and Python.

    python benchmarks/compatibility.py 2.6.0 2.8.0            # under this Python
    python benchmarks/compatibility.py 2.15.0 --python python3.14
    python docs/measured.py                                   # then docs/reference/compatibility.md

Each release gets an environment of its own, with trimol installed as users install it, and the
tests are run against that. A release from PyPI brings CUDA libraries, 3 to 6 GB of them: one
environment is there at a time, and is removed after its run. Results are added to
``results/compatibility.json``, where a new run of a release and a Python takes the place of the
old one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from trimol._files import replace
from trimol.runs._environment import environment, now

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "compatibility.json"
TESTS = ("tests/gradients", "tests/methods", "tests/maths")
# The compiler of torch 2.6 and 2.10 imports setuptools, and does not ask for it under Python 3.11.
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "setuptools")


def made(release: str, python: str, folder: Path) -> Path:
    """The Python of a new environment with this release of torch, trimol and what tests need."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    inside = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", str(inside)]
    wanted = [f"torch=={release}", str(ROOT), *TOOLS]
    subprocess.run([*pip, "install", "--quiet", "--no-cache-dir", *wanted], check=True)
    return inside


def tested(python: Path, tests: Sequence[str], report: Path) -> dict[str, Any]:
    """What became of the tests under a Python, and the versions found there."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [*command, f"--junit-xml={report}", *tests],
        cwd=ROOT,
        env=own | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    versions = "import platform, torch; print(platform.python_version(), torch.__version__)"
    asked = subprocess.run(
        [str(python), "-c", versions], capture_output=True, text=True, check=True, env=own
    )
    found = dict(zip(("python", "torch"), asked.stdout.split(), strict=True))
    return found | counted(report.read_text(encoding="utf-8"))


def counted(report: str) -> dict[str, Any]:
    """How many tests of a JUnit report passed, were skipped and failed; which failed, and why not.

    >>> counted('<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">'
    ...     '<testcase classname="tests.a" name="one"/><testcase name="two"><skipped/></testcase>'
    ...     '<testcase classname="tests.a" name="three"><failure/></testcase></testsuite>'
    ...     '</testsuites>')
    {'passed': 1, 'skipped': 1, 'failed': 1, 'failures': ['tests.a::three']}
    """
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = [c for c in cases if c not in failed and c.find("skipped") is not None]
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "skipped": len(skipped),
        "failed": len(failed),
        "failures": sorted(f"{c.get('classname')}::{c.get('name')}" for c in failed),
    }


def with_row(found: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The results with this row instead of an older one of the same releases, in their order."""
    key = row["torch"], row["python"]
    rows = [r for r in found["rows"] if (r["torch"], r["python"]) != key]
    return found | {"rows": sorted([*rows, row], key=lambda r: (_order(r["torch"]), r["python"]))}


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.partition("+")[0].split("."))


def add(row: dict[str, Any]) -> None:
    """Add a row to the results."""
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": []}
    about = {
        "study": "compatibility",
        "command": "python benchmarks/compatibility.py",
        "created": now(),
        "environment": environment(),
    }
    found = about | {"rows": with_row(old, row)["rows"]}
    replace(RESULTS, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="+", metavar="RELEASE", help="of torch, like 2.6.0")
    parser.add_argument("--python", default=sys.executable, help="the Python to run it under")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    args = parser.parse_args(arguments)
    for release in args.releases:
        folder = Path(tempfile.mkdtemp(prefix=f"torch-{release}-"))
        try:
            inside = made(release, args.python, folder / "environment")
            row = tested(inside, args.tests, folder / "report.xml")
        finally:
            shutil.rmtree(folder)
        add(row)
        print(f"torch {row['torch']}, Python {row['python']}: {row['passed']} passed, ", end="")
        print(f"{row['skipped']} skipped, {row['failed']} failed")


if __name__ == "__main__":
    main()
