"""`diagnose`: the parts come together, and what is said is what was found."""

import json
from pathlib import Path

import pytest

import trimol
from trimol._failures import BadValue
from trimol.runs import _diagnosis_file as diagnosis
from trimol.runs import _final_runs as trials
from trimol.runs._diagnosis_file import read
from trimol.runs._sentences import sentence
from trimol.runs.diagnosis import Diagnosis, diagnose

TUG = f"{Path(__file__).parent / 'trial_tasks.py'}:Tug"
SMALL = {"steps": 12, "batch_size": 8, "seeds": 3, "tuning_seeds": 2, "trials": 4, "jobs": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Diagnosis, Path]:
    folder = tmp_path_factory.mktemp("diagnosis")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trials, "step_costs", lambda configs: {n: 1.0 + (n != "static") for n in configs}
        )
        return diagnose(TUG, folder=folder, methods=["mgda"], **SMALL), folder


def test_it_is_public():
    assert trimol.diagnose is diagnose
    assert trimol.Diagnosis is Diagnosis


def test_all_of_it_is_json_and_kept(found):
    done, folder = found
    assert list(done.summary) == ["regime", "use", "sentence", "evidence"]
    text = json.dumps(done.summary, allow_nan=False)
    kept = read(folder)
    assert kept.pop("task") == "trial_tasks.py:Tug"
    assert kept == json.loads(text)
    assert str(folder) not in text


def test_the_regime_is_judged_again_at_the_end_of_static_runs(found):
    done, _ = found
    names = [moment.name for moment in done.look.moments]
    assert names[-3:] == ["the end of seed 2", "the end of seed 3", "the end of seed 4"]
    assert done.regime == done.look.regime


def test_the_sentence_is_of_the_trial(found):
    done, _ = found
    assert done.use == done.trial.verdict.use
    assert done.sentence == sentence(done.trial)
    assert done.sentence.startswith(("Stay with static weights (", "Use mgda step size"))


def test_a_look_alone_trains_no_candidate(tmp_path):
    done = diagnose(TUG, folder=tmp_path, look_only=True, **SMALL)
    assert (done.use, done.trial) == ("static", None)
    assert done.sentence.endswith("No method was tried.")
    assert [path.name for path in tmp_path.iterdir()] == [diagnosis.FILE]


def test_what_is_wrong_is_said_before_anything_runs(tmp_path):
    with pytest.raises(BadValue, match="methods must be"):
        diagnose(TUG, folder=tmp_path / "x", methods=["static"])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("content", ["[]", "{}", '{"task": 1}', '{"task": "a", "regime": "b"}'])
def test_a_file_that_is_no_diagnosis_is_refused(tmp_path, content):
    (tmp_path / diagnosis.FILE).write_text(content)
    with pytest.raises(BadValue, match="must have"):
        read(tmp_path)
