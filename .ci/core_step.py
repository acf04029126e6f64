"""What the core must do in an environment with nothing but its own dependencies: a step of MoDo."""

import torch

import trimol

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
modo = trimol.MoDo(model.parameters(), objectives=3, gamma=0.1)
x, y = torch.randn(16, 4), torch.randn(16, 3)
first, second = ((model(x[i::2]) - y[i::2]).square().mean(0) for i in range(2))
modo(first, second).backward()
assert model.weight.grad is not None
assert abs(modo.weights.sum() - 1) < 1e-12
print(f"trimol {trimol.__version__}, torch {torch.__version__}: weights {modo.weights.tolist()}")
