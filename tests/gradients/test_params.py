"""The parameters that a user hands over."""

import pytest
import torch
from torch import nn

from trimol.gradients._backward import dense
from trimol.gradients._params import checked, flattened, split, trainable


def test_an_iterable_becomes_a_list_without_repetitions() -> None:
    model = nn.Linear(2, 3)
    assert [id(p) for p in checked(model.parameters())] == [id(p) for p in model.parameters()]
    a, b = torch.ones(2), torch.ones(2)  # equal, but two
    assert [id(p) for p in checked(iter([a, b, a]))] == [id(a), id(b)]


def test_errors_name_the_argument_and_the_value() -> None:
    with pytest.raises(
        TypeError, match=r"^params must be an iterable of tensors, found a single tensor$"
    ):
        checked(torch.ones(3))
    with pytest.raises(TypeError, match=r"^params must hold tensors, found tuple at place 0$"):
        checked(nn.Linear(2, 3).named_parameters())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^params must hold tensors, found str at place 1$"):
        checked([torch.ones(1), "weight"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^params must be real, found torch.complex64 at place 1$"):
        checked([torch.ones(1), torch.ones(1, dtype=torch.complex64)])
    assert len(checked([torch.ones(1, dtype=torch.complex64)], real=False)) == 1
    empty = r"^params must hold at least one tensor, found none \(an empty generator\?\)$"
    with pytest.raises(ValueError, match=empty):
        checked([])
    used_up = nn.Linear(2, 3).parameters()
    list(used_up)
    with pytest.raises(ValueError, match=empty):
        checked(used_up)


def test_complex_parameters_are_pairs_of_real_numbers() -> None:
    real, pairs = torch.randn(3), torch.randn(2, 2, dtype=torch.complex64)
    flat = flattened([real, pairs.conj()])
    assert flat.dtype == torch.float32
    assert torch.equal(flat[3:5], torch.stack([pairs[0, 0].real, -pairs[0, 0].imag]))
    one, two = split(flat, [real, pairs])
    assert torch.equal(one, real)
    assert torch.equal(two, pairs.conj().resolve_conj())


def test_trainable_are_those_that_require_grad() -> None:
    frozen, live = torch.ones(2), torch.ones(2, requires_grad=True)
    assert [id(p) for p in trainable([frozen, live])] == [id(live)]
    with pytest.raises(
        ValueError, match=r"^params must hold a tensor that requires grad, found 2 frozen$"
    ):
        trainable([frozen, torch.ones(1)])


def test_dense_leaves_ordinary_gradients_alone() -> None:
    ordinary = torch.eye(3)
    assert dense(ordinary) is ordinary
    assert torch.equal(dense(ordinary.to_sparse()), ordinary)


def test_a_module_is_told_to_give_its_parameters() -> None:
    for module in (nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))):
        with pytest.raises(TypeError, match=r"found a module: pass its \.parameters\(\)$"):
            checked(module)  # type: ignore[arg-type]
