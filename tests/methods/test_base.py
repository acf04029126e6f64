"""What every method promises, for every registered method."""

import copy
import warnings

import pytest
import torch
from problems import batch, clear, flat_gradient, naive_jacobian, network
from torch import nn

import trimol

NAMES = trimol.methods.names()
every_method = pytest.mark.parametrize("name", NAMES)
# Larger than the defaults, so that weights move visibly within a few steps.
SETTINGS = {"modo": {"gamma": 0.1}}


def make(name, params, objectives=3, **kwargs):
    return trimol.methods.get(name)(params, objectives, **SETTINGS.get(name, {}), **kwargs)


def draw_losses(method, model, seed, dtype=torch.float64, tasks=3):
    return [
        model.losses(batch(tasks=tasks, dtype=dtype, seed=100 * seed + i))
        for i in range(method.draws)
    ]


def train(method, model, optimizer, steps):
    for seed in steps:
        optimizer.zero_grad()
        method(*draw_losses(method, model, seed, dtype=next(model.parameters()).dtype)).backward()
        optimizer.step()


@every_method
def test_value_and_gradient_are_those_of_the_weighted_loss(name):
    model = network()
    params = list(model.parameters())
    method = make(name, params)
    losses = draw_losses(method, model, 1)
    mean = torch.stack([one.detach() for one in losses]).mean(0)
    jacobian = torch.stack([naive_jacobian(one, params) for one in losses]).mean(0)
    scalar = method(*losses)
    scalar.backward()
    assert scalar.shape == ()
    assert scalar.item() == pytest.approx((method.weights @ mean).item(), rel=1e-12)
    torch.testing.assert_close(flat_gradient(params), method.weights @ jacobian)
    torch.testing.assert_close(method.info.losses, mean)
    assert torch.equal(method.info.weights, method.weights)


@pytest.mark.parametrize(
    ("name", "options"), [*[(name, {}) for name in NAMES], ("modo", {"simultaneous": True})]
)
def test_heads_get_plain_gradients(name, options):
    model = network()
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    method = make(name, trunk, **options)
    before = method.weights.clone()
    losses = draw_losses(method, model, 1)
    on_trunk = torch.stack([naive_jacobian(one, trunk) for one in losses]).mean(0)
    on_heads = torch.stack([naive_jacobian(one, heads) for one in losses]).mean(0)
    method(*losses).backward()
    used = before if method.simultaneous else method.weights
    torch.testing.assert_close(flat_gradient(trunk), used @ on_trunk)
    torch.testing.assert_close(flat_gradient(heads), on_heads.sum(0))


@every_method
def test_state_resumes_bit_for_bit(name, tmp_path):
    whole = network(dtype=torch.float32)
    method, optimizer = make(name, whole.parameters()), torch.optim.Adam(whole.parameters())
    train(method, whole, optimizer, range(3))
    file = tmp_path / "state.pt"
    torch.save(
        {"model": whole.state_dict(), "opt": optimizer.state_dict(), "method": method.state_dict()},
        file,
    )
    train(method, whole, optimizer, range(3, 6))

    resumed = network(dtype=torch.float32, seed=1)
    again, other = make(name, resumed.parameters()), torch.optim.Adam(resumed.parameters())
    state = torch.load(file, weights_only=True)
    resumed.load_state_dict(state["model"])
    other.load_state_dict(state["opt"])
    again.load_state_dict(state["method"])
    train(again, resumed, other, range(3, 6))
    assert torch.equal(again.weights, method.weights)
    assert torch.equal(again.step, method.step)
    for a, b in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)


@every_method
def test_state_holds_no_model_parameters(name):
    model = network()
    method = make(name, model.parameters())
    assert not list(method.parameters())
    assert {"weights", "step", "skipped"} <= set(method.state_dict())


@every_method
def test_every_keeps_the_weights_between_updates(name):
    model = network()
    method = make(name, model.parameters(), every=3)
    history, updates = [], []
    for seed in range(7):
        losses = draw_losses(method, model, seed)
        method(*losses) if method.due else method(losses[0])
        history.append(method.weights.clone())
        updates.append(method.info.updated)
    expected = [method.needs != "nothing" and seed % 3 == 0 for seed in range(7)]
    assert updates == expected
    assert torch.equal(history[0], history[2])
    if method.needs != "nothing":
        assert not torch.equal(history[2], history[3])


@every_method
def test_between_updates_the_gradient_is_that_of_the_kept_weights(name):
    model = network()
    params = list(model.parameters())
    method = make(name, params, every=2)
    method(*draw_losses(method, model, 0))
    losses = model.losses(batch(seed=5))
    expected = method.weights @ naive_jacobian(losses, params)
    method(losses).backward()
    torch.testing.assert_close(flat_gradient(params), expected)


@every_method
def test_reset_is_a_new_instance(name):
    model = network()
    method = make(name, model.parameters())
    fresh = copy.deepcopy(method.state_dict())
    for seed in range(2):
        method(*draw_losses(method, model, seed))
    assert method.reset() is method
    assert method.info is None
    state = method.state_dict()
    assert all(torch.equal(state[key], fresh[key]) for key in fresh)


@every_method
def test_one_objective_is_plain_training(name):
    model = network(tasks=1)
    params = list(model.parameters())
    method = make(name, params, objectives=1)
    losses = draw_losses(method, model, 0, tasks=1)
    expected = torch.stack([naive_jacobian(one, params) for one in losses]).mean(0)[0]
    method(*losses).backward()
    assert method.weights.tolist() == [1.0]
    torch.testing.assert_close(flat_gradient(params), expected)


@every_method
def test_a_sequence_of_scalars_is_a_vector(name):
    results = []
    for convert in (lambda v: v, list, tuple):
        model = network()
        method = make(name, model.parameters())
        results.append(method(*[convert(one) for one in draw_losses(method, model, 0)]).item())
    assert results[0] == results[1] == results[2]


@every_method
def test_accumulation_and_clipping(name):
    model = network()
    params = list(model.parameters())
    method = make(name, params)
    total = torch.zeros(sum(p.numel() for p in params), dtype=torch.float64)
    for seed in range(2):
        losses = draw_losses(method, model, seed)
        jacobian = torch.stack([naive_jacobian(one, params) for one in losses]).mean(0)
        (method(*losses) / 2).backward()
        total += method.weights @ jacobian / 2
    torch.testing.assert_close(flat_gradient(params), total)
    norm = nn.utils.clip_grad_norm_(params, 1e-3)
    torch.testing.assert_close(norm, total.norm())
    torch.testing.assert_close(flat_gradient(params).norm(), torch.tensor(1e-3).double())


@every_method
def test_grad_scaler_sees_the_scaled_direction(name):
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method, scaler = make(name, params), torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = draw_losses(method, model, 0, dtype=torch.float32)
    jacobian = torch.stack([naive_jacobian(one, params) for one in losses]).mean(0)
    scaler.scale(method(*losses)).backward()
    optimizer = torch.optim.SGD(params, lr=0.1)
    scaler.unscale_(optimizer)
    torch.testing.assert_close(flat_gradient(params), method.weights.float() @ jacobian)


@every_method
def test_a_step_that_is_not_finite_never_enters_the_weights(name):
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method, scaler = make(name, params), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(params, lr=0.1)
    train(method, model, optimizer, range(1))
    weights = method.weights.clone()
    values = [p.detach().clone() for p in params]
    losses = draw_losses(method, model, 1, dtype=torch.float32)
    losses[0] = losses[0] * torch.tensor([1.0, float("inf"), 1.0])
    optimizer.zero_grad()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scaler.scale(method(*losses)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert torch.equal(method.weights, weights)
    for p, value in zip(params, values, strict=True):  # the scaler skipped the step
        assert torch.equal(p, value)
    needs_gradients = method.needs != "nothing"
    assert method.info.skipped == int(needs_gradients)
    assert len([w for w in caught if "kept" in str(w.message)]) == int(needs_gradients)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        method(*[one * float("nan") for one in draw_losses(method, model, 2, torch.float32)])
    assert method.info.skipped == 2 * needs_gradients
    assert not method.info.updated


@every_method
def test_bf16_autocast(name):
    model = network(dtype=torch.float32)
    params = list(model.parameters())
    method = make(name, params)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = draw_losses(method, model, 0, dtype=torch.float32)
        jacobian = torch.stack([naive_jacobian(one, params) for one in losses]).mean(0)
        scalar = method(*losses)
    scalar.backward()
    assert scalar.dtype == torch.float32
    expected = method.weights.float() @ jacobian
    torch.testing.assert_close(flat_gradient(params), expected, rtol=0.05, atol=0.02)


@every_method
def test_bf16_parameters(name):
    model = network(dtype=torch.bfloat16)
    method = make(name, model.parameters())
    method(*draw_losses(method, model, 0, dtype=torch.bfloat16)).backward()
    assert all(p.grad.dtype == torch.bfloat16 for p in model.parameters())
    assert method.weights.dtype == torch.float64
    assert method.weights.sum().item() == pytest.approx(1, abs=1e-12)


@every_method
def test_frozen_and_unused_parameters(name):
    model = network()
    params = list(model.parameters())
    params[0].requires_grad_(False)
    unused = nn.Parameter(torch.zeros(4, dtype=torch.float64))
    method = make(name, [*params, unused])
    method(*draw_losses(method, model, 0)).backward()
    assert params[0].grad is None
    assert unused.grad is None or not unused.grad.any()
    params[0].requires_grad_(True)  # unfreezing needs no new method
    clear(params)
    method(*draw_losses(method, model, 1)).backward()
    assert params[0].grad.any()


@every_method
def test_moving_keeps_the_weights_in_float64(name):
    method = make(name, network().parameters())
    assert method.to(torch.bfloat16) is method
    assert method.half().weights.dtype == torch.float64
    assert method.weights.sum().item() == pytest.approx(1, abs=1e-15)


@every_method
def test_is_a_module_that_copies_and_prints(name):
    model = network()
    method = make(name, model.parameters())
    twin, other = copy.deepcopy((method, model))
    for m, net in ((method, model), (twin, other)):
        m(*draw_losses(m, net, 0)).backward()
    assert torch.equal(method.weights, twin.weights)
    assert "objectives=3" in repr(method)


class TestErrors:
    @every_method
    def test_wrong_number_of_vectors(self, name):
        model = network()
        method = make(name, model.parameters())
        losses = draw_losses(method, model, 0)
        with pytest.raises(ValueError, match=rf"takes {method.draws} loss vector.*found 0"):
            method()
        with pytest.raises(ValueError, match=rf"found {method.draws + 1}$"):
            method(*losses, model.losses(batch(seed=9)))

    @every_method
    def test_wrong_number_of_objectives(self, name):
        model = network()
        method = make(name, model.parameters(), objectives=4)
        with pytest.raises(ValueError, match=r"losses \(draw 1\) must have 4 entries.*found 3"):
            method(*draw_losses(method, model, 0))

    @every_method
    def test_losses_without_graph(self, name):
        model = network()
        method = make(name, model.parameters())
        with pytest.raises(ValueError, match=r"losses \(draw 1\) must require grad"):
            method(*[one.detach() for one in draw_losses(method, model, 0)])

    @every_method
    def test_objective_that_reaches_nothing(self, name):
        model = network()
        method = make(name, model.parameters())
        losses = [
            torch.stack([one[0], torch.tensor(1.0).double(), one[2]])
            for one in draw_losses(method, model, 0)
        ]
        with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
            method(*losses)

    @every_method
    def test_objective_that_reaches_its_head_only(self, name):
        model = network()
        method = make(name, model.trunk.parameters())
        losses = [
            [one[0], model.heads[1].weight.square().sum(), one[2]]
            for one in draw_losses(method, model, 0)
        ]
        with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
            method(*losses)

    @every_method
    def test_losses_of_the_wrong_kind(self, name):
        model = network()
        method = make(name, model.parameters())
        good = draw_losses(method, model, 0)
        with pytest.raises(ValueError, match=r"1-D tensor .* found shape \(\)"):
            method(*[one.sum() for one in good])
        with pytest.raises(
            TypeError, match=r"losses \(draw 1\)\[0\] must be a scalar tensor, found float"
        ):
            method(*[[1.0, 2.0, 3.0] for _ in good])

    @every_method
    @pytest.mark.parametrize("objectives", [0, -1, 2.5, True])
    def test_bad_objectives(self, name, objectives):
        with pytest.raises(ValueError, match=f"objectives must be .* found {objectives}"):
            make(name, [torch.zeros(1, requires_grad=True)], objectives=objectives)

    @every_method
    def test_bad_every(self, name):
        with pytest.raises(ValueError, match=r"every must be .* found 0"):
            make(name, [torch.zeros(1, requires_grad=True)], every=0)

    @every_method
    def test_bad_params(self, name):
        with pytest.raises(ValueError, match="params must hold at least one tensor, found none"):
            make(name, iter(()))
        with pytest.raises(TypeError, match="params must hold tensors, found str at place 0"):
            make(name, ["weight"])
        with pytest.raises(TypeError, match="found a single tensor"):
            make(name, torch.zeros(3, requires_grad=True))
        method = make(name, [torch.zeros(3)])
        with pytest.raises(ValueError, match="a tensor that requires grad, found 1 frozen"):
            method(*draw_losses(method, network(), 0))

    def test_the_same_losses_twice_are_not_two_draws(self):
        model = network()
        modo = trimol.MoDo(model.parameters(), 3)
        losses = model.losses(batch())
        for second in (losses, list(losses), torch.stack(list(losses))):
            with pytest.raises(ValueError, match="are the same losses: each draw must be computed"):
                modo(losses if second is losses else list(losses), second)
