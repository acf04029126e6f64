"""Damaged, lost and swapped files: each is mended or named, and none is silently wrong."""

import json
import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
import torch

from trimol.report import write
from trimol.runs import (
    Interrupted,
    RunConfig,
    StoredRun,
    StoreError,
    configure,
    execute,
    execute_all,
    store,
)
from trimol.runs import _storage as files
from trimol.training import Diverged, Record, RunError

CONFIG = configure(
    "quadratic", "modo", lr=0.01, steps=9, batch_size=4, measure_every=2, checkpoint_every=3
).model_copy(update={"measure_at": (1, 5), "score_every": 4})
RESULTS = ("metrics.parquet", "model.pt", "direction.pt", "directions.pt")
FLIPS = 160  # of each kind of folder
MARK = b"trimol-sha256:"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power cuts."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Stop:
    """Interrupts when a step is done, once."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        if step == self.step and record is None:
            self.step = -1
            os.kill(os.getpid(), signal.SIGINT)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder that a run reads back."""
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != ".lock"}


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a finished run."""
    folder = tmp_path_factory.mktemp("whole")
    execute(CONFIG, folder)
    return contents(folder)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that was interrupted in step 7."""
    folder = tmp_path_factory.mktemp("broken")
    with pytest.raises(Interrupted):
        execute(CONFIG, folder, watch=Stop(7))
    return contents(folder)


def laid_out(folder: Path, content: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, own in content.items():
        (folder / name).write_bytes(own)
    return folder


def look_at(run: StoredRun) -> None:
    """Read what is read only when it is asked for."""
    assert all(tensor.isfinite().all() for tensor in run.parameters.values())
    assert run.direction.isfinite().all()
    assert sorted(run.directions) == [1, 5]


def resumed(folder: Path) -> str:
    """What is said when a run goes on: an error, a warning, or nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run = execute(CONFIG, folder, resume=True)
            look_at(run)
        except RunError as error:
            return str(error)
    return " ".join(str(warning.message) for warning in caught)


def read(folder: Path) -> str:
    """What is said when a run is only looked at."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for run in store.find(folder):
                look_at(run)
        except StoreError as error:
            return str(error)
    return " ".join(str(warning.message) for warning in caught)


def flipped(content: dict[str, bytes], dice: random.Random) -> tuple[str, bool, dict[str, bytes]]:
    """One bit of one file turned, every file as often; and whether that is to be noticed.

    Without the mark of its digest a file is read unchecked, as an older version's is.
    """
    name = dice.choice(sorted(content))
    own = bytearray(content[name])
    place, mark = dice.randrange(len(own)), own.rfind(MARK)
    own[place] ^= 1 << dice.randrange(8)
    return name, not mark <= place < mark + len(MARK), {**content, name: bytes(own)}


@pytest.mark.slow
def test_bits_flipped_in_an_interrupted_run(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    dice, expected = random.Random(0), {name: whole[name] for name in RESULTS}
    for _ in range(FLIPS):
        name, noticeable, content = flipped(broken, dice)
        said = resumed(laid_out(tmp_path / "run", content))
        assert "\n" not in said
        if name == "config.json" and said:
            assert f"{tmp_path / 'run' / name} is damaged" in said or not noticeable
        else:
            assert results(tmp_path / "run") == expected, (name, said)
        # The tables are written anew, and nobody looks at the checkpoint before the last.
        if noticeable and not name.endswith((".parquet", ".previous")):
            assert str(tmp_path / "run" / name) in said


@pytest.mark.slow
def test_bits_flipped_in_a_finished_run(whole: dict[str, bytes], tmp_path: Path) -> None:
    dice, expected = random.Random(1), {name: whole[name] for name in RESULTS}
    before = store.load(laid_out(tmp_path / "run", whole))
    for _ in range(FLIPS):
        name, noticeable, content = flipped(whole, dice)
        folder = laid_out(tmp_path / "run", content)
        said = read(folder)
        assert "\n" not in said
        if noticeable and name != "checkpoint.pt":  # which is not looked at
            assert str(folder / name) in said
        if not said:
            (found,) = store.find(folder)
            assert found.metrics.equals(before.metrics)
            assert found.scores.equals(before.scores)
            assert found.config == CONFIG
            assert found.summary is not None
            assert before.summary is not None
            assert before.summary.items() <= found.summary.items()
        said = resumed(folder)
        assert "\n" not in said
        assert results(folder) == expected, (name, said)  # made again, if need be


@pytest.mark.parametrize("kept", [0, 0.5, 0.999])
def test_truncated_files(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path, kept: float
) -> None:
    for before in (whole, broken):
        for name, content in before.items():
            cut = before | {name: content[: int(kept * len(content))]}
            said = resumed(laid_out(tmp_path / "run", cut))
            assert "\n" not in said
            assert results(tmp_path / "run") == {name: whole[name] for name in RESULTS}
            assert (
                name in said
                or name in ("checkpoint.pt", "checkpoint.previous")
                or (before is broken and name.endswith(".parquet"))
            )


def test_files_that_are_gone(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    for before in (whole, broken):
        for name in before:
            rest = {other: own for other, own in before.items() if other != name}
            said = resumed(laid_out(tmp_path / "run", rest))
            assert results(tmp_path / "run") == {name: whole[name] for name in RESULTS}, name
            silent = {"environment.json", "checkpoint.pt", "checkpoint.previous", "state.json"}
            unfinished = {"config.json", "metrics.parquet", "scores.parquet"}
            silent |= unfinished if before is broken else set()
            assert (name in said) == (name not in silent), (name, said)


def test_files_of_another_run_of_the_task(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    other = CONFIG.model_copy(update={"seed": 1})
    execute(other, tmp_path / "other")
    theirs = contents(tmp_path / "other")
    with pytest.raises(Interrupted):
        execute(other, tmp_path / "stopped", watch=Stop(8))
    half = contents(tmp_path / "stopped")
    for name in RESULTS:
        swapped = laid_out(tmp_path / "run", whole | {name: theirs[name]})
        assert f"{name} is another file than the one that was written here" in read(
            tmp_path / "run"
        )
        assert name in resumed(swapped)
        assert results(swapped) == {name: whole[name] for name in RESULTS}
    for name in ("metrics.parquet", "directions.pt"):
        swapped = laid_out(tmp_path / "run", broken | {name: half[name]})
        said = resumed(swapped)
        assert results(swapped) == {name: whole[name] for name in RESULTS}
        assert (name in said) == (name == "directions.pt")
    swapped = laid_out(tmp_path / "run", broken | {"checkpoint.pt": half["checkpoint.pt"]})
    line = r"checkpoint.pt does not fit this run.*seed must be 0, found 1: it is of another run"
    with pytest.raises(StoreError, match=line):
        execute(CONFIG, swapped, resume=True)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    folder = laid_out(tmp_path / "run", broken)
    flip(folder / "checkpoint.pt")
    with pytest.warns(RuntimeWarning) as said:
        run = execute(CONFIG, folder, resume=True)
    assert [str(warning.message) for warning in said] == [
        f"{folder}/checkpoint.pt is damaged: its content is not what its digest says: going on "
        "from the checkpoint before it, of step 6"
    ]
    assert run.metrics["step"].to_list() == [0, 1, 2, 4, 5, 6, 8, 9]
    assert results(folder) == {name: whole[name] for name in RESULTS}
    assert not (folder / "checkpoint.previous").exists()


def test_without_a_whole_checkpoint_a_run_begins_again(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    folder = laid_out(tmp_path / "run", broken)
    flip(folder / "checkpoint.pt")
    flip(folder / "checkpoint.previous")
    with pytest.warns(RuntimeWarning, match="no other checkpoint is there, it begins again"):
        execute(CONFIG, folder, resume=True)
    assert results(folder) == {name: whole[name] for name in RESULTS}


def test_a_damaged_finished_run_is_not_taken_for_whole(
    whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = laid_out(tmp_path / "run", whole)
    flip(folder / "model.pt")
    line = r"model.pt is damaged: .*: resume the run \(--resume\), which makes it again"
    with pytest.raises(StoreError, match=line):
        execute(CONFIG, folder)
    with pytest.warns(RuntimeWarning, match=r"model.pt is damaged: .*: the run is made again"):
        execute(CONFIG, folder, resume=True)
    assert results(folder) == {name: whole[name] for name in RESULTS}


def test_a_configuration_edited_by_hand(whole: dict[str, bytes], tmp_path: Path) -> None:
    folder = laid_out(tmp_path / "run", whole)
    text = (folder / "config.json").read_text().replace('"lr": 0.01', '"lr": 0.02')
    (folder / "config.json").write_text(text)
    line = r'config.json is damaged: .* \(if you edited it, delete its "digest"\)'
    with pytest.raises(StoreError, match=f"{line}; move it away"):
        store.load(folder)
    with pytest.raises(StoreError, match=rf"{line}: resume the run \(--resume\), which makes it"):
        execute(CONFIG, folder)
    assert (folder / "config.json").read_text() == text
    lines = text.splitlines()
    assert '"digest": "trimol-sha256:' in lines[-2]
    (folder / "config.json").write_text("\n".join([*lines[:-3], lines[-3].rstrip(","), "}"]))
    assert store.load(folder).config.lr == 0.02


def test_a_damaged_configuration_does_not_stop_a_list(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    for before in (whole, broken):
        folder = laid_out(tmp_path / "run", before)
        flip(folder / "config.json")
        with pytest.warns(RuntimeWarning, match=r"config.json is damaged: .* made again"):
            (run,) = execute_all([(CONFIG, folder)])
        assert isinstance(run, StoredRun)
        assert results(folder) == {name: whole[name] for name in RESULTS}
        assert (folder / "config.json").read_bytes() == whole["config.json"]
    folder = laid_out(tmp_path / "run", broken)  # the checkpoint says that it is another's
    flip(folder / "config.json")
    kept = contents(folder)
    with pytest.raises(StoreError, match=r"checkpoint.pt .*seed must be 1, found 0: it is"):
        execute(CONFIG.model_copy(update={"seed": 1}), folder, resume=True)
    assert contents(folder) == kept


def test_files_of_an_older_version_are_read(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    """They have no digests, and their checkpoints no tables."""
    folder = laid_out(tmp_path / "run", broken)
    for name in broken:
        _as_older(folder / name)
    execute(CONFIG, folder, resume=True)
    assert results(folder) == {name: whole[name] for name in RESULTS}
    folder = laid_out(tmp_path / "run", broken)
    for name in broken:
        _as_older(folder / name)
    (folder / "metrics.parquet").unlink()
    with pytest.warns(RuntimeWarning, match=r"metrics.parquet lacks step 0.* begins again"):
        execute(CONFIG, folder, resume=True)
    assert results(folder) == {name: whole[name] for name in RESULTS}
    folder = laid_out(tmp_path / "run", whole)
    for name in whole:
        _as_older(folder / name)
    run = execute(CONFIG, folder)
    assert run.record["step"] == 9
    model = folder / "model.pt"  # of an older file only the zip's checksums tell
    numbers = run.parameters["x"].numpy().tobytes()
    model.write_bytes(model.read_bytes().replace(numbers, numbers[::-1]))
    with pytest.raises(StoreError, match=r"model.pt is damaged or not ours"):
        assert store.load(folder).parameters


def _as_older(file: Path) -> None:
    if file.suffix == ".parquet":
        polars.read_parquet(file).write_parquet(file)
    elif file.suffix == ".json":
        content = files.read_json(file)
        content.pop("digests", None)
        file.write_text(json.dumps(content))
    else:
        content = torch.load(file)
        if isinstance(content, dict):
            content.pop("tables", None)
            content.pop("config", None)
        torch.save(content, file)


def _without_model(kept: dict[str, Any]) -> Any:
    del kept["run"]["model"]
    return kept


def _with(part: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def changed(kept: dict[str, Any]) -> Any:
        kept["run"][part] = value
        return kept

    return changed


def _lambda_nan(kept: dict[str, Any]) -> Any:
    kept["run"]["method"]["weights"][1] = torch.nan
    return kept


WRONG = {
    "a list": (lambda kept: [kept], "the state of a checkpoint must be a dict, found list"),
    "a tensor": (lambda _: torch.zeros(3), "checkpoint must be a dict, found Tensor"),
    "no run": (lambda _: {"seconds": 1.0}, "a checkpoint must have 'run', found none"),
    "no model": (_without_model, "the state of a run must have 'model', found none"),
    "far": (_with("step", 10**9), "step must be a whole number from 0 to 9, found 1000000000"),
    "negative": (_with("step", -1), "step must be a whole number from 0 to 9, found -1"),
    "no number": (_with("step", "7"), "step must be a whole number from 0 to 9, found '7'"),
    "another step": (_with("step", 8), "scores.parquet must have step 8 in it, found none"),
    "λ is NaN": (_lambda_nan, r"weights of a state must be finite, found \[0.\d+, nan, 0.\d+\]"),
    "shape": (_with("model", {"x": torch.zeros(5)}), "size mismatch for x: copying a param with"),
    "another task": (_with("model", {"a.weight": torch.zeros(2, 2)}), "Missing key"),
    "model": (_with("model", [1, 2]), "state_dict to be dict-like"),
    "samples": (_with("samples", None), "samples must be a whole number of at least 0, found None"),
    "random": (_with("random", [{"torch": "0"}]), "random must have states of .* found"),
    "sampler": (_with("sampler", {"step": 7}), "does not fit this run"),
    "optimizer": (_with("optimizer", {}), "does not fit this run"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_readable_checkpoint_that_is_wrong(
    broken: dict[str, bytes], tmp_path: Path, kind: str
) -> None:
    change, line = WRONG[kind]
    folder = laid_out(tmp_path / "run", broken)
    (folder / "checkpoint.previous").unlink()
    file = folder / "checkpoint.pt"
    files.write_tensors(file, change(files.read_tensors(file)))
    for _ in range(2):  # a second try must not take it away
        with pytest.raises(StoreError, match=line) as error:
            execute(CONFIG, folder, resume=True)
        assert str(file) in str(error.value)
        assert "\n" not in str(error.value)


def test_other_programs_read_the_files(whole: dict[str, bytes], tmp_path: Path) -> None:
    folder = laid_out(tmp_path / "run", whole)
    assert torch.load(folder / "model.pt", weights_only=True)["x"].shape == (2,)
    assert torch.load(folder / "model.pt", mmap=True)["x"].shape == (2,)
    assert polars.read_parquet(folder / "metrics.parquet")["step"].to_list()[-1] == 9


# Runs that train together have one checkpoint beside their folders.
GROUP = [CONFIG.model_copy(update={"seed": seed}) for seed in (0, 1)]


def group_jobs(folder: Path) -> list[tuple[RunConfig, Path]]:
    return [(config, folder / f"seed-{config.seed}") for config in GROUP]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, bytes]]]:
    """A group that was interrupted, and the results of one that was not."""
    folder = tmp_path_factory.mktemp("group")
    execute_all(group_jobs(folder / "whole"))
    expected = [results(path) for _, path in group_jobs(folder / "whole")]
    with pytest.raises(Interrupted):
        execute_all(group_jobs(folder / "broken"), watch=Stop(7))
    return folder / "broken", expected


def test_bits_flipped_in_a_groups_checkpoint(
    group: tuple[Path, list[dict[str, bytes]]], tmp_path: Path
) -> None:
    broken, expected = group
    dice = random.Random(2)
    for damaged in (1, 1, 1, 1, 1, 1, 2):
        shutil.copytree(broken, tmp_path / "runs")
        (file,) = (tmp_path / "runs" / ".together").glob("*.pt")
        for each in (file, file.with_suffix(".previous"))[:damaged]:
            content = bytearray(each.read_bytes())
            content[dice.randrange(len(content) - 100)] ^= 1 << dice.randrange(8)
            each.write_bytes(bytes(content))
        line = "the checkpoint before it, of step 6" if damaged == 1 else "begins again"
        with pytest.warns(RuntimeWarning, match=line):
            execute_all(group_jobs(tmp_path / "runs"))
        assert [results(path) for _, path in group_jobs(tmp_path / "runs")] == expected
        assert sorted(os.listdir(tmp_path / "runs")) == ["seed-0", "seed-1"]
        shutil.rmtree(tmp_path / "runs")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda kept: [kept], "the state of a group must be a dict, found list"),
        (lambda kept: kept | {"replicas": {"step": 10**9}}, "from 0 to 9, found 1000000000"),
        (lambda kept: kept | {"replicas": {"step": 7}}, "a group must have 'params', found none"),
    ],
)
def test_a_groups_readable_checkpoint_that_is_wrong(
    group: tuple[Path, list[dict[str, bytes]]], tmp_path: Path, change: Any, line: str
) -> None:
    shutil.copytree(group[0], tmp_path / "runs")
    (file,) = (tmp_path / "runs" / ".together").glob("*.pt")
    files.write_tensors(file, change(files.read_tensors(file)))
    with pytest.raises(StoreError, match=line) as error:
        execute_all(group_jobs(tmp_path / "runs"))
    assert str(file) in str(error.value)


@pytest.mark.parametrize("part", ["params", "method"])
def test_a_groups_tensors_that_are_wrong(
    group: tuple[Path, list[dict[str, bytes]]], tmp_path: Path, part: str
) -> None:
    shutil.copytree(group[0], tmp_path / "runs")
    (file,) = (tmp_path / "runs" / ".together").glob("*.pt")
    kept = files.read_tensors(file)
    if part == "params":
        kept["replicas"]["params"]["x"] = kept["replicas"]["params"]["x"][:1]
    else:
        kept["replicas"]["method"]["weights"][1] = torch.nan
    files.write_tensors(file, kept)
    line = {"params": r"params 'x' must have the shape \(2, 2\), found \(1, 2\)"}
    with pytest.raises(StoreError, match=line.get(part, "weights must be finite, found .nan")):
        execute_all(group_jobs(tmp_path / "runs"))


def test_a_member_that_diverged_keeps_its_files_when_its_group_is_tried_again(
    tmp_path: Path,
) -> None:
    wild = GROUP[1].model_copy(update={"lr": 1e200})
    jobs = [(GROUP[0], tmp_path / "0"), (wild, tmp_path / "1")]
    with pytest.raises(Interrupted):
        execute_all(jobs, watch=Stop(7))
    _, first = execute_all(jobs, retry=True)
    assert isinstance(first, Diverged)
    assert store.load(tmp_path / "1").state.reason == str(first)


@pytest.mark.parametrize("before", ["whole", "broken"])
def test_a_pipe_under_the_name_of_a_file_is_not_waited_for(
    before: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    content: dict[str, bytes] = request.getfixturevalue(before)
    for name in content:
        folder = laid_out(tmp_path / "run", content)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        said = f"cannot read {folder / name}: it is not a regular file"
        if before == "whole":
            assert read(folder) == ("" if name == "checkpoint.pt" else said)  # not looked at
        assert resumed(folder) in ("", said)


def test_links_planted_in_a_run_are_not_written_through(
    whole: dict[str, bytes], broken: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    folder = laid_out(tmp_path / "run", broken)
    for name in whole:
        (folder / f".{name}.part").symlink_to(tmp_path / "victim")
    execute(CONFIG, folder, resume=True)
    assert results(folder) == {name: whole[name] for name in RESULTS}
    (folder / ".report.html.part").symlink_to(tmp_path / "victim")
    write(folder)
    assert (tmp_path / "victim").read_bytes() == b"precious"
    for name in (*RESULTS, "summary.json", "report.html"):
        assert not (folder / name).is_symlink()
        assert not os.path.lexists(folder / f".{name}.part")
    folder = laid_out(tmp_path / "run", broken)
    (folder / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match=r"cannot write to the folder .*run"):
        execute(CONFIG, folder, resume=True)
    assert (tmp_path / "victim").read_bytes() == b"precious"
