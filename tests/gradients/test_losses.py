"""Loss vectors: what is accepted, what is refused, and where each objective starts."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from trimol.gradients.losses import as_vector, entries, starts


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, requires_grad=True)


def test_a_vector_is_taken_as_it_is(x: Tensor) -> None:
    losses = x.sin()
    assert as_vector(losses) is losses


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_sequence_of_scalars_is_stacked(x: Tensor, kind: Any) -> None:
    vector = as_vector(kind([x.sum(), x[:1], x[0].view(1, 1), torch.tensor(2.0)]))
    assert vector.shape == (4,)
    assert vector.requires_grad
    torch.testing.assert_close(vector[3].item(), 2.0)


NO_VECTOR = r"must be a 1-D tensor with one entry per objective \(or a sequence of scalar tensors\)"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x: x.sum(), ValueError, rf"{NO_VECTOR}, found shape \(\): write \[a, b\]"),
        (lambda x: x.view(3, 1), ValueError, rf"{NO_VECTOR}, found shape \(3, 1\)"),
        (lambda x: x[:0], ValueError, rf"{NO_VECTOR}, found shape \(0,\)"),
        (lambda x: x.long(), TypeError, r"must be floating point, found torch\.int64"),
        (
            lambda x: x.to(torch.complex64),
            TypeError,
            r"must be floating point, found torch\.complex64",
        ),
        (
            lambda x: x.detach(),
            ValueError,
            r"must require grad: no graph leads from it to the parameters \(was it detached, or "
            r"computed under torch\.no_grad\(\)\?\)",
        ),
        (lambda x: [], ValueError, r"must hold at least one loss, found an empty sequence"),
    ],
)
def test_what_is_no_loss_vector_is_refused(make: Any, error: Any, message: str, x: Tensor) -> None:
    with pytest.raises(error, match=f"^these {message}$"):
        as_vector(make(x), "these")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda x: [x.sum(), 2.0],
            TypeError,
            r"these\[1\] must be a scalar tensor, found float: a tensor with its graph, without "
            r"\.item\(\)",
        ),
        (
            lambda x: [x, x.sum()],
            ValueError,
            r"these\[0\] must be a scalar, found shape \(3,\): take its mean over samples",
        ),
        (lambda x: [None], TypeError, r"these\[0\] must be a scalar tensor, found NoneType"),
    ],
)
def test_what_is_no_scalar_in_a_sequence_is_refused(
    make: Any, error: Any, message: str, x: Tensor
) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        as_vector(make(x), "these")


def test_losses_under_no_grad_are_refused(x: Tensor) -> None:
    with torch.no_grad():
        losses = [x.sum(), x.prod()]
    with pytest.raises(ValueError, match=r"^losses must require grad"):
        as_vector(losses)


def test_starts_of_a_stack_are_the_scalars_own(x: Tensor) -> None:
    a, b = x.sum(), x.prod()
    assert starts(torch.stack([a, b])) == [get_gradient_edge(a), get_gradient_edge(b)]
    assert starts(torch.stack([a, torch.tensor(1.0)])) == [get_gradient_edge(a), None]


def test_starts_of_anything_else_are_unknown(x: Tensor) -> None:
    assert starts(x) is None
    assert starts(x.sin()) is None
    assert starts(torch.stack([x.sum(), x.prod()]) * 2) is None
    assert starts(torch.stack([x[:1], x[1:2]]).view(2)) is None


def test_entries_of_a_stack_do_not_pass_through_it(x: Tensor) -> None:
    """The backward of one entry must not send zeros through the graphs of the others."""
    ran = []
    scalars = [x.sum(), x.prod(), x.max()]
    for i, scalar in enumerate(scalars):
        scalar.register_hook(lambda g, i=i: ran.append(i))
    found = entries(torch.stack(scalars))
    assert all(isinstance(entry, GradientEdge) for entry in found)
    torch.autograd.grad(found[1], x)
    assert ran == [1]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.sin(),
        lambda x: torch.stack([x.sum(), torch.tensor(1.0), x.prod()]),
        lambda x: torch.stack([x.sum(), x.prod()]) * 3,
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_entries_of_anything_else_are_its_entries(make: Any, grad: bool, x: Tensor) -> None:
    vector = make(x)
    with torch.set_grad_enabled(grad):
        found = entries(vector)
        gradients = [
            torch.autograd.grad(entry, x, retain_graph=True, materialize_grads=True)[0]
            for entry in found
        ]
    want = [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in vector]
    torch.testing.assert_close(gradients, want)


def test_a_hook_on_the_stack_is_not_passed_by(x: Tensor) -> None:
    vector = torch.stack([x.sum(), x.prod()])
    vector.register_hook(lambda g: 3 * g)
    (gradient,) = torch.autograd.grad(entries(vector)[0], x)
    torch.testing.assert_close(gradient, torch.full_like(x, 3))


def test_a_dict_is_told_to_give_its_values() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"found a mapping: pass list\(losses\.values\(\)\)$"):
        as_vector({"one": x[0], "two": x[1]})  # type: ignore[arg-type]
