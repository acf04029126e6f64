"""Random generators: all are found, put back, and saved as text."""

import copy
import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trimol._attributes import attributes, attributes_kept, recall
from trimol._generators import Generators, generators_kept, seeding


class Holder(nn.Module):
    """Generators of all kinds, at all places."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = random.Random(1)
        self.listed = [{"a": np.random.default_rng(2)}, np.random.RandomState(3)]
        self.others = [
            np.random.Generator(kind(4)) for kind in (np.random.MT19937, np.random.SFC64)
        ]
        self.deep = nn.Sequential(*[nn.Identity() for _ in range(200)])
        self.deep[150].own = torch.Generator().manual_seed(5)
        self.enclosed = enclosing(np.random.Generator(np.random.Philox(6)))
        self.count, self.seen = 0, [0, {"x": 1.5}]

    def draw(self) -> list[float]:
        self.count += 1
        self.seen[0] += 1
        own: Any = self.deep[150].own
        return [
            *(random.random(), random.gauss(0, 1), np.random.randn(), torch.rand(()).item()),
            *(self.plain.gauss(0, 1), self.listed[0]["a"].random(), self.listed[1].randn()),
            *(each.random() for each in self.others),
            *(torch.rand((), generator=own).item(), self.enclosed()),
        ]


def enclosing(generator: np.random.Generator) -> Callable[[], float]:
    return lambda: generator.random()


def through_a_file(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_all_go_on_from_what_was_saved() -> None:
    holder = Holder()
    holder.draw()
    saved = through_a_file(Generators(holder).state_dict())
    following = holder.draw()
    now = Generators(holder)
    now.load_state_dict(saved)
    assert Generators(holder).state_dict() != saved  # loading is not putting back
    now.put_back()
    assert holder.draw() == following


def test_all_are_kept() -> None:
    holder = Holder()
    with generators_kept(holder):
        first = holder.draw()
    assert holder.draw() == first


def test_a_seed_is_of_all_global_ones() -> None:
    before = Generators().state_dict()
    with seeding(3):
        first = random.random(), np.random.rand(), torch.rand(()).item()
    assert Generators().state_dict() == before
    with seeding(3):
        assert first == (random.random(), np.random.rand(), torch.rand(()).item())


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: {**saved, "python": "import os"},
        lambda saved: {**saved, "numpy": '{"bit_generator": "MT19937"}'},
        lambda saved: {**saved, "torch": '{"torch": "00"}'},
        lambda saved: {"torch": saved["torch"]},
    ],
    ids=["python", "numpy", "torch", "few"],
)
def test_what_is_no_state_is_refused_and_changes_nothing(change: Any) -> None:
    now = Generators()
    before = now.state_dict()
    with pytest.raises((ValueError, KeyError, RuntimeError)):
        now.load_state_dict(change(before))
    assert Generators().state_dict() == before


def test_numbers_are_kept_and_recalled() -> None:
    holder = Holder()
    held = holder.seen
    with attributes_kept(holder):
        holder.draw()
    assert (holder.count, holder.seen) == (0, [0, {"x": 1.5}])
    assert holder.seen is held
    holder.draw()
    saved = through_a_file({way: each.value for way, each in attributes(holder).items()})
    other = copy.deepcopy(holder)
    other.count, other.seen[1]["x"] = 7, 8.0
    recall(saved, other)
    assert (other.count, other.seen) == (1, [1, {"x": 1.5}])
