"""scikit-learn: a classifier whose gap between two groups stays below a bound.

    from trimol.integrations.sklearn import FairClassifier
    model = FairClassifier(bound=0.02).fit(X, y, group=sex)
    model.predict(X_new)

Extra: ``pip install "trimol[studies]"``.
"""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from trimol._checks import positive, whole_number
from trimol._failures import BadValue
from trimol.tasks._tabular import constant
from trimol.tasks.fairness.fair import Fair, network
from trimol.tasks.fairness.gaps import Fairness
from trimol.tasks.task import Batch, Data
from trimol.training.loop import decay, start, train

KAPPA = 10.0  # how fast the gap goes to its bound


class _Arrays(Fair):
    """Arrays as a task."""

    name = "arrays"

    def __init__(self, batch: Batch, hidden: int, fairness: Fairness, sharpness: float) -> None:
        super().__init__(fairness=fairness, sharpness=sharpness)
        self.batch, self.hidden = batch, hidden

    def model(self) -> nn.Module:
        return network(self.batch[0].shape[1], self.hidden)

    def data(self) -> Data:
        return Data(train=self.batch, test=self.batch)


class FairClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Yes or no by a small network that keeps the gap between two groups below a bound.

    Cross-entropy is made small under the bound (`trimol.Preference`), on training data and for the
    mean chances; `trimol.tasks.fairness.gaps` measures the gap of decisions on other data, with an
    interval. Inputs are standardised by the training rows. Without a group it is an ordinary
    classifier.

    Args:
        bound: The largest gap; None for no bound.
        fairness: ``"parity"``, ``"opportunity"`` or ``"odds"``.
        sharpness: Of the chances whose means are compared: the larger, the nearer to decisions.
        hidden: Width of the two hidden layers.
        steps: Steps of training, each on ``batch_size`` rows.
        batch_size: Rows of a step; the gap of few rows is noise.
        lr: Adam's step size at the start; it falls to 0.
        random_state: Decides the parameters at the start and the rows of each step.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> group = rng.integers(0, 2, 2000)
        >>> X = np.c_[rng.normal(size=2000) + group, rng.normal(size=2000)]
        >>> y = X.sum(1) + rng.normal(size=2000) > 0.5
        >>> def gap(model):
        ...     told = model.predict(X)
        ...     return abs(told[group == 1].mean() - told[group == 0].mean()).item()
        >>> gap(FairClassifier(bound=None, hidden=16, steps=100).fit(X, y)) > 0.2
        True
        >>> gap(FairClassifier(bound=0.02, hidden=16, steps=100).fit(X, y, group=group)) < 0.05
        True
    """

    def __init__(
        self,
        *,
        bound: float | None = 0.02,
        fairness: Fairness = "parity",
        sharpness: float = 5.0,
        hidden: int = 128,
        steps: int = 300,
        batch_size: int = 2048,
        lr: float = 2e-3,
        random_state: int = 0,
    ) -> None:
        self.bound, self.fairness, self.sharpness = bound, fairness, sharpness
        self.hidden, self.steps, self.batch_size = hidden, steps, batch_size
        self.lr, self.random_state = lr, random_state

    def fit(self, X: Any, y: Any, group: Any = None) -> Self:
        """Train on rows X with labels y of two kinds; group says of each row which of two it is.

        The second of the sorted labels is the yes.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, label = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise BadValue(
                "Only binary classification is supported. The type of the target is multiclass: y "
                f"must have two labels, found {len(self.classes_)}"
            )
        if len(self.classes_) < 2:
            raise BadValue("y must have two labels, found one class")
        self.mean_, spread = X.mean(0), X.std(0)
        self.scale_ = np.where(spread > constant(self.mean_, len(X)), spread, 1.0)
        batch = self._inputs(X).float(), torch.from_numpy(label), _told(group, len(X))
        self.network_ = self._trained(batch, bounded=group is not None)
        return self

    def _trained(self, batch: Batch, *, bounded: bool) -> nn.Module:
        task = _Arrays(batch, self.hidden, self.fairness, self.sharpness)
        own: dict[str, Any] = {"prefer": [1.0, 0.0], "kappa": KAPPA}
        if bounded and self.bound is not None:
            own["bounds"] = {"gap": positive("bound", self.bound)}
        steps = whole_number("steps", self.steps, least=1)
        run = start(
            task,
            "preference",
            lr=self.lr,
            hyperparameters=own,
            batch_size=min(whole_number("batch_size", self.batch_size, least=1), len(batch[0])),
            seed=self.random_state,
            schedule=decay("linear", steps),
        )
        # In double precision a row's chances do not depend on the rows beside it.
        return train(run, steps).model.double().eval()

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The log-odds of yes."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            return np.asarray(self.network_(self._inputs(X)), dtype=np.float64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The chances of no and of yes."""
        yes = torch.from_numpy(self.decision_function(X)).sigmoid().numpy()
        return np.stack([1 - yes, yes], 1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier label."""
        yes = (self.decision_function(X) > 0).astype(int)
        return np.asarray(self.classes_[yes])

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy((X - self.mean_) / self.scale_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _told(group: Any, rows: int) -> Tensor:
    """Which of two groups each row is of; without groups, all of one."""
    if group is None:
        return torch.zeros(rows, dtype=torch.int64)
    kinds, member = np.unique(np.asarray(group), return_inverse=True)
    if member.shape != (rows,) or len(kinds) != 2:
        raise BadValue(
            f"group must say for each of {rows} rows which of two groups it is of, found "
            f"{len(kinds)} groups in an array of shape {member.shape}"
        )
    return torch.from_numpy(member)
