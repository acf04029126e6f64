"""Networks of recommenders: against plain torch, sparse against dense, and what is shared."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import Adam

from trimol.tasks.recommenders.networks import Adams, Bags, mixture_of_experts, shared_bottom

X = torch.tensor([[[1, 0], [2, 3]], [[4, 4], [0, 0]]])


def test_bags_add_up_and_zero_is_no_word() -> None:
    bags = Bags(6, 3)
    table = bags.table.weight.detach()
    expected = torch.stack(
        [torch.cat([table[1], table[2] + table[3]]), torch.cat([2 * table[4], torch.zeros(3)])]
    )
    torch.testing.assert_close(bags(X), expected)
    assert not table[0].any()


def test_a_mixture_is_the_gates_sum_of_experts() -> None:
    model = mixture_of_experts(Bags(6, 3), 6, 5, ["a", "b"], experts=4)
    inputs = model.trunk.bags(X)
    layer, head = model.trunk.experts, model.heads["b"]
    outputs = [
        (inputs @ layer.weight[5 * e : 5 * e + 5].T + layer.bias[5 * e : 5 * e + 5]).relu()
        for e in range(4)
    ]
    shares = head.gate(inputs).softmax(1)
    mixed = sum(shares[:, e : e + 1] * outputs[e] for e in range(4))
    torch.testing.assert_close(model(X)["b"], head.tower(mixed))


def test_gates_are_no_part_of_what_the_method_weighs() -> None:
    model = mixture_of_experts(Bags(6, 3), 6, 5, ["a", "b"], experts=4)
    shared = {id(p) for p in model.trunk.parameters()}
    assert not shared & {id(p) for head in model.heads.values() for p in head.parameters()}
    model(X)["a"].sum().backward()
    assert model.heads["b"].gate.weight.grad is None


@pytest.mark.parametrize("sparse", [True, False])
def test_only_words_that_were_seen_move_by_sparse_steps(sparse: bool) -> None:
    model = shared_bottom(Bags(6, 3, sparse=sparse), 6, 32, ["a"])
    table = model.trunk[0].table.weight
    before = table.detach().clone()
    both = Adams(model.parameters(), 0.1, [table] if sparse else [])
    for x in (X[:1], X[1:]):
        both.zero_grad()
        model(x)["a"].sum().backward()
        assert table.grad.is_sparse == sparse
        both.step()
    moved = (table != before).any(1).nonzero().flatten().tolist()
    assert moved == [1, 2, 3, 4]


def test_where_every_word_is_seen_sparse_steps_are_adams() -> None:
    def trained(sparse: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model = shared_bottom(Bags(5, 3, sparse=sparse), 6, 5, ["a"]).double()
        table = model.trunk[0].table.weight
        params = list(model.parameters())
        optimizer = Adams(params, 0.01, [table]) if sparse else Adam(params, lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            model(X)["a"].square().sum().backward()
            optimizer.step()
        return torch.cat([p.flatten() for p in model.parameters()])

    # The two place ε differently.
    torch.testing.assert_close(trained(True), trained(False), atol=1e-4, rtol=1e-4)


def test_both_optimizers_go_on_from_their_state_and_follow_a_schedule() -> None:
    def pieces() -> tuple[nn.Module, Adams]:
        torch.manual_seed(0)
        model = shared_bottom(Bags(6, 3), 6, 5, ["a"])
        return model, Adams(model.parameters(), 0.1, [model.trunk[0].table.weight])

    def step(model: nn.Module, optimizer: Adams) -> None:
        optimizer.zero_grad()
        model(X)["a"].square().sum().backward()
        optimizer.step()

    model, optimizer = pieces()
    step(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    other, fresh = pieces()
    other.load_state_dict(model.state_dict())
    fresh.load_state_dict(saved)
    for own in (optimizer, fresh):
        for group in own.param_groups:
            group["lr"] = 0.01
        assert [g["lr"] for part in own.parts for g in part.param_groups] == [0.01, 0.01]
    step(model, optimizer)
    step(other, fresh)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
