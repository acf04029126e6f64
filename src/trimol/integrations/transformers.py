"""transformers' `Trainer` with several losses: one name to change.

    from trimol.integrations.transformers import Trainer  # instead of transformers

    trainer = Trainer(model, args, method=modo, losses=losses, train_dataset=data)
    trainer.train()

The scalar of the method is the Trainer's loss. Evaluation, clipping, schedulers, mixed precision,
accumulation and DDP are the Trainer's own. λ and all else that the method remembers is saved in
every checkpoint and loaded on resume.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimol import _digests as digests
from trimol._extras import require
from trimol._failures import BadType, BadValue, RunError
from trimol._files import from_here, read, replace
from trimol.data import dealt
from trimol.gradients import Losses
from trimol.methods import Method
from trimol.training._checkpoint import check_keys, check_shapes, check_weights

_theirs: Any = require("transformers", extra="integrations", purpose="the Trainer with a method")

FILE = "trimol_method.pt"  # in the folder of each checkpoint

Inputs = Mapping[str, Any]


class MultiObjective:
    """Makes any Trainer of transformers train by a method: name it before the Trainer.

    ``class Mine(MultiObjective, transformers.Seq2SeqTrainer): ...`` is such a Trainer; `Trainer` is
    the usual one. A batch is split into the method's draws; a last batch that is too short for that
    is a step that keeps λ. Log lines have λ as ``weight/<objective>``.

    Args:
        method: The method, of parameters of the model.
        losses: ``losses(model, inputs)`` gives the M losses, means over the samples of ``inputs``,
            and the model's outputs (what ``compute_loss(…, return_outputs=True)`` gives beside the
            loss). ``inputs`` is a batch, or one of its parts. None where your class has a
            ``compute_loss`` of its own, which calls ``self.method``.
        arguments: What the Trainer takes by place.
        options: What the Trainer takes by name.
    """

    def __init__(
        self,
        *arguments: Any,
        method: Method,
        losses: Callable[[Any, Inputs], tuple[Losses, Any]] | None = None,
        **options: Any,
    ) -> None:
        if options.get("model_init") is not None:
            raise BadValue(
                "model_init must be None: the method has the parameters of one model, and another "
                "would be made"
            )
        if not isinstance(method, Method):
            raise BadType(f"method must be a method, such as trimol.MoDo(…), found {method!r}")
        super().__init__(*arguments, **options)
        trainer: Any = self
        _check_fit(trainer, method)
        self.method = method.to(trainer.args.device)
        self.losses = losses
        if losses is None and type(self).compute_loss is MultiObjective.compute_loss:
            raise BadValue("losses must be a function of model and inputs, found None")
        # The losses are means over their batch: the Trainer is to divide by the number of batches
        # it accumulates. It would not, for a model whose forward takes `num_items_in_batch`.
        self.model_accepts_loss_kwargs = False

    def compute_loss(
        self, model: Any, inputs: Inputs, return_outputs: bool = False, **options: Any
    ) -> Any:
        """The method's scalar; λᵀF where no gradients are wanted, as in ``evaluate``."""
        assert self.losses is not None
        whole = self.method.evaluates or not self.method.due
        first, *more = dealt(inputs, 1 if whole else self.method.draws)
        losses, outputs = _pair(self.losses(model, first))
        others = (None if part is first else _pair(self.losses(model, part))[0] for part in more)
        loss = self.method(losses, *others)
        # Outputs are asked for in evaluation, where the batch is whole.
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """As the Trainer does, with λ beside the training loss."""
        if "loss" in logs:
            told = self.method.weights_by_name
            logs |= {f"weight/{name}": weight for name, weight in told.items()}
        super().log(logs, *arguments, **options)  # type: ignore[misc]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """The method's state is saved wherever the optimizer's is."""
        super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        trainer: Any = self
        if trainer.args.should_save:
            _save(self.method, Path(output_dir) / FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """The method's state is loaded wherever the optimizer's is."""
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            _load(self.method, Path(checkpoint) / FILE)


class Trainer(MultiObjective, _theirs.Trainer):  # type: ignore[misc]
    """`transformers.Trainer` with a method: see `MultiObjective`. Needs ``integrations``.

    Args:
        method: The method, of parameters of the model.
        losses: ``losses(model, inputs)`` gives the M losses and the model's outputs.
        arguments: What ``transformers.Trainer`` takes by place: the model, its arguments, …
        options: What ``transformers.Trainer`` takes by name.
    """


def _pair(told: Any) -> tuple[Losses, Any]:
    """What the user's function gave: the losses, and the model's outputs."""
    scalars = isinstance(told, tuple) and all(isinstance(t, Tensor) and not t.dim() for t in told)
    if not isinstance(told, tuple) or len(told) != 2 or scalars:
        raise BadValue(
            "losses must give two things, the losses and the model's outputs (or None): "
            f"`return [a, b], outputs`, found {'losses alone' if scalars else _kind(told)}"
        )
    return told


def _kind(told: Any) -> str:
    length = f" of {len(told)}" if isinstance(told, tuple | list | dict) else ""
    return f"a {type(told).__name__}{length}"


def _check_fit(trainer: Any, method: Method) -> None:
    """The method must have parameters of the model as they will be trained."""
    for flag, name in (("is_fsdp_enabled", "FSDP"), ("is_deepspeed_enabled", "DeepSpeed")):
        if getattr(trainer, flag, False):
            raise BadValue(
                f"args must not ask for {name}: it makes new parameters, found the method's to be "
                "those of the model as given"
            )
    own = {id(param) for param in trainer.model.parameters()}
    foreign = sum(id(param) not in own for param in method.params)
    if foreign:
        raise BadValue(
            f"method must have parameters of the model, found {foreign} of {len(method.params)} "
            "that are not among them"
        )


def _save(method: Method, path: Path) -> None:
    """Write a method's state, whole, with its digest as the comment that ends a zip archive."""
    buffer = io.BytesIO()
    torch.save({"method": type(method).__name__, "state": method.state_dict()}, buffer)
    buffer.seek(-2, io.SEEK_END)  # the length of the comment
    buffer.write(len(digests.PLACE).to_bytes(2, "little") + digests.PLACE)
    digests.seal(buffer)
    replace(path, buffer.getbuffer())


def _load(method: Method, path: Path) -> None:
    """Take a method to where the one in a file was, or say in one line why not."""
    saved = _read(path)
    where, kind = from_here(path), type(method).__name__
    check_keys(f"the method in {where}", saved, ("method", "state"))
    if saved["method"] != kind:
        raise BadValue(f"method must be {saved['method']}, as in {where}, found {kind}")
    state: dict[str, Tensor] = saved["state"]
    check_shapes(f"the method in {where}", method.state_dict(), state)
    method.load_state_dict(state)
    check_weights(method.weights, method.params)


def _read(path: Path) -> Any:
    """What a file holds that is as it was written."""
    if not path.exists():
        raise RunError(
            f"found no {FILE} in {from_here(path.parent)}: it was saved without the method, whose "
            "λ would start anew (if that is meant, start from its weights: from_pretrained)"
        )
    content = read(path)
    if digests.written(content) is None or not digests.intact(content):
        raise RunError(f"{from_here(path)} is damaged: resume from another checkpoint")
    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
