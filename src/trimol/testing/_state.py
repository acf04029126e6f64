"""What a method carries from step to step, and through a checkpoint."""

import copy
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trimol._generators import Generators
from trimol.methods import Method
from trimol.testing._problems import network
from trimol.testing._row import Row


def assert_state_resumes_bit_for_bit(row: Row, steps: int = 3) -> None:
    """A fresh instance that loads the state goes on exactly as the old one."""
    whole = network(dtype=torch.float32)
    method, optimizer = row.new(whole.parameters()), torch.optim.Adam(whole.parameters())
    row.train(method, whole, optimizer, range(steps))
    saved = _saved(whole, optimizer, method)
    row.train(method, whole, optimizer, range(steps, 2 * steps))

    resumed = network(dtype=torch.float32, seed=1)
    again, other = row.new(resumed.parameters()), torch.optim.Adam(resumed.parameters())
    torch.rand(7)  # the global generator is elsewhere: random methods must bring their own state
    parts: tuple[Any, ...] = (resumed, other, again)
    for part, state in zip(parts, torch.load(saved, weights_only=True), strict=True):
        part.load_state_dict(state)
    row.train(again, resumed, other, range(steps, 2 * steps))
    assert_same_state(again, method)
    for a, b in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b), "the parameters differ after resuming"


def _saved(*parts: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save([part.state_dict() for part in parts], file)
    file.seek(0)
    return file


def assert_same_state(method: Method, want: Method) -> None:
    """Two methods hold the same state, to the bit."""
    assert_same(method.state_dict(), want.state_dict())


def assert_same(state: Mapping[str, Any], want: Mapping[str, Any], but: Sequence[str] = ()) -> None:
    """Two ``state_dict``s are the same, to the bit, but for the entries named."""
    assert state.keys() == want.keys(), f"{state.keys() ^ want.keys()} in one state only"
    for key in state:
        assert key in but or _equal(state[key], want[key]), f"{key} differs"


def _equal(one: Any, two: Any) -> bool:
    """Extra state may hold anything: look inside."""
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return torch.equal(one, two)
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    return bool(one == two)


def assert_evaluation_touches_nothing(row: Row) -> None:
    """In eval mode and without gradients a call gives λᵀF, and training goes on as without it."""
    model = network()
    method = row.new(model.parameters())
    row.call(method, model.step(method.draws, 0))
    state, info = copy.deepcopy(method.state_dict()), method.info
    one, all_draws = model.step(1, 1), model.step(method.draws, 2)
    random = Generators(method)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        method.train(mode is not torch.enable_grad)
        with mode():
            values = [row.call(method, step) for step in (one, all_draws)]
        for value, step in zip(values, (one, all_draws), strict=True):
            want = method.weights @ step.values()
            torch.testing.assert_close(value.detach(), want, rtol=1e-12, atol=1e-12)
            assert value.requires_grad == (mode is torch.enable_grad), f"a graph under {mode}"
    assert method.train() is method, "train() must return the method"
    assert_same(method.state_dict(), state)
    assert method.info is info, "info changed"
    assert random.now().state_dict() == random.state_dict(), "random numbers were drawn"


def assert_state_holds_no_model_parameters(row: Row) -> None:
    """The state is the method's own: the model's parameters are the model's to save."""
    method = row.new(network().parameters())
    assert not list(method.parameters()), "the method holds parameters"
    missing = {"weights", "step", "skipped", "kept"} - set(method.state_dict())
    assert not missing, f"{missing} not in the state"


def assert_reset_is_a_new_instance(row: Row) -> None:
    """After `reset`, the state is that of a new instance, and so are the next steps."""
    model = network()
    method = row.new(model.parameters())
    fresh, first = copy.deepcopy(method.state_dict()), []
    for seed in range(2):
        first.append(row.call(method, model.step(method.draws, seed)).item())
    assert method.reset() is method, "reset() must return the method"
    assert method.info is None, "info is left after reset()"
    assert_same(method.state_dict(), fresh)
    again = [row.call(method, model.step(method.draws, seed)).item() for seed in range(2)]
    assert again == first, "after reset() the steps differ from those of a new instance"


def assert_is_a_module_that_copies_and_prints(row: Row) -> None:
    """A deep copy of model and method steps as they do; the method says what it is."""
    model = network()
    method = row.new(model.parameters())
    twin, other = copy.deepcopy((method, model))
    for one, net in ((method, model), (twin, other)):
        row.call(one, net.step(one.draws)).backward()
    assert_same_state(twin, method)
    for a, b in zip(other.parameters(), model.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad), "the copy's gradients differ"
    assert "objectives=3" in repr(method), f"objectives=3 not in {method!r}"


def assert_moving_keeps_the_weights_in_float64(row: Row) -> None:
    """``.to()`` and ``.half()`` on a parent module leave λ in float64."""
    method = row.new(network().parameters())
    before = method.weights.clone()
    assert method.to(torch.bfloat16) is method, ".to() must return the method"
    assert method.half().weights.dtype == torch.float64, f"weights in {method.weights.dtype}"
    assert torch.equal(method.weights, before), "the weights changed"
