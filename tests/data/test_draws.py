"""Splitting batches: every sample in exactly one part, the structure kept, misuse refused."""

import dataclasses
import types
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

from trimol.data import Draws, draws, pairs, sizes, split
from trimol.data._draws import short_number

exact = settings(derandomize=True, deadline=None, max_examples=200)


class Named(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any


@dataclasses.dataclass
class Derived:
    """A field that is no argument of __init__: `dataclasses.replace` cannot set it."""

    x: torch.Tensor
    y: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.y = 2 * self.x


class Rows:
    """An object that is split by its own slices."""

    def __init__(self, rows: range) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> "Rows":
        return Rows(self.rows[part])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.rows == other.rows

    __hash__ = None


# A maker builds a batch of the given rows. Splitting make(all rows) must give what make(rows of
# the part) gives: the expected parts are built without the code under test.
Maker = Callable[[range], Any]

PER_SAMPLE: list[Maker] = [
    lambda rows: torch.tensor(rows),
    lambda rows: torch.tensor([[[r, -r]] for r in rows], dtype=torch.float32),
    lambda rows: np.array([[r, r + 1] for r in rows]),
    lambda rows: np.array([f"n{r:03}" for r in rows]),
    lambda rows: [f"s{r}" for r in rows],
    lambda rows: tuple(f"t{r}" for r in rows),
    lambda rows: list(rows),
    lambda rows: [torch.tensor(r) for r in rows],
    lambda rows: [{"id": r} for r in rows],
    lambda rows: [None if r % 2 else object for r in rows],
    Rows,
]
SHARED: list[Any] = [3, 0.5, True, None, "split", b"b", np.float64(2), torch.tensor(7.0)]
SHARED += [np.array(1), torch.float32, {}, [], ()]


def constant(value: Any) -> Maker:
    return lambda rows: value


def mapping(kind: type, makers: dict[str, Maker]) -> Maker:
    return lambda rows: kind({name: make(rows) for name, make in makers.items()})


def sequence(kind: type, makers: list[Maker]) -> Maker:
    return lambda rows: kind(make(rows) for make in makers)


def record(kind: Any, a: Maker, b: Maker) -> Maker:
    return lambda rows: kind(a(rows), b(rows))


def containers(children: st.SearchStrategy[Maker]) -> st.SearchStrategy[Maker]:
    named = st.dictionaries(st.sampled_from("uvw"), children, max_size=3)
    # Without anything to split inside, a list would be per-sample itself.
    listed = st.tuples(per_sample, st.lists(children, max_size=3)).map(lambda t: [t[0], *t[1]])
    return st.one_of(
        st.builds(mapping, st.sampled_from([dict, OrderedDict, UserDict]), named),
        st.builds(sequence, st.sampled_from([list, tuple]), listed),
        st.builds(record, st.sampled_from([Named, Frozen]), children, children),
    )


per_sample = st.sampled_from(PER_SAMPLE)
trees = st.recursive(per_sample | st.sampled_from(SHARED).map(constant), containers, max_leaves=8)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, Frozen):
        return same((a.a, a.b), (b.a, b.b))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@exact
@given(total=st.integers(0, 1000), k=st.integers(1, 50))
def test_sizes_are_equal_up_to_one_and_use_the_whole_budget(total: int, k: int) -> None:
    found = sizes(total, k)
    assert len(found) == k
    assert sum(found) == total
    assert max(found) - min(found) <= 1
    assert found == sorted(found, reverse=True)


def test_sizes_of_modo() -> None:
    assert sizes(64, 2) == [32, 32]
    assert sizes(65, 2) == [33, 32]
    assert sizes(64, 3) == [22, 21, 21]


@exact
@given(first=per_sample, tree=trees, k=st.integers(2, 5), extra=st.integers(0, 7))
def test_parts_of_any_structure_are_the_batch_in_order(
    first: Maker, tree: Maker, k: int, extra: int
) -> None:
    n = k + extra
    make = sequence(tuple, [first, tree])
    parts = split(make(range(n)), k)
    stop = 0
    for part, size in zip(parts, sizes(n, k), strict=True):
        start, stop = stop, stop + size
        assert same(part, make(range(start, stop)))
    assert stop == n


@exact
@given(tree=trees, n=st.integers(0, 5))
def test_one_part_is_the_batch_itself(tree: Maker, n: int) -> None:
    batch = tree(range(n))
    (part,) = split(batch, 1)
    assert part is batch


def test_tensors_and_arrays_are_views() -> None:
    tensor, array = torch.zeros(5, 2), np.zeros((5, 2))
    for part in split((tensor, array), 2):
        part[0].fill_(1)
        part[1].fill(1)
    assert tensor.eq(1).all()
    assert (array == 1).all()


def test_gradients_flow_through_the_parts() -> None:
    x = torch.arange(4.0, requires_grad=True)
    first, second = split(x, 2)
    (first.sum() + 3 * second.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 3, 3]


@pytest.mark.parametrize("value", SHARED, ids=repr)
def test_what_is_no_sample_is_shared_by_all_parts(value: Any) -> None:
    parts = split({"x": torch.arange(6), "value": value, "both": Named(value, None)}, 3)
    for part in parts:
        assert same(part["value"], value)
        assert same(part["both"].a, value)
        if not isinstance(value, dict):
            assert part["value"] is value


def test_named_tuples_of_plain_values_are_no_lists() -> None:
    first, second = split((torch.arange(4), Named(3, 4)), 2)
    assert first[1] == second[1] == Named(3, 4)


def test_fields_set_after_init_are_split() -> None:
    batch = Derived(torch.arange(4))
    _, second = split(batch, 2)
    assert second.x.tolist() == [2, 3]
    assert second.y.tolist() == [4, 6]
    assert batch.y.tolist() == [0, 2, 4, 6]


def test_a_dataclass_with_slices_of_its_own_is_split_by_them() -> None:
    @dataclasses.dataclass
    class Padded:
        x: torch.Tensor  # time first: field by field would cut the time

        def __len__(self) -> int:
            return self.x.shape[1]

        def __getitem__(self, part: slice) -> "Padded":
            return Padded(self.x[:, part])

    first, _ = split(Padded(torch.zeros(7, 4)), 2)
    assert first.x.shape == (7, 2)


def test_a_mapping_with_slices_of_its_own_is_split_by_them() -> None:
    class TensorDict(UserDict[Any, Any]):
        """Like that of the package tensordict; time first, so that slicing by key cuts wrongly."""

        def __len__(self) -> int:
            return self.data["x"].shape[1]

        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, slice):
                return TensorDict(x=self.data["x"][:, key])
            return self.data[key]

        def narrow(self, dim: int, start: int, length: int) -> "TensorDict":
            raise AssertionError("only its presence counts")

    _, second = split(TensorDict(x=torch.arange(10).view(2, 5)), 2)
    assert isinstance(second, TensorDict)
    assert second["x"].tolist() == [[3, 4], [8, 9]]


def test_mappings_that_their_constructor_cannot_rebuild() -> None:
    class Kept(UserDict[str, Any]):
        def __init__(self, x: torch.Tensor, *, name: str) -> None:
            super().__init__(x=x)
            self.name = name

    batch = defaultdict(list, x=torch.arange(4))
    _, second = split(batch, 2)
    assert second.default_factory is list
    assert second["x"].tolist() == [2, 3]
    first, _ = split(Kept(torch.arange(4), name="kept"), 2)
    assert first.name == "kept"
    assert first["x"].tolist() == [0, 1]
    assert isinstance(split(types.MappingProxyType(batch), 2)[0], types.MappingProxyType)


def test_what_a_mapping_holds_for_the_whole_batch_is_dropped() -> None:
    class Encoding(UserDict[str, Any]):
        """As transformers' BatchEncoding, whose encodings are per sample."""

        encodings: list[str] | None = None

    batch = Encoding(x=torch.arange(4))
    batch.encodings = ["a", "b", "c", "d"]
    assert [part.encodings for part in split(batch, 2)] == [None, None]


class Mixed(Dataset[dict[str, Any]]):
    """One of everything that default_collate knows."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> dict[str, Any]:
        image = torch.full((2, 3), float(i))
        pair = (f"p{i}", np.float32(i))
        return {"x": image, "y": i, "name": f"n{i}", "pair": pair, "named": Named(f"a{i}", i)}


def test_what_default_collate_makes_is_split_by_samples() -> None:
    parts = list(pairs(DataLoader(Mixed(), batch_size=5)))
    flat = [part for step in parts for part in step]
    assert [len(part["y"]) for part in flat] == [3, 2, 3, 2]
    assert torch.cat([part["y"] for part in flat]).tolist() == list(range(10))
    for part in flat:
        rows = part["y"].tolist()
        assert part["x"][:, 0, 0].tolist() == rows
        assert list(part["name"]) == [f"n{r}" for r in rows]
        assert list(part["pair"][0]) == [f"p{r}" for r in rows]
        assert part["pair"][1].tolist() == rows
        assert isinstance(part["named"], Named)
        assert list(part["named"].a) == [f"a{r}" for r in rows]
        assert part["named"].b.tolist() == rows


def test_draws_can_be_iterated_again_and_have_the_length_of_the_loader() -> None:
    data = TensorDataset(torch.arange(12))
    twice = draws(DataLoader(data, batch_size=6), 3)
    rounds = [[[part[0].tolist() for part in step] for step in twice] for _ in range(2)]
    assert rounds[0] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert rounds[0] == rounds[1]
    assert len(twice) == 2


def test_each_iteration_shuffles_anew() -> None:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.arange(1000)), batch_size=1000, shuffle=True)
    both = pairs(loader)
    (a, b), (c, _) = next(iter(both)), next(iter(both))
    assert not torch.equal(a[0], c[0])
    assert sorted(torch.cat([a[0], b[0]]).tolist()) == list(range(1000))


def test_a_loader_without_length_is_iterated_all_the_same() -> None:
    def stream() -> Iterator[torch.Tensor]:
        yield from torch.arange(8).view(2, 4)

    endless = pairs(stream())
    with pytest.raises(TypeError, match="generator has no length"):
        len(endless)
    assert [[part.tolist() for part in step] for step in endless] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
    ]


def test_one_draw_hands_on_every_batch_as_it_is() -> None:
    batches = [object(), pack_sequence([torch.ones(2)]), torch.zeros(0)]
    for (part,), batch in zip(draws(batches, 1), batches, strict=True):
        assert part is batch


def test_pairs_are_two_draws() -> None:
    loader = [torch.arange(4)]
    assert isinstance(pairs(loader), Draws)
    assert pairs(loader).k == 2
    assert pairs(loader).loader is loader


def test_batches_that_are_all_too_short_are_warned_of_once_and_a_rest_is_not() -> None:
    ones = pairs(list(torch.arange(5).split(1)))
    with pytest.warns(RuntimeWarning, match="batches of 1 cannot be split into 2 draws") as said:
        for _ in (*ones, *ones):
            pass
    assert len(said) == 1
    assert said[0].filename == __file__
    epochs = [torch.arange(2), torch.arange(1)] * 3  # warnings are errors here
    assert len(list(pairs(epochs))) == 6


def test_a_last_batch_that_is_too_short_comes_whole_for_every_draw() -> None:
    data = TensorDataset(torch.arange(9))
    told = []
    for first, second in pairs(DataLoader(data, batch_size=4)):
        told.append((first[0].tolist(), second[0].tolist(), short_number() > 0))
    assert told == [([0, 1], [2, 3], False), ([4, 5], [6, 7], False), ([8], [8], True)]
    assert not short_number()  # when the loop is over
    for _ in pairs([torch.arange(1)]):
        break
    assert not short_number()
    *_, parts = draws([torch.arange(9), torch.arange(2)], 3)
    assert [part.tolist() for part in parts] == [[0, 1]] * 3
    with pytest.raises(ValueError, match=r"batch of 1 into k=2 .* drop_last=True"):
        split(torch.arange(1), 2)
    with pytest.raises(ValueError, match=r"batch of 0 into k=2"):
        next(iter(pairs([torch.arange(0)])))
    assert len(list(draws(DataLoader(data, batch_size=4, drop_last=True), 2))) == 2
    assert [len(part[0]) for part in list(draws(DataLoader(data, batch_size=6), 3))[-1]] == [1] * 3


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.zeros(4), torch.zeros(3)), r"4 in batch\[0\], 3 in batch\[1\] "),
        ({"x": torch.zeros(4), "size": (28, 28)}, r"4 in batch\['x'\], 2 in batch\['size'\] "),
        ((torch.zeros(4), Named(["a"], 1)), r"4 in batch\[0\], 1 in batch\[1\]\.a "),
        (Frozen(torch.zeros(2), torch.zeros(1)), r"2 in batch\.a, 1 in batch\.b "),
        ((torch.zeros(4), torch.zeros(0)), r"4 in batch\[0\], 0 in batch\[1\] "),
        ([torch.zeros(i) for i in range(2, 9)], r"5 in batch\[3\], … \(a list with tensors"),
    ],
)
def test_lengths_that_differ_are_named(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(batch, 2)


@pytest.mark.parametrize("batch", [None, 3, "text", {}, [], torch.tensor(1.0), Named(1, 2)])
def test_a_batch_without_samples_is_an_error(batch: Any) -> None:
    with pytest.raises(ValueError, match=f"no samples to split .* {type(batch).__name__}"):
        split(batch, 2)


def test_an_empty_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="batch of 0 into k=2"):
        split(torch.zeros(0, 3), 2)


class Wrong:
    """Slices that ignore what was asked for."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, part: slice) -> list[int]:
        return [1]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (pack_sequence([torch.ones(2), torch.ones(1)]), r"PackedSequence at batch\[1\]: .*padded"),
        ([pack_sequence([torch.ones(2)])], r"PackedSequence at batch\[1\]\[0\]"),
        (types.SimpleNamespace(x=1), r"SimpleNamespace at batch\[1\]: it needs __len__"),
        ({1, 2, 3, 4}, r"set at batch\[1\]: it needs"),
        (deque([1, 2, 3, 4]), "deque: it does not take slices"),
        (torch.eye(4).to_sparse(), "Tensor: it does not take slices"),
        (Wrong(), r"Wrong: its slice \[0:2\] has length 1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_cut_is_an_error(item: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        split((torch.zeros(4), item), 2)


@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (0, ValueError, "k must be a whole number of at least 1, found 0"),
        (-2, ValueError, "k must be a whole number of at least 1, found -2"),
        (2.0, TypeError, "k must be a whole number of at least 1, found 2.0"),
        (True, TypeError, "k must be a whole number of at least 1, found True"),
    ],
)
def test_a_wrong_k_is_named(k: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        draws([torch.zeros(4)], k)
    with pytest.raises(error, match=message):
        split(torch.zeros(4), k)


def test_a_data_set_is_no_loader() -> None:
    data: Any = TensorDataset(torch.zeros(4))
    with pytest.raises(TypeError, match=r"iterable of batches .* found TensorDataset"):
        draws(data, 2)
