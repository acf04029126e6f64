"""Full-data means: exact whatever the batches, on one process and on several."""

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pair import meet, started
from trimol.errors._fulldata import full_data
from trimol.gradients import jacobian

exact = settings(derandomize=True, deadline=None, max_examples=40)


class Problem:
    """A small network with three losses, in float64."""

    def __init__(self, samples: int = 23, seed: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)
        self.x = torch.randn(samples, 4, generator=random, dtype=torch.float64)
        self.y = torch.randn(samples, 2, generator=random, dtype=torch.float64)
        self.first = torch.randn(5, 4, generator=random, dtype=torch.float64, requires_grad=True)
        self.second = torch.randn(2, 5, generator=random, dtype=torch.float64, requires_grad=True)
        self.params = [self.first, self.second]

    def losses(self, batch: Any) -> Tensor:
        x, y = batch
        error = (x @ self.first.T).tanh() @ self.second.T - y
        return torch.stack([error.square().mean(), error.abs().mean(), error.cosh().log().mean()])

    def batches(self, sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.x.split(sizes), self.y.split(sizes), strict=True))


def cuts(samples: int) -> st.SearchStrategy[list[int]]:
    """Batch sizes that add up to ``samples``."""
    places = st.sets(st.integers(1, samples - 1), max_size=6).map(
        lambda s: [0, *sorted(s), samples]
    )
    return places.map(lambda p: [b - a for a, b in itertools.pairwise(p)])


@exact
@given(cuts(23), st.integers(0, 100))
def test_equals_the_jacobian_of_the_joined_data(sizes: list[int], seed: int) -> None:
    problem = Problem(seed=seed)
    found = full_data(problem.losses, problem.params, problem.batches(sizes))
    whole = problem.losses((problem.x, problem.y))
    torch.testing.assert_close(found.jacobian, jacobian(whole, problem.params), rtol=0, atol=1e-13)
    torch.testing.assert_close(found.losses, whole.detach(), rtol=0, atol=1e-13)
    assert found.samples == 23


def test_a_plain_mean_over_batches_would_be_wrong() -> None:
    problem = Problem()
    batches = problem.batches([20, 3])
    parts = [jacobian(problem.losses(batch), problem.params) for batch in batches]
    unweighted = torch.stack(parts).mean(0)
    found = full_data(problem.losses, problem.params, batches).jacobian
    assert (found - unweighted).abs().max() > 1e-3


def test_float32_batches_are_summed_in_float64() -> None:
    # A float32 sum would stop growing at 2^24: of 2^24 + 50 000 ones the last 50 000 would be lost.
    x = torch.zeros(1, requires_grad=True)
    sizes = [2**24] + [1] * 50
    found = full_data(lambda n: torch.stack([x.sum()]), [x], sizes, size=float)
    assert found.jacobian.dtype == torch.float64
    assert found.jacobian.item() == 1
    assert found.samples == 2**24 + 50


def test_loaders_of_all_kinds() -> None:
    problem = Problem()
    data = TensorDataset(problem.x, problem.y)

    def one_shot() -> Iterator[tuple[Tensor, Tensor]]:
        yield from problem.batches([20, 3])

    expected = full_data(problem.losses, problem.params, problem.batches([23])).jacobian
    for loader in (
        DataLoader(data, batch_size=5),
        DataLoader(data, batch_size=5, shuffle=True),
        one_shot(),
    ):
        found = full_data(problem.losses, problem.params, loader).jacobian
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_frozen_and_unused_parameters_have_zero_columns() -> None:
    problem = Problem()
    unused = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    problem.first.requires_grad_(False)
    params = [*problem.params, unused]
    found = full_data(problem.losses, params, problem.batches([23])).jacobian
    assert found.shape == (3, 20 + 10 + 3)
    assert not found[:, :20].any()
    assert found[:, 20:30].any()
    assert not found[:, 30:].any()


def test_bf16_parameters() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, dtype=torch.bfloat16)
    x = torch.randn(10, 3, dtype=torch.bfloat16)
    found = full_data(
        lambda b: torch.stack([model(b).square().mean()]), [*model.parameters()], x.split(4)
    )
    assert found.jacobian.dtype == torch.float64
    assert found.jacobian.isfinite().all()


def test_no_batch() -> None:
    problem = Problem()
    with pytest.raises(ValueError, match="loader must hold at least one batch, found none"):
        full_data(problem.losses, problem.params, [])


def test_batches_of_unknown_size() -> None:
    x = torch.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match=r"how many samples batch 0 of loader holds: .*pass size="):
        full_data(lambda n: torch.stack([n * x.sum()]), [x], [1.0, 2.0])
    found = full_data(lambda n: torch.stack([n * x.sum()]), [x], [1.0, 2.0], size=lambda n: n)
    assert found.jacobian.item() == pytest.approx((1 * 1 + 2 * 2) / 3)


def test_tensors_of_different_lengths() -> None:
    batch = (torch.zeros(3), torch.zeros(4))
    with pytest.raises(
        ValueError, match=r"batch 0 of loader .* lengths differ: 3 in batch\[0\], 4"
    ):
        full_data(lambda b: b[0], [torch.zeros(1, requires_grad=True)], [batch])


@pytest.mark.parametrize("size", [0, -1, float("nan"), float("inf")])
def test_sizes_that_are_none(size: float) -> None:
    problem = Problem()
    with pytest.raises(ValueError, match="batch 0 of loader must hold at least one sample, found"):
        full_data(problem.losses, problem.params, problem.batches([23]), size=lambda _: size)


def test_not_finite_names_objective_and_batch() -> None:
    x = torch.ones(2, requires_grad=True)

    def losses(z: Tensor) -> Tensor:
        return torch.stack([x.sum(), (x * z.mean()).sum()])

    batches = [torch.ones(3), torch.full((3,), float("nan"))]
    with pytest.raises(ValueError, match=r"objective 1 .* in batch 1 of loader \(loss nan\)"):
        full_data(losses, [x], batches)


def test_finite_loss_with_infinite_gradient() -> None:
    x = torch.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match=r"objective 0 .* \(loss 0\)"):
        full_data(lambda z: torch.stack([x.sqrt().sum()]), [x], [torch.ones(1)])


def test_a_sum_that_overflows_is_no_infinity() -> None:
    # Two gradients of 3e38 are finite, their float32 sum is not.
    x = torch.zeros(2, requires_grad=True)
    found = full_data(lambda z: torch.stack([(x * 3e38).sum()]), [x], [torch.ones(1)])
    assert found.jacobian.tolist() == [[float(torch.tensor(3e38))] * 2]


class Partial(Problem):
    """The same three losses, each the mean over samples of its own."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        random = torch.Generator().manual_seed(seed + 1)
        self.has = torch.rand(len(self.x), 3, generator=random) < torch.tensor([1.0, 0.5, 0.2])
        self.has[seed % len(self.x)] = True  # at least one sample of each

    def losses(self, batch: Any) -> Tensor:
        *pair, has = batch
        singles = [super(Partial, self).losses((x[None], y[None])) for x, y in zip(*pair)]  # noqa: B905
        each = torch.stack(singles)
        return torch.where(has, each, 0).sum(0) / has.sum(0).clamp_min(1)

    def batches(self, sizes: list[int]) -> Any:
        parts = (tensor.split(sizes) for tensor in (self.x, self.y, self.has))
        return list(zip(*parts, strict=True))

    @staticmethod
    def size(batch: Any) -> Tensor:
        counts: Tensor = batch[2].sum(0)
        return counts


@exact
@given(cuts(23), st.integers(0, 100))
def test_every_objective_is_a_mean_over_its_own_samples(sizes: list[int], seed: int) -> None:
    problem = Partial(seed)
    found = full_data(problem.losses, problem.params, problem.batches(sizes), size=problem.size)
    for m in range(3):
        has = problem.has[:, m]
        whole = Problem.losses(problem, (problem.x[has], problem.y[has]))[m]
        gradients = torch.autograd.grad(whole, problem.params)
        row = torch.cat([g.flatten() for g in gradients])
        torch.testing.assert_close(found.jacobian[m], row, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.losses[m], whole.detach(), rtol=0, atol=1e-12)
    assert isinstance(found.samples, Tensor)
    assert found.samples.tolist() == problem.has.sum(0).tolist()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ([1, 0, 2], "objective 1 must have at least one sample in train, found none"),
        ([1, -1, 2], r"batch 0 of train must hold no fewer than 0 samples, found \[1.0, -1.0, 2.0"),
        ([1, float("nan"), 2], "batch 0 of train must hold no fewer than 0 samples"),
        ([1, 2], "size must give one number or 3, one per objective, found 2"),
        ([[1, 2, 3]], "size must give one number or M, found shape"),
    ],
)
def test_sizes_that_will_not_do(size: Any, message: str) -> None:
    problem = Problem()
    with pytest.raises(ValueError, match=message):
        full_data(
            problem.losses,
            problem.params,
            problem.batches([10, 13]),
            name="train",
            size=lambda batch: size,
        )


# Two processes with batches of different sizes: 5 + 3 + 4 on one, 7 + 2 + 2 on the other.
SHARDS = [[5, 3, 4], [7, 2, 2]]


def shards(problem: Problem) -> list[list[tuple[Tensor, Tensor]]]:
    batches = problem.batches([*SHARDS[0], *SHARDS[1]])
    return [batches[:3], batches[3:]]


def process(rank: int, folder: str) -> None:
    """One of two processes: the means of all data, loaders that do not match, one with a NaN."""
    meet(rank, 2, folder)
    problem = Problem()
    own = shards(problem)[rank]
    found = full_data(problem.losses, problem.params, own)
    try:
        full_data(problem.losses, problem.params, own[: 3 - rank])
        said = ""
    except ValueError as error:
        said = str(error)
    broken = [*own[:1], (own[1][0] * (float("nan") if rank else 1.0), own[1][1]), own[2]]
    try:
        full_data(problem.losses, problem.params, broken)
        blamed = ""
    except ValueError as error:
        blamed = str(error)
    partial = Partial(3)
    batches = partial.batches([*SHARDS[0], *SHARDS[1]])[3 * rank : 3 * rank + 3]
    each = full_data(partial.losses, partial.params, batches, size=partial.size)
    torch.save((found.losses, found.jacobian, said, blamed), f"{folder}/{rank}.pt")
    torch.save((each.losses, each.jacobian, each.samples), f"{folder}/each{rank}.pt")
    dist.destroy_process_group()


def test_processes_share_one_data_set(tmp_path: pathlib.Path) -> None:
    started(process, str(tmp_path))
    problem = Problem()
    whole = full_data(problem.losses, problem.params, [(problem.x, problem.y)])
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for losses, gradients, said, _ in results:
        torch.testing.assert_close(losses, whole.losses, rtol=0, atol=1e-13)
        torch.testing.assert_close(gradients, whole.jacobian, rtol=0, atol=1e-13)
        assert said.startswith("loader must have as many batches on every process")
    assert torch.equal(results[0][1], results[1][1])
    # Both stop: the one with the NaN says where, the other does not wait for it.
    assert results[0][3] == "found NaN or infinity in loader on another process"
    assert results[1][3].startswith("objective 0 must have a finite loss and gradient")
    assert "in batch 1 of loader" in results[1][3]
    partial = Partial(3)
    alone = full_data(partial.losses, partial.params, partial.batches([23]), size=partial.size)
    for rank in range(2):
        losses, gradients, samples = torch.load(tmp_path / f"each{rank}.pt")
        torch.testing.assert_close(losses, alone.losses, rtol=0, atol=1e-12)
        torch.testing.assert_close(gradients, alone.jacobian, rtol=0, atol=1e-12)
        torch.testing.assert_close(samples, alone.samples)
