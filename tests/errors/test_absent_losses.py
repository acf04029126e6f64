"""`measure` takes what methods take: losses by name, those that are not there, and counts."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import trimol
from trimol import simplex
from trimol.errors import estimate
from trimol.errors._fulldata import full_data
from trimol.errors._inputs import LossVector
from trimol.training.monitor import Monitor

NAMES = ("fit", "bend", "size")
Batch = tuple[Tensor, Tensor, Tensor]  # inputs, labels, which labels are there


class Missing:
    """A model with three losses whose labels are missing here and there, and its data in parts."""

    def __init__(self, seed: int, sizes: tuple[int, ...] = (5, 3, 1, 4)) -> None:
        dice = torch.Generator().manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).double()
        for p in self.model.parameters():
            p.data = torch.randn(p.shape, generator=dice, dtype=torch.float64)
        self.params = list(self.model.parameters())
        total = sum(sizes)
        x = torch.randn(total, 3, generator=dice, dtype=torch.float64)
        y = torch.randn(total, 3, generator=dice, dtype=torch.float64)
        there = torch.rand(total, 3, generator=dice) < 0.4
        there[:2] = True
        there[2] = False
        there[-sizes[-1] :, 1] = False  # no sample of the second in the last batch
        ends = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        self.batches = [(x[a:b], y[a:b], there[a:b]) for a, b in pairwise(ends)]

    def of_samples(self, batch: Batch) -> Tensor:
        """Every loss of every sample, samples × 3."""
        x, y, _ = batch
        out = self.model(x)
        return torch.stack(
            [(out[:, 0] - y[:, 0]).square(), (out[:, 1] * y[:, 1]).cosh(), out.square().sum(1)], 1
        )

    def losses(self, batch: Batch) -> dict[str, Tensor | None]:
        each, there = self.of_samples(batch), batch[2]
        return {
            name: each[there[:, m], m].mean() if there[:, m].any() else None
            for m, name in enumerate(NAMES)
        }

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict(zip(NAMES, batch[2].sum(0).tolist(), strict=True))

    def reference(self) -> tuple[Tensor, Tensor]:
        """Mean losses and gradients, one backward a sample and loss."""
        rows, values = [], []
        for m in range(3):
            kept = [
                self.of_samples(batch)[i, m]
                for batch in self.batches
                for i in range(len(batch[0]))
                if batch[2][i, m]
            ]
            grads = [torch.autograd.grad(f, self.params, allow_unused=True) for f in kept]
            rows.append(sum(self._flat(g) for g in grads) / len(kept))
            values.append(sum(kept).item() / len(kept))
        return torch.tensor(values), torch.stack(rows)

    def _flat(self, grads: tuple[Tensor | None, ...]) -> Tensor:
        pairs = zip(grads, self.params, strict=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


@pytest.mark.parametrize("seed", range(3))
def test_means_are_over_the_samples_that_have_a_label(seed: int) -> None:
    made = Missing(seed)
    values, rows = made.reference()
    weights = {"size": 0.5, "fit": 0.2, "bend": 0.3}  # in another order
    found = trimol.measure(
        made.losses, made.params, train=made.batches, weights=weights, size=made.counts
    )
    assert found.objectives == ("size", "fit", "bend")
    order = [NAMES.index(name) for name in found.objectives]
    assert found.losses == pytest.approx(values[order].tolist())
    rows = rows[order]
    torch.testing.assert_close(found.gramian, rows @ rows.T)
    best = simplex.min_norm(rows @ rows.T)
    assert found.opt == pytest.approx((best @ rows).norm().item())
    apart = torch.tensor([*weights.values()], dtype=torch.float64) - best
    assert found.conflict == pytest.approx((apart @ rows).square().sum().item())


def test_without_counts_a_batch_counts_for_what_it_has() -> None:
    """Each loss the mean over batches that have it, weighted by the samples of these batches."""
    made = Missing(1)
    found = trimol.measure(made.losses, made.params, train=made.batches)
    assert found.objectives == NAMES
    for m, name in enumerate(NAMES):
        terms = [(made.losses(batch)[name], len(batch[0])) for batch in made.batches]
        there = [(f, n) for f, n in terms if f is not None]
        mean = sum(f.item() * n for f, n in there) / sum(n for _, n in there)
        assert found.losses[m] == pytest.approx(mean)
    assert any(made.losses(batch)["bend"] is None for batch in made.batches)


def test_in_order_or_by_name_is_the_same() -> None:
    made = Missing(2)
    named = trimol.measure(
        made.losses,
        made.params,
        train=made.batches,
        test=made.batches[:2],
        weights=dict.fromkeys(NAMES, 1.0),
        size=made.counts,
    )
    listed = trimol.measure(
        lambda batch: [*made.losses(batch).values()],
        made.params,
        train=made.batches,
        test=made.batches[:2],
        weights=[1.0] * 3,
        size=lambda batch: [*made.counts(batch).values()],
    )
    assert named == listed
    assert (listed.objectives, named.objectives) == ((0, 1, 2), NAMES)


def test_the_mean_of_nothing_may_be_anything_where_its_count_is_0() -> None:
    made = Missing(0)

    def means_of_nothing(batch: Batch) -> list[Tensor]:
        each = made.of_samples(batch)
        return [each[batch[2][:, m], m].mean() for m in range(3)]  # NaN where there is none

    found, wanted = (
        trimol.measure(losses, made.params, train=made.batches, size=made.counts)
        for losses in (
            lambda batch: dict(zip(NAMES, means_of_nothing(batch), strict=True)),
            made.losses,
        )
    )
    assert found == wanted
    in_order = trimol.measure(
        means_of_nothing,
        made.params,
        train=made.batches,
        size=lambda batch: batch[2].sum(0),
    )
    assert in_order == wanted


def test_a_batch_that_has_nothing_counts_nothing() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    losses = {1.0: lambda: [x.square().sum(), None], 2.0: lambda: [None, None]}
    losses[3.0] = lambda: [None, (x - 1).square().sum()]
    found = trimol.measure(lambda z: losses[z](), [x], train=[2.0, 1.0, 3.0], size=float)
    assert found.losses == (9.0, 4.0)
    assert found.norms == (6.0, 4.0)


def test_a_monitor_and_a_method_take_them_too() -> None:
    made = Missing(0)
    method = trimol.MGDA(made.params, objectives=NAMES)
    records: list[dict[str, float]] = []
    monitor = Monitor(
        made.losses, method, train=made.batches, every=1, sinks=[records.append], size=made.counts
    )
    method(made.losses(made.batches[0]), counts=made.counts(made.batches[0])).backward()
    monitor.step()
    wanted = trimol.measure(
        made.losses,
        made.params,
        train=made.batches,
        weights=method.weights_by_name,
        size=made.counts,
    )
    assert (records[0]["R_opt"], records[0]["E_ca"]) == pytest.approx((wanted.opt, wanted.conflict))


def test_an_estimate_takes_them_with_counts() -> None:
    made = Missing(0, sizes=(4,) * 12)
    found = estimate(
        made.losses, made.params, train=made.batches, batches=12, size=made.counts, confidence=0.9
    )
    whole = trimol.measure(made.losses, made.params, train=made.batches, size=made.counts)
    assert found.errors.losses == pytest.approx(whole.losses)
    with pytest.raises(ValueError, match="size must give one number for each objective where a"):
        estimate(made.losses, made.params, train=made.batches, batches=12)


def test_what_is_0_without_a_graph_is_absent_and_said_once() -> None:
    x = torch.tensor([3.0], requires_grad=True)

    def losses(z: Tensor) -> list[Tensor]:
        return [(x - z).square().mean(), x.sum() if z.min() > 0 else torch.zeros(())]

    batches = [torch.tensor([1.0, 2.0]), torch.tensor([-1.0]), torch.tensor([-2.0])]
    with pytest.warns(RuntimeWarning, match=r"objective 1 is 0 without a gradient in batch 1 of"):
        found = trimol.measure(losses, [x], train=batches)
    assert found.losses[1] == 3.0
    assert found.norms[1] == 1.0
    with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
        trimol.measure(losses, [x], train=batches, size=lambda z: [len(z)] * 2)


X, Y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": [0.3, 0.3, 0.4]}, "weights must be by name where the losses are"),
        ({"weights": {"fit": 1.0, "bend": 0.0}}, "losses must be by the names 'fit', 'bend', foun"),
        ({"weights": {"a": 1.0, "b": 0.0, "c": 0.0}}, "by the names 'a', 'b', 'c', found 'fit'"),
        ({"weights": dict.fromkeys(NAMES, math.nan)}, "weights must be finite numbers"),
        ({"size": lambda _: {"fit": 1, "bend": 1}}, "size must have 'fit', 'bend', 'size', found"),
        ({"size": lambda _: dict.fromkeys(NAMES, -1)}, "must hold no fewer than 0 samples"),
        ({"size": lambda _: dict.fromkeys(NAMES, 2)}, "size must give 0 where a loss is None, f"),
        (
            {"train": (X, Y)},
            r"found a tuple of 2 tensors: for one batch of them write \[\(x, y\)\]",
        ),
        ({"test": [X, Y]}, "test must be an iterable of batches, found a list of 2 tensors"),
        ({"train": (X, X)}, r"found a tuple of 2 tensors.*\[\(x, y\)\] \(losses of the first: "),
    ],
    ids=lambda found: next(iter(found)) if isinstance(found, dict) else "",
)
def test_what_does_not_fit_is_one_line(change: dict[str, object], said: str) -> None:
    made = Missing(0)
    given = {"train": made.batches, **change}
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        trimol.measure(made.losses, made.params, **given)
    assert "\n" not in str(caught.value)


def test_an_objective_that_is_never_there_is_an_error() -> None:
    x = torch.tensor([1.0], requires_grad=True)
    with pytest.raises(ValueError, match="objective 1 must have at least one sample in train"):
        trimol.measure(lambda z: [x.sum(), None], [x], train=[1.0, 2.0], size=float)
    with pytest.raises(TypeError, match="losses must be by name, as 'a', 'b' are, found list"):
        trimol.measure(
            lambda z: [x.sum(), x.sum()], [x], train=[1.0], weights={"a": 1, "b": 0}, size=float
        )


def test_parts_of_a_tensor_are_batches_as_ever() -> None:
    x = torch.zeros(1, requires_grad=True)
    parts = torch.arange(4.0).split(3)
    vector = LossVector(lambda z: [(x - z).square().mean(), (x * z).mean()], [x], None)
    assert full_data(vector, [x], parts).samples == 4
