"""TorchJD's aggregators and weightings, held to what every method promises."""

import functools
import io
import warnings

import pytest
import torch

from covering import one_in
from pair import started
from trimol.integrations.torchjd import TorchJD, _seeded
from trimol.testing import (
    CHECKS,
    Row,
    assert_two_processes_equal_the_joined_batch,
    network,
    run_in_processes,
)
from trimol.testing import _distributed as distributed
from trimol.testing._problems import clear, flat_gradient, naive_jacobian

aggregation = pytest.importorskip("torchjd.aggregation", reason="needs the extra 'torchjd'")


def aggregator(make, params, objectives, **options):
    """A method with an aggregator of its own, as the table of the kit wants it."""
    return TorchJD(params, objectives, aggregator=make(), **options)


def crmogm():
    return aggregation.CRMOGMWeighting(aggregation.MGDAWeighting(), alpha=0.5)


def crmogm_of_rows():
    return aggregation.CRMOGMWeighting(aggregation.ExcessMTLWeighting(), alpha=0.5)


# What TorchJD promises itself, and what it does: their asserts are not ours to make.
FREE = {"degree": None, "equivariant": False}
ANY = {"total": "any", "signed": True, "alone": "parallel", **FREE}
ROWS = {
    "MGDA": Row(functools.partial(aggregator, aggregation.MGDA), **FREE, total="any"),
    "UPGrad": Row(functools.partial(aggregator, aggregation.UPGrad), **FREE, total="any"),
    "DualProj": Row(functools.partial(aggregator, aggregation.DualProj), **ANY),
    "PCGrad": Row(functools.partial(aggregator, aggregation.PCGrad), **ANY),
    "GradVac": Row(functools.partial(aggregator, aggregation.GradVac), **ANY),
    "AlignedMTL": Row(functools.partial(aggregator, aggregation.AlignedMTL), **ANY),
    "Random": Row(functools.partial(aggregator, aggregation.Random), total="any", **FREE),
    "ExcessMTL": Row(functools.partial(aggregator, aggregation.ExcessMTL), total="any", **FREE),
    "PCD": Row(functools.partial(aggregator, aggregation.PCD), **ANY),
    "UPGradWeighting": Row(functools.partial(aggregator, aggregation.UPGradWeighting), **ANY),
    "CRMOGMWeighting": Row(functools.partial(aggregator, crmogm), total="any", **FREE),
    "CRMOGM of rows": Row(functools.partial(aggregator, crmogm_of_rows), total="any", **FREE),
    "MoDoWeighting": Row(
        functools.partial(aggregator, aggregation.MoDoWeighting), total="any", **FREE
    ),
    "SDMGradWeighting": Row(
        functools.partial(aggregator, aggregation.SDMGradWeighting),
        settings={"draws": 3},
        moves_on=slice(2, 3),
        total="any",
        **FREE,
    ),
    # Directions that are no weighting of the gradients: λ is constant, and `every` is not offered.
    "ConFIG": Row(functools.partial(aggregator, aggregation.ConFIG), combines=False, **ANY),
    "GradDrop": Row(functools.partial(aggregator, aggregation.GradDrop), combines=False, **ANY),
}


# Where an aggregator, not its wrapping, falls short of what every method of ours owes.
SHORT = {
    ("DualProj", "assert_every_keeps_the_weights_between_updates"): "the mean does not conflict",
    ("MoDoWeighting", "assert_one_objective_of_any_size"): "its projection of 1 - 1e15 is 0",
    ("ConFIG", "assert_every_keeps_the_weights_between_updates"): "gives directions",
    ("GradDrop", "assert_every_keeps_the_weights_between_updates"): "gives directions",
}


@pytest.mark.parametrize(
    ("name", "check"), one_in(3, ROWS, CHECKS), ids=lambda given: getattr(given, "__name__", given)
)
def test_promise(name, check):
    """One class wraps them all: each guest meets a third of the checks, and each check of them."""
    if reason := SHORT.get((name, check.__name__)):
        pytest.skip(reason)
    check(ROWS[name])


# -- beside TorchJD itself -----------------------------------------------------------------------

AGGREGATORS = {
    **{
        name: getattr(aggregation, name)
        for name in (
            *("AlignedMTL", "ConFIG", "DualProj", "ExcessMTL", "GradDrop", "GradVac", "IMTLG"),
            *("MGDA", "Mean", "PCD", "PCGrad", "Random", "Sum", "UPGrad"),
        )
    },
    "Constant": lambda: aggregation.Constant(torch.tensor([0.2, 0.3, 0.5]).double()),
    "Krum": lambda: aggregation.Krum(n_byzantine=0),
    "TrimmedMean": lambda: aggregation.TrimmedMean(trim_number=1),
    "FairGrad": lambda: aggregation.FairGrad(alpha=1.0),
}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_direction_is_that_of_the_aggregator(name):
    """Over a few steps, state and random numbers included."""
    theirs, model = AGGREGATORS[name](), network()
    params = list(model.parameters())
    method = TorchJD(params, 3, aggregator=AGGREGATORS[name](), seed=7)
    for step in range(4):
        (losses,) = model.step(1, step).losses
        with _seeded(7, step, torch.device("cpu")):
            want = theirs(naive_jacobian(losses, params))
        clear(params)
        method(losses).backward()
        torch.testing.assert_close(flat_gradient(params), want)


@pytest.mark.parametrize("draws", [2, 3])
@pytest.mark.parametrize("name", ["MoDoWeighting", "SDMGradWeighting"])
def test_double_sampling_is_their_recipe(name, draws):
    """G = J1 J2ᵀ, then x moves on the mean of both batches, or on a third."""
    theirs, model = getattr(aggregation, name)(), network()
    params = list(model.parameters())
    method = TorchJD(params, 3, aggregator=name, draws=draws)
    for seed in range(4):
        step = model.step(draws, seed)
        first, second = (naive_jacobian(one, params) for one in step.losses[:2])
        weights = theirs(first @ second.T)
        want = weights @ step[slice(2, None) if draws == 3 else slice(None)].jacobian(params)
        clear(params)
        method(*step.losses).backward()
        torch.testing.assert_close(method.weights, weights)
        torch.testing.assert_close(flat_gradient(params), want)


@pytest.mark.parametrize(
    ("make", "of"),
    [
        (aggregation.UPGrad, "gramian"),
        (aggregation.UPGradWeighting, "gramian"),
        (lambda: aggregation.MGDAWeighting() << (lambda rows: rows @ rows.T), "jacobian"),
        (aggregation.Random, "jacobian"),
        (aggregation.MoDoWeighting, "pair"),
        (crmogm, "gramian"),
        (lambda: aggregation.CRMOGMWeighting(aggregation.MoDoWeighting()), "pair"),
        (aggregation.GradDrop, "direction"),
    ],
)
def test_what_a_guest_is_shown_follows_from_its_class(make, of):
    method = TorchJD(network().parameters(), 3, aggregator=make())
    assert method.of == of
    assert method.draws == (2 if of == "pair" else 1)
    assert method.needs == {"pair": "product", "direction": "jacobian"}.get(of, of)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GradVac", "MoDoWeighting", "ConFIG", "Random"])
def test_two_processes_equal_the_joined_batch(ranks, name):
    assert_two_processes_equal_the_joined_batch(ranks, name, ROWS[name])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    rows = {name: ROWS[name] for name in ("GradVac", "MoDoWeighting", "ConFIG", "Random")}
    with pytest.MonkeyPatch.context() as patch:  # test_distributed.py takes it as it is
        patch.setattr(distributed, "spawn", lambda work, args, nprocs: started(work, *args))
        return run_in_processes(rows, tmp_path_factory.mktemp("aggregators"))


# -- state and random numbers --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MoDoWeighting", "GradVacWeighting", "ExcessMTL", "PCD"])
def test_state_goes_through_a_file_where_theirs_does_not(name):
    model = network()
    method = TorchJD(model.parameters(), 3, aggregator=name)
    method(*model.step(method.draws).losses)
    fresh = getattr(aggregation, name)()
    with pytest.raises(RuntimeError, match="Unexpected key"):
        fresh.load_state_dict(method.aggregator.state_dict())
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    again = TorchJD(model.parameters(), 3, aggregator=fresh)
    again.load_state_dict(torch.load(file, weights_only=True))
    step = model.step(method.draws, 1)
    assert method(*step.losses).item() == again(*step.losses).item()


def test_hyperparameters_stay_as_given():
    """The state holds what the aggregator's steps changed, and nothing that the user chose."""
    model = network()
    slow = TorchJD(model.parameters(), 3, aggregator=aggregation.MoDoWeighting(gamma=0.1))
    slow(*model.step(2).losses)
    fast = TorchJD(model.parameters(), 3, aggregator=aggregation.MoDoWeighting(gamma=5.0))
    fast.load_state_dict(slow.state_dict())
    assert fast.aggregator.gamma == 5.0
    assert torch.equal(fast.aggregator._lambda, slow.aggregator._lambda)
    fast(*model.step(2, 1).losses)  # the loaded λ is a copy
    assert not torch.equal(fast.aggregator._lambda, slow.aggregator._lambda)


def test_a_used_guest_starts_anew():
    weighting = aggregation.MoDoWeighting()
    weighting(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
    assert TorchJD(network().parameters(), 3, aggregator=weighting).aggregator._lambda is None


class Counting(aggregation.Weighting):
    """State in plain attributes, no `reset`, parts in parts: what a third party might write."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.register_buffer("total", None)
        self.calls, self.history = 0, []

    def forward(self, gramian):
        self.calls += 1
        self.history = [*self.history, self.calls]
        seen = gramian.diagonal().sqrt()
        self.inner.total = seen if self.inner.total is None else self.inner.total + seen
        return self.inner.total / self.calls / len(self.history)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_guest_that_torchjd_does_not_know(check):
    make = functools.partial(aggregator, Counting)
    check(Row(make, settings={"of": "gramian"}, total="any", degree=2.0, alone="parallel"))


class Unsaveable(aggregation.Weighting):
    """Keeps an object that no state_dict can hold."""

    def __init__(self):
        super().__init__()
        self.memory = None

    def forward(self, gramian):
        self.memory = object()
        return gramian.new_ones(len(gramian))


def test_a_state_that_cannot_be_saved_is_said():
    model = network()
    method = TorchJD(model.parameters(), 3, aggregator=Unsaveable(), of="gramian")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.state_dict()
    method(model.step(1).losses[0])
    with pytest.warns(RuntimeWarning, match="state of Unsaveable holds what cannot be"):
        state = method.state_dict()
    TorchJD(model.parameters(), 3, aggregator=Unsaveable(), of="gramian").load_state_dict(state)


class Diverging(aggregation.Weighting):
    """Answers with infinity."""

    def forward(self, gramian):
        return gramian.new_full((len(gramian),), torch.inf)


def test_an_answer_that_is_not_finite_keeps_the_weights():
    model = network()
    method = TorchJD(model.parameters(), 3, aggregator=Diverging(), of="gramian")
    with pytest.warns(RuntimeWarning, match="gradients with NaN or infinity; λ is kept as it is"):
        method(model.step(1).losses[0]).backward()
    assert method.weights.tolist() == [1 / 3] * 3


@pytest.mark.parametrize("name", ["COSMOS", "GeometricMean", "IMTLL", "PBI", "UW"])
def test_scalarizers_take_losses_and_are_no_guests(name):
    """docs/reference/methods.md: these are refused, and all the others are methods."""
    scalarization = pytest.importorskip("torchjd.scalarization")
    aggregator = object.__new__(getattr(scalarization, name))
    with pytest.raises(
        TypeError, match=f"aggregator must be a TorchJD Aggregator .*, found {name}"
    ):
        TorchJD([torch.zeros(2, requires_grad=True)], 2, aggregator=aggregator)


def test_random_guests_leave_the_global_generator_alone():
    model = network()
    method = TorchJD(model.parameters(), 3, aggregator="Random")
    before = torch.get_rng_state()
    history = []
    for _ in range(2):
        method(model.step(1).losses[0])
        history.append(method.weights)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(*history)
    other = TorchJD(model.parameters(), 3, aggregator="Random", seed=1)
    other(model.step(1).losses[0])
    assert not torch.equal(other.weights, history[0])


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"aggregator": "UpGrad"},
            ValueError,
            "aggregator must be one of .*UPGrad.*, found 'UpGrad'",
        ),
        *(
            (
                {"aggregator": name},
                ValueError,
                rf"object .* \({name} needs {needs}\), found the name",
            )
            for name, needs in {
                "CAGrad": "c",
                "FairGrad": "alpha",
                "NashMTL": "n_tasks",
                "Krum": "n_byzantine",
                "TrimmedMean": "trim_number",
                "Constant": "weights",
                "CRMOGMWeighting": "weighting",
            }.items()
        ),
        ({"aggregator": torch.nn.Linear(1, 1)}, TypeError, "Aggregator or Weighting, found Linear"),
        ({"aggregator": Diverging()}, ValueError, "of must say what Diverging takes"),
        (
            {"aggregator": Diverging(), "of": "rows"},
            ValueError,
            "'jacobian' or 'pair', found 'rows'",
        ),
        (
            {"aggregator": "MGDA", "of": "gramian"},
            ValueError,
            "of must be None: an aggregator takes",
        ),
        ({"aggregator": "MGDA", "draws": 2}, ValueError, "draws must be 1, found 2"),
        ({"aggregator": "MoDoWeighting", "draws": 4}, ValueError, "draws must be 2 or 3, found 4"),
        (
            {"aggregator": "ConFIG", "every": 2},
            ValueError,
            "every must be 1 .* with ConFIG",
        ),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        TorchJD([torch.zeros(2, requires_grad=True)], 2, **options)


def test_autocast_does_not_round_what_a_guest_computes():
    def direction(enabled):
        x = torch.linspace(1, 2, 40).requires_grad_()
        method = TorchJD([x], 2, aggregator=aggregation.ConFIG())
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            scalar = method([(x / 3).square().sum(), (x - 7).square().sum()])
        scalar.backward()
        return x.grad

    assert torch.equal(direction(enabled=True), direction(enabled=False))
