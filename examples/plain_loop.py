"""Train one classifier on three losses with MoDo, in a plain PyTorch loop. Read top to bottom.

    pip install -c constraints.txt '.[studies]'      # scikit-learn, for its digits
    python examples/plain_loop.py

What trimol adds to a loop that you already have is marked with  # <- trimol.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import trimol  # <- trimol

EPOCHS, BATCH, LR, GAMMA = 25, 64, 3.0, 0.1

torch.manual_seed(0)
torch.set_num_threads(1)  # a small network: threads would only wait for each other

# Data: 1797 handwritten digits, 8×8 pixels in 0…16.
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16).float(), torch.tensor(labels))
train, test = random_split(digits, [1437, 360])
train_loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=LR)


def losses(batch: list[Tensor]) -> Tensor:
    """F(x): one loss per objective, each the mean over the batch."""
    images, truth = batch
    logits = model(images)
    chances, one_hot = logits.softmax(1), F.one_hot(truth, 10).float()
    cross_entropy = F.cross_entropy(logits, truth)
    mse = F.mse_loss(chances, one_hot)
    huber = F.huber_loss(chances, one_hot, delta=0.1)
    return torch.stack([cross_entropy, mse, huber])


modo = trimol.MoDo(model.parameters(), objectives=3, gamma=GAMMA)  # <- trimol

for epoch in range(EPOCHS):
    for first, second in trimol.pairs(train_loader):  # <- trimol: a batch, as two halves
        loss = modo(losses(first), losses(second))  # <- trimol: three losses, one scalar
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if (epoch + 1) % 5 == 0:
        weights = ", ".join(f"{weight:.2f}" for weight in modo.weights.tolist())
        print(f"epoch {epoch + 1:2d}  loss {loss.item():.4f}  weights {weights}")

# How good is it? Errors are means over all of the data: in eval mode, in batches of any size.
model.eval()
images, truth = next(iter(DataLoader(test, batch_size=len(test))))
print(f"accuracy {(model(images).argmax(1) == truth).float().mean():.3f} on test data")

errors = trimol.measure(  # <- trimol
    losses,
    model.parameters(),
    train=DataLoader(train, batch_size=256),
    test=DataLoader(test, batch_size=256),
    weights=modo.weights,
)
print(errors)
