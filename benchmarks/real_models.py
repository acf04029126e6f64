"""What a step costs on models of real size: time and memory, beside plain and TorchJD.

    python benchmarks/real_models.py --models gpt2 --json results/real_models.json
    python benchmarks/real_models.py --models gpt2 --tokens 16 64 --objectives 8
    python benchmarks/real_models.py --tiny --models llama --objectives 2     # a try, in seconds

Models of transformers with random weights. Batches are small and sequences short (``--tokens``),
so that a step takes a few seconds of one thread. Texts: objective m is the cross-entropy of every
M-th token from the m-th on; images: that of the m-th group of labels. Every contestant has a fresh
process: the peak of its memory, model and data included, is that of its first two steps; then it
takes turns with the plain step, by CPU time. It trains: after each of its steps the parameters move
(SGD, not timed) and the next batch is a new one. A row in the file is not made again; what fails is
a row that says so, and more than ``--gigabytes`` fails. After that: ``python docs/measured.py``.
"""

import argparse
import json
import multiprocessing
import operator
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from networks import InHalves
from step_cost import _resident, plain, plain_halves, torchjd_backward, torchjd_modo
from torch import Tensor, nn

import trimol
from trimol.runs._environment import environment, now

SAMPLES, TOKENS, LABELS = 4, 64, 4
LR = 0.01
# Models of images, and how many pixels these are high and wide.
IMAGES = {"vit": 64, "resnet": 64, "vit224": 224}
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What a row is about, but for who takes the step.

    Attributes:
        model: Its name.
        objectives: How many.
        tokens: Of a sequence; None for images.
        tiny: Whether the model is a tiny one of its kind.
    """

    model: str
    objectives: int
    tokens: int | None = TOKENS
    tiny: bool = False

    def problem(self) -> "Problem":
        """The model and a batch."""
        model = MODELS[self.model](self)
        return _images(model, self) if self.tokens is None else _text(model, self)

    def row(self, contestant: str) -> Row:
        """What a row says of it: what tells rows apart."""
        own: Row = {"model": self.model, "objectives": self.objectives}
        own |= {} if self.tokens is None else {"tokens": self.tokens}
        return own | {"contestant": contestant}


@dataclass
class Problem(InHalves):
    """A model, a batch of token numbers or images, and its M losses on any part of the batch.

    Attributes:
        draw: A batch.
        score: From the network's output to M losses.
    """

    draw: Callable[[], Tensor]
    score: Callable[[Any, Tensor], Tensor]

    def losses(self, part: slice = slice(None)) -> Tensor:
        return self.score(self.model(self.x[part]).logits, self.x[part])

    def move(self) -> None:
        """A step of SGD along the gradients that there are, and the next batch."""
        torch.optim.SGD(self.params, lr=LR).step()
        self.x = self.draw()


def by_token(objectives: int, logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the next token at every M-th place."""
    each = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return torch.stack([each[:, m::objectives].mean() for m in range(objectives)])


def by_label(objectives: int, logits: Tensor, images: Tensor) -> Tensor:
    """The cross-entropy of each group of labels; what is true is made of the image's size."""
    groups = logits.view(len(images), objectives, LABELS)
    truth = (images.flatten(1).square().sum(1).long()[:, None] + torch.arange(objectives)) % LABELS
    return torch.stack([F.cross_entropy(groups[:, m], truth[:, m]) for m in range(objectives)])


def gpt2(setting: Setting) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 99} if setting.tiny else {}
    return GPT2LMHeadModel(GPT2Config(**sizes))


def bert(setting: Setting) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**(_SMALL | {"vocab_size": 99} if setting.tiny else {})))


def llama(setting: Setting) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, int] = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    sizes |= {"intermediate_size": 3072, "vocab_size": 32000}
    if setting.tiny:
        sizes = _SMALL | {"vocab_size": 99}
    adapted = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return get_peft_model(LlamaForCausalLM(LlamaConfig(**sizes)), adapted)


def vit(setting: Setting) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = _SMALL if setting.tiny else {}
    labels = LABELS * setting.objectives
    config = ViTConfig(image_size=IMAGES[setting.model], num_labels=labels, **sizes)
    return ViTForImageClassification(config)


def resnet(setting: Setting) -> Any:
    from transformers import ResNetConfig, ResNetForImageClassification

    small = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    sizes = small if setting.tiny else {}
    config = ResNetConfig(num_labels=LABELS * setting.objectives, **sizes)
    return ResNetForImageClassification(config)


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
MODELS: dict[str, Callable[[Setting], Any]] = {
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
    "vit224": vit,
    "resnet": resnet,
    "llama": llama,
}


def _text(model: Any, setting: Setting) -> Problem:
    length = max(setting.tokens or 0, setting.objectives + 1)
    draw = partial(torch.randint, model.config.vocab_size, (SAMPLES, length))
    return Problem(model.train(), draw(), draw, partial(by_token, setting.objectives))


def _images(model: nn.Module, setting: Setting) -> Problem:
    pixels = IMAGES[setting.model]
    draw = partial(torch.randn, SAMPLES, 3, pixels, pixels)
    return Problem(model.train(), draw(), draw, partial(by_label, setting.objectives))


Step = Callable[[], Any]


def _method(name: str, **options: Any) -> Callable[[Problem], Step]:
    """A step, or with `cost` all of them from new weights to the next; says what the method did."""

    def make(p: Problem) -> Step:
        method = trimol.methods.get(name)(p.params, len(p.losses()), **options)

        def step() -> Any:
            told: list[Any] = []
            while not told or not method.due:
                p.clear()
                two = method.draws == 2 and method.due
                method(*(p.halves() if two else (p.losses(),))).backward()
                told.append(method.info)
            said = {"steps": len(told), "route": told[0].route, "reason": told[0].reason}
            return said | {name: getattr(told[0], name) for name in ("extra", "waits", "products")}

        return step

    return make


def autogram(p: Problem) -> Step:
    """MGDA by TorchJD's engine, which hooks the modules."""
    from torchjd.aggregation import MGDAWeighting
    from torchjd.autogram import Engine

    engine, weighting = Engine(p.model, batch_dim=None), MGDAWeighting()

    def step() -> None:
        losses = p.losses()
        losses.backward(weighting(engine.compute_gramian(losses)))

    return step


CONTESTANTS: dict[str, Callable[[Any], Step]] = {
    "plain": plain,
    "plain, two halves": plain_halves,
    "MoDo": _method("modo", gamma=1e-3),
    "MoDo simultaneous": _method("modo", gamma=1e-3, simultaneous=True),
    "MoDo, cost=0.25": _method("modo", gamma=1e-3, cost=0.25),
    "MGDA": _method("mgda"),
    "MGDA, by products": _method("mgda", solver="products"),
    "TorchJD MoDo": torchjd_modo,
    "TorchJD MGDA": torchjd_backward("MGDA"),
    "TorchJD autogram": autogram,
}


def one(setting: Setting, name: str, rounds: int, gigabytes: int) -> Row:
    """A row, measured in this process: the ratio is the median of those of neighbouring steps."""
    torch.manual_seed(0)
    before = _resident("VmRSS")
    p: Any = setting.problem()
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes * 2**30, resource.RLIM_INFINITY))
    plainly, hooked = plain(p), name == "TorchJD autogram"  # whose hooks act in the plain step
    ours = [timed(p, plainly)[0] for _ in range(rounds + 1)][1:] if hooked else []
    step = CONTESTANTS[name](p)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    for _ in range(2 if rounds else 1):
        said = timed(p, step)[1]
        p.move()
    peak = (_resident("VmHWM") - before) / 1024
    taken = []
    for turn in range(rounds + 1 if rounds else 0):
        if not hooked:
            ours.append(timed(p, plainly)[0])
        if turn:  # the first plain step warms up
            taken.append(timed(p, step)[0])
            p.move()
    ours = ours if hooked else ours[1:]
    size = sum(q.numel() for q in p.params)
    found: Row = {"weighed": size, "MB": peak, "rounds": rounds}
    if rounds:
        found["plain_s"] = statistics.median(ours)
        found["ratio"] = statistics.median(map(operator.truediv, taken, ours))
        found["load"] = os.getloadavg()[0]
    return found | ({"said": said} if said else {})


def timed(p: Problem, step: Step) -> tuple[float, Any]:
    """CPU seconds of a step (of several, their mean), and what it says."""
    p.clear()
    start = time.process_time()
    said = step()
    spent = time.process_time() - start
    return spent / (said["steps"] if said else 1), said


def measured(setting: Setting, name: str, rounds: int, gigabytes: int) -> Row:
    """A row, measured in a process of its own; what became of it where there is none."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answered, args=(there, setting, name, rounds, gigabytes))
    process.start()
    there.close()
    try:
        return {**setting.row(name), **here.recv()}
    except EOFError:
        return setting.row(name) | {"failed": "the process was ended"}
    finally:
        process.join()


def _answered(answer: Connection, *asked: Any) -> None:
    try:
        found = one(*asked)
    except (RuntimeError, MemoryError, ValueError, TypeError, AttributeError) as error:
        found = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    answer.send(found)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--tokens", nargs="+", type=int, default=[TOKENS], help="of a sequence")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument(
        "--rounds", type=int, default=3, help="steps that are timed; 0: memory only"
    )
    parser.add_argument("--gigabytes", type=int, default=8, help="what a process may take")
    parser.add_argument("--tiny", action="store_true", help="the same models, tiny")
    parser.add_argument("--json", type=Path, help="add to this file what it has not")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    for model in args.models:  # imported once: they are no part of what a step takes
        small: Any = _setting(model, 2, TOKENS, tiny=True).problem()
        plain(small)()
    import torchjd.autogram  # noqa: F401

    known = json.loads(args.json.read_text())["rows"] if args.json and args.json.exists() else []
    for model, objectives, tokens in product(args.models, args.objectives, args.tokens):
        setting = _setting(model, objectives, tokens, tiny=args.tiny)
        for name in args.contestants:
            own = setting.row(name)
            if any(own == {key: row.get(key) for key in own} for row in known):
                continue
            known.append(row := measured(setting, name, args.rounds, args.gigabytes))
            print(json.dumps(row), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(_study(known), indent=1) + "\n")


def _setting(model: str, objectives: int, tokens: int, *, tiny: bool) -> Setting:
    return Setting(model, objectives, None if model in IMAGES else tokens, tiny)


def _study(rows: list[Row]) -> Row:
    return {
        "study": "real_models",
        "rows": rows,
        "command": "python benchmarks/real_models.py --json results/real_models.json",
        "created": now(),
        "environment": environment(),
    }


if __name__ == "__main__":
    main()
