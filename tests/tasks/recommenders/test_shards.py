"""Rows in files: what is read is what was written, in bounded memory, and resuming is exact."""

import tracemalloc
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from trimol.tasks.recommenders.shards import Shards, Stream, write_shards

SIZES = (40, 25, 1, 60)


@pytest.fixture
def kept(tmp_path: Path) -> Shards:
    return write_shards(tmp_path / "rows", blocks(SIZES))


def blocks(sizes: tuple[int, ...]):
    first = 0
    for size in sizes:
        rows = torch.arange(first, first + size)
        yield rows[:, None].expand(size, 3).int(), (rows % 2).to(torch.int8)
        first += size


def test_rows_are_looked_up_in_any_order(kept: Shards) -> None:
    x, y = kept.columns
    wanted = torch.tensor([125, 0, 40, 39, 65, 65, 66])
    assert x[wanted][:, 0].tolist() == wanted.tolist()
    assert y[wanted].tolist() == (wanted % 2).tolist()
    assert x[30:70][:, 2].tolist() == list(range(30, 70))
    assert len(x[:]) == len(x) == 126
    assert y[:].dtype == torch.int8


def test_masks_and_numbers_from_the_end_are_those_of_a_tensor(kept: Shards) -> None:
    x, plain = kept.columns[0], torch.arange(126)
    for rows in (plain % 7 == 3, torch.tensor([-1, 0, -126]), plain > 200):
        assert x[rows][:, 0].tolist() == plain[rows].tolist()
    for rows in (torch.tensor([126]), torch.tensor([-127]), torch.ones(5, dtype=torch.bool)):
        with pytest.raises(IndexError):
            x[rows]


def test_every_row_comes_once_an_epoch_in_another_order_each(kept: Shards) -> None:
    stream = Stream(kept, batch_size=16, seed=1)
    steps = stream.steps_per_epoch
    assert steps == 3 + 2 + 1 + 4
    epochs = [[r for _ in range(steps) for r in next(stream)[0][:, 0].tolist()] for _ in range(2)]
    assert all(sorted(rows) == list(range(126)) for rows in epochs)
    assert epochs[0] != epochs[1] != sorted(epochs[1])


@pytest.mark.parametrize("stop", [0, 1, 7, 10, 13])
def test_going_on_gives_the_same_batches(kept: Shards, stop: int) -> None:
    whole = [x[:, 0].tolist() for x, _ in islice(Stream(kept, 16, seed=3), 25)]
    stream = Stream(kept, 16, seed=3)
    before = [x[:, 0].tolist() for x, _ in islice(stream, stop)]
    fresh = Stream(kept, 16)
    fresh.load_state_dict(stream.state_dict())
    assert before + [x[:, 0].tolist() for x, _ in islice(fresh, 25 - stop)] == whole


def test_a_state_of_other_rows_is_refused(kept: Shards) -> None:
    with pytest.raises(ValueError, match="saved with batch_size=8, this one has 16"):
        Stream(kept, 16).load_state_dict(Stream(kept, 8).state_dict())


def test_memory_is_that_of_a_block_not_of_all_rows(tmp_path: Path) -> None:
    size, shards = 20_000, 12

    def large():
        for number in range(shards):
            yield (torch.full((size, 16), number, dtype=torch.int32),)

    block = size * 16 * 4
    tracemalloc.start()
    kept = write_shards(tmp_path, large())
    stream = Stream(kept, 256)
    seen = sum(len(x) for (x,) in islice(stream, stream.steps_per_epoch))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == size * shards
    assert most < block  # of numpy; torch holds one block while writing


@pytest.mark.parametrize("broken", ["no rows.json", "truncated", "other rows"])
def test_a_folder_that_is_not_whole_is_refused(kept: Shards, broken: str) -> None:
    if broken == "no rows.json":
        (kept.folder / "rows.json").unlink()
        assert not Shards.there(kept.folder)
        with pytest.raises(ValueError, match="is no whole folder of shards"):
            Shards(kept.folder)
        return
    path = next(kept.folder.glob("shard00001-column0.npy"))
    if broken == "truncated":
        path.write_bytes(path.read_bytes()[:-4])
    else:
        np.save(path, np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"shard00001-column0\.npy (cannot be read|must hold 25)"):
        kept.columns[0][:]


def test_no_rows_are_no_shards(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        write_shards(tmp_path, [])
