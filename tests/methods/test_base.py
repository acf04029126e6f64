"""What every method promises, for every registered method: the kit times the table."""

import inspect
import pydoc
import re
from dataclasses import replace
from functools import partial
from typing import get_type_hints

import pytest
import torch
from problems import batch, network
from table import ROWS, TABLE

import trimol
from covering import in_turn, one_of_each_kind
from trimol.methods._registry import outline
from trimol.testing import CHECKS

every_method = pytest.mark.parametrize("name", TABLE)
every_kind = pytest.mark.parametrize("name", one_of_each_kind(TABLE))


def make(name, params, objectives=3, **kwargs):
    return TABLE[name].new(params, objectives, **kwargs)


def draw_losses(method, model, seed):
    return model.step(method.draws, seed).losses


def test_every_registered_method_has_a_row():
    assert set(TABLE) == set(trimol.methods.names())
    for name, row in TABLE.items():
        made = row.make.args[0] if isinstance(row.make, partial) else row.make
        assert made is trimol.methods.get(name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_promise(name, check):
    check(ROWS[name])


@every_method
def test_help_tells_every_argument(name):
    """Those too that are written down in a base class only."""
    kind = trimol.methods.get(name)
    parameters = inspect.signature(kind).parameters
    assert list(parameters)[:2] == ["params", "objectives"]
    assert {p.kind for p in parameters.values()} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
    (block,) = re.findall(r"^Args:\n((?:    .*\n)+)", kind.__doc__, re.MULTILINE)
    assert re.findall(r"^    (\w+): ", block, re.MULTILINE) == list(parameters)
    assert set(parameters) <= set(get_type_hints(kind.__init__))
    shown = pydoc.plain(pydoc.render_doc(kind)).splitlines()
    assert any(f"{kind.__name__}(params" in line and "every: int = 1" in line for line in shown)


def test_weights_that_are_not_finite_are_not_taken_over():
    class Wrong(trimol.MoCo):
        def weigh(self, evidence):
            return {**super().weigh(evidence), "weights": torch.full_like(self.weights, torch.nan)}

    model = network()
    method = Wrong(model.parameters(), 3)
    with pytest.warns(RuntimeWarning, match="λ is kept as it is"):
        method(*draw_losses(method, model, 0)).backward()
    assert (method.info.skipped, method.info.updated) == (1, False)
    assert method.weights.tolist() == [1 / 3] * 3
    assert not method.tracker.any()
    assert not method.seen.any()


class TestErrors:
    @every_kind
    def test_wrong_number_of_vectors(self, name):
        model = network()
        method = make(name, model.parameters())
        losses = draw_losses(method, model, 0)
        with pytest.raises(ValueError, match=rf"takes {method.draws} loss vector.*found 0"):
            method()
        with pytest.raises(ValueError, match=rf"found {method.draws + 1}: "):
            method(*losses, model.losses(batch(seed=9)))

    @every_kind
    def test_wrong_number_of_objectives(self, name):
        model = network()
        method = make(name, model.parameters(), objectives=4)
        with pytest.raises(ValueError, match=r"losses( \(draw 1\))? must have 4 entries.*found 3"):
            method(*draw_losses(method, model, 0))

    @every_kind
    def test_losses_without_graph(self, name):
        model = network()
        method = make(name, model.parameters())
        with pytest.raises(ValueError, match=r"losses( \(draw 1\))? must require grad"):
            method(*[one.detach() for one in draw_losses(method, model, 0)])

    @every_kind
    def test_objective_that_reaches_nothing(self, name):
        model = network()
        method = make(name, model.parameters())
        losses = [
            torch.stack([one[0], torch.tensor(1.0).double(), one[2]])
            for one in draw_losses(method, model, 0)
        ]
        with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
            method(*losses)

    @every_kind
    def test_objective_that_reaches_its_head_only(self, name):
        model = network()
        method = make(name, model.trunk.parameters())
        losses = [
            [one[0], model.heads[1].weight.square().sum(), one[2]]
            for one in draw_losses(method, model, 0)
        ]
        with pytest.raises(ValueError, match="objective 1 reaches none of the given parameters"):
            method(*losses)

    @every_kind
    def test_losses_of_the_wrong_kind(self, name):
        model = network()
        method = make(name, model.parameters())
        good = draw_losses(method, model, 0)
        with pytest.raises(ValueError, match=r"1-D tensor .* found shape \(\)"):
            method(*[one.sum() for one in good])
        with pytest.raises(
            TypeError, match=r"\[0\] must be a scalar tensor, found float: .*\.item"
        ):
            method(*[[1.0, 2.0, 3.0] for _ in good])

    @pytest.mark.parametrize(("name", "objectives"), in_turn(TABLE, [0, -1, 2.5, True]))
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


def test_info_says_how_far_the_weights_have_moved():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    modo = trimol.MoDo([x], 2, gamma=0.01)
    modo(torch.tensor([1.0, 2.0]) * x, torch.tensor([1.0, 2.0]) * x)
    # λ − γ(½, 2) = (0.495, 0.48), on the simplex ½ ± 0.0075: 1.5 % of a uniform weight.
    assert modo.info.moved == pytest.approx(0.015, rel=1e-12)
    modo(torch.tensor([1.0, 2.0]) * x, torch.tensor([1.0, 2.0]) * x)
    assert modo.info.moved > 0.025


class TestWhatIsEasilyMistaken:
    def test_a_misspelt_argument_names_the_one_that_was_meant(self):
        model = network()
        message = r"^MoDo has no argument 'gama' \(did you mean gamma\?\): it has gamma, "
        with pytest.raises(TypeError, match=message):
            make("modo", model.parameters(), gama=0.1)
        assert "unknown" not in inspect.signature(trimol.Static).parameters

    def test_weights_and_preferences_by_name(self):
        model = network()
        named = {"objectives": ["a", "b", "c"]}
        by_name = {"c": 0.5, "a": 0.2, "b": 0.3}
        static = make("static", model.parameters(), weights=by_name, **named)
        modo = make("modo", model.parameters(), weights=by_name, **named)
        stch = make("stch", model.parameters(), prefer=by_name, **named)
        assert static.weights.tolist() == modo.weights.tolist() == stch.prefer.tolist()
        assert static.weights.tolist() == [0.2, 0.3, 0.5]
        with pytest.raises(ValueError, match="weights must have 'a', 'b', 'c', found none for 'b'"):
            make("static", model.parameters(), weights={"a": 1, "c": 1}, **named)

    @pytest.mark.parametrize("name", ["mgda", "modo", "pcgrad", "famo"])
    def test_the_mean_of_no_samples_never_enters_the_weights(self, name):
        """Its loss is NaN, its gradient 0: MGDA would stand still there, without a word."""
        model = network()
        method = make(name, model.parameters(), objectives=["a", "b", "c"])
        given = [
            {"a": one[0], "b": one[1], "c": 0 * one[2] + torch.nan}
            for one in draw_losses(method, model, 0)
        ]
        before = method.weights.clone()
        with pytest.warns(RuntimeWarning, match=r"NaN or infinity in the loss of 'c' \(.*None"):
            method(*given).backward()
        assert torch.equal(method.weights, before)
        assert (method.info.skipped, method.info.updated) == (1, False)
        grads = [param.grad for param in model.trunk.parameters()]
        assert all(grad.isfinite().all() for grad in grads if grad is not None)

    def test_a_loss_by_name_that_is_left_out_or_no_scalar(self):
        model = network()
        method = make("mgda", model.parameters(), objectives=["a", "b", "c"])
        ((one, two, _),) = draw_losses(method, model, 0)
        with pytest.raises(ValueError, match=r"found none for 'c' \(say None where the batch"):
            method({"a": one, "b": two})
        with pytest.raises(ValueError, match=r"^losses\['b'\] must be a scalar, .* take its mean"):
            method({"a": one, "b": torch.stack([two, two]), "c": two})


class TestASecondDerivativeOrBackward:
    """As of a plain loss, or refused: for every method, with parameters that it does not weigh."""

    @staticmethod
    def made(name, trunk=False):
        model = network()
        method = make(name, model.trunk.parameters() if trunk else model.parameters())
        before = method.weights
        scalar = ROWS[name].call(method, model.step(method.draws))
        return model, scalar, (method, ROWS[name].used(method, before))

    @every_method
    @pytest.mark.parametrize("trunk", [False, True])
    def test_a_second_backward_is_an_error(self, name, trunk):
        model, scalar, _ = self.made(name, trunk)
        scalar.backward()
        before = [param.grad.clone() for param in model.parameters()]
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            scalar.backward()
        assert all(map(torch.equal, before, (param.grad for param in model.parameters())))

    @every_method
    def test_a_second_backward_that_was_announced_adds_the_same(self, name):
        model, scalar, _ = self.made(name)
        scalar.backward(retain_graph=True)
        before = [param.grad.clone() for param in model.parameters()]
        scalar.backward()
        for old, param in zip(before, model.parameters(), strict=True):
            torch.testing.assert_close(param.grad, 2 * old)

    @every_method
    def test_a_gradient_has_a_graph_or_is_refused(self, name):
        """That of G λ, where it has one."""
        model, scalar, (method, weights) = self.made(name)
        params = list(model.parameters())
        if "Attached" in scalar.grad_fn.name():
            with pytest.raises(ValueError, match=r"^create_graph must be False: this method's g"):
                torch.autograd.grad(scalar, params, create_graph=True)
            with pytest.raises(ValueError, match=r"^create_graph must be False"):
                scalar.backward(create_graph=True)
            return
        found = torch.autograd.grad(scalar, params, create_graph=True)
        curved = torch.autograd.grad(sum(g.square().sum() for g in found), params)
        losses = torch.stack(model.step(method.draws)[ROWS[name].moves_on].losses).mean(0)
        plain = torch.autograd.grad(weights @ losses, params, create_graph=True)
        expected = torch.autograd.grad(sum(g.square().sum() for g in plain), params)
        for got, want in zip(curved, expected, strict=True):
            torch.testing.assert_close(got, want)


class TestTensorsThatNoMethodCanUse:
    """One line, the same for every method."""

    @every_method
    def test_losses_whose_graph_was_freed(self, name):
        """Where this release of torch does not tell, some methods leave it to backward()."""
        model = network()
        method, params = make(name, model.parameters()), list(model.parameters())
        step = model.step(method.draws)
        torch.autograd.grad(step.losses[0].sum(), params)
        saved = params[0].exp().grad_fn._raw_saved_result
        said = "^losses must have their graph, found one that a b"
        if not hasattr(saved, "unpack_hook"):
            said += "|backward through the graph a second time"
        with pytest.raises((ValueError, RuntimeError), match=said):
            ROWS[name].call(method, step).backward()

    @every_kind
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (lambda f: f.to_sparse(), "must be dense, found torch.sparse_coo$"),
            (lambda f: f.to("meta"), "must hold numbers, found a tensor on 'meta'$"),
        ],
    )
    def test_losses(self, name, changed, message):
        model = network()
        method = make(name, model.parameters())
        step = model.step(method.draws)
        step = replace(step, losses=[changed(losses) for losses in step.losses])
        with pytest.raises((ValueError, TypeError), match=rf"^losses( \(draw 1\))? {message}"):
            ROWS[name].call(method, step)

    @every_kind
    @pytest.mark.parametrize(
        ("param", "message"),
        [
            (torch.ones(3).to_sparse(), "must be dense, found torch.sparse_coo at place 1$"),
            (torch.ones(3, device="meta"), "must hold numbers, found one on 'meta' at place 1$"),
            (torch.ones(3).long(), "must be floating point, found torch.int64 at place 1: leave "),
        ],
    )
    def test_params(self, name, param, message):
        with pytest.raises((ValueError, TypeError), match=f"^params {message}"):
            make(name, [torch.ones(2, requires_grad=True), param])


SWITCHES = [
    (name, p.name) for name in TABLE for p in outline(name).parameters if p.types == ("bool",)
]


@pytest.mark.parametrize(("name", "switch"), SWITCHES, ids=":".join)
def test_a_switch_is_true_or_false(name, switch):
    for value in ("no", 1, None, 0.0, [True]):
        with pytest.raises(ValueError, match=f"{switch} must be True or False, found "):
            make(name, network().parameters(), **{switch: value})


@every_kind
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_of_a_state_are_finite(name, bad):
    method = make(name, network().parameters())
    before = {key: value.clone() for key, value in method.state_dict().items()}
    state = {**before, "weights": before["weights"].clone()}
    state["weights"][1] = bad
    with pytest.raises(ValueError, match=r"weights of a state must be finite, found \["):
        method.load_state_dict(state)
    for key, value in method.state_dict().items():
        assert torch.equal(value, before[key]) or not value.isfinite().all(), key
