"""A recommender with missing labels: shown items are clicked or not, clicked ones bought or not.

    python examples/recommender.py

Whether an item is bought is known where it was clicked, so that many batches have few such labels
or none. The tables of users and items are large: their gradients are sparse, for SparseAdam.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trimol

USERS, ITEMS, WIDTH, BATCH = 200, 2000, 16, 32

Batch = tuple[Tensor, ...]


class Recommender(nn.Module):
    """Embeddings and a trunk, shared; a head for the click, one for the conversion."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH, sparse=True)
        self.items = nn.Embedding(ITEMS, WIDTH, sparse=True)
        self.trunk = nn.Sequential(nn.Linear(2 * WIDTH, 32), nn.ReLU())
        self.click, self.convert = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
        """Two logits for each user and item."""
        z = self.trunk(torch.cat([self.users(user), self.items(item)], 1))
        return self.click(z)[:, 0], self.convert(z)[:, 0]


def data(size: int = 4096) -> Batch:
    """Made up: tastes decide the click, tastes and the item's price the purchase after it."""
    random = torch.Generator().manual_seed(0)
    user = torch.randint(USERS, (size,), generator=random)
    item = torch.randint(ITEMS, (size,), generator=random)
    taste = torch.cos(0.1 * user - 0.01 * item)
    clicked = torch.rand(size, generator=random) < 0.3 * taste.clamp_min(0)
    bought = clicked & (torch.rand(size, generator=random) < 1 - item / ITEMS)
    return user, item, clicked, bought


def losses(model: Recommender, batch: Batch) -> dict[str, Tensor | None]:
    """A loss for each objective; None where the batch has no label of it."""
    user, item, clicked, bought = batch
    click, convert = model(user, item)
    found: dict[str, Tensor | None] = {
        "click": F.binary_cross_entropy_with_logits(click, clicked.float()),
        "conversion": None,
    }
    if clicked.any():
        known = convert[clicked], bought[clicked].float()
        found["conversion"] = F.binary_cross_entropy_with_logits(*known)
    return found


def main(epochs: int = 3) -> trimol.MoDo:
    """Train; the method, in the end."""
    torch.manual_seed(0)
    model = Recommender()
    tables = [*model.users.parameters(), *model.items.parameters()]
    dense = [p for p in model.parameters() if all(p is not table for table in tables)]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.SparseAdam(tables, lr=0.02),
        torch.optim.Adam(dense, lr=0.005),
    ]
    shared = [*tables, *model.trunk.parameters()]
    method = trimol.MoDo(shared, objectives=["click", "conversion"], gamma=0.1)
    columns = data()
    for epoch in range(epochs):
        for places in torch.randperm(len(columns[0])).split(BATCH):
            first, second = trimol.data.split(tuple(c[places] for c in columns), 2)
            method(losses(model, first), losses(model, second)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        told = method.info
        assert told is not None
        weights = ", ".join(f"{n} {w:.3f}" for n, w in method.weights_by_name.items())
        print(f"epoch {epoch + 1}  λ {weights}  {told.kept} steps without a conversion so far")
    return method


if __name__ == "__main__":
    main()
