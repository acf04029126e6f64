"""Tables: what is read, and that the encoding knows nothing but the training rows."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from trimol.data._files.datasets import BadData
from trimol.tasks import _binary as binary
from trimol.tasks import _tabular as tabular
from trimol.tasks._tabular import Encoder


def test_comments_empty_lines_and_spaces_are_left_out(tmp_path: Path) -> None:
    text = "|a comment\n1,  x y \n\n2,?\n"
    (tmp_path / "plain.data").write_text(text)
    (tmp_path / "packed.data.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain.data", "packed.data.gz"):
        rows = tabular.read(tmp_path / name, ("n", "word"))
        assert rows["n"].tolist() == ["1", "2"]
        assert rows["word"].tolist() == ["x y", "?"]


@pytest.mark.parametrize(("text", "found"), [("1,2\n3\n", "1 in row 2"), ("", "none")])
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadData, match=f"must hold rows of 2 columns, found {found}"):
        tabular.read(tmp_path / "t.csv", ("a", "b"))


def test_words_and_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(BadData, match="income must be one of no, yes, found 'maybe'"):
        tabular.told("income", np.array(["yes", "maybe"]), ["yes"], ["no"])
    with pytest.raises(BadData, match="age must be numbers, found 'old'"):
        tabular.number("age", np.array(["3", "old"]))


def rows_of(count: int, seed: int) -> tabular.Columns:
    random = np.random.default_rng(seed)
    return {
        "n": random.normal(3, 2, count).astype(str),
        "word": random.choice(["a", "b", "c"], count),
    }


def test_the_encoding_is_that_of_scikit_learn_on_the_training_rows() -> None:
    train, test = rows_of(200, 0), rows_of(50, 1)
    hot = OneHotEncoder(sparse_output=False).fit(train["word"][:, None])
    raw = [
        np.hstack([part["n"].astype(float)[:, None], hot.transform(part["word"][:, None])])
        for part in (train, test)
    ]
    scaler = StandardScaler().fit(raw[0])
    encoder = Encoder(train, ["n"], ["word"])
    for part, expected in zip((train, test), raw, strict=True):
        wanted = torch.from_numpy(scaler.transform(expected)).float()
        torch.testing.assert_close(encoder(part), wanted, atol=1e-5, rtol=1e-5)


def test_other_rows_do_not_change_how_rows_are_encoded() -> None:
    train = rows_of(100, 0)
    test = rows_of(3, 1)
    shifted = {"n": np.array(["1e9", *test["n"][1:]]), "word": np.array(["d", *test["word"][1:]])}
    encoder = Encoder(train, ["n"], ["word"])
    assert torch.equal(encoder(test)[1:], encoder(shifted)[1:])


def test_rare_unseen_missing_and_constant_entries() -> None:
    train = {
        "n": np.array(["1", "3", "?", ""]),
        "same": np.array(["0.1"] * 4),
        "none": np.array(["?"] * 4),
        "word": np.array(["a", "a", "a", "b"]),
    }
    encoder = Encoder(train, ["n", "same", "none"], ["word"], rare=2)
    x = encoder(
        {
            "n": np.array(["3", "?"]),
            "same": np.array(["9", "0.1"]),
            "none": np.array(["1", "?"]),
            "word": np.array(["b", "new"]),
        }
    )
    assert x.isfinite().all()
    assert x[:, 0].tolist() == [1, 0]  # a missing number is the mean
    assert not x[:, 1:3].any()  # what did not vary, or nobody had, says nothing
    assert x[0, 3] == x[1, 3]  # a rare word is as an unseen one


@pytest.mark.parametrize("value", ["0.1", "7", "-123456.7", "1e-9"])
def test_a_constant_is_one_whatever_its_mean_is_rounded_to(value: str) -> None:
    train = {"same": np.array([value] * 1000), "n": np.array(["1", "3"] * 500)}
    encoder = Encoder(train, ["same", "n"])
    assert not encoder({"same": np.array([value, "9"]), "n": np.array(["1", "3"])})[:, 0].any()


def test_parts_are_disjoint_whole_and_named_by_the_seed() -> None:
    shares = {"train": 0.7, "validation": 0.1, "test": 0.2}
    parts = tabular.split_by(3, 1001, shares)
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(1001))
    again, other = (tabular.split_by(seed, 1001, shares) for seed in (3, 4))
    assert all(torch.equal(parts[name], again[name]) for name in shares)
    assert not torch.equal(parts["train"], other["train"])


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0, 100.0])
def test_auc_is_that_of_scikit_learn_however_the_rows_are_batched(spread: float) -> None:
    labels = (torch.rand(5000) < 0.2).long()
    logits = spread * (torch.randn(5000) + labels) - 3
    sums = sum(
        binary.score_sums(z, y) for z, y in zip(logits.split(700), labels.split(700), strict=True)
    )
    # Scores of one bin of 0.002 count as equal: a spread of 0.01 has some twenty of them. Beyond
    # ±16 bins are wider.
    near = 2e-3 * min(1, 0.01 / spread) + (1e-6 if spread < 10 else 1e-4)
    assert binary.auc(sums) == pytest.approx(roc_auc_score(labels, logits), abs=near)


def test_scores_that_are_no_numbers_give_no_measures() -> None:
    sums = binary.score_sums(torch.tensor([torch.nan, 1.0, 2.0]), torch.tensor([1, 0, 1]))
    assert np.isnan([binary.auc(sums), binary.calibration_error(sums)]).all()


def test_calibration_of_true_and_of_wrong_chances() -> None:
    logits = 2 * torch.randn(200_000)
    labels = (torch.rand(200_000) < logits.sigmoid()).long()
    sums = binary.score_sums(logits, labels)
    assert binary.calibration_ratio(sums) == pytest.approx(1, abs=0.01)
    assert binary.calibration_error(sums) < 0.005
    wrong = binary.score_sums(logits + 1, labels)
    truth = (logits.add(1).sigmoid() - logits.sigmoid()).mean().item()
    assert binary.calibration_error(wrong) == pytest.approx(truth, abs=0.005)


def test_calibration_is_by_groups_of_equal_size() -> None:
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.normal(size=4000) * 2)
    labels = torch.from_numpy(random.integers(0, 2, 4000))
    order = logits.argsort()
    groups = zip(logits[order].sigmoid().chunk(20), labels[order].chunk(20), strict=True)
    expected = np.mean([abs(p.mean().item() - y.double().mean().item()) for p, y in groups])
    found = binary.calibration_error(binary.score_sums(logits, labels))
    assert found == pytest.approx(expected, abs=2e-3)


def test_labels_of_one_kind_are_refused() -> None:
    sums = binary.score_sums(torch.randn(5), torch.zeros(5))
    with pytest.raises(ValueError, match="labels of both kinds"):
        binary.auc(sums)
    with pytest.raises(ValueError, match="a yes to measure"):
        binary.calibration_ratio(sums)
