"""Evidence of the global batch: two processes agree with one process on the joined batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from zoo import several

from pair import meet, started
from trimol.gradients import Evidence, gramian, jacobian, product
from trimol.gradients import _reduce as reduce
from trimol.gradients import _rows as rows

WORLD = 2
WEIGHTS = torch.linspace(0, 1, 5, dtype=torch.float64).softmax(0)
Results = dict[str, Tensor]


def problem(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """A model, and two draws of a batch whose losses are means over its samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    return model, torch.randn(2, 12, 4).to(dtype)


def losses(model: nn.Module, batch: Tensor) -> Tensor:
    return torch.stack([several(y) for y in model(batch)]).mean(0)


def evidence(share: slice) -> Results:
    """Everything that the engine can find, on a share of the batch."""
    found: Results = {}
    for dtype in (torch.float32, torch.float64):
        model, batches = problem(dtype)
        params = list(model.parameters())
        weights = WEIGHTS.to(dtype)
        first, second = (losses(model, batch[share]) for batch in batches)
        for route in (None, "tangents", "double-vjp", "backwards"):
            name = f"product {route} {dtype}"
            found[name] = product(first, second, weights, params, route=route)
        for chunk in (None, 1, 2, 5):
            found[f"jacobian {chunk} {dtype}"] = jacobian(first, params, chunk=chunk)
            found[f"gramian {chunk} {dtype}"] = gramian(first, params, chunk=chunk)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "SMALLEST_BATCH", 100)
            found[f"jacobian by a loop {dtype}"] = jacobian(first, params)
        two = Evidence([first, second], params, 5)
        found[f"losses {dtype}"] = two.losses
        found[f"evidence product {dtype}"] = two.product(weights, keep_gradient=True)
        one = Evidence([losses(model, batches[0][share])], params, 5)
        found[f"evidence gramian {dtype}"] = one.gramian()
        shared = model[:2](batches[0][share])
        above = torch.stack([several(y) for y in model[2:](shared)]).mean(0)
        for name, tensor in (("representation", shared), ("layer", model[0].weight)):
            of = Evidence([above], params, 5).gramian(of=[tensor])
            found[f"gramian of a {name} {dtype}"] = of
        for name, scalar in (("product", two.scalar(weights)), ("rows", one.scalar(weights))):
            gradients = torch.autograd.grad(scalar, params)
            # What DistributedDataParallel does with the gradients of every rank.
            flat = torch.cat([g.reshape(-1) for g in gradients])
            found[f"direction from {name} {dtype}"] = reduce.mean_large([flat])[0]
    return found


def mixed(rank: int) -> Results:
    """Tensors of several types, shapes and layouts in one call."""
    tensors = [
        torch.full((2, 3), rank, dtype=torch.bfloat16),
        torch.full((), rank + 0.5, dtype=torch.float64),
        torch.full((4,), float(rank)),
        torch.arange(6.0).view(2, 3).T + rank,
        torch.full((2,), rank, dtype=torch.bfloat16),
    ]
    found = {f"mixed {i}": t for i, t in enumerate(reduce.mean_large(tensors))}
    numbers = torch.tensor([[0.1, 1e20], [0.2, -1e20]])[rank]
    found["small"] = reduce.mean_small(numbers)
    found["sum"] = reduce.sum_small(numbers.double())
    rows = torch.arange(14.0).view(2, 7) + 10 * rank
    share = reduce.spread(rows)
    assert share.shape == (2, 4)  # of eight columns, the last one filled up
    found["spread"] = torch.stack([reduce.collected(row, 7) for row in share])
    found["small, strided"] = reduce.mean_small(torch.arange(6.0).view(3, 2)[:, 0] + rank)
    return found


def work(rank: int, folder: str) -> None:
    meet(rank, WORLD, folder)
    try:
        assert reduce.is_distributed()
        share = slice(rank * 6, (rank + 1) * 6)
        torch.save(evidence(share) | mixed(rank), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    folder = tmp_path_factory.mktemp("two processes")
    started(work, str(folder), processes=WORLD)
    return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(WORLD)]


def test_one_process_on_the_joined_batch_finds_the_same(found: list[Results]) -> None:
    alone = evidence(slice(None))
    assert alone.keys() < found[0].keys()
    for name, want in alone.items():
        single = "float32" in name
        for rank in range(WORLD):
            torch.testing.assert_close(
                found[rank][name],
                want,
                rtol=1e-5 if single else 1e-12,
                atol=1e-6 if single else 1e-14,
                msg=lambda text, name=name: f"{name}: {text}",
            )


def test_a_share_alone_would_not_do(found: list[Results]) -> None:
    share = evidence(slice(0, 6))
    for name, whole in found[0].items():
        if name in share:
            assert not torch.allclose(share[name], whole), name


def test_the_ranks_are_identical_to_the_bit(found: list[Results]) -> None:
    assert found[0].keys() == found[1].keys()
    for name, one in found[0].items():
        assert torch.equal(one, found[1][name]), name


def test_tensors_of_several_types_keep_their_type_shape_and_place(found: list[Results]) -> None:
    half, number, vector, matrix, other = (found[0][f"mixed {i}"] for i in range(5))
    assert torch.equal(half, torch.full((2, 3), 0.5, dtype=torch.bfloat16))
    assert torch.equal(number, torch.tensor(1.0, dtype=torch.float64))
    assert torch.equal(vector, torch.full((4,), 0.5))
    assert torch.equal(matrix, torch.arange(6.0).view(2, 3).T + 0.5)
    assert torch.equal(other, torch.full((2,), 0.5, dtype=torch.bfloat16))
    torch.testing.assert_close(found[0]["small"], torch.tensor([0.15, 0.0]))
    torch.testing.assert_close(found[0]["sum"].float(), torch.tensor([0.3, 0.0]))
    assert torch.equal(found[0]["spread"], torch.arange(14.0).view(2, 7) + 5)
    assert torch.equal(found[0]["small, strided"], torch.tensor([0.5, 2.5, 4.5]))


def test_without_a_process_group_nothing_is_touched() -> None:
    assert not reduce.is_distributed()
    tensors = [torch.ones(2), torch.ones(3)]
    assert reduce.mean_large(tensors) is tensors
    assert reduce.mean_small(tensors[0]) is tensors[0]


def test_a_group_of_one_is_no_group(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        assert not reduce.is_distributed()
    finally:
        dist.destroy_process_group()


def test_every_rank_reduces_the_types_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they come: a set's order may differ from process to process."""
    types = [torch.float64, torch.bfloat16, torch.float32, torch.float16]
    reduced: list[torch.dtype] = []
    monkeypatch.setattr(reduce, "is_distributed", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 1)
    monkeypatch.setattr(dist, "all_reduce", lambda t, **_: reduced.append(t.dtype))
    for order in (types, types[::-1]):
        reduced.clear()
        tensors: Any = [torch.ones(2, dtype=dtype) for dtype in order * 2]
        reduce.mean_large(tensors)
        assert reduced == order
