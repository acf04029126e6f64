"""Windows and macOS lack some of what Linux has: nothing of ours may need it.

What they lack is hidden in processes of their own, their workers included: a ``sitecustomize`` on
the path is run by every Python that starts.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trimol

SOURCE = Path(trimol.__file__).parent
# The standard library and filelock know where they are, and import what is there: that comes first.
HIDING = """
import asyncio, concurrent.futures, ctypes, getpass, multiprocessing.managers, multiprocessing.pool
import multiprocessing.popen_spawn_posix, multiprocessing.resource_tracker, os, pathlib, selectors
import shutil, signal, subprocess, sys, tarfile, tempfile
import filelock, multiprocessing.util

for module in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"):
    sys.modules[module] = None  # whoever imports it from now on is told that there is none
names = ("sched_getaffinity", "sched_setaffinity", "fork", "forkpty", "getuid", "geteuid")
names += ("getpgid", "killpg", "setsid", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "getloadavg")
for name in names:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGPIPE"):
    if hasattr(signal, name):
        delattr(signal, name)

really = os.open


def no_folders(path, flags, *others, **more):
    if isinstance(path, (str, bytes, os.PathLike)) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))
    return really(path, flags, *others, **more)


os.open = no_folders
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that is, as far as it can tell, on another system."""
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(HIDING)
    path = os.pathsep.join([str(tmp_path / "hiding"), str(SOURCE.parent)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run(*arguments: str, cwd: Path, env: dict[str, str]) -> str:
    process = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=env, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_it_is_hidden(elsewhere: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "try:\n    import fcntl\nexcept ImportError:\n    print('no fcntl')\n"
        "print(hasattr(os, 'sched_getaffinity'), hasattr(os, 'fork'), hasattr(signal, 'SIGKILL'))"
    )
    said = run("-c", code, cwd=tmp_path, env=elsewhere)
    assert said.splitlines() == ["no fcntl", "False False False"]


@pytest.mark.slow
def test_every_module_imports(elsewhere: dict[str, str], tmp_path: Path) -> None:
    files = [file.relative_to(SOURCE.parent).with_suffix("") for file in SOURCE.rglob("*.py")]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files]
    # It imports transformers' Trainer, which looks at the real platform and takes what is hidden.
    modules.remove("trimol.integrations.transformers")
    code = f"""
from importlib import import_module
from trimol._extras import MissingExtra

for module in {sorted(module for module in modules if not module.endswith("__main__"))}:
    try:
        import_module(module)
    except MissingExtra:
        pass
"""
    run("-c", code, cwd=tmp_path, env=elsewhere)


@pytest.mark.slow
def test_methods_are_compared(elsewhere: dict[str, str], tmp_path: Path) -> None:
    """By workers of a command; alone; by as many as there are cores, with nothing left to do."""
    flags = "compare digits --methods static,modo --seeds 1 --steps 5 --json --out"
    by_workers = run(
        "-m", "trimol", *flags.split(), "two", "--jobs", "2", cwd=tmp_path, env=elsewhere
    )
    code = f"""
from trimol.cli import main

for more in ("one --jobs 1", "two"):
    assert main([*"{flags}".split(), *more.split()]) == 0
    print("end of the answer")
"""
    *others, rest = run("-c", code, cwd=tmp_path, env=elsewhere).split("end of the answer\n")
    assert (len(others), rest) == (2, "")
    for said in (by_workers, *others):
        assert {row["method"] for row in json.loads(said)["rows"]} == {"static", "modo"}
