"""How good chances of yes and no are: sums over samples from which AUC and calibration follow."""

import torch
from torch import Tensor

from trimol._failures import BadValue

# Scores are counted in bins of log-odds. Within a bin they count as equal: 0.002 up to ±16 (chances
# of 1e-7), beyond that a share of 0.002 of their distance from there.
_EVEN, _REACH, _BINS = 16.0, 32.0, 1 << 15
GROUPS = 20  # of equal size, by which calibration is judged


def score_sums(logits: Tensor, labels: Tensor) -> Tensor:
    """What adds up over batches: for each bin of scores its samples, their yes, their chances.

    Args:
        logits: Log-odds of yes, N numbers.
        labels: Whether it was yes, N of 0 and 1. A score of NaN makes the sums NaN.
    """
    size = logits.double().abs()
    far = (size - _EVEN).clamp_min(0).log1p() + size.clamp_max(_EVEN)
    at = ((far.copysign(logits) + _REACH) * (_BINS / (2 * _REACH))).nan_to_num()
    labels = torch.where(logits.isnan(), torch.nan, labels.to(logits))
    told = torch.stack([torch.ones_like(logits), labels, logits.sigmoid()]).double()
    sums = torch.zeros(3, _BINS, dtype=torch.float64, device=logits.device)
    return sums.index_add_(1, at.clamp(0, _BINS - 1).long(), told)


def auc(sums: Tensor) -> float:
    """The chance that a yes has a higher score than a no; a half where they are equal.

    >>> auc(score_sums(torch.tensor([-1.0, 0.0, 1.0, 2.0]), torch.tensor([0, 1, 0, 1])))
    0.75
    """
    yes = sums[1]
    no = sums[0] - yes
    if not (yes.sum() and no.sum()):
        raise BadValue("data must have labels of both kinds to measure the AUC, found one")
    below = no.cumsum(0) - no
    return float((yes * (below + no / 2)).sum() / (yes.sum() * no.sum()))


def calibration_ratio(sums: Tensor) -> float:
    """How many yes were expected for each that there was: 1 where chances are right on average.

    >>> calibration_ratio(score_sums(torch.zeros(4), torch.tensor([0, 0, 0, 1])))
    2.0
    """
    if not sums[1].sum():
        raise BadValue("data must have a yes to measure the calibration, found none")
    return float(sums[2].sum() / sums[1].sum())


def calibration_error(sums: Tensor, groups: int = GROUPS) -> float:
    """How far chances are from the rates of yes: the mean over groups of equal size, by score.

    >>> calibration_error(score_sums(torch.zeros(4), torch.tensor([0, 0, 0, 1])))
    0.25
    """
    count = sums[0].cumsum(0)
    # The group of a bin is that of its middle sample.
    group = ((count - sums[0] / 2) / count[-1] * groups).long().clamp(max=groups - 1)
    told = torch.zeros(3, groups, dtype=sums.dtype).index_add_(1, group, sums)
    return float((told[2] - told[1]).abs().sum() / told[0].sum())
