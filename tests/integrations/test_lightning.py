"""Lightning's automatic optimization does with a method's scalar what a loop by hand does."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import trimol

L = pytest.importorskip("lightning", reason="needs the extra 'integrations'")

# Lightning's own: how many workers a loader has, names of torch that it uses.
pytestmark = pytest.mark.filterwarnings("ignore")

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
CPU = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, "enable_checkpointing": False}
CPU |= {"use_distributed_sampler": False}


@pytest.fixture(scope="module")
def example(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("examples/lightning_module.py")


def loader(example: ModuleType, batch: int, processes: int = 1, rank: int = 0) -> Any:
    """In order, the same in every run: Lightning's own sampler for processes would shuffle."""
    own = DistributedSampler(example.data(64), processes, rank, shuffle=False)
    return DataLoader(example.data(64), batch_size=batch, sampler=own)


def fit(example: ModuleType, *, batch: int = 16, resume: Path | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    trainer, module = L.Trainer(**CPU | QUIET | options), example.TwoTasks()
    checked = DataLoader(example.data(64, seed=1), batch_size=64)
    module.train_dataloader = lambda: loader(
        example, batch, trainer.world_size, trainer.global_rank
    )
    trainer.fit(module, val_dataloaders=checked, ckpt_path=resume)
    return trainer, module


def by_hand(
    example: ModuleType, *, clip: float = 0.0, accumulate: int = 1, bf16: bool = False
) -> Any:
    """The same in a loop of one's own, without a validation."""
    torch.manual_seed(0)
    module = example.TwoTasks()
    optimizer = module.configure_optimizers()
    for _ in range(2):
        for index, batch in enumerate(loader(example, 16)):
            # As Lightning does: without the cache each use of a weight has a cast of its own.
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
                loss = module.modo(*map(module.losses, trimol.data.split(batch, 2)))
            (loss / accumulate).backward()
            if (index + 1) % accumulate == 0:
                if clip:
                    torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return module


def assert_equal(found: Any, expected: Any) -> None:
    assert int(expected.modo.step) == 8
    assert abs(expected.modo.weights[0].item() - 0.5) > 0.01
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"gradient_clip_val": 0.5}, {"clip": 0.5}),
        ({"accumulate_grad_batches": 2}, {"accumulate": 2}),
        ({"precision": "bf16-mixed"}, {"bf16": True}),
    ],
    ids=["clipped", "accumulated", "bf16"],
)
def test_it_is_the_loop_by_hand(example: ModuleType, theirs: Any, ours: Any) -> None:
    trainer, module = fit(example, **theirs)
    assert_equal(module, by_hand(example, **ours))
    assert trainer.callback_metrics["val_loss"].isfinite()


def test_validation_gives_the_weighted_loss(example: ModuleType) -> None:
    trainer, module = fit(example)
    with torch.no_grad():
        losses = module.losses(example.data(64, seed=1)[:])
    expected = (module.modo.weights @ torch.stack(losses).double()).item()
    assert trainer.callback_metrics["val_loss"].item() == pytest.approx(expected, rel=1e-6)


def test_a_resumed_run_equals_one_without_interruption(example: ModuleType, tmp_path: Path) -> None:
    _, whole = fit(example)
    first, _ = fit(example, max_epochs=1)
    first.save_checkpoint(tmp_path / "first.ckpt")
    _, resumed = fit(example, resume=tmp_path / "first.ckpt")
    assert_equal(resumed, whole)


def test_two_processes_equal_the_joined_batch(example: ModuleType, tmp_path: Path) -> None:
    """Of 16 samples in order each process gets every second one; so halves are of the same."""
    _, alone = fit(example)
    _, two = fit(example, batch=8, devices=2, strategy="ddp_fork", default_root_dir=tmp_path)
    assert int(two.modo.step) == 8
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(two.state_dict()[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_the_example_runs(example: ModuleType, tmp_path: Path) -> None:
    trainer, module = example.main(default_root_dir=tmp_path)
    assert trainer.callback_metrics["val_loss"] < 1
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=True)
    assert saved["state_dict"]["modo.weights"].equal(module.modo.weights)
