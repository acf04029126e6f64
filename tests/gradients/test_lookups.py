"""Sparse gradients stay sparse, where all of them are."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import trimol


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(30, 4, sparse=True, padding_idx=2)
        self.items = nn.EmbeddingBag(30, 4, mode="sum", sparse=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.users(x).sum(1) + self.items(x)).square().mean(0)


def words() -> Tensor:
    return torch.randint(0, 12, (6, 3))


def gradients(method: trimol.methods.Method, draws: list[Tensor]) -> list[Tensor]:
    for p in method.params:
        p.grad = None
    method(*draws).backward()
    return [p.grad for p in method.params]


@pytest.mark.parametrize("kind", [trimol.MGDA, trimol.CAGrad, trimol.PCGrad, trimol.UPGrad])
def test_a_sparse_gradient_is_the_dense_one_on_the_rows_looked_up(kind: type) -> None:
    model = Recommender()
    method = kind(list(model.parameters()), objectives=3)
    x = words()
    users, items, *dense = gradients(method, [model(x)])
    assert all(g.layout is torch.strided for g in dense)
    assert set(users.coalesce().indices()[0].tolist()) == set(x.unique().tolist()) - {2}
    assert set(items.coalesce().indices()[0].tolist()) == set(x.unique().tolist())
    model.users.sparse = model.items.sparse = False
    torch.manual_seed(0)
    again = gradients(kind(list(model.parameters()), objectives=3), [model(x)])
    assert all(g.layout is torch.strided for g in again)
    for got, want in zip((users, items, *dense), again, strict=True):
        torch.testing.assert_close(got.to_dense(), want)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_double_sampling(simultaneous: bool) -> None:
    model = Recommender()
    method = trimol.MoDo(list(model.parameters()), objectives=3, simultaneous=simultaneous)
    users, items, *_ = gradients(method, [model(words()), model(words())])
    assert method.info.route == "tangents"
    assert users.layout is items.layout is torch.sparse_coo


def test_micro_batches() -> None:
    model = Recommender()
    method = trimol.MGDA(list(model.parameters()), objectives=3)
    method.accumulate(model, [[words()], [words()]]).backward()
    assert model.users.weight.grad.layout is torch.sparse_coo


OTHERWISE: dict[str, Callable[[Recommender, Tensor], Tensor]] = {
    "used elsewhere": lambda m, x: m(x) + m.users.weight.square().mean(),
    "dense in one place": lambda m, x: m(x) + nn.functional.embedding(x, m.users.weight).mean(),
    "a part of it": lambda m, x: m(x) + m.users.weight[3].mean(),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_parameter_that_is_used_otherwise_gets_a_dense_gradient(name: str) -> None:
    model = Recommender()
    method = trimol.MGDA(list(model.parameters()), objectives=3)
    users, items, *_ = gradients(method, [OTHERWISE[name](model, words())])
    assert users.layout is torch.strided
    assert items.layout is torch.sparse_coo


def test_what_is_tracked_over_steps_is_not_cut_off() -> None:
    """MoCo moves rows that this batch does not look up."""
    model = Recommender()
    method = trimol.MoCo(list(model.parameters()), objectives=3)
    gradients(method, [model(torch.full((6, 3), 1))])
    users, *_ = gradients(method, [model(torch.full((6, 3), 5))])
    assert users[1].any()


def test_sparse_adam_takes_what_mgda_gives() -> None:
    model = Recommender()
    method = trimol.MGDA(list(model.parameters()), objectives=3)
    tables = [model.users.weight, model.items.weight]
    optimizer = torch.optim.SparseAdam(tables)
    before = model.users.weight.detach().clone()
    gradients(method, [model(torch.full((6, 3), 5))])
    optimizer.step()
    moved = (model.users.weight.detach() != before).any(1).nonzero().flatten()
    assert moved.tolist() == [5]
