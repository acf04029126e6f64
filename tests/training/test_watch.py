"""`StepWatch`: what steps do to each loss, seen without leaving a trace in the training."""

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import start_processes
from torch.optim import Optimizer

import trimol
from pair import meet
from trimol.training import StepLook

NAMES = ("fit", "size", "sign")
# FSDP2 over gloo adds gradients in older releases where it is to average them.
SHARDED = (
    (False, True) if torch.__version__ >= torch.torch_version.TorchVersion("2.13") else (False,)
)
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=0.05),
}


class Loop:
    """A plain loop on the sum of three losses, as anybody writes it, with or without a watch."""

    def __init__(
        self,
        optimizer: str = "adam",
        *,
        dtype: torch.dtype = torch.float32,
        wild: bool = False,
        watched: bool = True,
        **options: Any,
    ) -> None:
        torch.manual_seed(0)
        between = [nn.BatchNorm1d(4), nn.Dropout(0.5)] if wild else []
        layers = [nn.Linear(3, 4), nn.Tanh(), *between, nn.Linear(4, 3)]
        self.model = nn.Sequential(*layers).to(dtype)
        self.data = torch.randn(48, 3, dtype=dtype)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        given = {"every": 1, "objectives": NAMES, "model": self.model, **options}
        watch = trimol.StepWatch(self.losses, self.model.parameters(), **given)
        self.watch = watch if watched else None
        self.looks: list[StepLook] = []

    def losses(self, batch: Tensor) -> Tensor:
        out = self.model(batch)
        return torch.stack(
            [(out - batch).square().mean(), out.square().mean(), (out[:, 0] + 1).square().mean()]
        )

    def run(self, steps: int, after: Callable[[], None] = lambda: None) -> None:
        for _ in range(steps):
            batch = self.data[torch.randint(48, (8,))]
            self.losses(batch).sum().backward()
            if self.watch is None:
                self.optimizer.step()
            else:
                with self.watch(batch):
                    self.optimizer.step()
                if self.watch.last is not None:
                    self.looks.append(self.watch.last)
            after()
            self.optimizer.zero_grad()

    @property
    def flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])


def naive(losses: Tensor, params: list[Tensor]) -> Tensor:
    """The Jacobian, a plain backward for each loss."""
    rows = [torch.autograd.grad(loss, params, retain_graph=True) for loss in losses]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows]).double()


# --- what is seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_looks_are_those_of_a_hand_written_loop(optimizer: str, dtype: torch.dtype) -> None:
    watched = Loop(optimizer, dtype=dtype)
    watched.run(20)
    plain = Loop(optimizer, dtype=dtype, watched=False)
    params = list(plain.model.parameters())
    raised, worst = [], 1.0
    for look in watched.looks:
        batch = plain.data[torch.randint(48, (8,))]
        losses = plain.losses(batch)
        jacobian, before = naive(losses, params), plain.flat
        losses.sum().backward()
        plain.optimizer.step()
        plain.optimizer.zero_grad()
        step = (plain.flat - before).double()
        scale = jacobian.norm(dim=1) * step.norm()
        cosines = -(jacobian @ step) / scale
        found = torch.tensor(list(look.effects.values()), dtype=torch.float64)
        assert ((found - jacobian @ step).abs() <= 20 * torch.finfo(dtype).eps * scale).all()
        assert list(look.cosines.values()) == pytest.approx(cosines.tolist(), abs=1e-5)
        raised.append([name for name, c in zip(NAMES, cosines, strict=True) if c < 0])
        assert list(look.raised) == raised[-1]
        worst = min(worst, float(cosines.min()))
    summary = watched.watch.summary
    assert summary.looked == 20
    assert summary.some == sum(map(bool, raised)) / 20
    assert summary.all == sum(len(names) == 3 for names in raised) / 20
    assert summary.by_objective["size"] == sum("size" in names for names in raised) / 20
    assert summary.worst_cosine == pytest.approx(worst, abs=1e-5)
    assert summary.full is None
    assert 0 < summary.by_objective["size"] < 1  # else this test would say little


def test_momentum_raises_what_plain_descent_does_not() -> None:
    """One loss: −∇f never raises it, a ball that has rolled past the bottom does."""
    shares = {}
    for name, momentum in (("plain", 0.0), ("momentum", 0.9)):
        x = torch.tensor([1.0], requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=0.1, momentum=momentum)
        watch = trimol.StepWatch(lambda _, x=x: x.square(), [x], every=1)
        for _ in range(30):
            x.square().sum().backward()
            with watch(None):
                optimizer.step()
            optimizer.zero_grad()
        shares[name] = watch.summary.some
    assert shares["plain"] == 0
    assert shares["momentum"] > 0.3


def test_only_every_so_many_steps_are_looked_at() -> None:
    loop = Loop(every=4)
    assert str(loop.watch) == "no step looked at"
    assert math.isnan(loop.watch.summary.some)
    loop.run(9)
    assert [look.step for look in loop.looks] == [0, 0, 0, 0, 4, 4, 4, 4, 8]
    assert loop.watch.summary.looked == 3
    assert loop.watch.steps == 9


def test_rounding_is_no_rise() -> None:
    """Along ∇f₁ − ∇f₂ of two losses with the same slope nothing happens but rounding."""
    x = torch.full((1000,), 0.1, requires_grad=True)
    pattern = torch.tensor([0.3, -0.3, 0.7, -0.7]).repeat(250)
    watch = trimol.StepWatch(lambda _: torch.stack([(x * 0.37).sum(), x.sum()]), [x], every=1)
    with watch(None), torch.no_grad():
        x += 1e-3 * pattern
    assert watch.last.raised == ()
    with watch(None), torch.no_grad():
        x += 1e-3 * pattern + 1e-6
    assert watch.last.raised == ("0", "1")


def test_a_step_that_moved_nothing_is_not_looked_at() -> None:
    loop = Loop()
    with loop.watch(loop.data):
        pass
    assert loop.watch.last is None
    assert loop.watch.steps == 1
    assert loop.watch.summary.looked == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_counted_apart(bad: float) -> None:
    x = torch.tensor([2.0], requires_grad=True)
    scale = torch.ones(1)
    watch = trimol.StepWatch(lambda z: torch.stack([x[0], z * x[0]]), [x], every=1)
    for z in (1.0, bad, 1.0):
        with watch(z), torch.no_grad():
            x += scale
    assert (watch.summary.looked, watch.summary.not_finite) == (2, 1)
    assert watch.summary.all == 1
    assert "1 step with effects that are not finite left out" in str(watch)
    assert watch.last.finite


def test_losses_may_have_names_or_be_a_list_or_be_missing() -> None:
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    told = {"b": x[1], "a": x[0]}
    by_name = trimol.StepWatch(lambda _: told, [x], every=1)
    ordered = trimol.StepWatch(lambda _: told, [x], every=1, objectives=["a", "b"])
    listed = trimol.StepWatch(lambda _: [x[0], None], [x], every=1)
    with by_name(None), ordered(None), listed(None), torch.no_grad():
        x += torch.tensor([1.0, -2.0])
    assert by_name.last.effects == {"b": -2.0, "a": 1.0}
    assert list(ordered.last.effects) == ["a", "b"]
    assert ordered.last.raised == by_name.last.raised == ("a",)
    assert listed.last.effects == {"0": 1.0, "1": 0.0}
    assert listed.last.cosines["1"] is None


# --- on the training data -------------------------------------------------------------------------


def test_full_data_is_the_mean_over_all_samples_in_eval_mode() -> None:
    loop = Loop(dtype=torch.float64, wild=True)
    train = loop.data.split(20)  # ragged
    loop.watch = trimol.StepWatch(
        loop.losses, loop.model.parameters(), model=loop.model, train=train, full_every=3, every=1
    )
    start = copy.deepcopy(loop.model)
    loop.run(7)
    assert [look.full is not None for look in loop.looks] == [True, False, False] * 2 + [True]
    assert loop.watch.summary.full.looked == 3
    # The first of them again, by hand.
    again = Loop(dtype=torch.float64, wild=True, watched=False)
    again.run(1)
    step = again.flat - torch.cat([p.detach().reshape(-1) for p in start.parameters()])
    again.model.load_state_dict(dict(start.named_parameters()), strict=False)
    again.model.eval()  # with the statistics after one step
    params = list(again.model.parameters())
    rows = [len(part) * naive(again.losses(part), params) for part in train]
    jacobian = sum(rows) / 48
    found = loop.looks[0].full
    assert list(found.effects.values()) == pytest.approx((jacobian @ step).tolist(), rel=1e-9)
    cosines = -(jacobian @ step) / jacobian.norm(dim=1) / step.norm()
    assert list(found.cosines.values()) == pytest.approx(cosines.tolist(), rel=1e-9)
    assert "on the training data, of 3 steps" in str(loop.watch)


def noisy(slope: float, batches: int = 40) -> list[Tensor]:
    """Batches of slopes with the mean ``slope`` and noise of size 1."""
    noise = torch.randn(batches, 10)
    return list(noise - noise.mean() + slope)


@pytest.mark.parametrize(("slope", "raised"), [(2.0, True), (-2.0, False), (0.0, None)])
def test_a_subsample_says_rises_falls_or_undecided(slope: float, raised: bool | None) -> None:
    x = torch.tensor([1.0], requires_grad=True)
    watch = trimol.StepWatch(
        lambda z: torch.stack([(x * z).mean()]), [x], train=noisy(slope), subsample=8, every=1
    )
    with watch(torch.ones(10)), torch.no_grad():
        x += 1.0
    full = watch.summary.full
    assert full.looked == 1
    assert (full.some == 1) is (raised is True)
    assert (full.undecided == 1) is (raised is None)
    assert full.worst_cosine is None
    assert ("undecided" in str(watch)) is (raised is None)


def test_brackets_of_a_subsample_cover_the_truth() -> None:
    """At a slope of zero a look says "rises" in error in fewer than 5 % of cases."""
    x = torch.tensor([1.0], requires_grad=True)
    data = noisy(0.0, batches=200)
    watch = trimol.StepWatch(
        lambda z: torch.stack([(x * z).mean()]),
        [x],
        train=data,
        subsample=8,
        every=1,
        full_every=1,
    )
    for _ in range(100):
        with watch(torch.ones(10)), torch.no_grad():
            x += 1.0
    assert watch.summary.some == 1  # on its batch
    assert watch.summary.full.some <= 0.05
    assert watch.summary.full.undecided >= 0.9


@pytest.mark.parametrize("more", [{}, {"subsample": 8}], ids=str)
def test_full_data_that_are_not_finite_are_counted_apart(more: dict[str, Any]) -> None:
    x = torch.tensor([1.0], requires_grad=True)
    data = [torch.ones(2)] * 7 + [torch.full((2,), math.nan)]
    watch = trimol.StepWatch(
        lambda z: torch.stack([(x * z).mean()]), [x], train=data, every=1, **more
    )
    with watch(torch.ones(2)), torch.no_grad():
        x += 1.0
    assert (watch.summary.full.looked, watch.summary.full.not_finite) == (0, 1)


# --- nothing is changed ---------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"full": True}, {"full": True, "subsample": 4}], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_training_is_that_without_a_watch_bit_for_bit(
    optimizer: str, more: dict[str, Any]
) -> None:
    outcomes = []
    for watched in (False, True):
        loop = Loop(optimizer, wild=True, watched=watched)
        if watched and more:
            train = {"train": loop.data.split(8), "full_every": 2}
            given = train | {k: v for k, v in more.items() if k != "full"}
            loop.watch = trimol.StepWatch(
                loop.losses, loop.model.parameters(), model=loop.model, every=2, **given
            )
        seen: list[Tensor] = []

        def note(loop: Loop = loop, seen: list[Tensor] = seen) -> None:
            seen.extend(p.grad.clone() for p in loop.model.parameters())
            seen.extend(value.clone() for value in loop.model.state_dict().values())
            seen.append(torch.get_rng_state())

        loop.run(6, note)
        assert all(module.training for module in loop.model.modules())
        outcomes.append(seen)
    for plain, under in zip(*outcomes, strict=True):
        assert torch.equal(plain, under)


class Averaged(nn.Module):
    """Its forward assigns another tensor to its buffer, and multiplies by it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x
        return (self.weight * self.mean).square()


def test_a_buffer_that_a_forward_assigns_is_put_back() -> None:
    ends = []
    for watched in (False, True):
        model = Averaged()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        watch = trimol.StepWatch(model, model.parameters(), every=1, model=model)
        for batch in torch.arange(6.0).view(3, 2):
            optimizer.zero_grad()
            model(batch).sum().backward()
            with watch(batch) if watched else nullcontext():
                optimizer.step()
        ends.append(torch.cat([model.weight.detach(), model.mean]))
    assert torch.equal(*ends)


def test_after_losses_that_raise_all_is_as_it_was() -> None:
    plain = Loop(wild=True, watched=False)
    plain.run(1)
    loop = Loop(wild=True)

    def failing(batch: Tensor) -> Tensor:
        loop.losses(batch)
        raise RuntimeError("no")

    loop.watch.losses = failing
    with pytest.raises(RuntimeError, match="no"):
        loop.run(1)
    state = loop.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in plain.model.state_dict().items())
    assert loop.watch.summary.looked == 0


def test_an_error_inside_is_passed_on_without_a_look() -> None:
    loop = Loop()

    def step() -> None:
        with loop.watch(loop.data):
            loop.model[0].weight.data += 1
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        step()
    assert loop.watch.last is None
    assert loop.watch.steps == 0


def test_a_resumed_watch_goes_on_as_an_unbroken_one() -> None:
    whole = Loop(every=3)
    whole.run(20)
    first = Loop(every=3)
    first.run(10)
    second = Loop(every=3, objectives=None)
    state = first.watch.state_dict()
    second.watch.load_state_dict(copy.deepcopy(state))
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    # As many random numbers as ten steps take.
    for _ in range(10):
        torch.randint(48, (8,))
    second.run(10)
    assert second.watch.summary == whole.watch.summary
    assert first.watch.state_dict() == state  # which is a copy


# --- several processes ----------------------------------------------------------------------------


def watched_model(rank: int, world: int, *, shard: bool) -> list[StepLook]:
    """Four steps on a rank's share of each batch."""
    loop = Loop("adam", dtype=torch.float64, watched=False)
    if shard:
        fully_shard(loop.model)
        loop.optimizer = OPTIMIZERS["adam"](loop.model.parameters())
    train = loop.data.split(48 // world)[rank].split(24 // world)
    watch = trimol.StepWatch(
        loop.losses,
        loop.model.parameters(),
        every=1,
        train=train,
        full_every=2,
    )
    looks = []
    for number in range(4):
        batch = loop.data.split(12)[number].split(12 // world)[rank]
        loop.losses(batch).sum().backward()
        for p in loop.model.parameters():
            if world > 1 and not shard:
                dist.all_reduce(p.grad)
                p.grad /= world
        with watch(batch):
            loop.optimizer.step()
        loop.optimizer.zero_grad()
        looks.append(watch.last)
    return looks


def work(rank: int, folder: str) -> None:
    meet(rank, 2, folder)
    found = [numbers(watched_model(rank, 2, shard=shard)) for shard in SHARDED]
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def numbers(looks: list[StepLook]) -> list[float]:
    every = [*looks, *(look.full for look in looks if look.full is not None)]
    kinds = [(look.effects, look.cosines) for look in every]
    return [value for pair in kinds for kind in pair for value in kind.values()]


def test_two_processes_see_what_one_sees(tmp_path: Path) -> None:
    start_processes(work, (str(tmp_path),), nprocs=2, start_method="fork")
    alone = numbers(watched_model(0, 1, shard=False))
    for rank in (0, 1):
        for found in torch.load(tmp_path / f"{rank}.pt"):
            assert found == pytest.approx(alone, rel=1e-7, abs=1e-12)


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"losses": 3}, "losses must be a function from a batch to its losses, found int"),
        ({"params": []}, "params must hold at least one tensor, found none"),
        ({"every": 0}, "every must be a whole number of at least 1, found 0"),
        ({"full_every": 1.5}, "full_every must be a whole number of at least 1, found 1.5"),
        ({"objectives": ["a", "a"]}, "objectives must be different names, or a number, found"),
        ({"model": 7}, "model must be a module, found int"),
        ({"subsample": 8}, "subsample needs train, of which it takes batches, found 8"),
        ({"train": [1] * 9, "subsample": 2}, "subsample must be a whole number of at least 4"),
        ({"train": iter([1])}, "train must be batches that can be gone over again and again"),
        ({"train": torch.ones(3)}, "train must be an iterable of batches"),
        ({"seed": -1}, "seed must be a whole number of at least 0, found -1"),
    ],
)
def test_bad_arguments_are_one_line(given: dict[str, Any], line: str) -> None:
    x = torch.ones(1, requires_grad=True)
    arguments = {"losses": lambda _: x, "params": [x], **given}
    with pytest.raises((ValueError, TypeError), match=line):
        trimol.StepWatch(**arguments)


def test_bad_losses_and_states_are_one_line() -> None:
    x = torch.ones(1, requires_grad=True)

    def looked(answer: Any, **given: Any) -> None:
        with trimol.StepWatch(lambda _: answer, [x], **given)(None), torch.no_grad():
            x.add_(1)

    with pytest.raises(ValueError, match="losses must have 2 entries, one per objective, found 1"):
        looked(x * 1, objectives=2)
    with pytest.raises(ValueError, match="losses must be a 1-D tensor"):
        looked(x.sum())
    with pytest.raises(ValueError, match="losses must have 'a', 'b', found none for 'b'"):
        looked({"a": x.sum()}, objectives=["a", "b"])
    with pytest.raises(ValueError, match="train must have at least 4 batches, found 2"):
        looked(x * 1, train=[1, 2], subsample=5)
    other = trimol.StepWatch(lambda _: x, [x], objectives=["b"]).state_dict()
    watch = trimol.StepWatch(lambda _: x, [x], objectives=["a"])
    with pytest.raises(ValueError, match=r"must be of objectives \['a'\], found \['b'\]"):
        watch.load_state_dict(other)


def test_the_line_names_the_worst() -> None:
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    watch = trimol.StepWatch(lambda _: list(x), [x], objectives=["pde", "initial"], every=1)
    for step in ([-1.0, 1.0], [-1.0, -1.0], [-3.0, 4.0]):
        with watch(None), torch.no_grad():
            x += torch.tensor(step)
    assert str(watch) == (
        "of 3 steps looked at, 67 % raised some loss (0 % all): most often 'initial'; "
        "worst cosine -0.8"
    )
