"""The losses of dense prediction, worked out by hand, and labels that are missing."""

import math

import pytest
import torch
from torch import Tensor, nn

from trimol.paper._dense.dense_task import OBJECTIVES, DenseTask
from trimol.paper._dense.pixels import absolute_error, cross_entropy, one_minus_cosine, unit
from trimol.tasks.multitask import MultiTask


class Fixed(MultiTask):
    """A model that answers what it is told."""

    def __init__(self, **outputs: Tensor) -> None:
        super().__init__(nn.Identity(), {})
        self.outputs = nn.ParameterDict(outputs)

    def forward(self, x: Tensor, task: str | None = None) -> dict[str, Tensor]:
        return dict(self.outputs.items())


class Told(DenseTask):
    """A task without model or data: the losses and metrics of what a test gives."""

    name = "told"

    def model(self):
        raise NotImplementedError

    def data(self):
        raise NotImplementedError


def batch() -> tuple[Tensor, ...]:
    """One image of 1 × 3 pixels; each objective lacks another pixel."""
    label = torch.tensor([[[1, 0, -1]]])
    depth = torch.tensor([[[2.0, 0.0, 4.0]]])
    normal = torch.tensor([[[[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]], [[0.0, -2.0, 0.0]]]])
    return torch.zeros(1, 3, 1, 3), label, depth, normal


def outputs() -> dict[str, Tensor]:
    return {
        # Pixel 0: softmax (¼, ¾); pixel 1: (½, ½); pixel 2 must not matter.
        "segmentation": torch.tensor([[[[0.0, 5.0, 9.0]], [[math.log(3), 5.0, -9.0]]]]),
        "depth": torch.tensor([[[[2.5, 77.0, 3.0]]]]),
        # Pixel 1: (0, 3, 4) against (0, 0, −2); pixel 2: (0, 1, 0) against itself.
        "normals": torch.tensor([[[[9.0, 0.0, 0.0]], [[9.0, 3.0, 1.0]], [[9.0, 4.0, 0.0]]]]),
    }


def test_losses_by_hand() -> None:
    found = Told().losses(Fixed(**outputs()), batch())
    # −ln ¾ and −ln ½; |2.5 − 2| and |3 − 4|; 1 − (−4/5) and 1 − 1. Means over two pixels each.
    expected = [(math.log(4 / 3) + math.log(2)) / 2, 0.75, 0.9]
    assert torch.stack(list(found)).tolist() == pytest.approx(expected, rel=1e-6)
    assert Told().counts(batch()).tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_objective_alone_has_the_same_loss(name: str) -> None:
    task, place = Told(only=name), list(OBJECTIVES).index(name)
    assert task.objectives == (name,)
    assert dict(task.goals) == {name: OBJECTIVES[name].goals}
    one = task.chosen(*batch())
    assert len(one) == 2
    (alone,) = task.losses(Fixed(**{name: outputs()[name]}), one)
    torch.testing.assert_close(alone, Told().losses(Fixed(**outputs()), batch())[place])


@pytest.mark.parametrize("place", range(3))
def test_an_absent_objective_is_zero_and_pulls_nowhere(place: int) -> None:
    image, *truths = batch()
    truths[place] = torch.full_like(truths[place], -1 if place == 0 else 0)
    model = Fixed(**outputs())
    losses = Told().losses(model, (image, *truths))
    assert losses[place] == 0
    assert Told().counts((image, *truths))[place] == 0
    losses[place].backward()
    name = list(OBJECTIVES)[place]
    assert torch.equal(model.outputs[name].grad, torch.zeros_like(model.outputs[name]))


def test_unlabelled_pixels_have_no_gradient() -> None:
    model = Fixed(**outputs())
    torch.stack(list(Told().losses(model, batch()))).sum().backward()
    gradients = [model.outputs[name].grad[0].abs().sum(0)[0] > 0 for name in OBJECTIVES]
    assert gradients[0].tolist() == [True, True, False]
    assert gradients[1].tolist() == [True, False, True]
    # The third pixel's normal is right already: a minimum.
    assert gradients[2].tolist() == [False, True, False]


def test_the_cosine_knows_no_lengths() -> None:
    first, second = torch.randn(2, 4, 3, 5, 6, dtype=torch.float64)
    plain = one_minus_cosine(first, second)
    torch.testing.assert_close(one_minus_cosine(first * 7, second * 1e-3), plain)
    expected = 1 - torch.nn.functional.cosine_similarity(first, second, dim=1)
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(unit(first).norm(dim=1), torch.ones(4, 5, 6, dtype=torch.float64))
    assert torch.equal(unit(torch.zeros(1, 3, 2, 2)), torch.zeros(1, 3, 2, 2))


def test_shapes_are_one_number_a_pixel() -> None:
    label = torch.zeros(2, 4, 5, dtype=torch.int8)  # as the cache of NYU-v2 holds them
    assert cross_entropy(torch.zeros(2, 13, 4, 5), label).shape == (2, 4, 5)
    assert absolute_error(torch.zeros(2, 1, 4, 5), torch.ones(2, 4, 5)).shape == (2, 4, 5)


def test_bad_options() -> None:
    with pytest.raises(ValueError, match=r"only must be one of segmentation, .*, found 'edges'"):
        Told(only="edges")
    with pytest.raises(ValueError, match=r"weight_decay must be .* found -1"):
        Told(weight_decay=-1)
