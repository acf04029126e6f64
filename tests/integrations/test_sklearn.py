"""The fair classifier: scikit-learn's own checks, and the bound on data that it has not seen."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from trimol.integrations.sklearn import FairClassifier


@parametrize_with_checks([FairClassifier(hidden=8, steps=30, lr=0.04)])
def test_scikit_learns_own_checks(estimator, check) -> None:
    check(estimator)


def people(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, rows)
    X = np.c_[random.normal(size=rows) + group, 100 * random.normal(size=rows)]
    return X, np.where(X[:, 0] + X[:, 1] / 100 > 0.5, "good", "bad"), group


def gap(model: FairClassifier, X: np.ndarray, group: np.ndarray) -> float:
    told = model.predict(X) == "good"
    return abs(told[group == 1].mean() - told[group == 0].mean())


def test_the_bound_is_kept_on_other_rows() -> None:
    X, y, group = people(4000, 0)
    other, truth, members = people(20_000, 1)
    free = FairClassifier(bound=None, hidden=16, steps=150).fit(X, y, group)
    held = FairClassifier(bound=0.02, hidden=16, steps=150).fit(X, y, group)
    assert gap(free, other, members) > 0.2
    assert gap(held, other, members) < 0.05
    assert held.score(other, truth) > 0.7


def test_a_column_that_does_not_vary_is_not_blown_up() -> None:
    X, y, _ = people(1000, seed=0)
    X = np.c_[X, np.full(1000, 0.1)]  # whose mean is not 0.1
    model = FairClassifier(bound=None, hidden=8, steps=20).fit(X, y)
    other = X + np.array([0, 0, 1e-3])
    assert np.abs(model.decision_function(X) - model.decision_function(other)).max() < 0.1


def test_it_joins_pipelines_and_cross_validation() -> None:
    X, y, _ = people(300, 0)
    whole = make_pipeline(MinMaxScaler(), FairClassifier(hidden=8, steps=60, lr=0.02))
    assert cross_val_score(whole, X, y, cv=3).mean() > 0.85


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (np.zeros(300), r"1 groups in an array of shape \(300,\)"),
        (np.arange(300), "300 groups"),
        (np.arange(10) % 2, r"shape \(10,\)"),
    ],
)
def test_groups_that_are_none_are_refused(group: np.ndarray, found: str) -> None:
    X, y, _ = people(300, 0)
    with pytest.raises(ValueError, match=f"for each of 300 rows .* {found}"):
        FairClassifier().fit(X, y, group)


def test_bad_settings_are_refused() -> None:
    X, y, group = people(50, 0)
    with pytest.raises(ValueError, match=r"bound must be .* found -1"):
        FairClassifier(bound=-1.0).fit(X, y, group)
    with pytest.raises(ValueError, match="fairness must be 'parity'"):
        FairClassifier(fairness="fair").fit(X, y, group)
