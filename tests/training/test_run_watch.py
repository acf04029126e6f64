"""Runs of the loop with an optimizer by name, and a watch over their steps."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate.state import PartialState
from torch import Tensor, nn

from pair import forked
from trimol import methods
from trimol.methods import Method
from trimol.tasks import Batch, Data, Task, masked_mean
from trimol.training import StepLook, start, train
from trimol.training._checkpoint import restore, state
from trimol.training._run_watch import watched


class Gaps(Task):
    """Two pulls on a network with dropout; not every sample has the second."""

    name = "gaps"
    objectives = ("up", "down")

    def __init__(self, *, gaps: bool = False, dropout: float = 0.0) -> None:
        self.gaps, self.dropout = gaps, dropout

    def model(self) -> nn.Module:
        layers = [nn.Linear(1, 4), nn.Tanh(), nn.Dropout(self.dropout), nn.Linear(4, 1)]
        return nn.Sequential(*layers).double()

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        x, has = batch
        out = model(x)[:, 0]
        there = has if self.gaps else torch.ones_like(has)
        return [(out - 1).square().mean(), masked_mean((out + x[:, 0]).square(), there)]

    def counts(self, batch: Batch) -> Tensor | None:
        _, has = batch
        return torch.stack([torch.tensor(len(has)), has.sum()]) if self.gaps else None

    def data(self) -> Data:
        x = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
        has = torch.arange(100) % 3 == 0
        return Data(train=(x[::2], has[::2]), test=(x[1::2], has[1::2]))


def looks_of(gaps: bool, method: str = "static") -> list[StepLook]:
    run = start(Gaps(gaps=gaps), method, lr=0.1, batch_size=10, optimizer="adam")
    run.watch = watched(run, every=1)
    found: list[StepLook] = []
    for _ in range(4):
        train(run, steps=1)
        assert run.watch.last is not None
        found.append(run.watch.last)
    return found


def naive(losses: list[Tensor], params: list[Tensor]) -> Tensor:
    rows = [torch.autograd.grad(loss, params, retain_graph=True) for loss in losses]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("method", ["static", "modo"])
def test_looks_are_at_the_whole_batch_of_a_step(method: str, gaps: bool) -> None:
    task = Gaps(gaps=gaps)
    run = start(task, method, lr=0.1, batch_size=10, optimizer="adam")
    params = list(run.model.parameters())
    for look in looks_of(gaps, method):
        (indices,) = run.sampler.indices(run.step)
        batch = tuple(tensor[indices] for tensor in run.data.train)
        jacobian = naive(task.losses(run.model, batch), params)
        before = nn.utils.parameters_to_vector(params).detach().clone()
        train(run, steps=1)
        effects = jacobian @ (nn.utils.parameters_to_vector(params).detach() - before)
        assert list(look.effects.values()) == pytest.approx(effects.tolist(), rel=1e-9)
        assert list(look.effects) == ["up", "down"]


def test_a_watched_run_is_the_run_and_goes_on_after_a_checkpoint() -> None:
    def begun(every: int) -> Any:
        run = start(Gaps(dropout=0.5), "modo", lr=0.1, optimizer="adam", batch_size=10)
        run.watch = watched(run, every) if every else None
        return run

    def end(run: Any) -> Tensor:
        return nn.utils.parameters_to_vector(run.model.parameters())

    plain, whole, first, second = (train(begun(n), 0) for n in (0, 2, 2, 2))
    train(plain, 9)
    train(whole, 9)
    assert torch.equal(end(plain), end(whole))
    restore(second, state(train(first, 5)))
    train(second, 4)
    assert torch.equal(end(second), end(whole))
    assert second.watch.summary == whole.watch.summary
    assert whole.watch.summary.looked == 5
    with pytest.raises(ValueError, match="the state of a run must have 'watch', found none"):
        restore(second, state(plain))


def test_a_method_that_weighs_for_the_step_sees_the_optimizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Guarded(Method):
        needs = "losses"

        def __init__(self, params: Any, objectives: Any, **given: Any) -> None:
            super().__init__(params, objectives)
            self.given = given

        def weigh(self, evidence: Any) -> Tensor:
            return self.weights

    monkeypatch.setattr(methods, "get", lambda name: Guarded)
    few: Any = {"batch_size": 10}
    for own in ({"guard": True}, {"metric": "step"}, {"guard": False}, {}):
        run: Any = start(Gaps(), "guarded", hyperparameters=own, optimizer="momentum", **few)
        sees = bool(own.get("guard") or own.get("metric"))
        assert run.method.given == own | ({"optimizer": run.optimizer} if sees else {})
        assert run.optimizer.param_groups[0]["momentum"] == 0.9


def work(folder: str) -> None:
    PartialState._reset_state()  # that of the process that was forked
    found = [looks_of(gaps) for gaps in (False, True)]
    assert dist.get_world_size() == 2
    numbers = [[(look.effects, look.cosines) for look in looks] for looks in found]
    torch.save(numbers, Path(folder) / f"{dist.get_rank()}.pt")
    dist.destroy_process_group()


def test_two_processes_see_what_one_sees(tmp_path: Path) -> None:
    forked(work, str(tmp_path))
    alone = [looks_of(gaps) for gaps in (False, True)]
    for rank in (0, 1):
        for found, looks in zip(torch.load(tmp_path / f"{rank}.pt"), alone, strict=True):
            for (effects, cosines), look in zip(found, looks, strict=True):
                assert effects == pytest.approx(look.effects, rel=1e-7)
                assert cosines == pytest.approx(look.cosines, rel=1e-7)
