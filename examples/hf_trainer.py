"""Two losses in Hugging Face's Trainer: a batch of texts, its topic and its score.

    pip install -c constraints.txt '.[integrations]'
    python examples/hf_trainer.py

What changes in a script that you already have is marked with  # <- trimol. The model is a tiny one
made from a configuration; nothing is downloaded.
"""

import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, BertPreTrainedModel, TrainingArguments

import trimol  # <- trimol
from trimol.integrations.transformers import Trainer  # <- trimol: was `from transformers import …`

TOPICS, WORDS, LENGTH = 4, 64, 12


class Texts(Dataset[dict[str, Tensor]]):
    """Made up: a text is about the topic that most of its words belong to."""

    def __init__(self, size: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.words = torch.randint(WORDS, (size, LENGTH), generator=random)
        self.topics = F.one_hot(self.words % TOPICS, TOPICS).sum(1).argmax(1)
        self.scores = self.words.float().mean(1) / WORDS

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"input_ids": self.words[i], "labels": self.topics[i], "score": self.scores[i]}


class TwoHeads(BertPreTrainedModel):
    """One trunk, two heads."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.topic, self.score = (
            nn.Linear(config.hidden_size, TOPICS),
            nn.Linear(config.hidden_size, 1),
        )
        self.post_init()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """The topic's logits and the score."""
        text = self.bert(input_ids).last_hidden_state.mean(1)
        return {"topic": self.topic(text), "score": self.score(text).squeeze(1)}


def losses(model: Any, inputs: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    """One loss per objective, each the mean over the batch; and the outputs, for metrics."""
    outputs = model(input_ids=inputs["input_ids"])
    topic = F.cross_entropy(outputs["topic"], inputs["labels"])
    score = F.mse_loss(outputs["score"], inputs["score"])
    return [topic, score], outputs


def trainer(folder: str, **options: Any) -> Trainer:
    """The Trainer, as you would make it; options are those of `TrainingArguments`."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=LENGTH, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = TwoHeads(config)
    settings: dict[str, Any] = {
        "output_dir": folder,
        "per_device_train_batch_size": 16,
        "num_train_epochs": 2,
        "learning_rate": 3e-3,
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
        "remove_unused_columns": False,  # the Trainer would remove the column "score"
        "report_to": "none",
        "use_cpu": True,
    }
    modo = trimol.MoDo(model.bert.parameters(), objectives=2, gamma=0.02)  # <- trimol
    return Trainer(
        model,
        TrainingArguments(**settings | options),
        method=modo,  # <- trimol
        losses=losses,  # <- trimol
        train_dataset=Texts(100, seed=0),
        eval_dataset=Texts(64, seed=1),
    )


def main() -> None:
    """Train an epoch, then go on from the checkpoint: λ goes on, too."""
    with tempfile.TemporaryDirectory() as folder:
        trainer(folder, num_train_epochs=1).train()
        resumed = trainer(folder)
        resumed.train(resume_from_checkpoint=True)
        weights = ", ".join(f"{weight:.3f}" for weight in resumed.method.weights.tolist())
        print(f"loss {resumed.evaluate()['eval_loss']:.3f}  weights {weights}")


if __name__ == "__main__":
    main()
