"""Runs on a Ray cluster of two nodes, on this machine: the same bits, whatever is lost."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import polars
import pytest
import torch

from trimol._extras import MissingExtra
from trimol.cli import main
from trimol.compare import _diagnose
from trimol.paper import table3
from trimol.runs import (
    Interrupted,
    RunConfig,
    StoredRun,
    configure,
    execute_all,
    store,
)
from trimol.runs import _cluster as clusters
from trimol.runs import _ray as on_ray
from trimol.runs._lock import InUse, locked
from trimol.runs._storage import read_tensors
from trimol.runs._together import Unit
from trimol.training import Diverged, RunError

ray: Any = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.xdist_group("ray")

MEMORY = {"object_store_memory": 80 * 2**20}
# A node that died is missed within seconds. And workers are no nicer than the tests, else by 15:
# beside others that compute they would hardly begin.
SYSTEM = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "worker_niceness": 0,
}
TASK = """
import os, signal, time
from pathlib import Path
from trimol.tasks.digits import Digits

class Slow(Digits):
    name = "slow"

    def __init__(self, *, fault=""):
        super().__init__(hidden=8)
        self.fault = fault

    def model(self):
        print("a model is made")
        return super().model()

    def losses(self, model, batch):
        if self.fault == "raise":
            raise ValueError("a fault of the task")
        if self.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if Path(__file__).with_name("slowly").exists():
            time.sleep(0.15)
        return super().losses(model, batch)
"""
STEPS, EVERY = 200, 20
OFTEN = {"measure_every": EVERY, "checkpoint_every": EVERY}
SAME = ("config.json", "metrics.parquet", "model.pt", "direction.pt")
Jobs = list[tuple[RunConfig, Path]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with a CPU each; this process is connected to them."""
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SYSTEM, **MEMORY}
    both = Cluster(initialize_head=True, head_node_args=head)
    both.add_node(num_cpus=1, **MEMORY)
    ray.init(both.address, logging_level=logging.ERROR, log_to_driver=False)
    yield both
    ray.shutdown()
    both.shutdown()


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "slow.py").write_text(TASK)
    return f"{tmp_path / 'slow.py'}:Slow"


def configs(task: str, seeds: int = 2, **changes: Any) -> list[RunConfig]:
    given = {"lr": 0.1, "batch_size": 16, "steps": STEPS, **OFTEN, **changes}
    method, options = given.pop("method", "modo"), {"fault": given.pop("fault", "")}
    return [
        configure(task, method, seed=seed, task_options=options, **given) for seed in range(seeds)
    ]


def jobs(folder: Path, listed: list[RunConfig]) -> Jobs:
    return [(config, folder / f"{config.method}-{config.seed}") for config in listed]


def alike(one: Any, other: Any) -> bool:
    """Whether two checkpoints say the same, but for how long it took."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        names = one.keys() - {"seconds", "measuring"}
        return one.keys() == other.keys() and all(alike(one[n], other[n]) for n in names)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other) or one != one  # NaN


def same(one: Path, other: Path) -> None:
    assert sorted(os.listdir(one)) == sorted(os.listdir(other))
    for name in set(SAME) & set(os.listdir(other)):  # trials have tables only
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    if (one / store.CHECKPOINT).exists():
        assert alike(read_tensors(one / store.CHECKPOINT), read_tensors(other / store.CHECKPOINT))
    first, second = (json.loads((f / "summary.json").read_text())["record"] for f in (one, other))
    assert first == second


def same_but_for_the_clock(one: Path, other: Path) -> None:
    """Tables are equal byte for byte, or number for number where they say how long it took."""
    first, second = (polars.read_parquet(file) for file in (one, other))
    timed = [name for name in first.columns if name.endswith("_seconds")]
    if timed:
        assert first.drop(timed).equals(second.drop(timed)), one
    else:
        assert one.read_bytes() == other.read_bytes(), one


def as_here(folder: Path, runs: Jobs, **options: Any) -> None:
    """Finished runs are, bit for bit, what they are without Ray."""
    local = [(config, folder / path.name) for config, path in runs]
    execute_all(local, **options)
    for (_, there), (_, here) in zip(runs, local, strict=True):
        same(there, here)


class Seen:
    """Notes what it is told, and does something once while two runs are in the middle.

    Until then they are slow, or until `hurry`.
    """

    def __init__(self, folder: Path, act: Callable[[], object]) -> None:
        self.slowly, self.act, self.acted = folder / "slowly", act, False
        self.records: dict[int, list[int]] = {}
        self.slowly.touch()

    def __call__(self, config: RunConfig, step: int, record: Any) -> None:
        if record is not None:
            self.records.setdefault(config.seed, []).append(step)
        last = [steps[-1] for steps in self.records.values()]
        if sum(EVERY <= step < STEPS - EVERY for step in last) >= 2 and not self.acted:
            self.acted = True
            self.act()

    def hurry(self) -> None:
        self.slowly.unlink()


@pytest.mark.slow
def test_a_node_that_dies_loses_nothing(
    cluster: Cluster, task: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = jobs(tmp_path / "ray", configs(task, 3))
    second = max(cluster.list_all_nodes(), key=lambda node: not node.head)

    def kill() -> None:
        cluster.remove_node(second, allow_graceful=False)
        seen.hurry()

    seen = Seen(tmp_path, kill)
    with pytest.warns(RuntimeWarning, match=r"a Ray worker was lost at .*another goes on with it"):
        found = execute_all(runs, on="ray", together=False, watch=seen)
    cluster.add_node(num_cpus=1, **MEMORY)
    assert all(isinstance(run, StoredRun) and run.summary for run in found)
    assert seen.acted
    for steps in seen.records.values():
        assert steps.count(0) == 1  # none began again
        assert sorted(set(steps)) == list(range(0, STEPS + 1, EVERY))
    assert "a model is made" in capfd.readouterr().err
    as_here(tmp_path / "here", runs, together=False)
    assert [path.name for path in (tmp_path / "ray").iterdir() if path.name[0] == "."] == []


@pytest.mark.slow
def test_runs_that_train_together_survive_their_worker(
    cluster: Cluster, task: str, tmp_path: Path
) -> None:
    runs = jobs(tmp_path / "ray", configs(task, 2))

    def kill() -> None:
        state = json.loads((runs[0][1] / "state.json").read_text())
        os.kill(state["pid"], signal.SIGKILL)
        seen.hurry()

    seen = Seen(tmp_path, kill)
    with pytest.warns(RuntimeWarning, match="another goes on with it"):
        execute_all(runs, on="ray", watch=seen)
    assert [steps.count(0) for steps in seen.records.values()] == [1, 1]
    as_here(tmp_path / "here", runs)


@pytest.mark.slow
def test_cancelled_runs_save_where_they_are_and_go_on(
    cluster: Cluster, task: str, tmp_path: Path
) -> None:
    runs = jobs(tmp_path / "ray", configs(task, 3, checkpoint_every=0))
    seen = Seen(tmp_path, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted, match="every run is saved") as stopped:
        execute_all(runs, on="ray", together=False, watch=seen)
    seen.hurry()
    assert stopped.value.code == 128 + signal.SIGTERM
    left = [path for _, path in runs if path.exists() and not (path / store.SUMMARY).exists()]
    assert len(left) >= 2
    for path in left:
        assert store.load(path).state.name == "interrupted"
        assert 0 < read_tensors(path / store.CHECKPOINT)["run"]["step"] < STEPS
        with locked(path):  # nobody works there any more
            pass
    assert sum(read_tensors(path / store.CHECKPOINT)["run"]["step"] >= EVERY for path in left) >= 2
    execute_all(runs, together=False)  # here: a run does not care where it was begun
    as_here(tmp_path / "here", runs, together=False)


TUG = f"{Path(__file__).parents[1] / 'compare' / 'contest_tasks.py'}:Tug"
COMMANDS = {
    "sweep": "digits --methods static --lr 0.1,1 --steps 5 --option validation=200 "
    "--option hidden=8",
    "front": "concave --by stch --points 3 --steps 5",
    "diagnose": f"{TUG} --methods mgda --budget 14 --steps 5 --batch-size 8",
    "tune": f"{TUG} --budget 6 --steps 5 --batch-size 8",
    "reproduce": "table3 --quick --seeds 2",
}


@pytest.fixture
def small_studies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    load_script: Callable[[str], ModuleType],
) -> None:
    """Small searches, small images, and steps that cost the same each time."""
    monkeypatch.setattr(_diagnose, "step_costs", lambda made: dict.fromkeys(made, 1.0))
    monkeypatch.setattr(table3, "OPTIONS", {"hidden": 8, "validation": 100})
    monkeypatch.setattr("trimol.runs._pool.cores", lambda: 1)
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    load_script("tests/paper/images.py").write(tmp_path / "data")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("small_studies")
def test_commands_find_the_same_on_ray(
    cluster: Cluster, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Searches decide by what runs came to: one bit more, and the next runs are others."""
    there, here = (_found(command, tmp_path / where, on, capsys) for where, on in PLACES)
    assert there == here
    there, here = tmp_path / "ray", tmp_path / "here"
    runs = sorted(file.parent.relative_to(here) for file in here.rglob(store.SUMMARY))
    assert len(runs) > 1
    assert runs == sorted(file.parent.relative_to(there) for file in there.rglob(store.SUMMARY))
    for run in runs:
        same(there / run, here / run)
    tables = sorted(file.relative_to(here) for file in here.rglob("*.parquet"))
    assert tables == sorted(file.relative_to(there) for file in there.rglob("*.parquet"))
    for table in tables:
        same_but_for_the_clock(there / table, here / table)


def _found(
    command: str, folder: Path, on: str | None, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """What a command says of what it found, but for where that is."""
    place = ["--on", on] if on else []
    given = [*COMMANDS[command].split(), *place, "--json", "--quiet", "--out", str(folder)]
    assert main([command, *given]) == 0
    said, errors = capsys.readouterr()
    assert errors == ""
    found: dict[str, Any] = json.loads(said.replace(str(folder), "FOLDER"))
    return found


PLACES: list[tuple[str, str | None]] = [("ray", "ray"), ("here", None)]


def test_what_diverges_and_what_fails_is_said_as_without_ray(
    cluster: Cluster, task: str, tmp_path: Path
) -> None:
    wild = configs(task, 1, method="static", lr=1e30, steps=20)
    both = [*wild, *configs(task, 1, steps=10)]
    there, here = (execute_all(jobs(tmp_path / w, both), on=o) for w, o in PLACES)
    assert isinstance(there[0], Diverged)
    assert str(there[0]) == str(here[0])
    assert isinstance(there[1], StoredRun)
    same(tmp_path / "ray" / "modo-0", tmp_path / "here" / "modo-0")

    said = []
    for where, on in PLACES:
        with pytest.raises(Exception, match="a fault of the task") as failed:
            execute_all(jobs(tmp_path / where / "bad", configs(task, 1, fault="raise")), on=on)
        said.append((type(failed.value), str(failed.value)))
    assert said[0] == said[1]
    assert "\n" not in said[0][1]


def test_a_task_that_kills_its_workers_is_given_up(
    cluster: Cluster, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "LOSSES", 0)
    with pytest.raises(RunError, match=r"^1 Ray workers ended at .*modo-0 \(.*run the same comm"):
        execute_all(jobs(tmp_path, configs(task, 1, fault="die")), on="ray")


@pytest.mark.slow
def test_a_node_with_another_torch_is_named(
    cluster: Cluster, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {**on_ray.versions(), "torch": "1.0"}
    monkeypatch.setattr(on_ray, "versions", lambda: other)
    with pytest.raises(RunError, match=r"^the Ray node .* has torch .*started with 1.0: its res"):
        execute_all(jobs(tmp_path, configs(task, 1)), on="ray")
    assert [path.name for path in tmp_path.iterdir()] == ["slow.py"]


def test_another_cluster_than_the_one_connected_to_is_refused(
    cluster: Cluster, task: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="connected to a Ray cluster already: say on='ray'"):
        execute_all(jobs(tmp_path, configs(task, 1)), on="127.0.0.1:1")


def test_what_a_node_does_not_see_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMOL_DATA", "data")
    Path("data").mkdir()
    terms = on_ray.Terms.here([tmp_path / "own.py"])
    assert terms.environment["TRIMOL_DATA"] == str(tmp_path / "data")
    with pytest.raises(RunError, match=r"node .* does not see .*own.py: it must be on storage"):
        terms.adopt()
    (tmp_path / "own.py").touch()
    monkeypatch.setenv("TRIMOL_DATA", "elsewhere")
    terms.adopt()
    assert os.environ["TRIMOL_DATA"] == str(tmp_path / "data")
    Path("data").rmdir()
    with pytest.raises(RunError, match=r"does not see .*data: it must"):
        terms.adopt()
    with pytest.raises(RunError, match=f"does not see {tmp_path}: it must"):
        replace(terms, seen=(tmp_path / ".ray-0123",)).adopt()


def test_locks_of_a_lost_worker_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("quadratic", "static", lr=0.01, steps=2, batch_size=4)
    unit = Unit(((config, tmp_path),))
    monkeypatch.setattr(on_ray, "WAIT", 0.01)
    with locked(tmp_path):
        assert isinstance(on_ray._patiently(unit, lambda *_: None, again=False), InUse)
        monkeypatch.setattr(on_ray, "LOCKS_LEFT", 0.05)
        given_up = on_ray._patiently(unit, lambda *_: None, again=True)
    assert isinstance(given_up, InUse)
    assert "delete" in str(given_up)
    monkeypatch.setattr(on_ray, "LOCKS_LEFT", 60.0)
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(tmp_path):
            held.set()
            over.wait(0.5)

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    assert on_ray._patiently(unit, lambda *_: None, again=True) == {}
    other.join()
    assert (tmp_path / store.SUMMARY).exists()


def test_a_run_that_is_finished_elsewhere_only_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "LATE", 0.01)
    with pytest.raises(RunError, match=r"finished .* but summary.json is not seen here"):
        on_ray._await(tmp_path)
    (tmp_path / store.SUMMARY).touch()
    on_ray._await(tmp_path)


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"^--on needs ray: pip install 'trimol\[ray\]'$"):
        clusters.connect("ray", 1)


@pytest.mark.parametrize("on", ["", "head", "ray:/x", "ray://", "1.2.3.4", "http://a:1", 3])
def test_no_cluster_is_called_so(on: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on must be ray, ray://HOST:PORT or HOST:PORT, found"):
        execute_all([], on=on)


@pytest.mark.timeout(60)  # Ray itself waits for minutes
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_where_no_cluster_is_one_line_says_so(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "REACH", 1.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(RunError, match=r"no Ray cluster answers at .*refused"):
            clusters.reach(address)
        other.listen()  # and says nothing
        with pytest.raises(RunError, match=r"what answers at .* is no Ray cluster"):
            clusters.reach(address)


@pytest.mark.parametrize("error", [Exception("The node\ntimed out"), RuntimeError("timed out")])
def test_a_cluster_that_does_not_start_is_one_line(error: Exception) -> None:
    class Ray:
        def init(self, **_how: Any) -> None:
            raise error

    with pytest.raises(RunError, match=r"^cannot connect to the Ray cluster here: .*timed out$"):
        clusters._connect(Ray(), None, 1)


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(AttributeError):
        clusters._connect(object(), None, 1)


LISTENING = """
import psutil
from trimol.runs._cluster import connect

connect("ray", 1)
family = [psutil.Process(), *psutil.Process().children(recursive=True)]
for process in family:
    for each in process.net_connections("inet"):
        if each.status == psutil.CONN_LISTEN:
            print(each.laddr.ip)
"""


@pytest.mark.slow
def test_a_cluster_that_is_started_here_listens_on_loopback_alone() -> None:
    """In a process of its own, as this one is connected to another."""
    told = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    ended = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, env=told
    )
    assert ended.returncode == 0, ended.stderr
    found = ended.stdout.split()
    assert len(found) > 3
    assert {address.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}
