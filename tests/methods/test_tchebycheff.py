import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_fronts import FRONTS, SIDE, concave, descended, on_the_front, on_the_ray
from problems import batch, flat_gradient, network

import trimol
from trimol.methods.tchebycheff import tchebycheff_weights

PREFER, IDEAL = [0.2, 0.5, 0.3], [-0.1, 0.0, 0.2]


def test_direction_is_the_gradient_of_the_scalarization():
    model = network()
    params = list(model.parameters())
    prefer, ideal = torch.tensor(PREFER).double(), torch.tensor(IDEAL).double()
    largest = (prefer * (model.losses(batch()) - ideal)).amax()
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(largest, params)])
    method = trimol.Tchebycheff(params, 3, prefer=PREFER, ideal=IDEAL)
    method(model.losses(batch())).backward()
    torch.testing.assert_close(flat_gradient(params), expected)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("front", FRONTS)
def test_it_ends_where_the_largest_weighted_loss_is_least(front, share):
    losses, prefer = FRONTS[front], torch.tensor([share, 1 - share]).double()
    x, _ = descended(trimol.Tchebycheff, losses, prefer=prefer)
    largest = (prefer * losses(x)).max().item()
    grid = torch.linspace(-SIDE, SIDE, 2001).double()
    least = min((prefer * losses(on_the_front(t))).max().item() for t in grid)
    assert largest == pytest.approx(least, abs=5e-3)
    torch.testing.assert_close(losses(x), on_the_ray(losses, prefer.tolist()), rtol=0, atol=5e-3)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_no_weighted_sum_ends_on_the_concave_part(share):
    """Why the others are needed: fixed weights run to an end of the front, for every weight."""
    x, _ = descended(trimol.Static, concave, weights=[share, 1 - share], lr=0.5)
    assert x.abs().min() > 0.67  # the ends are at 1/√2


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.floats(-1e8, 1e8), min_size=1, max_size=6), st.randoms())
def test_the_weight_is_on_the_worst_in_any_order(above, random):
    above = torch.tensor(above, dtype=torch.float64)
    prefer = torch.tensor([random.uniform(0.1, 1) for _ in above]).double()
    weights = tchebycheff_weights(above, prefer)
    assert (weights / prefer).sum().item() == pytest.approx(1)
    assert ((prefer * above)[weights > 0] == (prefer * above).max()).all()
    order = torch.randperm(len(above))
    assert torch.equal(tchebycheff_weights(above[order], prefer[order]), weights[order])


def test_what_ties_shares_its_weight():
    weights = tchebycheff_weights(torch.tensor([2.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 0.5]))
    assert weights.tolist() == [0.5, 1.0, 0.0]


def test_bad_hyperparameters():
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"prefer must be above 0, found \[1.0, 0.0\]"):
        trimol.Tchebycheff([x], 2, prefer=[1.0, 0.0])
    with pytest.raises(ValueError, match="ideal must have 2 entries, one per objective, found"):
        trimol.Tchebycheff([x], 2, ideal=[1.0])


@pytest.mark.parametrize("method", ["tchebycheff", "stch", "pbi", "pmgda"])
def test_a_preference_among_losses_that_are_all_below_their_ideal_is_refused(method):
    """There p (f − z) is the lowest where p is the largest."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)

    def step(losses, **options):
        made = trimol.methods.get(method)([x], objectives=2, **options)
        return made(losses)

    with pytest.raises(ValueError, match=r"ideal must be below the losses .* found losses that"):
        step(x.square() - 9, prefer=[0.9, 0.1])
    step(x.square() - 9, prefer=[0.9, 0.1], ideal=[-9.0, -9.0])
    step(x.square() - 9, prefer=[0.5, 0.5])  # which prefers nothing
    step(x.square() - 2, prefer=[0.9, 0.1])  # one of them is above
