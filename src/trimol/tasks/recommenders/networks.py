"""Networks of recommenders in plain torch: a table of embeddings, shared layers, a tower a task.

An input is N × bags × width whole numbers, the places of words in one table. The embeddings of a
bag (one word, or a history of several) are added up; 0 is no word. Trunk and heads make a
`trimol.tasks.MultiTask`: the table and the shared layers (or experts) are the trunk, which the
method weighs; towers (and gates) are heads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn import functional as F
from torch.optim import Adam, Optimizer, SparseAdam

from trimol.tasks.multitask import MultiTask


class Bags(nn.Module):
    """Embeddings of bags of words, side by side.

    Args:
        words: How many words the table has; word 0 is none.
        width: Numbers of an embedding.
        sparse: Whether gradients hold only the words that a batch has, as SparseAdam wants them.

    Example:
        >>> bags = Bags(words=10, width=4)
        >>> bags(torch.tensor([[[3, 0], [1, 2]]])).shape
        torch.Size([1, 8])
    """

    def __init__(self, words: int, width: int, *, sparse: bool = True) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(words, width, mode="sum", sparse=sparse, padding_idx=0)
        with torch.no_grad():
            self.table.weight.mul_(width**-0.5)
            self.table.weight[0].zero_()

    def forward(self, x: Tensor) -> Tensor:
        """N × (bags · width)."""
        words = x.flatten(0, 1).long()
        if self.table.sparse:
            looked_up: Tensor = self.table(words)
        else:  # the same, by operators that many runs at once have, too
            found = F.embedding(words, self.table.weight)
            looked_up = (found * (words != 0).unsqueeze(-1)).sum(1)
        return looked_up.view(len(x), -1)


def shared_bottom(bags: Bags, inputs: int, hidden: int, tasks: Sequence[str]) -> MultiTask:
    """One hidden layer for all, then a tower for each: the baseline of the literature."""
    trunk = nn.Sequential(bags, nn.Linear(inputs, hidden), nn.ReLU())
    return MultiTask(trunk, {task: _tower(hidden) for task in tasks})


def mixture_of_experts(
    bags: Bags, inputs: int, hidden: int, tasks: Sequence[str], *, experts: int
) -> MultiTask:
    """Several hidden layers for all (experts), which each task mixes by a gate of its own.

    Reference:
        J. Ma, Z. Zhao, X. Yi, J. Chen, L. Hong, E. H. Chi, *Modeling Task Relationships in
        Multi-task Learning with Multi-gate Mixture-of-Experts*, KDD 2018.
    """
    heads = {task: _Gated(inputs, hidden, experts) for task in tasks}
    return MultiTask(_Experts(bags, inputs, hidden, experts), heads)


def _tower(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Flatten(0))


class _Experts(nn.Module):
    """All experts as one layer; gates see the inputs, too: both side by side."""

    def __init__(self, bags: Bags, inputs: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.bags, self.experts = bags, nn.Linear(inputs, experts * hidden)

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.bags(x)
        return torch.cat([inputs, self.experts(inputs).relu()], 1)


class _Gated(nn.Module):
    """A gate's mixture of the experts, then a tower."""

    def __init__(self, inputs: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.inputs, self.experts = inputs, experts
        self.gate, self.tower = nn.Linear(inputs, experts), _tower(hidden)

    def forward(self, shared: Tensor) -> Tensor:
        inputs, outputs = shared.split([self.inputs, shared.shape[1] - self.inputs], 1)
        shares = self.gate(inputs).softmax(1)
        mixed = (shares[:, None] @ outputs.view(len(shared), self.experts, -1))[:, 0]
        told: Tensor = self.tower(mixed)
        return told


class Adams(Optimizer):
    """Adam for all but sparse tables, SparseAdam for these: one optimizer.

    Args:
        params: The model's parameters.
        lr: Step size of both.
        tables: Which of them have sparse gradients.

    Example:
        >>> bags, layer = Bags(10, 2), nn.Linear(2, 1)
        >>> both = Adams([*bags.parameters(), *layer.parameters()], 0.1, [bags.table.weight])
        >>> layer(bags(torch.tensor([[[3]]]))).sum().backward()
        >>> before = bags.table.weight.clone()
        >>> both.step()
        >>> (bags.table.weight != before).any(1).nonzero().flatten()
        tensor([3])
    """

    def __init__(self, params: Iterable[Parameter], lr: float, tables: Iterable[Tensor]) -> None:
        every, sparse = list(params), {id(table) for table in tables}
        super().__init__(every, {"lr": lr})
        looked_up = [p for p in every if id(p) in sparse]
        rest = [p for p in every if id(p) not in sparse]
        self.parts: list[Optimizer] = []
        if looked_up:
            self.parts.append(SparseAdam(looked_up, lr=lr))
        if rest:
            self.parts.append(Adam(rest, lr=lr))
        self._join()

    def _join(self) -> None:
        """Groups are those of the parts: a schedule that changes one changes the other."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Both steps."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Both states."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from saved states."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._join()
