"""What `print(method.info)` shows: a line an objective, and what a user should not miss."""

import pytest
import torch

import trimol
from trimol.methods._info import Info


def _lines(info: Info) -> list[list[str]]:
    return [line.split() for line in str(info).splitlines()]


def test_a_step_is_a_table_of_its_objectives():
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    method = trimol.MGDA([x], ["ctr", "cvr"])
    method(torch.stack([x.square().sum() / 2, -x[1] / 4])).backward()
    head, ctr, cvr, *_ = _lines(method.info)
    assert head == ["loss", "weight", "‖gradient‖"]
    assert (ctr[:2], ctr[3]) == (["ctr", "12.5"], "5")
    assert (cvr[:2], cvr[3]) == (["cvr", "-1"], "0.25")
    assert float(ctr[2]) + float(cvr[2]) == pytest.approx(1, abs=1e-3)
    done = str(method.info).splitlines()[-1]
    assert done.startswith("weights new by rows, 0% of a plain step on top")  # graphs apart
    assert done.endswith("least cosine of two gradients -0.8")


def test_what_kept_the_weights_is_said():
    two, half = torch.ones(2), torch.full((2,), 0.5)
    info = Info(("a", "b"), two, half, updated=False, skipped=1, kept=2, absent=("b",))
    assert str(info).splitlines()[-1] == (
        "weights as they were; no sample of b; weights kept in 3 steps so far"
    )
    guarded = Info((0, 1), two, half, updated=True, skipped=0, guarded="free", effect=-two)
    assert _lines(guarded)[0] == ["loss", "weight", "effect"]
    assert str(guarded).endswith("; guard: free")


def test_a_loss_without_gradient_has_no_cosine():
    gramian = torch.zeros(2, 2, dtype=torch.float64)
    info = Info((0, 1), torch.ones(2), torch.ones(2) / 2, True, 0, gramian=gramian)
    assert str(info).endswith("least cosine of two gradients nan")
    one = Info((0,), torch.ones(1), torch.ones(1), True, 0, gramian=gramian[:1, :1])
    assert "cosine" not in str(one)
