"""Calling the engine inside an autocast block gives what it gives outside."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from zoo import draw, several

from trimol.gradients import Evidence, gramian, jacobian, product
from trimol.gradients._autocast import no_autocast

WEIGHTS = torch.linspace(0, 1, 5).softmax(0)


def evidence(first: Tensor, second: Tensor, params: list[Tensor]) -> Tensor:
    found = Evidence([first, second], params, 5)
    product = found.product(WEIGHTS)
    return torch.cat([product, found.scalar(WEIGHTS)[None]])


def evidence_of_rows(first: Tensor, second: Tensor, params: list[Tensor]) -> Tensor:
    found = Evidence([first], params, 5)
    gram = found.gramian()
    scalar = found.scalar(WEIGHTS)
    with no_autocast():  # what the user's own backward does under autocast is the user's
        direction = torch.autograd.grad(scalar, params)
    return torch.cat([gram.flatten(), scalar[None], *(d.flatten() for d in direction)])


CALLS: list[Callable[[Tensor, Tensor, list[Tensor]], Tensor]] = [
    lambda a, b, p: product(a, b, WEIGHTS, p),
    lambda a, b, p: product(a, b, WEIGHTS, p, route="double-vjp"),
    lambda a, b, p: product(a, b, WEIGHTS, p, route="backwards"),
    lambda a, b, p: jacobian(a, p),
    lambda a, b, p: gramian(a, p),
    lambda a, b, p: gramian(a, p, chunk=2),
    evidence,
    evidence_of_rows,
]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_rounded(call: Callable[[Tensor, Tensor, list[Tensor]], Tensor]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    params = list(model.parameters())
    first, second = (several(model(x)) for x in draw(6, 4))
    outside = call(first, second, params)
    with torch.autocast("cpu", torch.bfloat16):
        inside = call(first, second, params)
    assert torch.equal(outside, inside)


def test_autocast_is_as_it_was_afterwards() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        with no_autocast():
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
        with pytest.raises(KeyError), no_autocast():
            raise KeyError
        assert torch.is_autocast_enabled("cpu")


def test_a_release_that_raises_where_there_is_no_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_there() -> None:  # as torch 2.6 does
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", none_there)
    with torch.autocast("cpu", torch.bfloat16), no_autocast():
        assert not torch.is_autocast_enabled("cpu")
