"""`estimate`: its brackets cover the truth at their rate, also where the plain estimate cannot."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from pair import meet, started
from trimol import measure, simplex
from trimol.errors import Estimate, estimate
from trimol.errors._pareto import stationarity

BATCHES, WIDTH = 12, 40
WEIGHTS, RHO = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), 0.1


def mean_gradients(shift: float) -> Tensor:
    """Three gradients with zero in their hull (Pareto stationary), moved off it by ``shift``."""
    random = torch.Generator().manual_seed(1)
    rows = torch.randn(3, WIDTH, generator=random, dtype=torch.float64)
    rows[2] = -0.7 * (rows[0] + rows[1])
    away = torch.linalg.svd(rows).Vh[-1]  # orthogonal to all three
    return rows + shift * away


def problem(mean: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Losses whose gradients are ``mean`` plus the batch's mean noise."""
    x = torch.zeros(WIDTH, dtype=torch.float64, requires_grad=True)
    return x, lambda z: (mean + z.mean(0)) @ x


def noise(random: torch.Generator, batches: int = BATCHES, *, common: bool) -> list[Tensor]:
    """Batches of four samples; the noise of the objectives is their own, or one and the same."""
    z = torch.randn(batches, 4, 1 if common else 3, WIDTH, generator=random, dtype=torch.float64)
    return list(z.expand(-1, -1, 3, -1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shift", "common"), [(0.0, True), (0.0, False), (0.1, False), (2.0, True)]
)
def test_covers_the_truth_at_its_rate(shift: float, common: bool) -> None:
    mean = mean_gradients(shift)
    x, losses = problem(mean)
    gramian = mean @ mean.T
    apart = WEIGHTS - simplex.min_norm(gramian, RHO)
    truth = {
        "opt": stationarity(mean),
        "conflict": (apart @ mean).square().sum().item(),
        "conflict_weight": apart.square().sum().item(),
    }
    assert truth["opt"] == pytest.approx(shift, abs=1e-12)
    random = torch.Generator().manual_seed(0)
    trials, confidence = 100, 0.9
    missed, plain = dict.fromkeys(truth, 0), []
    for _ in range(trials):
        batches = noise(random, common=common)
        found = estimate(
            losses, [x], train=batches, weights=WEIGHTS, rho=RHO, confidence=confidence
        )
        for name, value in truth.items():
            missed[name] += not found.brackets[name].covers(value)
        plain.append(stationarity(mean + torch.stack(batches).mean((0, 1))))
    # Three standard deviations of a binomial count above the nominal rate.
    assert max(missed.values()) <= 0.1 * trials + 3 * (0.09 * trials) ** 0.5
    # Near a stationary point the plain estimate is off by many times its own spread.
    if shift < 1:
        assert sum(plain) / trials - 4 * torch.tensor(plain).std().item() > shift


def test_brackets_close_on_the_truth() -> None:
    """As batches grow in number, the brackets shrink onto the measured value."""
    mean = mean_gradients(2.0)
    x, losses = problem(mean)
    widths = []
    for count in (16, 256):
        batches = noise(torch.Generator().manual_seed(0), count, common=False)
        found = estimate(losses, [x], train=batches, batches=count, weights=WEIGHTS)
        assert found.conflict is not None
        widths.append((found.opt.high - found.opt.low, found.conflict.high - found.conflict.low))
        assert found.batches == count
    assert widths[1][0] < 0.35 * widths[0][0]
    assert widths[1][1] < 0.5 * widths[0][1]


def test_without_noise_it_is_what_measure_finds() -> None:
    x, losses = problem(mean_gradients(2.0))
    data = [torch.zeros(2, 3, WIDTH, dtype=torch.float64)] * 8
    ask: dict[str, Any] = {"train": data, "test": data, "weights": WEIGHTS, "rho": RHO}
    exact, found = measure(losses, [x], **ask), estimate(losses, [x], **ask)
    for name, bracket in found.brackets.items():
        truth = getattr(exact, name)
        assert bracket.low == pytest.approx(truth, abs=1e-5)
        assert bracket.high == pytest.approx(truth, abs=1e-5)
        assert getattr(found.errors, name) == bracket.value
    assert found.errors.losses == pytest.approx(exact.losses)
    assert found.errors.min_norm == pytest.approx(exact.min_norm)
    assert found.errors.conflicting == exact.conflicting
    assert found.loss_errors == pytest.approx((0.0,) * 3)


def data_and_model() -> tuple[Tensor, Callable[[Any], Tensor], TensorDataset]:
    random = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(400, 3, generator=random), torch.rand(400, generator=random))
    x = torch.tensor([0.5, -1.0, 0.2], requires_grad=True)

    def losses(batch: Any) -> Tensor:
        inputs, target = batch
        error = inputs @ x - target
        return torch.stack([error.square().mean(), error.abs().mean()])

    return x, losses, data


def test_of_a_loader() -> None:
    x, losses, data = data_and_model()
    loader = DataLoader(data, batch_size=8)
    ask: dict[str, Any] = {"train": loader, "test": loader, "weights": [0.5, 0.5], "batches": 24}
    exact, found = measure(losses, [x], train=loader, test=loader), estimate(losses, [x], **ask)
    assert found.opt.covers(exact.opt)
    assert found.gen is not None
    assert found.gen.covers(0.0)
    off = (torch.tensor(found.errors.losses) - torch.tensor(exact.losses)).abs()
    assert (off < 4 * torch.tensor(found.loss_errors)).all()
    assert estimate(losses, [x], **ask).opt == found.opt
    assert estimate(losses, [x], **ask, seed=1).opt != found.opt
    assert [p.split(" [")[0].split()[0] for p in str(found).split(" · ")] == [
        "opt",
        "pop",
        "gen",
        "conflict",
    ]


def test_ragged_batches_count_by_their_samples() -> None:
    x, losses, data = data_and_model()
    inputs, target = data.tensors
    sizes = [1, 79] * 5
    batches = list(zip(inputs.split(sizes), target.split(sizes), strict=True))
    found = estimate(losses, [x], train=batches)
    exact = measure(losses, [x], train=batches)
    assert found.errors.losses == pytest.approx(exact.losses, rel=1e-6)  # all batches were taken
    assert found.opt.covers(exact.opt)


def partial(mean: Tensor) -> tuple[Tensor, Callable[[Any], Tensor]]:
    """As `problem`, but every loss is a mean over the samples that have its label."""
    x = torch.zeros(WIDTH, dtype=torch.float64, requires_grad=True)

    def losses(batch: Any) -> Tensor:
        z, has = batch
        share = has.double() / has.sum(0).clamp_min(1)
        present = (has.sum(0) > 0).double()
        return (mean * present[:, None] + (share[..., None] * z).sum(0)) @ x

    return x, losses


def labelled(random: torch.Generator, batches: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of eight samples, of which some lack a label or two."""
    z = torch.randn(batches, 8, 3, WIDTH, generator=random, dtype=torch.float64)
    has = torch.rand(batches, 8, 3, generator=random) < torch.tensor([1.0, 0.6, 0.3])
    return list(zip(z, has, strict=True))


def labels(batch: Any) -> Tensor:
    counts: Tensor = batch[1].sum(0)
    return counts


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_covers_the_truth_where_objectives_have_their_own_samples(shift: float) -> None:
    mean = mean_gradients(shift)
    x, losses = partial(mean)
    apart = WEIGHTS - simplex.min_norm(mean @ mean.T, RHO)
    truth = {
        "opt": shift,
        "conflict": (apart @ mean).square().sum().item(),
        "conflict_weight": apart.square().sum().item(),
    }
    random = torch.Generator().manual_seed(0)
    trials, missed = 60, dict.fromkeys(truth, 0)
    for _ in range(trials):
        found = estimate(
            losses,
            [x],
            train=labelled(random, 16),
            weights=WEIGHTS,
            rho=RHO,
            size=labels,
            batches=16,
            confidence=0.9,
        )
        for name, bracket in found.brackets.items():
            missed[name] += not bracket.covers(truth[name])
    # At most one in ten: 6 ± 2.3 of 60, or fewer.
    assert all(count <= 11 for count in missed.values()), missed


def test_as_many_samples_of_each_objective_are_as_many_samples() -> None:
    x, losses = problem(mean_gradients(1.0))
    train = noise(torch.Generator().manual_seed(3), common=False)
    options: dict[str, Any] = {"weights": WEIGHTS, "rho": RHO, "batches": BATCHES}
    plain = estimate(losses, [x], train=train, **options)
    each = estimate(losses, [x], train=train, size=lambda z: [len(z)] * 3, **options)
    for name, bracket in plain.brackets.items():
        other = each.brackets[name]
        expected = (bracket.value, bracket.low, bracket.high)
        assert (other.value, other.low, other.high) == pytest.approx(expected, rel=1e-9)
    assert each.loss_errors == pytest.approx(plain.loss_errors)
    assert each.errors.losses == pytest.approx(plain.errors.losses)


def test_estimates_are_ratios_over_each_objectives_own_samples() -> None:
    mean = mean_gradients(0.5)
    x, losses = partial(mean)
    train = labelled(torch.Generator().manual_seed(4), 12)
    found = estimate(losses, [x], train=train, size=labels, batches=12)
    exact = measure(losses, [x], train=train, size=labels)  # all batches, in one go
    torch.testing.assert_close(found.errors.gramian, exact.gramian)
    assert found.errors.losses == pytest.approx(exact.losses)


def test_an_objective_without_samples_is_named() -> None:
    x, losses = partial(mean_gradients(0.5))
    train = [
        (z, has & torch.tensor([True, True, False])) for z, has in labelled(torch.Generator(), 8)
    ]
    with pytest.raises(ValueError, match=r"objective 2 must have .* the first half of train's"):
        estimate(losses, [x], train=train, size=labels, batches=8)


def test_nothing_is_disturbed() -> None:
    x, losses, data = data_and_model()
    before = torch.get_rng_state()
    estimate(losses, [x], train=DataLoader(data, batch_size=8, shuffle=True))
    assert torch.equal(torch.get_rng_state(), before)
    assert x.grad is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": 7}, "batches must be a whole number of at least 8, found 7"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1, found 1.0"),
        ({"confidence": "high"}, "confidence must be between 0 and 1, found 'high'"),
        ({"train": [torch.ones(2, 3, WIDTH).double()] * 5}, "train must have at least 8 batches"),
        ({"train": iter([torch.ones(2, 3, WIDTH).double()] * 9)}, "train must give 32 .* found 9"),
        ({"rho": -1}, "rho must be a finite number of at least 0"),
        ({"weights": [1.0]}, "weights must have 3 entries"),
        ({"train": [torch.full((2, 3, WIDTH), float("nan")).double()] * 9}, "batch 0 of train"),
    ],
)
def test_values_that_will_not_do(change: dict[str, Any], message: str) -> None:
    x, losses = problem(mean_gradients(1.0))
    right: dict[str, Any] = {"train": [torch.zeros(2, 3, WIDTH).double()] * 40}
    with pytest.raises(ValueError, match=message):
        estimate(losses, [x], **{**right, **change})


def process(rank: int, folder: str) -> None:
    """One of two processes, each with half of every batch."""
    meet(rank, 2, folder)
    found = halves(rank)
    torch.save(
        (found.opt.low, found.opt.value, found.opt.high, found.errors.losses), f"{folder}/{rank}.pt"
    )
    dist.destroy_process_group()


def halves(rank: int | None) -> Estimate:
    """Of all data (None), or of what one process holds: batches of 3 of 8 samples, or of 5."""
    x, losses, data = data_and_model()
    inputs, target = data.tensors
    batches = list(zip(inputs.split(8), target.split(8), strict=True))[:10]
    if rank is not None:
        part = slice(3) if rank == 0 else slice(3, 8)
        batches = [(a[part], b[part]) for a, b in batches]
    # A generator is taken in its own order: both processes see the same batches.
    return estimate(losses, [x], train=_Ordered(batches), batches=10)


class _Ordered:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)


@pytest.mark.slow
def test_processes_share_each_batch(tmp_path: pathlib.Path) -> None:
    started(process, str(tmp_path))
    whole = halves(None)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert results[0] == results[1]
    low, value, high, losses = results[0]
    expected = (whole.opt.low, whole.opt.value, whole.opt.high)
    assert (low, value, high) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert losses == pytest.approx(whole.errors.losses, rel=1e-5)


def test_the_page_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "howto" / "measure.md"
    space: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page.name, "exec"), space)
    assert space["runs"].definition <= space["runs"].mean_square
    assert "opt 0.73 [0.51, 0.99] · " in capsys.readouterr().out  # as the page says
