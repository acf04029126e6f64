"""Records: the keys that others read, in their order, and nothing that depends on a clock."""

import math

import pytest
import torch
from torch import Tensor

from trimol import measure
from trimol.errors import Errors
from trimol.training.records import from_errors, objectives_of

X = torch.tensor([1.0, 2.0], requires_grad=True)


def losses(z: Tensor) -> Tensor:
    return torch.stack([(X - z).square().mean(), (X + z).square().mean(), X[0] * 0 + X[1]])


def measured(*, test: bool = True, weights: bool = True, rho: float = 0.0) -> Errors:
    return measure(
        losses,
        [X],
        train=[torch.ones(2, 2)],
        test=[torch.zeros(2, 2)] if test else None,
        weights=[0.5, 0.25, 0.25] if weights else None,
        rho=rho,
    )


def test_all_keys_in_their_order() -> None:
    errors = measured(rho=0.1)
    found = from_errors(
        errors,
        ["a", "b", "c"],
        step=3,
        samples=192,
        metrics={"accuracy": 0.5},
        weights=torch.tensor([0.5, 0.25, 0.25]),
    )
    each = [
        [f"{kind}/{name}" for name in "abc"]
        for kind in ("loss", "test_loss", "weight", "avoiding", "norm")
    ]
    assert list(found) == [
        *("step", "samples"),
        *each[0],
        *each[1],
        "metric/accuracy",
        *each[2],
        *each[3],
        *each[4],
        *("cosine/a/b", "cosine/a/c", "cosine/b/c", "conflicting"),
        *("R_opt", "R_pop", "R_gen", "gen_bound", "E_ca", "E_caw"),
    ]
    assert all(type(value) is float for name, value in found.items() if "/" in name)
    assert (found["step"], found["samples"]) == (3, 192)
    assert found["loss/b"] == errors.losses[1]
    assert found["test_loss/c"] == (errors.test_losses or ())[2]
    assert found["avoiding/a"] == errors.min_norm[0]
    assert found["R_gen"] == errors.gen
    assert found["E_caw"] == errors.conflict_weight
    # Gradients (0, 1) and (2, 3) of the first two, with z = 1.
    assert found["cosine/a/b"] == pytest.approx(3 / math.sqrt(13))


@pytest.mark.parametrize(
    ("test", "weights", "missing"),
    [
        (False, True, {"test_loss/", "R_pop", "R_gen", "gen_bound", "E_caw"}),
        (True, False, {"weight/", "E_ca", "E_caw"}),
    ],
)
def test_what_was_not_measured_is_absent(test: bool, weights: bool, missing: set[str]) -> None:
    found = from_errors(measured(test=test, weights=weights), ["a", "b", "c"], step=0)
    for name in missing:
        assert not [key for key in found if key.startswith(name)]
    assert "samples" not in found
    assert not [key for key in found if key.startswith("metric/")]


def test_names_must_be_as_many_as_objectives() -> None:
    with pytest.raises(ValueError, match="zip"):
        from_errors(measured(), ["a", "b"], step=0)


def test_objectives_with_slashes() -> None:
    assert objectives_of(["step", "loss/a/b", "test_loss/a/b", "loss/c"]) == ("a/b", "c")
