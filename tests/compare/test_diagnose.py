"""A diagnosis within a budget: what is trained, what is said, and that it resumes."""

import json
import math
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import trimol
from trimol._failures import BadValue
from trimol.compare import _diagnose, diagnose
from trimol.runs import store
from trimol.search._problem import TaskProblem
from trimol.training import Diverged

TASKS = Path(__file__).with_name("contest_tasks.py")
TUG = f"{TASKS}:Tug"
SMALL = {"steps": 12, "batch_size": 8, "methods": ["mgda", "upgrad"], "jobs": 1}


@pytest.fixture(autouse=True)
def costs(monkeypatch):
    """Steps cost the same each time."""
    monkeypatch.setattr(_diagnose, "step_costs", lambda made: dict.fromkeys(made, 1.0))


def counted(monkeypatch) -> list[int]:
    """How many trainings were asked for, call by call."""
    asked: list[int] = []
    right = TaskProblem.train

    def train(self, trainings):
        asked.append(len(trainings))
        return right(self, trainings)

    monkeypatch.setattr(TaskProblem, "train", train)
    return asked


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnosis")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_diagnose, "step_costs", lambda made: dict.fromkeys(made, 1.0))
        return diagnose(TUG, folder=folder, budget=20, **SMALL), folder


def test_it_is_public():
    assert trimol.diagnose is diagnose
    assert trimol.Diagnosis is _diagnose.Diagnosis


@pytest.mark.parametrize("budget", [1, 2, 7, 12, 13, 20, 31])
def test_the_budget_is_never_exceeded(budget, tmp_path, monkeypatch):
    asked = counted(monkeypatch)
    found = diagnose(TUG, folder=tmp_path, budget=budget, **SMALL)
    assert sum(asked) == found.spent <= budget
    trained = list(tmp_path.rglob(store.SUMMARY))
    assert len(trained) == found.spent
    assert (found.answer is None) == (budget < 13)
    assert found.use in ("static", "undecided", "mgda", "upgrad")
    assert found.answer is not None or found.use == "undecided"


def test_all_of_it_is_json_and_kept(found):
    diagnosis, folder = found
    kept = json.loads((folder / "diagnosis.json").read_text())
    del kept["digest"]
    assert kept == {"task": "tug"} | diagnosis.summary
    trial = diagnosis.evidence["trial"]
    assert trial["spent"] == diagnosis.spent == 20
    assert trial["contenders"]["static"]["kind"] == "baseline"
    assert trial["contenders"]["static"]["command"].startswith(f"trimol run {TUG} --method static ")
    assert f"({diagnosis.answer.n} fresh seeds, 20 trainings in all)" in diagnosis.sentence or (
        diagnosis.use == "undecided" and "(20 trainings in all)" in diagnosis.sentence
    )


def test_final_runs_have_seeds_that_the_choice_has_not_seen(found):
    _, folder = found
    seeds = {
        part: {int(path.name.removeprefix("seed-")) for path in folder.glob(f"{part}/*/*/seed-*")}
        for part in ("tuning-only", "runs")
    }
    assert seeds == {"tuning-only": {0}, "runs": {1, 2, 3, 4, 5}}


def test_test_data_have_no_part_in_the_choice(found, tmp_path):
    moved = diagnose(TUG, folder=tmp_path, budget=20, task_options={"test": 3.0}, **SMALL)
    assert moved.settings == found[0].settings
    assert moved.answer != found[0].answer


def test_every_method_is_tried_as_often_as_static_weights(found):
    counts = {n: own["trials"] for n, own in found[0].evidence["trial"]["contenders"].items()}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_what_you_have_now_is_tried_first_and_beside(tmp_path):
    now = {"weights": [1.0, 3.0], "lr": 0.01}
    found = diagnose(TUG, folder=tmp_path, budget=4, current=now, **SMALL)
    first = next(iter((tmp_path / "tuning-only" / "static").glob("*/seed-0/config.json")))
    rates = {
        json.loads(f.read_text())["lr"]
        for f in (tmp_path / "tuning-only" / "static").glob("*/seed-0/config.json")
    }
    assert first.exists()
    assert 0.01 in rates
    assert "your current setting" in found.sentence or found.settings["static"].lr == 0.01


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_diagnosis_that_was_stopped_comes_out_the_same(found, tmp_path, monkeypatch, at):
    calls = 0
    right = TaskProblem.train

    def train(self, trainings):
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return right(self, trainings)

    with monkeypatch.context() as patch:
        patch.setattr(TaskProblem, "train", train)
        with pytest.raises(KeyboardInterrupt):
            diagnose(TUG, folder=tmp_path, budget=20, **SMALL)
    assert not (tmp_path / "diagnosis.json").exists()
    again = diagnose(TUG, folder=tmp_path, budget=20, **SMALL)
    assert again.summary == found[0].summary


def test_a_larger_budget_uses_what_was_trained(found, tmp_path):
    shutil.copytree(found[1], tmp_path / "more")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "more").rglob(store.SUMMARY)}
    larger = diagnose(TUG, folder=tmp_path / "more", budget=26, **SMALL)
    after = set((tmp_path / "more").rglob(store.SUMMARY))
    assert larger.spent == 26
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    assert len(after) - len(before) < 12  # most of it was there


def test_a_method_that_refuses_the_task_is_out_and_static_is_not(tmp_path, monkeypatch):
    right = TaskProblem._trained

    def refuse(self, trainings):
        if any(t.setting.method == "upgrad" for t in trainings):
            raise BadValue("upgrad must be elsewhere, found it here")
        return right(self, trainings)

    monkeypatch.setattr(TaskProblem, "_trained", refuse)
    found = diagnose(TUG, folder=tmp_path, budget=15, **SMALL)
    assert set(found.settings) == {"static", "mgda"}
    failed = found.evidence["trial"]["failed"]
    assert failed[0] == "upgrad, trial 0: upgrad must be elsewhere, found it here"


def noisy(setting, seed, final):
    """Two losses with a best learning rate; MGDA's are a fifth smaller."""
    off = abs(math.log10(setting.lr)) + random.Random(f"{setting.key} {seed}").gauss(0, 0.02)
    value = (1 + off) * (0.8 if setting.method == "mgda" else 1.0)
    return {"a": value, "b": 2 * value}


def test_a_function_that_takes_a_method_is_diagnosed_too():
    options = {"objectives": ["a", "b"], "lr": 1.0, "methods": ["mgda", "upgrad"]}
    found = diagnose(noisy, budget=30, **options)
    assert found.use == "mgda"
    assert found.answer.gain == pytest.approx(-math.log(0.8), abs=0.05)
    assert "it is better than static weights as tuned with them by 1" in found.sentence
    assert (found.regime, found.look, found.spent) == ("unknown", None, 30)
    assert found.sentence.startswith("Use mgda, length mean gradient, learning rate ")
    with pytest.raises(ValueError, match="check_only must be left out with a function"):
        diagnose(noisy, check_only=True, **options)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_undecided_is_said_with_its_sign(seed):
    def train(setting, seed):
        return {"a": 1 + random.Random(f"{setting.key} {seed}").gauss(0, 0.2)}

    options = {"objectives": ["a"], "lr": 1.0, "methods": ["mgda"], "seed": 100 * seed}
    found = diagnose(train, budget=13, **options)
    way = "better" if found.answer.gain > 0 else "worse"
    assert found.use != "undecided" or f" is {way} than static weights by " in found.sentence


def test_a_step_size_that_diverges_is_made_smaller_for_the_check(tmp_path, monkeypatch):
    from trimol.search import _tune

    rates = []
    right = _tune.look

    def look(*given, lr, **more):
        rates.append(lr)
        if len(rates) < 3:
            raise Diverged("a loss is inf")
        return right(*given, lr=lr, **more)

    monkeypatch.setattr(_tune, "look", look)
    found = diagnose(TUG, folder=tmp_path, check_only=True, **SMALL)
    assert rates == pytest.approx([0.1, 0.01, 0.001])
    assert found.use == "static"
    assert found.spent == 0
    assert "No method was tried" in found.sentence


def test_hours_become_a_budget_once(tmp_path, monkeypatch):
    ticks = iter(range(0, 10_000, 36))  # a training takes 36 s
    monkeypatch.setattr(_diagnose, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    found = diagnose(TUG, folder=tmp_path, hours=0.15, **SMALL)
    assert found.spent == 15
    noted = json.loads((tmp_path / "time.json").read_text())
    assert noted["budget"] == 15
    again = diagnose(TUG, folder=tmp_path, hours=0.15, **SMALL)
    assert again.summary == found.summary


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 0}, "budget must be a whole number of at least 1, found 0"),
        ({"methods": []}, "methods must be one or more different names other than static, found n"),
        ({"methods": ["static"]}, "methods must be one or more different names other than static"),
        ({"methods": ["smg"]}, "methods must take the same samples at every step, found 'smg'"),
        ({"current": {"weights": [1, -1]}}, "current weights must be 2 numbers above 0, found"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(options, said, tmp_path):
    folder = tmp_path / "none"
    with pytest.raises(ValueError, match=said):
        diagnose(TUG, folder=folder, **{**SMALL, **options})
    assert not list(folder.rglob(store.SUMMARY))
