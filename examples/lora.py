"""Two losses and LoRA: the method weighs the adapters, and nothing else is trained.

    pip install -c constraints.txt '.[integrations]'
    python examples/lora.py

The model is a tiny one made from a configuration; nothing is downloaded.
"""

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import trimol

WORDS, LENGTH = 32, 16


def adapted() -> nn.Module:
    """A language model with LoRA adapters in its attention."""
    torch.manual_seed(0)
    size = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**size, bos_token_id=None, eos_token_id=None)
    adapters = LoraConfig(r=4, target_modules=["c_attn"], lora_dropout=0.0, fan_in_fan_out=True)
    model: nn.Module = get_peft_model(GPT2LMHeadModel(config), adapters)
    return model


def losses(model: nn.Module, texts: Tensor) -> Tensor:
    """Two styles to learn at once: count up, and repeat; each word predicted from those before."""
    logits = model(input_ids=texts).logits[:, :-1].flatten(0, 1)
    now = texts[:, :-1].flatten()
    return torch.stack([F.cross_entropy(logits, (now + 1) % WORDS), F.cross_entropy(logits, now)])


def main(steps: int = 30) -> None:
    """Train the adapters."""
    model = adapted()
    trained = [param for param in model.parameters() if param.requires_grad]
    modo = trimol.MoDo(trained, objectives=2, gamma=5.0)  # the adapters only
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    for _ in range(steps):
        texts = torch.randint(WORDS, (16, LENGTH))
        first, second = trimol.data.dealt(texts, 2)
        modo(losses(model, first), losses(model, second)).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = ", ".join(f"{weight:.3f}" for weight in modo.weights.tolist())
    told = modo.info
    assert told is not None
    print(f"{sum(p.numel() for p in trained)} parameters trained, by {told.route}")
    print(f"losses {[round(loss, 3) for loss in told.losses.tolist()]}  weights {weights}")


if __name__ == "__main__":
    main()
