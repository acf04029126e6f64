"""The nine metrics of dense prediction: sums that add up over batches, and what they come to.

Each metric is of the *whole* data set: one confusion matrix of all pixels (not the mean of the
batches' mIoU), errors averaged over all pixels that have a label. Sums are in float64.

The median angle needs all angles at once. What adds up is their histogram, with bins of 0.01°; the
median read from it is within one bin of the exact one (`histogram_median`). The other eight are
exact.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.paper._dense.pixel_losses import has_class, has_depth, has_normal

RESOLUTION = 0.01  # degrees, the width of the bins
BINS = round(180 / RESOLUTION)
WITHIN = (11.25, 22.5, 30.0)  # degrees


def tally_segmentation(logits: Tensor, label: Tensor) -> dict[str, Tensor]:
    """How many pixels of each class (row) were taken for each class (column).

    Args:
        logits: N × classes × H × W.
        label: N × H × W, −1 where there is none.

    Example:
        >>> logits = torch.eye(2).view(1, 2, 1, 2)  # the first pixel is 0, the second 1
        >>> tally_segmentation(logits, torch.tensor([[[1, 1]]]))["confusion"]
        tensor([[0., 0.],
                [1., 1.]], dtype=torch.float64)
    """
    classes, known = logits.shape[1], has_class(label)
    cells = label[known].long() * classes + logits.argmax(1)[known]
    counts = torch.bincount(cells, minlength=classes * classes).double()
    return {"confusion": counts.view(classes, classes)}


def score_segmentation(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """The mean IoU over the classes that occur in label or prediction, and the share told right."""
    confusion = sums["confusion"]
    _check_labels("classes", confusion.sum())
    right = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - right
    occurs = union > 0
    return {
        "mIoU": (right[occurs] / union[occurs]).mean().item(),
        "pixel accuracy": (right.sum() / confusion.sum()).item(),
    }


def tally_depth(predicted: Tensor, depth: Tensor) -> dict[str, Tensor]:
    """Sums of the absolute and the relative error, and how many pixels have a depth.

    Args:
        predicted: N × 1 × H × W.
        depth: N × H × W, zero where there is none.
    """
    known = has_depth(depth)
    truth = depth[known].double()
    errors = (predicted.squeeze(1)[known].double() - truth).abs()
    count = torch.full_like(errors.sum(), len(errors))
    return {"depth": torch.stack([errors.sum(), (errors / truth).sum(), count])}


def score_depth(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """The mean absolute error, and the mean error relative to the true depth."""
    absolute, relative, count = sums["depth"]
    _check_labels("depth", count)
    return {"abs err": (absolute / count).item(), "rel err": (relative / count).item()}


def tally_normals(predicted: Tensor, normal: Tensor) -> dict[str, Tensor]:
    """The sum of the angles, how many are small, how many there are, and their histogram.

    Args:
        predicted: N × 3 × H × W.
        normal: N × 3 × H × W, zero where there is none.
    """
    known = has_normal(normal)
    found = angles(predicted.movedim(1, -1)[known], normal.movedim(1, -1)[known])
    small = [(found < limit).double().sum() for limit in WITHIN]
    bins = (found / RESOLUTION).long().clamp(max=BINS - 1)
    return {
        "angles": torch.stack([found.sum(), *small, torch.full_like(found.sum(), len(found))]),
        "angle histogram": torch.bincount(bins, minlength=BINS).double(),
    }


def score_normals(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """The mean and the median angle in degrees, and the shares below 11.25°, 22.5° and 30°."""
    total, *small, count = sums["angles"]
    _check_labels("normals", count)
    shares = {
        f"within {limit:g}": (below / count).item()
        for limit, below in zip(WITHIN, small, strict=True)
    }
    median = histogram_median(sums["angle histogram"])
    return {"angle mean": (total / count).item(), "angle median": median, **shares}


def angles(first: Tensor, second: Tensor) -> Tensor:
    """The angles in degrees between rows, in float64.

    By the arc tangent of |a × b| over a · b, which is accurate at every angle: the arc cosine loses
    half of the digits near 0° and 180°.

    Args:
        first: N × 3, of any lengths but zero.
        second: N × 3, likewise.

    Example:
        >>> angles(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[2.0, 2.0, 0.0]]))
        tensor([45.], dtype=torch.float64)
    """
    first, second = first.double(), second.double()
    across = torch.linalg.cross(first, second).norm(dim=1)
    return torch.atan2(across, (first * second).sum(1)).rad2deg()


def histogram_median(counts: Tensor) -> float:
    """The median of angles of which only the histogram is known: at most one bin off.

    The median is the mean of the two middle values (of the one, where their number is odd). The
    histogram says exactly in which bin each of them lies; its place inside is interpolated, so that
    each is off by less than `RESOLUTION`, and so is their mean.

    Args:
        counts: How many angles lie in each bin.

    Returns:
        Degrees.

    Example:
        >>> counts = torch.zeros(BINS)
        >>> counts[1000] = 5  # five angles in [10°, 10.01°)
        >>> round(histogram_median(counts), 6)
        10.005
    """
    total = int(counts.sum())
    up_to = counts.double().cumsum(0)
    return (_ordered(up_to, (total + 1) // 2) + _ordered(up_to, total // 2 + 1)) / 2


def _ordered(up_to: Tensor, rank: int) -> float:
    """Where the value of this rank (from 1) lies: the values of a bin are spread evenly in it."""
    place = int(torch.searchsorted(up_to, rank))
    before = float(up_to[place - 1]) if place else 0.0
    inside = (rank - 0.5 - before) / (float(up_to[place]) - before)
    return (place + inside) * RESOLUTION


def _check_labels(what: str, count: Tensor) -> None:
    if not count:
        raise BadValue(f"data must have pixels with {what} to measure, found none")
