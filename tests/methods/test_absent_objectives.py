"""Objectives that a batch has no sample of, in a loop of one's own: declared, counted or found."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network
from table import TABLE

import trimol
from covering import in_turn, one_of_each_kind
from trimol.gradients._presence import checked_counts
from trimol.tasks import masked_mean

NAMES = ["ctr", "cvr", "time"]
every_method = pytest.mark.parametrize("name", TABLE)
every_kind = pytest.mark.parametrize("name", one_of_each_kind(TABLE))


def fresh(name, **options):
    model = network()
    return model, TABLE[name].new(model.parameters(), NAMES, **options)


def moved(method, model, row):
    """A first step, so that λ and all else has left its start."""
    row.call(method, model.step(method.draws, 5))


def state(method):
    return {k: v.clone() for k, v in method.state_dict().items() if torch.is_tensor(v)}


def unchanged(method, before):
    now = state(method)
    return all(torch.equal(before[k], now[k]) for k in before if k not in ("step", "kept"))


@every_method
def test_an_objective_that_is_none_adds_nothing_and_keeps_the_weights(name):
    model, method = fresh(name, max_norm=None)
    moved(method, model, TABLE[name])
    before, params = state(method), list(model.parameters())
    draws = [model.losses(batch(seed=seed)) for seed in range(method.draws)]
    jacobian = torch.stack([naive_jacobian(one, params) for one in draws]).mean(0)
    values = torch.stack([one.detach() for one in draws]).mean(0)
    model.zero_grad()
    scalar = method(*[{"time": v[2], "cvr": None, "ctr": v[0]} for v in draws])
    scalar.backward()
    weights = method.weights * torch.tensor([1.0, 0.0, 1.0])
    torch.testing.assert_close(flat_gradient(params), weights @ jacobian)
    torch.testing.assert_close(scalar.detach(), weights @ values)
    assert unchanged(method, before)
    info = method.info
    assert (info.kept, info.absent, info.updated, info.skipped) == (1, ("cvr",), False, 0)
    torch.testing.assert_close(info.losses[::2], values[::2])
    assert info.losses[1].isnan()


def test_an_objective_that_one_draw_has_is_the_mean_over_the_draws_that_have_it():
    model, modo = fresh("modo")
    params = list(model.parameters())
    one, two = (model.losses(batch(seed=seed)) for seed in range(2))
    rows = [naive_jacobian(each, params) for each in (one, two)]
    modo([one[0], None, one[2]], two).backward()
    wanted = torch.stack([(rows[0][0] + rows[1][0]) / 2, rows[1][1], (rows[0][2] + rows[1][2]) / 2])
    torch.testing.assert_close(flat_gradient(params), modo.weights @ wanted)
    assert (modo.info.kept, modo.info.absent) == (1, ())
    torch.testing.assert_close(modo.info.losses[1], two[1].detach())


def test_heads_of_an_absent_objective_get_nothing():
    model = network()
    method = trimol.MGDA(model.trunk.parameters(), 3)
    losses = model.losses(batch())
    method([losses[0], None, losses[2]]).backward()
    assert model.heads[1].weight.grad is None or not model.heads[1].weight.grad.any()
    assert model.heads[0].weight.grad.any()


@every_kind
def test_counts_join_the_draws_of_a_step_that_keeps(name):
    """Each draw's mean by its share of the samples; the others as in every step."""
    model, method = fresh(name, max_norm=None)
    params, draws = list(model.parameters()), TABLE[name].make.draws
    vectors = [model.losses(batch(seed=seed)) for seed in range(draws)]
    counts = torch.tensor([[3.0, 0.0, 2.0], [1.0, 4.0, 2.0], [2.0, 4.0, 0.0]])[:draws].double()
    jacobians = torch.stack([naive_jacobian(v, params) for v in vectors])
    shares = counts / counts.sum(0).clamp_min(1)
    wanted = method.weights @ (shares[:, :, None] * jacobians).sum(0)
    lost = [torch.where(c > 0, v, torch.nan) for v, c in zip(vectors, counts, strict=True)]
    method(*lost, counts=counts).backward()  # the mean of nothing is NaN: that must not matter
    torch.testing.assert_close(flat_gradient(params), wanted)
    assert method.info.kept == 1
    assert method.info.absent == (("cvr",) if draws == 1 else ())


@every_kind
def test_counts_of_what_is_all_there_change_nothing_on_one_process(name):
    plain, counted = fresh(name), fresh(name)
    for model, method in (plain, counted):
        vectors = [model.losses(batch(seed=seed)) for seed in range(method.draws)]
        more = {"counts": [[4, 5, 6]] * method.draws} if method is counted[1] else {}
        method(*vectors, **more).backward()
    assert torch.equal(plain[1].weights, counted[1].weights)
    assert torch.equal(*(flat_gradient(model.parameters()) for model, _ in (plain, counted)))
    assert counted[1].info.kept == 0


@pytest.mark.parametrize(
    ("name", "how"),
    in_turn([n for n in TABLE if n != "static"], ["no graph", "masked mean", "head only"]),
)
def test_a_zero_without_a_gradient_is_absent_and_said_once(name, how):
    model = network()
    method = TABLE[name].new(model.trunk.parameters(), NAMES, max_norm=None)
    before = state(method)

    def lacking(v):
        nothing = {
            "no graph": torch.zeros((), dtype=torch.float64),
            "masked mean": masked_mean(v, torch.zeros(3, dtype=torch.bool)),
            "head only": 0 * model.heads[1].weight.sum(),
        }[how]
        return [v[0], nothing, v[2]]

    def step(seed):
        return method(*[lacking(v) for v in model.step(method.draws, seed).losses])

    said = "the loss of objective 'cvr' is 0 without a gradient: it is taken for absent"
    with pytest.warns(RuntimeWarning, match=said):
        step(1).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(2)
    assert unchanged(method, before)
    assert (method.info.kept, method.info.absent) == (2, ("cvr",))
    assert flat_gradient(model.trunk.parameters()).norm() > 0.01  # it does not stand still


def test_mgda_goes_on_with_the_objectives_that_are_there():
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    mgda = trimol.MGDA([x], ["ctr", "cvr"])
    with pytest.warns(RuntimeWarning, match="'cvr' is 0 without a gradient"):
        mgda([x.square().sum(), 0 * x.sum()]).backward()
    assert x.grad.tolist() == [1.0, 1.0]  # it was zero: the min-norm point of a zero gradient


def test_a_loss_that_is_zero_with_a_gradient_is_there():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    mgda = trimol.MGDA([x], 2)
    mgda(torch.stack([x[0], x[1]])).backward()
    assert (mgda.info.kept, mgda.info.updated) == (0, True)


def test_where_all_losses_are_zero_a_zero_gradient_is_there():
    """A linear problem at its origin, as tests of directions have it."""
    x = torch.zeros(2, requires_grad=True)
    mgda = trimol.MGDA([x], 2)
    mgda(torch.tensor([[1.0, 2.0], [0.0, 0.0]]) @ x).backward()
    assert (mgda.info.kept, mgda.weights.tolist()) == (0, [0.0, 1.0])


def test_where_all_are_zero_without_a_gradient_nothing_is_absent():
    x = torch.zeros(2, requires_grad=True)
    mgda = trimol.MGDA([x], 2)
    mgda(x.square()).backward()
    assert (mgda.info.kept, mgda.info.updated) == (0, True)
    assert not x.grad.any()


def test_where_all_are_absent_nothing_moves():
    x = torch.ones(2, requires_grad=True)
    mgda = trimol.MGDA([x], ["ctr", "cvr"])
    scalar = mgda({"ctr": None, "cvr": None})
    scalar.backward()
    assert (scalar.item(), x.grad.tolist(), mgda.info.absent) == (0.0, [0.0, 0.0], ("ctr", "cvr"))


def test_a_short_batch_makes_one_step_of_each_method_and_no_more():
    """Where nothing is dealt after it, steps on draws of the user's own moved λ no more."""
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    methods = [trimol.MoDo([x], 2), trimol.MoDo([x], 2)]
    trimol.data.dealt(torch.arange(1), 2)
    for method in methods:
        for _ in range(3):
            method(x**2, x**3)
        assert (int(method.kept), method.info.updated) == (1, True)
    for _ in range(2):
        trimol.data.dealt(torch.arange(1), 2)
        methods[0](x**2, x**3)
    assert int(methods[0].kept) == 3
    trimol.data.dealt(torch.arange(2), 2)


def test_evaluation_leaves_out_what_is_absent():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with torch.no_grad():
        assert trimol.MGDA([x], ["ctr", "cvr"])({"ctr": x[0], "cvr": None}).item() == 1.0


def test_evaluation_leaves_out_what_has_no_sample():
    x = torch.tensor([2.0, torch.nan], requires_grad=True)
    with torch.no_grad():
        assert trimol.MGDA([x], 2)(x, counts=[3, 0]).item() == 1.0


@pytest.mark.parametrize("name", ["static", "mgda", "modo"])
@pytest.mark.parametrize("how", ["divided by 0", "constant 0", "constant NaN", "of another model"])
def test_a_loss_without_a_sample_may_be_anything(name, how):
    """As None: zero times the gradient of a sum divided by no samples would be NaN."""

    def step(none):
        model, method = fresh(name)
        vectors = [model.losses(batch(seed=seed)) for seed in range(method.draws)]
        others = {
            "divided by 0": [(v[1] * 0) / torch.zeros(()) for v in vectors],
            "constant 0": [torch.zeros(())] * len(vectors),
            "constant NaN": [torch.tensor(torch.nan)] * len(vectors),
            "of another model": [torch.ones((), requires_grad=True) * 2 for _ in vectors],
        }[how]
        pairs = zip(vectors, others, strict=True)
        rows = [{"ctr": v[0], "cvr": None if none else other, "time": v[2]} for v, other in pairs]
        method(*rows, counts=[{"ctr": 4, "cvr": 0, "time": 2}] * len(rows)).backward()
        return flat_gradient(model.parameters()), method.info

    (wanted, told), (found, info) = step(none=True), step(none=False)
    assert torch.equal(found, wanted)
    assert found.isfinite().all()
    assert (info.kept, info.absent) == (told.kept, told.absent) == (1, ("cvr",))


def test_losses_without_any_sample_may_be_constant():
    x = torch.ones(2, requires_grad=True)
    mgda = trimol.MGDA([x], 2)
    for nothing in (torch.zeros(2), [torch.zeros(())] * 2):
        mgda(nothing, counts=[0, 0]).backward()
    assert (mgda.info.kept, x.grad.tolist()) == (2, [0.0, 0.0])


def test_kept_steps_are_saved_and_reset():
    x = torch.ones(2, requires_grad=True)
    one, two = trimol.MGDA([x], 2), trimol.MGDA([x], 2)
    one([x[0], None])
    two.load_state_dict(one.state_dict())
    assert int(two.kept) == 1
    assert int(two.reset().kept) == 0


@pytest.mark.parametrize("prefix", ["", "method."])
def test_a_state_of_before_steps_were_kept_loads(prefix):
    x = torch.ones(2, requires_grad=True)
    one, two = trimol.MGDA([x], 2), trimol.MGDA([x], 2)
    one([x[0], None])
    one(x**2)
    one.kept.zero_()
    holder = torch.nn.Module()
    holder.method = two
    two([x[0], None])
    saved = one.state_dict(prefix=prefix)
    del saved[f"{prefix}kept"]
    (holder if prefix else two).load_state_dict(saved)
    assert (int(two.step), int(two.kept)) == (2, 0)
    assert f"{prefix}kept" not in saved


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(
        st.lists(st.sampled_from([0.0, 1e-12, 1.0, 3.0, 1e12]), min_size=3, max_size=3),
        min_size=2,
        max_size=2,
    ),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_a_step_that_keeps_is_the_mean_over_all_samples(counts, scale):
    """Against a sum sample by sample, of means that are as large or small as they like."""
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    modo = trimol.MoDo([x], NAMES, weights=[0.2, 0.3, 0.5])
    scalar = modo(scale * x, scale * x.square(), counts=counts, keep=True)
    (gradient,) = torch.autograd.grad(scalar, x)
    total = 0.0
    for m, (one, two) in enumerate(zip(*counts, strict=True)):
        weight, v, samples = modo.weights[m].item() * scale, x[m].item(), (one + two) or 1.0
        slope, value = (one + two * 2 * v) / samples, (one * v + two * v * v) / samples
        assert gradient[m].item() == pytest.approx(weight * slope, rel=1e-12)
        total += weight * value
    assert scalar.item() == pytest.approx(total, rel=1e-12)


def test_shares_of_half_precision_losses_are_not_rounded_to_it():
    x = torch.ones(2, requires_grad=True)
    modo = trimol.MoDo([x], 2)
    scalar = modo(x.bfloat16(), 2 * x.bfloat16(), counts=[[1, 1], [2, 0]])
    assert scalar.item() == pytest.approx((5 / 3 + 1) / 2, rel=1e-6)  # a third in bfloat16: 0.3340
    assert modo.info.losses.tolist() == pytest.approx([5 / 3, 1.0], rel=1e-12)


def test_the_plain_loop_keeps_the_weights_on_a_last_batch_that_cannot_be_split():
    """33 samples in batches of 8: the loop as everybody writes it comes to the end of its epoch."""
    x = torch.tensor([2.0, 0.5], dtype=torch.float64, requires_grad=True)
    data = torch.randn(33, 2, generator=torch.Generator().manual_seed(0)).double()
    modo, static = trimol.MoDo([x], 2, gamma=0.5), trimol.Static([x], 2)

    def losses(batch):
        return (x - batch).square().mean(0) * torch.tensor([1.0, 3.0])

    for _ in range(2):
        for first, second in trimol.pairs(data.split(8)):
            before = modo.weights
            x.grad = None
            modo(losses(first), losses(second)).backward()
        assert len(first) == 1
        assert torch.equal(modo.weights, before)
        (want,) = torch.autograd.grad(modo.weights @ losses(data[32:]), x)
        torch.testing.assert_close(x.grad, want)
    assert (modo.info.kept, modo.info.updated, int(modo.step)) == (2, False, 10)
    modo(losses(data[:4]), losses(data[4:]))
    assert modo.info.updated  # after the loop, by hand
    for (first,) in trimol.draws(data.split(8), 1):
        static(losses(first))
    assert static.info.kept == 0


class TestErrors:
    def test_counts_are_one_for_each_objective(self):
        x = torch.ones(1, requires_grad=True)
        with pytest.raises(
            TypeError, match="counts must be one number for each objective, found 3"
        ):
            trimol.MGDA([x], ["ctr"])([x.sum()], counts=3)

    def test_the_gradient_of_what_has_no_sample_cannot_be_taken_out_of_a_vector(self):
        x = torch.ones(2, requires_grad=True)
        line = "a finite gradient where counts is 0, found nan for objective 'cvr', whose has none"
        with pytest.raises(ValueError, match=line):
            trimol.MGDA([x], ["ctr", "cvr"])(x * 0 / torch.tensor([1.0, 0.0]), counts=[1, 0])

    def test_a_loss_that_is_not_zero_must_reach_the_parameters(self):
        x = torch.ones(2, requires_grad=True)
        with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
            trimol.MGDA([x], 3)([x[0], torch.tensor(1.0), torch.tensor(0.0)])

    def test_zeros_alone_are_no_step(self):
        x, head = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        with pytest.raises(ValueError, match="objective 0 reaches none of the given parameters"):
            trimol.MGDA([x], 2)([0 * head[0], 0 * head[1]])
        with pytest.raises(ValueError, match="must require grad"):
            trimol.MGDA([x], 2)([torch.tensor(0.0), torch.tensor(0.0)])

    def test_counts_that_contradict_the_losses(self):
        x = torch.ones(2, requires_grad=True)
        method = trimol.MGDA([x], ["ctr", "cvr"])
        with pytest.raises(ValueError, match="must be 0 where a loss is None, found 2 for obj"):
            method([x[0], None], counts=[3, 2])
        with pytest.raises(ValueError, match="objective 'cvr' reaches none"):
            method([x[0], torch.tensor(0.0)], counts=[3, 2])

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ([1, 2, 3], r"2 entries, one per objective, found shape \(3,\)"),
            ([1, -2], r"at least 0, found \[\[1.0, -2.0\]\]"),
            ([[1, 2], [3, 4]], "a row for each loss vector, 1, found 2"),
            ({"ctr": 1}, "found none for 'cvr'"),
        ],
    )
    def test_bad_counts(self, wrong, said):
        with pytest.raises(ValueError, match=f"^counts must .*{said}"):
            checked_counts(wrong, ("ctr", "cvr"), 1)

    def test_functions_without_names_take_no_none(self):
        x = torch.ones(2, requires_grad=True)
        with pytest.raises(TypeError, match=r"losses\[1\] must be a scalar tensor, found NoneType"):
            trimol.gradients.jacobian([x[0], None], [x])
