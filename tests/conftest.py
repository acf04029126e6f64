"""Every test starts from the same seed. Its tensors are tiny: more threads would only wait."""

import gc
import importlib.util
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
import torch

from pair import server
from trimol.data._files.datasets import MissingData
from trimol.gradients._hooks import WATCH

# A shell starts what runs in its background with Ctrl-C ignored, and so would all processes of
# tests that send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # nor do the processes that tests start need more
# Virtual machines that announce AMX and do not have it end the process at a bfloat16 bmm; asked
# for at torch's first product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


# Real data are hidden from every test but those marked `data`, so that a test that needs them
# unsaid fails on every machine, with data or without.
_EMPTY = tempfile.TemporaryDirectory(prefix="trimol-no-data-")
_REAL = {name: os.environ.get(name) for name in ("TRIMOL_DATA", "TRIMOL_CACHE", "XDG_CACHE_HOME")}
os.environ |= {"TRIMOL_DATA": _EMPTY.name, "XDG_CACHE_HOME": _EMPTY.name}
os.environ.pop("TRIMOL_CACHE", None)


# The same examples every time, and as long as a busy machine takes.
hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("seeded")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Thousands of tests are made, and all of them stay: there is no garbage to look for."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor is there later among what has been imported and made until now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers share the tests: one makes what a module's tests share.

    The cases of one test stay together, too: dealing them out takes longer than most of them do.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            made = itertools.chain(*item._fixtureinfo.name2fixturedefs.values())
            shared = any(fixture.scope == "module" for fixture in made)
            place = item.path.stem if shared else f"{item.path.stem}.{item.originalname}"
            item.add_marker(pytest.mark.xdist_group(place))
        if getattr(config.option, "loadgroup", False):
            _name_group(item)


def _name_group(item: pytest.Item) -> None:
    """Say in a test's id of which group it is: by that xdist deals them out.

    xdist 3.8 does so itself by an attribute that pytest has no more since 9.2, and is silent
    where it fails: every worker then makes what a module's tests share.
    """
    group = item.get_closest_marker("xdist_group")
    if group is not None and hasattr(item, "_id"):
        item._id = type(item._id).parse(f"{item.nodeid}@{group.args[0]}")


# For every kind of device that is not there, `torch.manual_seed` writes down where it was called
# from: that took longer than many a test.
_seed = (
    torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    _seed(0)


@pytest.fixture(autouse=True)
def _hooks_seen() -> None:
    """Hooks of earlier tests cost this one no passes: it may count them, in whatever order."""
    WATCH.look()


@pytest.fixture(autouse=True)
def _real_data(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test marked `data` finds what the machine has."""
    if request.node.get_closest_marker("data") is None:
        return
    for name, value in _REAL.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test marked `data` is skipped, with the line that users get, where there are none."""
    try:
        return (yield)
    except MissingData as missing:
        if item.get_closest_marker("data") is None:
            raise
        pytest.skip(str(missing))


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of studies start at once. Those of test_cli_process.py start as a user's do."""
    context = server()
    monkeypatch.setattr("trimol.runs._processes.multiprocessing.get_context", lambda _: context)


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """From a path in the repository to the module: examples and benchmarks are no package."""

    def load(path: str) -> ModuleType:
        file = Path(__file__).parents[1] / path
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def run_script(
    load_script: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """From a path in the repository and arguments to what the script prints.

    Here, where torch is imported already.
    """

    def run(path: str, *arguments: object) -> str:
        file = Path(__file__).parents[1] / path
        monkeypatch.syspath_prepend(file.parent)  # scripts of one folder import each other
        monkeypatch.setattr(sys, "argv", [str(file), *map(str, arguments)])
        load_script(path).main()
        return capsys.readouterr().out

    return run
