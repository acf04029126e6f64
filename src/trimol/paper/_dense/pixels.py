"""What is computed of every pixel in dense prediction: three losses and nine metrics.

Truth comes as it is stored: classes with −1 where there is none, depth that is positive where it
was measured, normals that are zero where none is known. The loss of an objective is the mean over
the pixels that have a label (`trimol.tasks.masked_mean`).

Each metric is of the *whole* data set: one confusion matrix of all pixels (not the mean of the
batches' mIoU), errors averaged over all pixels that have a label. A ``tally`` gives what adds up
over batches, in float64; a ``score`` what the sums come to. The median angle needs all angles at
once: what adds up is their histogram, with bins of 0.01°, and the median read from it is within one
bin of the exact one (`histogram_median`). The other eight are exact.

Predictions are N × channels × H × W; classes and depths N × H × W, normals N × 3 × H × W.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from trimol._failures import BadValue

UNLABELLED = -1
RESOLUTION = 0.01  # degrees, the width of the bins
BINS = round(180 / RESOLUTION)
_WITHIN = (11.25, 22.5, 30.0)  # degrees
_TINY = 1e-24  # of squared lengths: what is shorter counts as zero

Sums = Mapping[str, Tensor]

# --- segmentation ---------------------------------------------------------------------------------


def has_class(label: Tensor) -> Tensor:
    """Where a pixel's class is known: N × H × W."""
    return label != UNLABELLED


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The cross-entropy of each pixel; 0 where it has no class.

    >>> label = torch.tensor([[[1, -1]]])
    >>> cross_entropy(torch.zeros(1, 4, 1, 2), label).exp()  # four classes, none preferred
    tensor([[[4., 1.]]])
    """
    return F.cross_entropy(logits, label.long(), ignore_index=UNLABELLED, reduction="none")


def tally_segmentation(logits: Tensor, label: Tensor) -> dict[str, Tensor]:
    """How many pixels of each class (row) were taken for each class (column).

    >>> logits = torch.eye(2).view(1, 2, 1, 2)  # the first pixel is 0, the second 1
    >>> tally_segmentation(logits, torch.tensor([[[1, 1]]]))["confusion"]
    tensor([[0., 0.],
            [1., 1.]], dtype=torch.float64)
    """
    classes, known = logits.shape[1], has_class(label)
    cells = label[known].long() * classes + logits.argmax(1)[known]
    counts = torch.bincount(cells, minlength=classes * classes).double()
    return {"confusion": counts.view(classes, classes)}


def score_segmentation(sums: Sums) -> dict[str, float]:
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


# --- depth ----------------------------------------------------------------------------------------


def has_depth(depth: Tensor) -> Tensor:
    """Where a pixel's depth was measured: N × H × W."""
    return depth > 0


def absolute_error(predicted: Tensor, depth: Tensor) -> Tensor:
    """The absolute error (L1) of each pixel.

    >>> absolute_error(torch.ones(1, 1, 1, 2), torch.tensor([[[3.0, 0.5]]]))
    tensor([[[2.0000, 0.5000]]])
    """
    return (predicted.squeeze(1) - depth).abs()


def tally_depth(predicted: Tensor, depth: Tensor) -> dict[str, Tensor]:
    """Sums of the absolute and the relative error, and how many pixels have a depth."""
    known = has_depth(depth)
    truth = depth[known].double()
    errors = (predicted.squeeze(1)[known].double() - truth).abs()
    count = torch.full_like(errors.sum(), len(errors))
    return {"depth": torch.stack([errors.sum(), (errors / truth).sum(), count])}


def score_depth(sums: Sums) -> dict[str, float]:
    """The mean absolute error, and the mean error relative to the true depth."""
    absolute, relative, count = sums["depth"]
    _check_labels("depth", count)
    return {"abs err": (absolute / count).item(), "rel err": (relative / count).item()}


# --- normals --------------------------------------------------------------------------------------


def has_normal(normal: Tensor) -> Tensor:
    """Where a pixel's normal is known: N × H × W, of normals N × 3 × H × W."""
    return normal.square().sum(1) > 0


def one_minus_cosine(predicted: Tensor, normal: Tensor) -> Tensor:
    """One minus the cosine between the two directions of each pixel, whatever their lengths.

    >>> up, right = torch.eye(3)[:2].view(2, 1, 3, 1, 1)
    >>> one_minus_cosine(up, up).item(), one_minus_cosine(up, right).item()
    (0.0, 1.0)
    """
    squares = predicted.square().sum(1) * normal.square().sum(1)
    return 1 - (predicted * normal).sum(1) * squares.clamp_min(_TINY).rsqrt()


def unit(vectors: Tensor) -> Tensor:
    """Vectors N × 3 × H × W of unit length at every pixel; zero stays zero.

    `torch.nn.functional.normalize` does the same, and took 36 times as long for 64 images of
    48 × 64 on one core.

    >>> unit(torch.tensor([3.0, 0.0, 4.0]).view(1, 3, 1, 1)).flatten()
    tensor([0.6000, 0.0000, 0.8000])
    """
    return vectors * vectors.square().sum(1, keepdim=True).clamp_min(_TINY).rsqrt()


def tally_normals(predicted: Tensor, normal: Tensor) -> dict[str, Tensor]:
    """The sum of the angles, how many are small, how many there are, and their histogram."""
    known = has_normal(normal)
    apart = angles(predicted.movedim(1, -1)[known], normal.movedim(1, -1)[known])
    small = [(apart < limit).double().sum() for limit in _WITHIN]
    bins = (apart / RESOLUTION).long().clamp(max=BINS - 1)
    return {
        "angles": torch.stack([apart.sum(), *small, torch.full_like(apart.sum(), len(apart))]),
        "angle histogram": torch.bincount(bins, minlength=BINS).double(),
    }


def score_normals(sums: Sums) -> dict[str, float]:
    """The mean and the median angle in degrees, and the shares below 11.25°, 22.5° and 30°."""
    total, *small, count = sums["angles"]
    _check_labels("normals", count)
    shares = {
        f"within {limit:g}": (below / count).item()
        for limit, below in zip(_WITHIN, small, strict=True)
    }
    median = histogram_median(sums["angle histogram"])
    return {"angle mean": (total / count).item(), "angle median": median, **shares}


def angles(first: Tensor, second: Tensor) -> Tensor:
    """The angles in degrees between rows of three numbers, in float64.

    By the arc tangent of |a × b| over a · b, which is accurate at every angle: the arc cosine loses
    half of the digits near 0° and 180°.

    >>> angles(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[2.0, 2.0, 0.0]]))
    tensor([45.], dtype=torch.float64)
    """
    first, second = first.double(), second.double()
    across = torch.linalg.cross(first, second).norm(dim=1)
    return torch.atan2(across, (first * second).sum(1)).rad2deg()


def histogram_median(counts: Tensor) -> float:
    """The median, in degrees, of angles of which only the histogram is known: at most one bin off.

    The median is the mean of the two middle values (of the one, where their number is odd). The
    histogram says exactly in which bin each of them lies; its place inside is interpolated, so that
    each is off by less than `RESOLUTION`, and so is their mean.

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
