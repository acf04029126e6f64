"""Census-Income: small files in the official layout; words are those of training rows."""

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from trimol.data._files.datasets import MissingData
from trimol.tasks.recommenders import census
from trimol.tasks.recommenders.census import CENSUS, CENSUS_NUMBERS, Census
from trimol.training import start, train
from trimol.training.assessment import metrics


def lines(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        age, rich = random.integers(0, 90), random.random() < 0.2
        entries = dict.fromkeys(CENSUS, "Not in universe") | dict.fromkeys(CENSUS_NUMBERS, "0")
        entries |= {
            "age": str(age),
            "education": "Masters degree" if rich else random.choice(["Children", "High school"]),
            "marital_stat": "Never married" if age < 30 else "Divorced",
            "instance_weight": f"{random.random():.2f}",
            "income": "50000+." if rich else "- 50000.",
        }
        made.append(", ".join(entries[name] for name in CENSUS))
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    home = tmp_path / "tabular" / "census"
    home.mkdir(parents=True)
    for seed, (part, count) in enumerate({"data": 600, "test": 300}.items()):
        text = "\n".join(lines(count, seed)) + "\n"
        (home / f"census-income.{part}.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_rows_labels_and_columns(folder: Path) -> None:
    task = Census()
    data = task.data()
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [540, 60, 300]
    assert data.train[0].shape[1:] == (39, 1)  # 42 columns, less two labels and the weight
    words, bags = task.words()
    assert bags == 39
    assert 0 < int(data.test[0].min()) <= int(data.test[0].max()) < words
    again = Census(seed=1).data()
    assert not torch.equal(data.train[0], again.train[0])
    assert torch.equal(data.test[1], again.test[1])


def test_columns_have_words_of_their_own(folder: Path) -> None:
    x = Census().data().train[0][..., 0]
    ranges = [(int(column.min()), int(column.max())) for column in x.T]
    assert all(high < low for (_, high), (low, _) in pairwise(ranges))


def test_it_is_learned(folder: Path) -> None:
    task = Census(network="mmoe", width=4, hidden=16)
    run = train(start(task, "static", lr=0.02, batch_size=64), steps=60)
    found = metrics(task, run.model, task.data().test)
    assert found["income AUC"] > 0.9  # the education tells it
    assert found["marital AUC"] > 0.9  # the age does


def test_other_test_rows_change_no_words(folder: Path) -> None:
    before = Census().data()
    path = folder / "tabular" / "census" / "census-income.test.gz"
    path.write_bytes(gzip.compress("\n".join(lines(50, 9)).replace("Children", "New").encode()))
    census._coded.cache_clear()
    after = Census().data()
    assert torch.equal(before.train[0], after.train[0])
    assert len(after.test[0]) == 50


def test_without_the_files_one_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MissingData, match="trimol data get census"):
        Census().data()


@pytest.mark.data
def test_the_same_pair_of_adult() -> None:
    data = Census(source="adult").data()
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [
        29305, 3256, 16281,
    ]  # fmt: skip
    income, marital = (torch.cat([data.train[n], data.validation[n]]) for n in (1, 2))
    assert int(income.sum()) == 7841  # as the official description says, 24.08 %
    assert int(marital.sum()) == 10683
