"""transformers' Trainer with a method: the scalar is its loss, and checkpoints hold λ."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import trimol
from pair import forked
from trimol._extras import MissingExtra
from trimol._failures import BadValue, RunError

transformers = pytest.importorskip("transformers", reason="needs the extra 'integrations'")
accelerate = pytest.importorskip("accelerate", reason="needs the extra 'integrations'")
ours = importlib.import_module("trimol.integrations.transformers")

Make = Callable[..., Any]
# As it is called from transformers 5.23 on, and before.
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in transformers.TrainingArguments.__dataclass_fields__
)
CHECKPOINTED = {CHECKPOINTING: True, f"{CHECKPOINTING}_kwargs": {"use_reentrant": False}}


@pytest.fixture(scope="module")
def example(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("examples/hf_trainer.py")


@pytest.fixture
def make(example: ModuleType, tmp_path: Path) -> Make:
    """The example's trainer: 3 batches of 8 and one of 1 an epoch, a checkpoint every 2 steps."""

    def made(data: int = 25, **options: Any) -> Any:
        quick = {"per_device_train_batch_size": 8, "max_steps": 4, "eval_strategy": "no"}
        saved = {"save_strategy": "steps", "save_steps": 2, "disable_tqdm": True}
        trainer = example.trainer(str(tmp_path), **quick | saved | options)
        trainer.train_dataset = example.Texts(data, seed=0)
        return trainer

    return made


def state(trainer: Any) -> dict[str, torch.Tensor]:
    return {**trainer.model.state_dict(), **trainer.method.state_dict(prefix="method.")}


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_accumulation_steps": 2} | CHECKPOINTED],
    ids=["plain", "accumulated, checkpointed"],
)
def test_a_resumed_run_equals_one_without_interruption(make: Make, options: Any) -> None:
    whole = make(**options)
    whole.train()
    resumed = make(**options)
    resumed.train(resume_from_checkpoint=str(Path(resumed.args.output_dir) / "checkpoint-2"))
    assert int(resumed.method.step) == int(whole.method.step) > 0
    assert not whole.method.weights.equal(torch.full((2,), 0.5).double())
    for name, value in state(whole).items():
        assert torch.equal(state(resumed)[name], value), name


def test_losses_accumulated_are_divided_for_models_that_would_divide_themselves(
    example: ModuleType, make: Make
) -> None:
    """Such models take any keyword: the Trainer then leaves the division to them."""
    plain = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0, "max_steps": 1}
    trainer = make(data=16, lr_scheduler_type="constant", gradient_accumulation_steps=2, **plain)
    forward = trainer.model.forward
    trainer.model.forward = lambda input_ids, labels=None, **more: forward(input_ids)
    fresh = example.Trainer(
        trainer.model,
        trainer.args,
        method=trimol.Static(trainer.model.bert.parameters(), 2, weights=[0.25, 0.75]),
        losses=example.losses,
        train_dataset=trainer.train_dataset,
    )
    for module in fresh.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    before = {name: p.detach().clone() for name, p in fresh.model.named_parameters()}
    (topic, score), _ = example.losses(fresh.model.train(), fresh.train_dataset[:])
    shared = list(fresh.model.bert.parameters())
    expected = torch.autograd.grad(0.25 * topic + 0.75 * score, shared, allow_unused=True)
    fresh.train()
    for (name, param), gradient in zip(fresh.model.bert.named_parameters(), expected, strict=True):
        if gradient is not None:
            moved = before[f"bert.{name}"] - param.detach()
            torch.testing.assert_close(moved, gradient, rtol=1e-4, atol=1e-6)


def test_evaluation_gives_the_weighted_loss_and_is_no_step(example: ModuleType, make: Make) -> None:
    trainer = make(max_steps=3, per_device_eval_batch_size=64)
    trainer.train()
    before, seen = state(trainer), trainer.method.info
    told = trainer.evaluate()["eval_loss"]
    assert trainer.method.info is seen
    assert all(torch.equal(value, before[name]) for name, value in state(trainer).items())
    with torch.no_grad():
        losses, _ = example.losses(trainer.model, trainer.eval_dataset[:])
    expected = trainer.method.weights @ torch.stack(losses).double()
    assert told == pytest.approx(expected.item(), rel=1e-6)


def test_a_last_batch_that_cannot_be_split_keeps_the_weights(make: Make) -> None:
    trainer = make(max_steps=4, logging_steps=1)
    trainer.train()
    told = [[line[f"weight/{m}"] for m in (0, 1)] for line in trainer.state.log_history[:4]]
    assert told[0] != told[1] != told[2] == told[3]
    assert not trainer.method.info.updated
    assert int(trainer.method.step) == 4


def test_the_log_has_the_weights(make: Make) -> None:
    trainer = make(max_steps=1, logging_steps=1)
    trainer.train()
    told = [trainer.state.log_history[0][f"weight/{m}"] for m in (0, 1)]
    assert told == trainer.method.weights.tolist()


def checkpoint(trainer: Any) -> Path:
    return Path(trainer.args.output_dir) / "checkpoint-2"


def test_a_checkpoint_without_the_method_is_refused(make: Make) -> None:
    trainer = make(max_steps=2)
    trainer.train()
    (checkpoint(trainer) / ours.FILE).unlink()
    with pytest.raises(RunError, match=r"^found no trimol_method\.pt in \S+checkpoint-2: it was"):
        make().train(resume_from_checkpoint=True)


def test_a_damaged_file_is_refused(make: Make) -> None:
    trainer = make(max_steps=2)
    trainer.train()
    file = checkpoint(trainer) / ours.FILE
    content, method = file.read_bytes(), trainer.method
    for place in range(0, len(content), 13):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        with pytest.raises(RunError, match=r"trimol_method\.pt is damaged: resume from another ch"):
            ours._load(method, file)
    file.write_bytes(content[:100])
    with pytest.raises(RunError, match=r"trimol_method\.pt is damaged"):
        ours._load(method, file)
    file.write_bytes(content)
    ours._load(method, file)
    saved = torch.load(file, weights_only=True)  # and it is an ordinary file of torch
    assert saved["state"]["weights"].equal(method.weights)


def test_another_method_is_refused(make: Make) -> None:
    make(max_steps=2).train()
    other = make()
    other.method = trimol.Static(other.model.bert.parameters(), 2)
    with pytest.raises(BadValue, match=r"^method must be MoDo, as in \S+, found Static$"):
        other.train(resume_from_checkpoint=True)


def test_the_trainer_of_transformers_alone_does_not_save_it_and_that_is_noticed(
    example: ModuleType, make: Make
) -> None:
    def alone() -> Any:
        given = make(max_steps=2)
        trainer = transformers.Trainer(given.model, given.args, train_dataset=given.train_dataset)
        trainer.compute_loss = given.compute_loss
        return trainer, given.method

    trainer, method = alone()
    trainer.train()
    assert int(method.step) == 2
    resumed, method = alone()
    resumed.args.max_steps = 3
    with pytest.warns(RuntimeWarning, match=r"^MoDo: at its first step, while the optimizer has"):
        resumed.train(resume_from_checkpoint=True)
    assert int(method.step) == 1


def test_mistakes_are_one_line(example: ModuleType, make: Make) -> None:
    trainer = make()
    stranger = trimol.Static([torch.zeros(2, requires_grad=True)], 2)
    given = {"method": stranger, "losses": example.losses}
    with pytest.raises(BadValue, match=r"^method must have parameters of the model, found 1 of 1"):
        ours.Trainer(trainer.model, trainer.args, **given)
    with pytest.raises(BadValue, match=r"^model_init must be None: the method has"):
        ours.Trainer(args=trainer.args, model_init=lambda: trainer.model, **given)
    with pytest.raises(BadValue, match=r"^losses must be a function of model and inputs, found"):
        ours.Trainer(trainer.model, trainer.args, method=trainer.method)


def test_losses_without_outputs_and_a_name_for_a_method_are_told(make: Make) -> None:
    trainer = make()
    whole = trainer.losses
    trainer.losses = lambda model, inputs: whole(model, inputs)[0]
    with pytest.raises(ValueError, match=r"two things, .* outputs`, found a list of 2$"):
        trainer.train()
    with pytest.raises(TypeError, match=r"^method must be a method, .* found 'modo'$"):
        ours.Trainer(trainer.model, trainer.args, method="modo", losses=whole)


def test_the_example_runs(example: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    example.main()
    assert re.search(r"^loss \d\.\d+  weights 0\.\d+, 0\.\d+$", capfd.readouterr().out, re.M)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "trimol.integrations.transformers", raising=False)
    expected = (
        r"^the Trainer with a method needs transformers: pip install 'trimol\[integrations\]'$"
    )
    with pytest.raises(MissingExtra, match=expected):
        __import__("trimol.integrations.transformers")


def trained(example: ModuleType, make: Make, batch: int) -> Any:
    """Two steps of a method that takes one draw, without dropout, from a state of no process."""
    accelerate.state.AcceleratorState._reset_state(True)
    trainer = make(data=32, max_steps=2, per_device_train_batch_size=batch, save_strategy="no")
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    trainer.method = trimol.MGDA(trainer.model.bert.parameters(), 2)
    trainer.train()
    return trainer


def work(example: ModuleType, make: Make, folder: Path) -> None:
    trainer = trained(example, make, 4)
    torch.save(state(trainer), folder / f"{trainer.args.process_index} of two")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_processes_equal_the_joined_batch(
    example: ModuleType, make: Make, tmp_path: Path
) -> None:
    forked(work, example, make, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank} of two") for rank in (0, 1))
    alone = trained(example, make, 8)
    assert alone.method.info.losses.numel() == 2
    for name, value in state(alone).items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-5, msg=name)
