"""The budget curve: trainings are made once and together, strategies keep their budgets."""

import json

import pytest

from trimol.search import Setting


@pytest.fixture
def curve(load_script, monkeypatch):
    script = load_script("benchmarks/budget_curve.py")
    plan = script.Plan(6, 16, 2, {"samples": 40, "dimension": 3})
    monkeypatch.setattr(script, "PLANS", {"quadratic": plan})
    monkeypatch.setattr(script, "BUDGETS", (1, 2, 5))
    monkeypatch.setattr(script, "TPE_TRIALS", 6)
    monkeypatch.setattr(script, "DECIDED", (16,))
    monkeypatch.setattr(script, "METHODS", ("modo", "uw"))  # the second refuses losses below 0
    monkeypatch.setattr(script, "CANDIDATES", 5)
    return script


def test_a_training_together_is_the_one_alone(curve, tmp_path):
    bank = curve.Bank("quadratic", tmp_path)
    settings = [
        Setting("static", lr, {"weights": w}) for lr, w in ((0.1, [1, 2, 3]), (0.2, [3, 1, 1]))
    ]
    bank.train([(setting, seed) for setting in settings for seed in (0, 1)])
    for setting in settings:
        for seed in (0, 1):
            alone = bank._trained_alone(setting, seed)
            found = bank.known[setting.key, seed]
            assert found.test == pytest.approx(alone.test, rel=1e-5)
            assert found.validation == pytest.approx(alone.validation, rel=1e-5)
            assert len(found.parts) == len(alone.parts) > 1


def test_all_strategies_of_a_task(curve, tmp_path, monkeypatch):
    rows = curve.curve("quadratic", tmp_path)
    names = {"equal", "1/loss", "1/gradient", "tpe", "tune", "diagnose", "modo", "uw"}
    assert {row["strategy"] for row in rows} == names
    assert {row["start"] for row in rows} == {"right", "wrong"}
    equal = [row for row in rows if row["strategy"] == "equal" and row["start"] == "right"]
    assert [row["budget"] for row in equal] == [1, 2, 5]
    assert all(len(row["each"]) == 2 for row in rows)
    (tmp_path / "quadratic.json").write_text(json.dumps(rows))
    assert curve.table(tmp_path)["campaigns"] == {"quadratic": 2}
    # What was trained is read.
    monkeypatch.setattr(curve.Bank, "_train_group", lambda *_: pytest.fail("trained again"))
    assert curve.curve("quadratic", tmp_path) == rows


def test_who_waits_hears_of_a_failure(curve, tmp_path, monkeypatch):
    bank = curve.Bank("quadratic", tmp_path)
    monkeypatch.setattr(bank, "train", lambda _: 1 / 0)

    def strategy(problem, seed):
        problem.train([curve.Training(Setting("static", 0.1), seed)])

    with pytest.raises(ZeroDivisionError):
        curve.campaigns(bank, strategy, {0: 0.1, 1: 0.1})
