"""LoRA: the adapters get what gradients taken by hand say, and the frozen weights stay."""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import trimol

pytest.importorskip("peft", reason="needs the extra 'integrations'")


@pytest.fixture(scope="module")
def example(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("examples/lora.py")


@pytest.fixture
def problem(example: ModuleType) -> tuple[Any, list[Any], list[torch.Tensor]]:
    """The model with adapters that are no longer zero, those, and two batches of texts."""
    model = example.adapted().eval()  # no dropout: gradients by hand are of the same network
    trained = [param for param in model.parameters() if param.requires_grad]
    with torch.no_grad():
        for param in trained:
            param += 0.1 * torch.randn_like(param)
    texts = [torch.randint(example.WORDS, (4, example.LENGTH)) for _ in range(2)]
    return model, trained, texts


def rows(losses: Any, params: Any) -> torch.Tensor:
    """The Jacobian, an objective a row, by one backward each."""
    found = [torch.autograd.grad(loss, params, retain_graph=True) for loss in losses]
    return torch.stack([torch.cat([g.flatten() for g in row]) for row in found]).double()


def test_the_adapters_get_the_gradient_by_hand(example: ModuleType, problem: Any) -> None:
    model, trained, texts = problem
    first, second = (rows(example.losses(model, part), trained) for part in texts)
    modo = trimol.MoDo(trained, objectives=2, gamma=0.05)
    modo(*(example.losses(model, part) for part in texts)).backward()
    start = torch.full((2,), 0.5).double()
    weights = trimol.simplex.project(start - 0.05 * (first @ (second.T @ start)))
    assert modo.info.route == "tangents"
    torch.testing.assert_close(modo.weights, weights, rtol=1e-5, atol=1e-7)
    gradient = torch.cat([param.grad.flatten() for param in trained]).double()
    torch.testing.assert_close(gradient, weights @ (first + second) / 2, rtol=1e-4, atol=1e-7)


def test_frozen_weights_have_no_gradient_and_stay(example: ModuleType, problem: Any) -> None:
    model, trained, texts = problem
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    mgda = trimol.MGDA(trained, objectives=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    mgda(example.losses(model, texts[0])).backward()
    optimizer.step()
    assert len(frozen) > 10
    for name, param in model.named_parameters():
        assert (name in frozen) == (param.grad is None), name
        assert name not in frozen or torch.equal(param, frozen[name]), name


def test_the_example_runs(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(steps=5)
    told = r"^1024 parameters trained, by tangents\nlosses \[\S+, \S+\]  weights 0\.\d+, 0\.\d+$"
    assert re.search(told, capsys.readouterr().out, re.M)
