"""The nine metrics, each worked out by hand; sums that add up over batches; the median's bound."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimol.paper._dense import pixels as m
from trimol.paper._dense.dense_task import OBJECTIVES


def logits(predicted: list[list[int]], classes: int = 4) -> Tensor:
    """What makes the network say these classes, for one image."""
    return torch.nn.functional.one_hot(torch.tensor([predicted]), classes).movedim(-1, 1).float()


def towards(degrees: list[float]) -> Tensor:
    """Unit vectors in the x–y plane, one image of a single row."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)])[None, :, None]


def summed(*tallies: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: sum(tally[name] for tally in tallies) for name in tallies[0]}  # type: ignore[misc]


def test_segmentation_is_of_the_whole_set() -> None:
    first = m.tally_segmentation(
        logits([[0, 1, 1], [1, 0, 0]]), torch.tensor([[[0, 0, 1], [1, -1, 0]]])
    )
    second = m.tally_segmentation(
        logits([[1, 2, 0], [0, 0, 3]]), torch.tensor([[[1, 1, 0], [-1, -1, -1]]])
    )
    both = summed(first, second)
    # Class 0: 3 right, 1 taken for 1. Class 1: 3 right, 1 taken for 2. Class 2 is only predicted;
    # class 3 only where there is no label, so that it does not occur.
    assert both["confusion"].tolist() == [[3, 1, 0, 0], [0, 3, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    found = m.score_segmentation(both)
    # IoU: 3 / (3 + 1), 3 / (3 + 1 + 1), 0 / 1.
    assert found["mIoU"] == pytest.approx((3 / 4 + 3 / 5 + 0) / 3, rel=1e-12)
    assert found["pixel accuracy"] == 6 / 8
    # The mean of the batches' mIoU, (2/3 + 2/3)/2 and (1 + 1/2 + 0)/3, would be another number.
    batches = [m.score_segmentation(tally)["mIoU"] for tally in (first, second)]
    assert batches == pytest.approx([2 / 3, 1 / 2], rel=1e-12)


def test_depth_by_hand() -> None:
    depth = torch.tensor([[[2.0, 4.0, 0.0]], [[5.0, 0.0, 0.0]]])
    predicted = torch.tensor([[[[2.5, 3.0, 9.0]]], [[[5.0, 9.0, -9.0]]]])
    found = m.score_depth(m.tally_depth(predicted, depth))
    # Errors 0.5, 1, 0 on depths 2, 4, 5: three pixels over two images, not a mean of means.
    assert found == pytest.approx({"abs err": 1.5 / 3, "rel err": (0.25 + 0.25 + 0) / 3})


def test_normals_by_hand() -> None:
    predicted = towards([0.0, 10.0, 20.0, 25.0, 40.0, 90.0]) * 3  # lengths do not matter
    normal = towards([0.0] * 6)
    normal[..., -1] = 0  # the last pixel has no normal
    found = m.score_normals(m.tally_normals(predicted, normal))
    assert found["angle mean"] == pytest.approx((0 + 10 + 20 + 25 + 40) / 5, rel=1e-12)
    assert found["angle median"] == pytest.approx(20, abs=m.RESOLUTION)
    assert found["within 11.25"] == 2 / 5
    assert found["within 22.5"] == 3 / 5
    assert found["within 30"] == 4 / 5


def test_the_median_of_an_even_number_is_the_middle_of_two() -> None:
    tally = m.tally_normals(towards([10.0, 50.0, 20.0, 40.0]), towards([0.0] * 4))
    assert m.score_normals(tally)["angle median"] == pytest.approx(30, abs=m.RESOLUTION)


angle = st.one_of(st.floats(0, 180), st.sampled_from([0.0, 0.01, 11.25, 90.0, 179.999, 180.0]))


@settings(deadline=None, max_examples=200)
@given(st.lists(angle, min_size=1, max_size=40))
def test_the_median_is_within_one_bin_of_the_exact_one(angles: list[float]) -> None:
    bins = (torch.tensor(angles, dtype=torch.float64) / m.RESOLUTION).long().clamp(max=m.BINS - 1)
    found = m.histogram_median(torch.bincount(bins, minlength=m.BINS).double())
    assert abs(found - np.median(angles)) <= m.RESOLUTION * (1 + 1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 5), max_size=3))
def test_sums_over_batches_are_those_of_the_whole(seed: int, cuts: list[int]) -> None:
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(-1, 4, (6, 3, 5), generator=random)
    depth = torch.randn(6, 3, 5, generator=random).clamp_min(0)
    normal = torch.randn(6, 3, 3, 5, generator=random) * (label[:, None] != 0)
    outputs = [torch.randn(6, n, 3, 5, generator=random) for n in (4, 1, 3)]
    places = sorted({0, *cuts, 6})
    for objective, output, truth in zip(
        OBJECTIVES.values(), outputs, (label, depth, normal), strict=True
    ):
        whole = objective.score(objective.tally(output, truth))
        parts = [objective.tally(output[a:b], truth[a:b]) for a, b in pairwise(places)]
        assert objective.score(summed(*parts)) == pytest.approx(whole, rel=1e-12)
        assert set(whole) == set(objective.goals)


def test_random_labels_against_plain_loops() -> None:
    random = np.random.default_rng(3)
    truth, said = random.integers(-1, 5, (2, 7, 9)), random.integers(0, 5, (2, 7, 9))
    scores = torch.nn.functional.one_hot(torch.from_numpy(said), 5).movedim(-1, 1).double()
    found = m.score_segmentation(m.tally_segmentation(scores, torch.from_numpy(truth)))
    ious = []
    for c in range(5):
        both = ((truth == c) & (said == c)).sum()
        either = (((truth == c) | (said == c)) & (truth >= 0)).sum()
        ious.append(both / either)
    assert found["mIoU"] == pytest.approx(float(np.mean(ious)), rel=1e-12)


@pytest.mark.parametrize("degrees", [1e-7, 1e-3, 45.0, 90.0, 179.999, 180 - 1e-7])
def test_angles_are_accurate_at_every_angle(degrees: float) -> None:
    rad = math.radians(degrees)
    first = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    second = torch.tensor([[math.cos(rad), 0.0, math.sin(rad)]], dtype=torch.float64) * 5
    assert m.angles(first, second).item() == pytest.approx(degrees, abs=1e-12)


def test_nothing_labelled_is_said() -> None:
    tally = m.tally_depth(torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match="data must have pixels with depth to measure, found none"):
        m.score_depth(tally)
    empty = m.tally_segmentation(torch.zeros(1, 3, 2, 2), torch.full((1, 2, 2), -1))
    with pytest.raises(ValueError, match="pixels with classes"):
        m.score_segmentation(empty)
    lost = m.tally_normals(torch.ones(1, 3, 2, 2), torch.zeros(1, 3, 2, 2))
    with pytest.raises(ValueError, match="pixels with normals"):
        m.score_normals(lost)
