"""The monitor: measures when due, changes nothing, feeds its sinks, resumes at the same steps."""

import json
import pathlib
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes

import trimol
from pair import meet, started
from trimol._generators import Generators
from trimol.training.monitor import Monitor, SinkFailed
from trimol.training.records import Record, from_errors


class Loop:
    """A small training loop with a monitor in it, between backward and the optimizer's step."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2))
        self.data = torch.randn(48, 3)
        self.method = trimol.MoDo(self.model.parameters(), objectives=2, gamma=0.1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.records: list[Record] = []
        ask: dict[str, Any] = {"train": self.data.split(6), "every": 2}
        ask |= {"sinks": [self.records.append], "model": self.model}
        self.monitor = Monitor(self.losses, self.method, **(ask | options))

    def losses(self, batch: Tensor) -> Tensor:
        return self.model(batch).square().mean(0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            first, second = self.data[torch.randint(48, (8,))].split(4)
            self.method(self.losses(first), self.losses(second)).backward()
            self.monitor.step(samples=8)
            self.optimizer.step()
            self.optimizer.zero_grad()


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- what is measured -----------------------------------------------------------------------------


def test_a_record_is_what_measure_finds() -> None:
    loop = Loop(rho=0.1, objectives=["fit", "slope"], metrics=lambda: {"answer": 42.0})
    loop.monitor.test = [torch.ones(4, 3)]
    loop.run(2)
    (record,) = loop.records
    loop = Loop()
    loop.run(1)
    # The second step again, up to where the monitor looks: x_t and λ_{t+1}.
    first, second = loop.data[torch.randint(48, (8,))].split(4)
    loop.method(loop.losses(first), loop.losses(second)).backward()
    loop.model.eval()
    weights = loop.method.weights
    errors = trimol.measure(
        loop.losses,
        loop.model.parameters(),
        train=loop.data.split(6),
        test=[torch.ones(4, 3)],
        weights=weights,
        rho=0.1,
    )
    names, metrics = ("fit", "slope"), {"answer": 42.0}
    expected = from_errors(errors, names, step=2, samples=16, metrics=metrics, weights=weights)
    assert record == expected
    assert list(record) == list(expected)
    assert {"R_opt", "R_gen", "gen_bound", "E_ca", "E_caw"} <= set(record)


@pytest.mark.parametrize("options", [{}, {"subsample": 8}, {"model": None}])
def test_training_goes_on_as_if_nothing_was_measured(options: dict[str, Any]) -> None:
    watched = Loop(**options)
    watched.run(6)
    alone = Loop(every=10**6)
    alone.run(6)
    assert len(watched.records) == 3
    assert alone.records == []
    for ours, theirs in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(watched.method.weights, alone.method.weights)


def test_eval_mode_for_the_measuring_only() -> None:
    loop = Loop()
    loop.model[2].eval()
    seen = []
    loop.monitor.metrics = lambda: {"training": seen.append(loop.model.training) or 0.0}
    loop.run(2)
    assert seen == [False]
    assert [m.training for m in loop.model] == [True, True, False, True]
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_eval_mode_is_left_after_an_error() -> None:
    loop = Loop(train=[torch.full((2, 3), float("nan"))])
    with pytest.raises(ValueError, match="batch 0 of train"):
        loop.run(2)
    assert loop.model.training


def test_estimates_have_their_bounds_in_the_record() -> None:
    loop = Loop(subsample=8, test=[torch.randn(4, 3) for _ in range(9)])
    loop.run(4)
    for record in loop.records:
        for name in ("R_opt", "R_pop", "R_gen", "E_ca"):
            assert record[f"{name}_low"] <= record[name] <= record[f"{name}_high"]
        assert "gen_bound" not in record


def test_samples_are_left_out_if_nobody_tells() -> None:
    loop = Loop(every=1)
    record = loop.monitor.step()
    assert record is not None
    assert "samples" not in record


# --- when -----------------------------------------------------------------------------------------


def test_every_so_many_steps() -> None:
    loop = Loop(every=3)
    loop.run(10)
    assert [record["step"] for record in loop.records] == [3, 6, 9]
    assert loop.monitor.steps == 10
    assert loop.monitor.last == loop.records[-1]


def test_step_says_whether_it_measured_and_measure_does_so_now() -> None:
    loop = Loop(every=2)
    assert loop.monitor.step() is None
    assert loop.monitor.measure()["step"] == 1
    assert loop.monitor.step() == loop.records[-1]


@pytest.mark.parametrize(("cost", "slow"), [(0.05, 1.0), (0.2, 0.25), (0.5, 4.0)])
def test_measuring_takes_its_share_of_time(cost: float, slow: float) -> None:
    clock = Clock()
    loop = Loop(every=None, cost=cost, clock=clock)

    def metrics() -> dict[str, float]:
        clock.now += slow  # what a measurement takes
        return {}

    loop.monitor.metrics = metrics
    start = clock.now
    for _ in range(400):
        clock.now += 0.1  # what a step takes
        before = len(loop.records)
        loop.monitor.step()
        if before and len(loop.records) > before:
            assert slow * len(loop.records) <= cost * (clock.now - start) + 1e-9
    steps = [int(record["step"]) for record in loop.records]
    assert steps[0] == 1
    # As often as allowed: one more would have been too many.
    assert slow * (len(steps) + 1) > cost * (clock.now - start + slow) - 0.1
    assert len(steps) == pytest.approx(400 * 0.1 * cost / (1 - cost) / slow, abs=1.5)


def test_time_between_runs_does_not_count() -> None:
    clock = Clock()
    loop = Loop(every=None, cost=0.1, clock=clock)
    clock.now += 5
    state = loop.monitor.state_dict()
    assert state == {"steps": 0, "samples": None, "elapsed": 5.0, "spent": 0.0, "latest": 0.0}
    clock.now += 1000
    loop.monitor.load_state_dict(state)
    clock.now += 1
    assert loop.monitor.state_dict()["elapsed"] == 6.0


@pytest.mark.parametrize("options", [{"every": 3}, {"every": 3, "subsample": 8}])
def test_a_resumed_loop_measures_at_the_same_steps(options: dict[str, Any]) -> None:
    whole = Loop(**options)
    whole.run(9)
    first = Loop(**options)
    first.run(4)
    drawn = torch.get_rng_state()
    resumed = Loop(**options)
    for part in ("model", "method", "optimizer"):
        getattr(resumed, part).load_state_dict(getattr(first, part).state_dict())
    resumed.monitor.load_state_dict(json.loads(json.dumps(first.monitor.state_dict())))
    torch.set_rng_state(drawn)
    resumed.run(5)
    assert first.records + resumed.records == whole.records


def test_measuring_changes_no_random_numbers() -> None:
    own = np.random.default_rng(0)

    def draw(*_: Any) -> dict[str, float]:
        return {"noise": random.random() + np.random.rand() + torch.rand(()).item() + own.random()}

    loop = Loop(metrics=draw, sinks=[draw])
    before = Generators(own)
    loop.monitor.measure()
    assert before.now().state_dict() == before.state_dict()


# --- sinks ----------------------------------------------------------------------------------------


def full_disk(record: Record) -> None:
    raise OSError("no space left")


def test_a_sink_that_fails_is_named_and_the_others_get_the_record() -> None:
    after: list[Record] = []
    loop = Loop(every=1)
    loop.monitor.sinks = (loop.records.append, full_disk, after.append)
    with pytest.raises(
        SinkFailed, match=r"^sink full_disk failed at step 1: OSError: no space left$"
    ):
        loop.monitor.step()
    assert loop.records == after == [loop.monitor.last]
    assert loop.monitor.steps == 1
    loop.monitor.sinks = loop.monitor.sinks[:1]
    loop.monitor.step()
    assert [record["step"] for record in loop.records] == [1, 2]


def test_a_sink_cannot_change_the_record() -> None:
    loop = Loop(every=1)
    loop.monitor.sinks = (lambda record: record.clear(), loop.records.append)
    loop.monitor.step()
    assert loop.records == [loop.monitor.last]
    assert loop.records[0]["step"] == 1


class FullDisk:
    """As TensorBoard's: what failed in writing fails again in closing."""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once

    def __call__(self, record: Record) -> None:
        if self.at_once:
            raise OSError("no space left")

    def close(self) -> None:
        raise OSError("still no space left")


def test_closing_does_not_hide_what_ended_the_loop() -> None:
    after = Closed()
    monitor = Loop(every=1, sinks=[FullDisk(at_once=True), after]).monitor
    said = r"^sink FullDisk failed at step 1: OSError: no space left$"
    with pytest.raises(SinkFailed, match=said), monitor:
        monitor.step()
    assert after.closed
    with pytest.raises(ZeroDivisionError), monitor:
        _ = 1 / 0
    monitor = Loop(every=1, sinks=[FullDisk(at_once=False)]).monitor
    said = r"^sink FullDisk failed when it was closed: OSError: still no space left$"
    with pytest.raises(SinkFailed, match=said), monitor:
        monitor.step()


class Closed:
    closed = False

    def __call__(self, record: Record) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_leaving_the_context_closes_sinks() -> None:
    sink, records = Closed(), []  # type: ignore[var-annotated]
    with pytest.raises(KeyboardInterrupt), Loop(sinks=[sink, records.append]).monitor:
        raise KeyboardInterrupt
    assert sink.closed


# --- misuse ---------------------------------------------------------------------------------------


def generator() -> Iterator[Tensor]:
    yield torch.ones(2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"every": None}, "one of every and cost must be given, found None and None"),
        ({"cost": 0.1}, "one of every and cost must be given, found 2 and 0.1"),
        ({"every": 0}, "every must be a whole number of at least 1, found 0"),
        ({"every": None, "cost": 1.5}, "cost must be a share between 0 and 1, found 1.5"),
        ({"every": None, "cost": "5%"}, "cost must be a share between 0 and 1, found '5%'"),
        ({"objectives": ["a"]}, r"objectives must be 2 different names, found \['a'\]"),
        ({"objectives": ["a", "a"]}, "objectives must be 2 different names"),
        ({"sinks": print}, r"sinks must be a list of sinks, .* pass \[sink\]"),
        ({"sinks": ["here"]}, "sinks must hold functions of a record, found 'here'"),
        ({"train": generator()}, "train must be batches that can be gone over .* found generator"),
        ({"test": generator()}, "test must be batches that can be gone over .* found generator"),
    ],
)
def test_what_will_not_do(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Loop(**change)


def test_a_method_is_needed() -> None:
    with pytest.raises(TypeError, match="method must be a trimol method, found list"):
        Monitor(lambda z: z, [0.5, 0.5], train=[], every=1)  # type: ignore[arg-type]


# --- several processes ----------------------------------------------------------------------------


def process(rank: int, folder: str) -> None:
    """One of two processes with clocks of their own: they must decide alike, or they hang."""
    meet(rank, 2, folder)
    clock = Clock()
    loop = Loop(every=None, cost=0.3, clock=clock)

    def metrics() -> dict[str, float]:
        clock.now += 1.0 + rank
        return {}

    loop.monitor.metrics = metrics
    measured = []
    for _ in range(30):
        clock.now += 0.3 * (2 - rank)
        measured.append(loop.monitor.step() is not None)
    torch.save((measured, len(loop.records)), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_processes_measure_together_and_one_feeds_sinks(tmp_path: pathlib.Path) -> None:
    started(process, str(tmp_path))
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert results[0][0] == results[1][0]
    assert sum(results[0][0]) > 1
    assert [fed for _, fed in results] == [sum(results[0][0]), 0]


def test_the_page_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "howto" / "monitor.md"
    space: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page.name, "exec"), space)
    assert [line.split(" · ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "step 4",
        "step 8",
    ]
    assert space["history"][0]["samples"] == 32


# --- what the steps do ----------------------------------------------------------------------------


class Watched(Loop):
    """The loop with a watch around its steps."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        params = self.model.parameters()
        own = {"every": 1, "objectives": ["fit", "slope"], "model": self.model}
        train = {"train": self.data.split(6), "full_every": 2, "subsample": 4}
        self.monitor.watch = trimol.StepWatch(self.losses, params, **own, **train)

    def run(self, steps: int) -> None:
        assert self.monitor.watch is not None
        for _ in range(steps):
            batch = self.data[torch.randint(48, (8,))]
            first, second = batch.split(4)
            self.method(self.losses(first), self.losses(second)).backward()
            self.monitor.step(samples=8)
            with self.monitor.watch(batch):
                self.optimizer.step()
            self.optimizer.zero_grad()


def test_records_say_what_the_steps_did_since_the_start() -> None:
    loop = Watched()
    loop.run(3)
    first = loop.monitor.watch.summary.record
    loop.run(1)
    assert [record["steps_looked"] for record in loop.records] == [1, 3]
    assert loop.records[1].items() >= first.items()
    assert {"steps_raise_some", "steps_raise_all", "steps_raise/slope"} <= first.keys()
    assert {"steps_worst_cosine", "full_looked", "full_raise_some"} <= first.keys()
    assert not any(key.startswith(("steps_", "full_")) for key in Loop().monitor.measure())


def test_a_monitors_state_has_that_of_its_watch() -> None:
    loop, again = Watched(), Watched()
    loop.run(3)
    again.monitor.load_state_dict(json.loads(json.dumps(loop.monitor.state_dict())))
    assert again.monitor.watch.summary == loop.monitor.watch.summary
    plain = Loop()
    plain.monitor.load_state_dict(loop.monitor.state_dict())  # which has no watch
    assert plain.monitor.steps == 3


def test_a_watch_is_a_step_watch() -> None:
    with pytest.raises(TypeError, match=r"watch must be a trimol\.StepWatch, found list"):
        Loop(watch=[])


# --- shards ---------------------------------------------------------------------------------------


def ends(monitored: bool) -> list[Tensor]:
    """Where a sharded model gets in three steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    torch.distributed.fsdp.fully_shard(model)
    data, optimizer = torch.randn(36, 3).double(), torch.optim.SGD(model.parameters(), lr=0.1)
    method = trimol.MGDA(model.parameters(), objectives=2)

    def losses(batch: Tensor) -> Tensor:
        return model(batch).square().mean(0)

    def metrics() -> dict[str, float]:
        return {"size": float(losses(data).sum())}

    monitor = Monitor(losses, method, train=data.split(12), every=1, metrics=metrics)
    for batch in data.split(12):
        method(losses(batch)).backward()
        if monitored:
            monitor.step()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor().detach() for p in model.parameters()]


def sharded_work(rank: int, folder: str) -> None:
    meet(rank, 2, folder)
    for plain, under in zip(ends(False), ends(True), strict=True):
        assert torch.equal(plain, under)
    dist.destroy_process_group()


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="FSDP2 over gloo: torch 2.6 has none, 2.8 adds gradients where it is to average them",
)
def test_a_sharded_model_is_trained_as_without_a_monitor(tmp_path: pathlib.Path) -> None:
    """What a measurement gathers is not what the next step's forward pass takes."""
    start_processes(sharded_work, (str(tmp_path),), nprocs=2, start_method="fork")
