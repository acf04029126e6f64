"""Runs that train together: the numbers of runs apart, ordinary folders, resumed bit for bit."""

import json
import os
import shutil
import signal
import warnings
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trimol import tasks
from trimol.report import write as write_report
from trimol.runs import Interrupted, RunConfig, StoredRun, StoreError, configure, execute, store
from trimol.runs import _together as together
from trimol.runs._pool import execute_all
from trimol.runs._processes import _Pool, _Worker
from trimol.training import Diverged, Record, RunError, assess, start, train

SMALL = {"hidden": 8, "validation": 200}
FILES = {"config.json", "environment.json", "metrics.parquet", "model.pt", "direction.pt"}
FILES |= {"summary.json", ".lock"}
SAME = ("metrics.parquet", "model.pt", "direction.pt", "config.json")


def configs(method: str = "modo", **changes: object) -> list[RunConfig]:
    """Three seeds, two step sizes."""
    own = {"gamma": 0.5} if method == "modo" else {}
    given = {"steps": 12, "batch_size": 16, "measure_every": 5, "checkpoint_every": 4, **changes}
    return [
        configure(
            "digits", method, lr=lr, hyperparameters=own, task_options=SMALL, seed=seed, **given
        )
        for lr in (1.0, 0.5)
        for seed in (3, 4, 5)
    ]


def jobs(folder: Path, listed: list[RunConfig]) -> list[together.Job]:
    return [(config, folder / f"{config.lr:g}-{config.seed}") for config in listed]


def run(folder: Path, listed: list[RunConfig], **options: object) -> list[StoredRun]:
    found = execute_all(jobs(folder, listed), **options)  # type: ignore[arg-type]
    assert all(isinstance(each, StoredRun) for each in found)
    return found  # type: ignore[return-value]


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_fits", lambda config: False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    return run(tmp_path_factory.mktemp("whole"), configs())


def same_files(one: StoredRun, other: StoredRun, names: tuple[str, ...] = SAME) -> None:
    for name in names:
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes(), name
    first, second = (json.loads((r.path / "summary.json").read_text()) for r in (one, other))
    for key in ("record", "steps", "samples"):
        assert first[key] == second[key]


def test_they_are_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = together.Replicas

    def counted(*given: object, **named: object) -> object:
        made.append(len(named["seeds"]))  # type: ignore[arg-type]
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(together, "Replicas", counted)
    run(tmp_path, configs(steps=2))
    assert made == [6]


def test_numbers_are_those_of_ordinary_runs(whole: list[StoredRun]) -> None:
    task = tasks.load("digits", SMALL)
    for stored in whole:
        config = stored.config
        own = start(
            task, "modo", lr=config.lr, hyperparameters={"gamma": 0.5}, batch_size=16,
            seed=config.seed,
        )  # fmt: skip
        seen: list[Record] = []
        train(own, 12, watch=lambda now, seen=seen: seen.append(assess(now).record))
        records = store.records(stored.metrics)
        assert [row["step"] for row in records] == [0, 5, 10, 12]
        for row, expected in zip(
            records, (seen[0], seen[5], seen[10], assess(own).record), strict=True
        ):
            assert list(row) == list(expected)
            for name, value in expected.items():
                assert row[name] == pytest.approx(value, rel=2e-4, abs=1e-7), name
        for name, value in own.model.state_dict().items():
            torch.testing.assert_close(stored.parameters[name], value, rtol=1e-4, atol=1e-6)


def test_together_and_one_by_one_agree(
    whole: list[StoredRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart(monkeypatch)
    for one, other in zip(whole, run(tmp_path, configs()), strict=True):
        assert one.metrics.columns == other.metrics.columns
        for name in one.metrics.columns:
            assert one.metrics[name].to_list() == pytest.approx(
                other.metrics[name].to_list(), rel=2e-4, abs=1e-7
            ), name


def test_each_has_an_ordinary_folder(whole: list[StoredRun]) -> None:
    for stored in whole:
        assert set(os.listdir(stored.path)) == FILES
        assert stored.objectives == ("cross-entropy", "MSE", "Huber")
        assert stored.summary is not None
        assert (stored.summary["steps"], stored.summary["samples"]) == (12, 12 * 16)
        assert 0 < stored.summary["measuring"] < stored.summary["seconds"]
        assert stored.direction.square().sum().item() == pytest.approx(stored.record["E_ca"])
        assert execute(stored.config, stored.path).record == stored.record
    folder = whole[0].path.parent
    assert set(os.listdir(folder)) == {stored.path.name for stored in whole}
    assert [found.config for found in store.find(folder)]


def test_the_report_reads_them(whole: list[StoredRun], tmp_path: Path) -> None:
    shutil.copytree(whole[0].path.parent, tmp_path / "runs")
    assert "E_ca" in write_report(tmp_path / "runs").read_text(encoding="utf-8")


def test_finished_ones_are_not_run_again(whole: list[StoredRun]) -> None:
    told: list[int] = []
    folder = whole[0].path.parent
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    again = run(folder, configs(), watch=lambda config, step, record: told.append(step))
    assert told == []
    assert [each.record for each in again] == [each.record for each in whole]
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


class Stop:
    """Sends a signal to this process when all runs are at a step."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self.step, self.number, self.sent = step, number, False

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        if step == self.step and record is None and not self.sent:
            self.sent = True  # a second one would not be noted, but end the process
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("step", [1, 3, 4, 5, 7, 11])
def test_interrupted_they_go_on(whole: list[StoredRun], tmp_path: Path, step: int) -> None:
    message = rf"interrupted at step {step} of 12, 6 runs together, saved in .*: run the same"
    with pytest.raises(Interrupted, match=message):
        run(tmp_path, configs(), watch=Stop(step))
    assert len(list((tmp_path / ".together").glob("*.pt"))) == 1
    steps: list[int] = []
    again = run(tmp_path, configs(), watch=lambda config, now, record: steps.append(now))
    assert min(steps) >= step
    for one, other in zip(whole, again, strict=True):
        same_files(one, other)
    assert not (tmp_path / ".together").exists()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_falling_step_size_is_that_of_single_runs_and_goes_on(
    whole: list[StoredRun], tmp_path: Path, schedule: str
) -> None:
    listed = configs(schedule=schedule)[:2]
    undisturbed = run(tmp_path / "whole", listed)
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", listed, watch=Stop(7))
    for one, other in zip(undisturbed, run(tmp_path / "parts", listed), strict=True):
        same_files(one, other)
    single = execute(listed[0], tmp_path / "single")
    with pytest.raises(Interrupted):
        execute(listed[0], tmp_path / "resumed", watch=Stop(7))
    same_files(single, execute(listed[0], tmp_path / "resumed", resume=True))
    for name, value in single.parameters.items():
        torch.testing.assert_close(undisturbed[0].parameters[name], value, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(whole[0].parameters[name], value, rtol=1e-4, atol=1e-6)
    assert single.config.schedule == schedule
    assert configs()[0].key != listed[0].key


@pytest.mark.parametrize("seeds", [(3,), (3, 4), (3, 4, 5, 6)])
def test_another_list_goes_on_with_the_same_group(
    whole: list[StoredRun], tmp_path: Path, seeds: tuple[int, ...]
) -> None:
    """Fewer runs, or more, are asked for: those that were interrupted come out the same."""
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(7))
    first = configs()[0]
    listed = [first.model_copy(update={"seed": seed}) for seed in seeds]
    again = {each.config.seed: each for each in run(tmp_path, listed)}
    for stored in whole[:3]:
        if stored.config.seed in again:
            same_files(stored, again[stored.config.seed])
    assert len(store.find(tmp_path)) == 6 + (6 in seeds)


def test_a_run_that_was_thrown_away_begins_again(whole: list[StoredRun], tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(7))
    shutil.rmtree(tmp_path / "1-4")
    for one, other in zip(whole, run(tmp_path, configs()), strict=True):
        same_files(one, other)


def test_another_run_in_the_place_of_one_is_not_of_the_group(
    whole: list[StoredRun], tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(7))
    shutil.rmtree(tmp_path / "1-4")
    other = configs()[1].model_copy(update={"batch_size": 8})
    runs = [job for job in jobs(tmp_path, configs()) if job[1].name != "1-4"]
    *_, last = execute_all([*runs, (other, tmp_path / "1-4")])
    assert isinstance(last, StoredRun)
    assert last.config == other
    assert last.record["samples"] == 12 * 8
    for stored in whole:
        if stored.path.name != "1-4":
            same_files(stored, store.load(tmp_path / stored.path.name))


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.slow
def test_killed_at_every_write(
    whole: list[StoredRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment at which a file changes: what is on disk always goes on the same."""
    from trimol import _files

    real, count = _files.os.fsync, [0]

    def counted(handle: int) -> None:
        count[0] += 1
        if count[0] == limit:
            raise Killed
        real(handle)

    monkeypatch.setattr(_files.os, "fsync", counted)
    listed, limit, moments = configs()[:2], 0, 0
    reference = run(tmp_path / "whole", listed)
    while True:
        limit, count[0] = limit + 3, 0
        folder = tmp_path / str(limit)
        try:
            run(folder, listed)
        except Killed:
            moments += 1
            count[0] = -(10**6)
            for one, other in zip(reference, run(folder, listed), strict=True):
                same_files(one, other)
            continue
        break
    assert moments > 8


def test_what_a_finished_group_left_behind_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill may come when all have their summaries and the checkpoint is still there."""

    def killed(file: Path) -> None:
        raise Killed

    pair = [
        configure("quadratic", "static", lr=lr, steps=4, batch_size=4, checkpoint_every=2)
        for lr in (0.01, 1e200)  # one diverges, and is not trained again
    ]
    runs, home = jobs(tmp_path, pair), tmp_path / ".together"
    other = [c.model_copy(update={"batch_size": 8, "seed": seed}) for c in pair for seed in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(together, "_discard", killed)
        with pytest.raises(Killed):
            execute_all(runs)
    (left,) = home.iterdir()
    with pytest.raises(Interrupted):
        execute_all(jobs(tmp_path, other), watch=Stop(3))
    assert left not in home.iterdir()  # by any command that looks there
    needed = sorted(home.iterdir())
    assert [file.suffix for file in needed] == [".previous", ".pt"]
    execute_all(runs)
    assert sorted(home.iterdir()) == needed  # of runs that are to go on
    execute_all(jobs(tmp_path, other))
    home.mkdir()
    execute_all(runs)
    assert not home.exists()


def test_a_checkpoint_that_nobody_can_read_stops_no_finished_runs(tmp_path: Path) -> None:
    listed = [configure("quadratic", "static", lr=lr, steps=2, batch_size=4) for lr in (0.01, 0.02)]
    run(tmp_path, listed)
    (tmp_path / ".together").mkdir()
    for name, content in {"a": [1], "b": {"members": 3, "replicas": 0, "seconds": 0}}.items():
        torch.save(content, tmp_path / ".together" / f"{name}.pt")
    (tmp_path / ".together" / "c.pt").write_bytes(b"none")
    assert [each.finished for each in run(tmp_path, listed)] == [True, True]
    assert sorted(os.listdir(tmp_path / ".together")) == ["a.pt", "b.pt", "c.pt"]


def test_rows_after_the_checkpoint_are_measured_again(
    whole: list[StoredRun], tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(7))
    for stored in whole:  # as if killed after the last record
        shutil.copy(stored.path / "metrics.parquet", tmp_path / stored.path.name)
    for one, other in zip(whole, run(tmp_path, configs()), strict=True):
        same_files(one, other)


def test_watch_is_told_of_each(tmp_path: Path) -> None:
    told: list[tuple[int, int, bool]] = []
    listed = [c for c in configs("static", steps=2, measure_every=1) if c.lr == 1.0]
    run(tmp_path, listed, watch=lambda c, step, r: told.append((c.seed, step, r is not None)))
    for seed in (3, 4, 5):
        own = [(step, record) for s, step, record in told if s == seed]
        assert own == [(0, True), (1, False), (1, True), (2, False), (2, True)]


def test_one_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    listed = [c.model_copy(update={"lr": 1e38}) if c.seed == 4 else c for c in configs()[:3]]
    first, second, third = execute_all(jobs(tmp_path, listed))
    assert isinstance(second, Diverged)
    assert "the loss 'cross-entropy' is" in str(second)
    assert "at step 1: try a smaller lr" in str(second)
    assert isinstance(first, StoredRun)
    assert isinstance(third, StoredRun)
    folder = jobs(tmp_path, listed)[1][1]
    assert not (folder / "summary.json").exists()
    assert store.load(folder).metrics["step"].to_list() == [0]
    with pytest.raises(Diverged, match=r"the loss 'cross-entropy' is .* at step 1: try a smaller"):
        execute(listed[1], folder, resume=True)


def test_all_diverge(tmp_path: Path) -> None:
    listed = [c.model_copy(update={"lr": 1e38}) for c in configs("static", steps=1000)[:2]]
    found = execute_all([(c, tmp_path / str(c.seed)) for c in listed])
    assert all(isinstance(each, Diverged) for each in found)
    assert not (tmp_path / ".together").exists()


def test_a_diverged_one_resumes_as_such(tmp_path: Path) -> None:
    listed = [c.model_copy(update={"lr": 1e38}) if c.seed == 4 else c for c in configs()[:3]]
    with pytest.raises(Interrupted):
        execute_all(jobs(tmp_path, listed), watch=Stop(7))
    found = execute_all(jobs(tmp_path, listed))
    assert [isinstance(each, Diverged) for each in found] == [False, True, False]
    assert "at step 1: try a smaller lr" in str(found[1])


@pytest.mark.parametrize("method", ["famo", "rgw", "smg", "pcgrad", "moco"])
def test_every_method_comes_to_its_end(tmp_path: Path, method: str) -> None:
    """Together or, where the method cannot, one by one."""
    found = run(tmp_path, configs(method, steps=3)[:3])
    assert [each.record["step"] for each in found] == [3] * 3


CONTROLLED = """
from trimol.tasks.digits import Digits

class Controlled(Digits):
    def losses(self, model, batch):
        found = super().losses(model, batch)
        return found * 2 if model[0].bias.detach().abs().max() > 1e9 else found
"""


def test_a_task_that_vmap_cannot_do_is_run_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CONTROLLED)
    task = f"{tmp_path / 'mine.py'}:Controlled"
    listed = [configure(task, "static", lr=0.1, steps=3, seed=seed) for seed in (0, 1)]
    found = run(tmp_path / "runs", listed)
    for stored in found:
        own = start(tasks.load(task), "static", lr=0.1, seed=stored.config.seed)
        assert stored.record == assess(train(own, 3)).record
        assert (stored.path / "checkpoint.pt").exists()
    assert not (tmp_path / "runs" / ".together").exists()


def test_runs_that_cannot_be_alike_are_apart(tmp_path: Path) -> None:
    base = configs()[0]
    changes = (
        {"steps": 3}, {"batch_size": 8}, {"method": "static", "hyperparameters": {}},
        {"task_options": {"hidden": 9}}, {"rho": 0.1}, {"measure_every": 2}, {"precision": "bf16"},
    )  # fmt: skip
    listed = [base, *(base.model_copy(update=change) for change in changes)]
    alone = ({"optimizer": "adam"}, {"watch_every": 2}, {"hyperparameters": {"guard": True}})
    listed += [base.model_copy(update={**c, "seed": s}) for c in alone for s in range(2)]
    runs = [(config, tmp_path / str(number)) for number, config in enumerate(listed)]
    assert [len(unit.jobs) for unit in together.units(runs, runs)] == [1] * len(listed)
    alike = [base, *(base.model_copy(update=c) for c in ({"seed": 9}, {"lr": 0.3}))]
    alike.append(base.model_copy(update={"hyperparameters": {"gamma": 0.1}}))
    runs = [(config, tmp_path / str(number)) for number, config in enumerate(alike)]
    assert [len(unit.jobs) for unit in together.units(runs, runs)] == [4]


def test_large_models_have_smaller_groups(tmp_path: Path) -> None:
    def sizes(hidden: int, runs: int) -> list[int]:
        base = configs()[0].model_copy(update={"task_options": {"hidden": hidden}})
        listed = [base.model_copy(update={"seed": s, "lr": 1.0 + s % 2}) for s in range(runs)]
        asked = [(config, tmp_path / str(config.seed)) for config in listed]
        return [len(unit.jobs) for unit in together.units(asked, asked)]

    assert sizes(10, 100) == [64, 36]
    assert sizes(2000, 16) == [8, 8]  # one step size each
    assert sizes(2000, 14) == [14]  # too few of each to be fast
    assert sizes(10_000, 22) == [11, 11]
    assert sizes(20_000, 2) == [1, 1]


def test_a_damaged_checkpoint_is_named(whole: list[StoredRun], tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(7))
    (file,) = (tmp_path / ".together").glob("*.pt")
    file.write_bytes(b"damaged")
    line = rf"{file.name} is damaged or not ours: .* the checkpoint before it, of step 4"
    with pytest.warns(RuntimeWarning, match=line):
        found = run(tmp_path, configs())
    for one, other in zip(whole, found, strict=True):
        same_files(one, other)


def test_a_folder_with_another_run(whole: list[StoredRun], tmp_path: Path) -> None:
    shutil.copytree(whole[0].path, tmp_path / "1-3")
    listed = [c.model_copy(update={"rho": 0.5}) for c in configs()]
    with pytest.raises(StoreError, match=r"holds another run \(rho is 0.0 there, 0.5 here\)"):
        run(tmp_path, listed)


def test_steps_that_are_asked_for_keep_their_vectors(tmp_path: Path) -> None:
    listed = configs(measure_every=0, measure_at=(5, 12))
    for stored in run(tmp_path, listed):
        assert stored.metrics["step"].to_list() == [5, 12]
        assert sorted(stored.directions) == [5, 12]
        for row in stored.metrics.to_dicts():
            vector = stored.directions[row["step"]]
            assert vector.square().sum().item() == pytest.approx(row["E_ca"], rel=1e-5)
        torch.testing.assert_close(stored.directions[12], stored.direction.float())
    with pytest.raises(Interrupted):
        run(tmp_path / "broken", listed, watch=Stop(7))
    for one, other in zip(run(tmp_path, listed), run(tmp_path / "broken", listed), strict=True):
        same_files(one, other, (*SAME, "directions.pt"))


@pytest.mark.parametrize("method", ["modo", "famo"])
def test_validation_alone(tmp_path: Path, method: str) -> None:
    listed = [c.model_copy(update={"validation_only": True}) for c in configs(method)]
    stored = run(tmp_path, listed)[0]
    task = tasks.load("digits", SMALL)
    own = start(
        task, method, lr=1.0, batch_size=16, seed=3, hyperparameters=listed[0].hyperparameters
    )
    validation = task.data().validation
    assert validation is not None
    train(own, 12)
    accuracy = float(task.metrics(own.model, validation)["accuracy"])
    assert stored.record["validation/accuracy"] == pytest.approx(accuracy)
    losses = task.losses(own.model, validation).tolist()
    found = [stored.record[f"validation_loss/{name}"] for name in task.objectives]
    assert found == pytest.approx(losses, rel=1e-4)
    assert not any(name.startswith(("R_", "test_loss")) for name in stored.record)
    assert not (stored.path / "model.pt").exists()


@pytest.mark.parametrize("method", ["static", "famo"])
def test_validation_is_on_the_split_of_each_run(tmp_path: Path, method: str) -> None:
    options = {**SMALL, "seed": None}
    listed = [
        c.model_copy(update={"validation_only": True, "task_options": options})
        for c in configs(method)[:2]
    ]
    task = tasks.load("digits", options)
    for config, stored in zip(listed, run(tmp_path, listed), strict=True):
        own = start(task, method, lr=config.lr, batch_size=16, seed=config.seed)
        train(own, 12)
        assert own.data.validation is not None
        validation = tuple(tensor[:] for tensor in own.data.validation)
        losses = task.losses(own.model, validation).tolist()
        found = [stored.record[f"validation_loss/{name}"] for name in task.objectives]
        assert found == pytest.approx(losses, rel=1e-4)


def test_validation_needs_such_data(tmp_path: Path) -> None:
    config = configure("digits", "static", steps=1, validation_only=True)
    with pytest.raises(ValueError, match="needs a task with validation data, found digits"):
        execute(config, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_processes_take_groups(whole: list[StoredRun], tmp_path: Path) -> None:
    others = configs("static", steps=3)
    told: list[str] = []
    found = execute_all(
        [*jobs(tmp_path / "a", configs()), *jobs(tmp_path / "b", others)],
        jobs=2,
        watch=lambda config, step, record: told.append(config.method),
    )
    for one, other in zip(whole, found, strict=False):
        assert isinstance(other, StoredRun)
        same_files(one, other)
    assert set(told) == {"modo", "static"}


DEADLY = """
import os, multiprocessing
from trimol.tasks.digits import Digits

class Deadly(Digits):
    def model(self):
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return super().model()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_a_process_that_dies_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    task = f"{tmp_path}/deadly.py:Deadly"
    runs = [(configure(task, m, lr=1.0, steps=4), tmp_path / m) for m in ("static", "modo")]
    with pytest.raises(RunError, match="a process that ran the study died"):
        execute_all(runs, jobs=2)


def steps_of(run: StoredRun) -> list[int]:
    return run.metrics["step"].to_list()


def test_rows_of_one_that_went_along_are_not_lost(whole: list[StoredRun], tmp_path: Path) -> None:
    """Between two interrupts fewer runs were asked for: nobody wrote the others' rows."""
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(3))
    with pytest.raises(Interrupted):
        run(tmp_path, configs()[:1], watch=Stop(11))
    for one, other in zip(whole, run(tmp_path, configs()), strict=True):
        assert steps_of(other) == [0, 5, 10, 12]
        same_files(one, other)


def test_a_run_begun_alone_takes_no_rows_from_its_group(tmp_path: Path) -> None:
    """Rows that were overwritten from the start are no rows of the group's checkpoint."""
    listed = configs(measure_at=(2, 6), score_every=3)[:2]
    with pytest.raises(Interrupted):
        run(tmp_path, listed, watch=Stop(11))
    ((config, folder), _) = jobs(tmp_path, listed)
    with pytest.raises(Interrupted):
        execute(config, folder, resume=True, watch=Stop(1))
    for found in run(tmp_path, listed):
        assert steps_of(found) == [0, 2, 5, 6, 10, 12]
        assert found.scores["step"].to_list() == [3, 6, 9, 12]
        assert sorted(found.directions) == [2, 6]


def test_a_group_begun_over_a_single_run_leaves_no_gap(tmp_path: Path) -> None:
    """A checkpoint of its own is no use to a run whose rows are a younger group's."""
    listed = configs()[:2]
    ((config, folder), _) = jobs(tmp_path, listed)
    with pytest.raises(Interrupted):
        execute(config, folder, watch=Stop(11))
    with pytest.raises(Interrupted):
        run(tmp_path, listed, watch=Stop(1))
    assert steps_of(execute(config, folder, resume=True)) == [0, 5, 10, 12]


@pytest.mark.parametrize("name", ["metrics.parquet", "scores.parquet", "directions.pt"])
def test_a_table_that_was_thrown_away_is_made_again(tmp_path: Path, name: str) -> None:
    config = configs(measure_at=(2, 6), score_every=3)[0]
    with pytest.raises(Interrupted):
        execute(config, tmp_path, watch=Stop(9))
    (tmp_path / name).unlink()
    if name == "directions.pt":  # the one thing that is not in the checkpoint
        line = r"directions.pt lacks the vector of step 2 that was measured: .* it begins again"
        with pytest.warns(RuntimeWarning, match=line):
            found = execute(config, tmp_path, resume=True)
    else:
        found = execute(config, tmp_path, resume=True)
    assert steps_of(found) == [0, 2, 5, 6, 10, 12]
    assert found.scores["step"].to_list() == [3, 6, 9, 12]
    assert sorted(found.directions) == [2, 6]


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    first, second = configs()[:2]
    for together_ in (True, False):
        with pytest.raises(StoreError, match=r"holds another run .seed is 3 there, 4 here"):
            execute_all([(first, tmp_path / "a"), (second, tmp_path / "a")], together=together_)
    run(tmp_path, [first, first])
    with pytest.raises(StoreError, match=r"holds another run .seed is 3 there, 4 here"):
        execute_all([(first, tmp_path / "1-3"), (second, tmp_path / "1-3")])


def test_none_is_no_number(tmp_path: Path) -> None:
    listed = [
        configure("digits", "moco", lr=0.1, steps=2, hyperparameters={"gamma": g})
        for g in (None, 0.5, 0.25)
    ]
    found = execute_all([(c, tmp_path / str(i)) for i, c in enumerate(listed)])
    apart_ = execute_all([(c, tmp_path / f"{i}a") for i, c in enumerate(listed)], together=False)
    for one, other in zip(found, apart_, strict=True):
        assert isinstance(one, StoredRun)
        assert isinstance(other, StoredRun)
        assert one.record == pytest.approx(other.record, rel=2e-4, abs=1e-7)


@pytest.mark.parametrize("damage", ["members", "replicas", "state", "config"])
def test_a_groups_checkpoint_of_another_version_is_named(tmp_path: Path, damage: str) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, configs(), watch=Stop(7))
    (file,) = (tmp_path / ".together").glob("*.pt")
    content = torch.load(file)
    if damage == "state":
        content["replicas"]["method"]["state"]["more"] = torch.zeros(6, 3)
    elif damage == "config":
        content["members"][0][0]["unheard"] = 1
    else:
        del content[damage]
    torch.save(content, file)
    with pytest.raises(StoreError, match=rf"{file.name} .*move it away"):
        run(tmp_path, configs())
    file.unlink()
    run(tmp_path, configs())


@pytest.mark.parametrize("together_", [True, False])
@pytest.mark.parametrize("method", ["static", "modo"])
def test_one_that_diverges_in_its_last_step(tmp_path: Path, together_: bool, method: str) -> None:
    """Its losses were finite on every batch: only what is measured at the end shows it."""
    listed = [
        c.model_copy(update={"lr": 1e30}) if c.seed == 4 else c
        for c in configs(method, steps=1)[:3]
    ]
    found = execute_all(jobs(tmp_path, listed), together=together_)
    assert [isinstance(each, Diverged) for each in found] == [False, True, False]
    assert "at step 1: try a smaller lr" in str(found[1])
    assert store.load(tmp_path / "1e+30-4").metrics["step"].to_list() == [0]


@pytest.mark.parametrize(
    ("code", "how"), [(0, "exit code 0"), (1, "exit code 1"), (-9, "killed by SIGKILL; out of")]
)
def test_a_worker_that_ended_before_its_work_is_noticed(code: int, how: str) -> None:
    """Also one that was asked to stop by another, and did so in good order.

    And also where a process that it forked still holds its end of the pipe.
    """
    pool = object.__new__(_Pool)
    pool.workers = [object.__new__(_Worker) for _ in range(2)]
    ends = [Pipe() for _ in pool.workers]
    for worker, (near, _), ended in zip(pool.workers, ends, (None, code), strict=True):
        worker.pipe, worker.unit = near, None
        worker.process = SimpleNamespace(exitcode=ended, join=lambda _: None)  # type: ignore[assignment]
    with pytest.raises(RunError, match=f"a process that ran the study died .{how}"):
        pool.listen()


WARNING = """
import warnings
from trimol.tasks.digits import Digits

class Warning(Digits):
    def losses(self, model, batch):
        warnings.warn("look out", stacklevel=1)
        return super().losses(model, batch)
"""


def test_a_warning_is_said_once(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("default")
    (tmp_path / "mine.py").write_text(WARNING)
    listed = [configure(f"{tmp_path}/mine.py", "static", lr=0.1, steps=9, seed=s) for s in (0, 1)]
    run(tmp_path / "runs", listed)
    assert 1 <= len([w for w in recwarn if "look out" in str(w.message)]) <= 4


@pytest.mark.filterwarnings("ignore:MoDo. the weight of")
def test_a_formula_diverges_together_when_it_does_alone(tmp_path: Path) -> None:
    """Losses overflow long before gradients do."""
    listed = [
        configure("quadratic", "modo", lr=lr, steps=270, seed=3, batch_size=4,
                  hyperparameters={"gamma": 0.01})
        for lr in (0.001, 5.0)
    ]  # fmt: skip
    said = [
        str(execute_all([(c, tmp_path / f"{c.lr}-{t}") for c in listed], together=t)[1])
        for t in (True, False)
    ]
    assert said[0] == said[1]
    assert "at step 25" in said[0]


PARTIAL = """
import torch
from trimol.tasks import Data, Task, masked_mean

class Partial(Task):
    name, objectives = "partial", ("all", "some")

    def model(self):
        return torch.nn.Linear(3, 2)

    def data(self):
        generator = torch.Generator().manual_seed(1)
        def part(count):
            x = torch.randn(count, 3, generator=generator)
            return x, x[:, :2].sin(), torch.arange(count) % 4 == 0
        return Data(train=part(40), test=part(30), validation=part(20))

    def losses(self, model, batch):
        x, y, has = batch
        error = (model(x) - y).square()
        return [error[:, 0].mean(), masked_mean(error[:, 1], has)]

    def counts(self, batch):
        return torch.stack([torch.tensor(len(batch[2])), batch[2].sum()])
"""


@pytest.mark.parametrize("method", ["static", "mgda", "famo", "modo"])
def test_objectives_that_some_batches_lack(tmp_path: Path, method: str) -> None:
    """Together where a run's weights are kept as if it were alone; MoDo's, of two draws, apart."""
    (tmp_path / "partial.py").write_text(PARTIAL)
    listed = [
        configure(f"{tmp_path / 'partial.py'}:Partial", method, lr=lr, seed=seed, steps=9)
        for lr in (0.1, 0.3)
        for seed in (0, 1)
    ]
    listed = [each.model_copy(update={"batch_size": 4, "measure_every": 4}) for each in listed]
    one, other = (
        execute_all(jobs(tmp_path / str(way), listed), together=way) for way in (True, False)
    )
    for own, single in zip(one, other, strict=True):
        assert isinstance(own, StoredRun)
        assert isinstance(single, StoredRun)
        assert own.record.keys() == single.record.keys()
        for name, value in single.record.items():
            assert own.record[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
