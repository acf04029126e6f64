"""The store: files that are whole or not there, and blame for those that are damaged."""

import errno
import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import polars
import pytest
import torch

import trimol
from trimol.runs import StoreError, store
from trimol.runs import _storage as files
from trimol.runs._lock import locked
from trimol.runs.config import RunConfig

CONFIG = RunConfig(task="digits", method="modo", lr=1.0, steps=100)


def write_run(folder: Path, *, seed: int = 0) -> None:
    folder.mkdir(parents=True)
    config = CONFIG.model_copy(update={"seed": seed})
    files.write_json(folder / store.CONFIG, config.model_dump(mode="json"))


def test_find_is_recursive_and_sorted(tmp_path: Path) -> None:
    for place, seed in (("b", 1), ("a/deep", 2), ("a", 3)):
        if not (tmp_path / place).exists():
            write_run(tmp_path / place, seed=seed)
        else:
            files.write_json(tmp_path / place / store.CONFIG, CONFIG.model_dump(mode="json"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"foreign": true}')
    found = store.find(tmp_path)
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == ["a", "a/deep", "b"]
    assert not found[0].finished
    assert found[0].objectives == ()
    assert found[0].metrics.is_empty()
    assert store.find(tmp_path / "nowhere") == []


def test_records_survive_the_table(tmp_path: Path) -> None:
    records: list[dict[str, float | int]] = [
        {"step": 0, "samples": 0, "loss/a": 1.5, "cosine/a/b": math.nan},
        {"step": 5, "samples": 9, "loss/a": 0.1, "cosine/a/b": -math.inf, "E_ca": 0.25},
    ]
    files.write_table(tmp_path / "t.parquet", store.table(records))
    found = files.read_table(tmp_path / "t.parquet")
    assert found.schema["step"] == polars.Int64
    assert math.isnan(store.records(found)[0].pop("cosine/a/b"))
    assert store.records(found)[1] == records[1]
    assert "E_ca" not in store.records(found)[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"task": "dig'),
        ("config.json", b"\xff\xfe"),
        ("summary.json", b"{"),
        ("metrics.parquet", b"PAR1 but no parquet"),
        ("metrics.parquet", b""),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(StoreError, match=f"{name} is damaged or not ours: no readable") as error:
        store.load(tmp_path / "run")
    assert "\n" not in str(error.value)


def test_a_damaged_environment_is_named_and_done_without(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"environment.json is damaged.* read without it"):
        assert store.load(tmp_path / "run").environment == {}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a zip", b"no tensors at all"])
def test_damaged_tensors_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(StoreError, match=r"x.pt is damaged or not ours: no readable saved tensors"):
        files.read_tensors(tmp_path / "x.pt")


def test_a_truncated_checkpoint_is_named(tmp_path: Path) -> None:
    files.write_tensors(tmp_path / "x.pt", {"a": torch.rand(1000)})
    whole = (tmp_path / "x.pt").read_bytes()
    (tmp_path / "x.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"x.pt is damaged"):
        files.read_tensors(tmp_path / "x.pt")


def test_a_foreign_configuration_is_named(tmp_path: Path) -> None:
    content = CONFIG.model_dump(mode="json") | {"steps": "many"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"config.json is no run's configuration: steps: input"):
        store.load(tmp_path)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*config.json: No such file"):
        store.load(tmp_path)


@pytest.mark.parametrize("where", ["open", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.json"
    files.write_json(file, {"old": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path if where == "replace" else os, where, full)
    with pytest.raises(StoreError, match=r"cannot write .*a.json: No space left on device"):
        files.write_json(file, {"new": 2})
    monkeypatch.undo()
    assert files.read_json(file) == {"old": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreError, match=r"cannot write .*a: File too large"):
            files.write(tmp_path / "a", bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"cannot make the folder .*file"):
        files.make_folder(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_one_process_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trimol.runs._lock import locked\n"
        f"with locked(Path({str(tmp_path)!r})): print('in', flush=True); sys.stdin.read()"
    )
    source = str(Path(trimol.__file__).parents[1])
    other = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "in\n"
    with (
        pytest.raises(StoreError, match=f"in use by process {other.pid} on .+: wait"),
        locked(tmp_path),
    ):
        pass
    other.kill()
    other.communicate()
    with locked(tmp_path):  # the lock of a dead process is nobody's
        assert (tmp_path / ".lock").read_text().startswith(f"{os.getpid()} on ")
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("content", ["{}", "[]", '{"record": {}}'])
def test_a_summary_that_is_none_is_named(tmp_path, content):
    config = RunConfig(task="digits", method="static", lr=1.0, steps=1)
    (tmp_path / "config.json").write_text(config.model_dump_json())
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(StoreError, match=r"summary\.json is damaged or not ours"):
        store.load(tmp_path)


def test_a_finished_run_without_its_records_is_named(tmp_path):
    config = RunConfig(task="digits", method="static", lr=1.0, steps=1)
    (tmp_path / "config.json").write_text(config.model_dump_json())
    summary = {"record": {}, "steps": 1, "samples": 64, "seconds": 0.1}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(StoreError, match=r"cannot read .*metrics\.parquet"):
        store.load(tmp_path)
