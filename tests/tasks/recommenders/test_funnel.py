"""The funnel: labels follow the chances that are known, missing ones are missing, runs resume."""

from pathlib import Path

import pytest
import torch

from trimol import tasks
from trimol.runs import RunConfig, execute
from trimol.tasks.recommenders.funnel import Funnel
from trimol.training import start, train
from trimol.training.assessment import metrics

SMALL = {"rows": 4000, "users": 40, "items": 20}


def test_labels_come_as_often_as_their_chances_say() -> None:
    task = Funnel(rows=50_000, users=100, items=50)
    x, click, bought = task.data().train
    chances = {name: z.sigmoid() for name, z in task.log_odds(x).items()}
    seen = bought >= 0
    assert torch.equal(seen, click == 1)
    for truth, labels in ((chances["click"], click), (chances["conversion"][seen], bought[seen])):
        for group in truth.argsort().chunk(10):
            p = truth[group]
            spread = ((p * (1 - p)).mean() / len(p)).sqrt()
            assert abs(labels[group].double().mean() - p.mean()) < 4 * spread


def test_the_best_auc_is_the_expected_one_by_pairs() -> None:
    task = Funnel(rows=1500, users=30, items=20)
    part = task.data().test
    z = task.log_odds(part[0])["click"]
    p = z.sigmoid()
    pairs = p[:, None] * (1 - p)
    above = (z[:, None] > z).double() + (z[:, None] == z).double() / 2
    apart = ~torch.eye(len(p), dtype=torch.bool)
    slow = ((pairs * above)[apart].sum() / pairs[apart].sum()).item()
    assert task.best(part)["click AUC"] == pytest.approx(slow, abs=3e-3)


def test_no_model_beats_the_truth_and_training_comes_near() -> None:
    task = Funnel(rows=30_000, users=50, items=20)
    test = task.data().test
    best = task.best(test)
    run = train(start(task, "static", lr=0.01, batch_size=512), steps=150)
    found = metrics(task, run.model, test)
    assert 0.75 < found["click AUC"] < best["click AUC"] + 0.02
    assert found["conversion AUC"] > 0.65
    assert best["click calibration error"] < 0.03


@pytest.mark.parametrize("relation", [-1.0, 0.0, 1.0])
def test_buying_follows_clicking_as_far_as_it_is_told(relation: float) -> None:
    task = Funnel(rows=2000, users=300, items=100, relation=relation)
    odds = task.log_odds(task.data().train[0])
    found = torch.corrcoef(torch.stack([odds["click"], odds["conversion"]]))[0, 1]
    if relation:
        # Signs of taste and trait both turn: their product does not.
        assert found > 0.99 if relation == 1 else found < 0
    else:
        assert abs(found) < 0.3


def test_files_and_memory_hold_the_same_rows(tmp_path: Path) -> None:
    held = Funnel(**SMALL).data()
    kept = Funnel(**SMALL, shards=str(tmp_path)).data()
    assert all(torch.equal(a, b[:]) for a, b in zip(held.train, kept.train, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(held.test, kept.test, strict=True))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    Funnel(**SMALL, shards=str(tmp_path)).data()
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}


def test_training_from_files_is_training_from_memory(tmp_path: Path) -> None:
    def trained(**more: str) -> list[torch.Tensor]:
        run = train(start(Funnel(**SMALL, **more), "mgda", lr=0.01, batch_size=32), steps=5)
        return [p.detach() for p in run.model.parameters()]

    pairs = zip(trained(), trained(shards=str(tmp_path)), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("network", ["shared", "mmoe"])
def test_one_objective_alone_is_the_same_task_without_the_other(network: str) -> None:
    task = Funnel(**SMALL, only="conversion", network=network)
    assert list(task.model().heads) == ["conversion"]
    both, alone = Funnel(**SMALL).data().train, task.data().train
    assert torch.equal(both[2], alone[1])
    assert set(task.goals) == {"conversion"}
    run = train(start(task, "static", batch_size=64), steps=3)
    assert set(metrics(task, run.model, task.data().test)) == {
        "conversion AUC", "conversion calibration error",
    }  # fmt: skip


def test_batches_without_a_click_keep_the_weights() -> None:
    run = train(start(Funnel(**SMALL), "mgda", lr=0.01, batch_size=2), steps=30)
    assert 5 < int(run.method.kept) < 30


@pytest.mark.parametrize("method", ["static", "mgda", "modo", "famo"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(method: str) -> None:
    task = tasks.load("funnel", SMALL)
    whole = train(start(task, method, lr=0.01, batch_size=32), steps=8)
    half = start(task, method, lr=0.01, batch_size=32)
    train(half, steps=4)
    fresh = start(task, method, lr=0.01, batch_size=32)
    fresh.model.load_state_dict(half.model.state_dict())
    fresh.method.load_state_dict(half.method.state_dict())
    fresh.optimizer.load_state_dict(half.optimizer.state_dict())
    fresh.step = 4
    train(fresh, steps=4)
    pairs = zip(whole.model.parameters(), fresh.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_bad_options() -> None:
    for options, message in (
        ({"relation": 2.0}, "relation must be from -1 to 1, found 2"),
        ({"network": "deep"}, "network must be 'shared' or 'mmoe', found 'deep'"),
        ({"only": "view"}, "only must be one of click, conversion, found 'view'"),
        ({"items": 3}, "items must be"),
    ):
        with pytest.raises(ValueError, match=message):
            Funnel(**options)


def test_the_command_that_a_user_types(tmp_path: Path) -> None:
    config = RunConfig(
        task="funnel", task_options=SMALL, method="modo", lr=0.01, steps=6, batch_size=64
    )
    ran = execute(config, tmp_path / "run")
    assert ran.summary is not None
    told = [name for name in ran.metrics.columns if "AUC" in name or "calibration" in name]
    assert len(told) == 4
