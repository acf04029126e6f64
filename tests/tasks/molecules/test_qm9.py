"""QM9: small files in the package's layout; the symmetries of the network; units."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from trimol.data._files.datasets import BadData, MissingData
from trimol.tasks.molecules import qm9
from trimol.tasks.molecules.qm9 import EV, PARTS, QM9, TARGETS
from trimol.tasks.molecules.schnet import SchNet
from trimol.training import start, train
from trimol.training.assessment import mean_losses, metrics

HEADER = [
    "XYZ_file",
    "Index",
    "N_atoms",
    "Elements",
    "XYZ_Ang",
    *(c for c, _, _ in TARGETS.values()),
]


def line(number: int) -> str:
    random = np.random.default_rng(number)
    count = 3 + number % 5
    symbols = random.choice(list("HCNOF"), count)
    places = random.normal(size=(count, 3)).round(4).tolist()
    heavy = sum(qm9.NUMBERS[s] for s in symbols)
    targets = [f"{heavy + 10 * n + random.normal():.4f}" for n in range(len(TARGETS))]
    listed = "['" + "','".join(symbols) + "']"
    return (
        f'"m{number}.xyz",{number},{count},"{listed}","{str(places).replace(" ", "")}",'
        + ",".join(targets)
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    qm9._held.cache_clear()
    home = tmp_path / "qm9"
    home.mkdir()
    for number, name in enumerate(PARTS):
        lines = [line(n) for n in range(40 * number, 40 * number + 40)]
        (home / name).write_text("\n".join([",".join(HEADER), *lines, ""]))
    return tmp_path


def test_molecules_and_targets_are_those_of_the_files(folder: Path) -> None:
    x, y = qm9.kept(None)
    assert x.shape == (120, 29, 4)
    first = line(0).split('"')
    symbols = first[3].strip("[]").replace("'", "").split(",")
    assert [qm9.NUMBERS[s] for s in symbols] == x[0, :3, 0].int().tolist()
    assert not x[0, 3:].any()
    told = [float(word) for word in line(0).rsplit(",", 11)[1:]]
    assert y[0, 0] == pytest.approx(told[0])
    assert y[0, 2] == pytest.approx(EV * told[2])


def test_some_molecules_are_drawn_from_all_files(folder: Path) -> None:
    x, _ = qm9.kept(60)
    whole, _ = qm9.kept(None)
    numbers = [next(n for n in range(120) if torch.equal(whole[n], own)) for own in x]
    assert numbers == sorted(set(numbers))
    assert min(numbers) < 40 < 80 < max(numbers)


def test_the_training_molecules_standardise_all(folder: Path) -> None:
    data = QM9(molecules=100).data()
    assert [len(part[0]) for part in (data.train, data.validation, data.test)] == [80, 10, 10]
    for target in data.train[1:]:
        assert abs(target.mean()) < 1e-5
        assert target.std().item() == pytest.approx(1, abs=1e-4)
    assert any(abs(target.mean()) > 1e-3 for target in data.test[1:])


def test_files_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = qm9.kept(50)
    monkeypatch.setattr(qm9, "read", None)
    assert all(torch.equal(a, b) for a, b in zip(first, qm9.kept(50), strict=True))


def test_the_installed_package_is_found_without_an_import(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = folder / "site" / "qm9pack"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    for name in PARTS:
        (folder / "qm9" / name).rename(package / "data" / name)
    monkeypatch.syspath_prepend(str(folder / "site"))
    assert len(QM9(molecules=20).data().train[0]) == 16


def test_without_files_one_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    qm9._held.cache_clear()
    with pytest.raises(MissingData, match="trimol data get qm9"):
        QM9().data()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("'H'", "'Si'"), "molecule .* must have up to 29 atoms"),
        (("HOMO_au", "HOMO"), "must have the column HOMO_au"),
    ],
)
def test_files_that_are_not_as_they_must_be(
    folder: Path, change: tuple[str, str], message: str
) -> None:
    path = folder / "qm9" / PARTS[1]
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(BadData, match=message):
        qm9.kept(None)


def test_more_molecules_than_there_are(folder: Path) -> None:
    with pytest.raises(ValueError, match="molecules must be at most 120, found 500"):
        qm9.kept(500)


def molecule(atoms: int = 6) -> Tensor:
    x = torch.zeros(2, 9, 4, dtype=torch.float64)
    x[:, :atoms, 0] = torch.randint(1, 10, (2, atoms)).double()
    x[:, :atoms, 1:] = 1.5 * torch.randn(2, atoms, 3, dtype=torch.float64)
    return x


def test_turned_moved_mirrored_renumbered_and_padded_molecules_give_the_same() -> None:
    net, x = SchNet(8).double(), molecule()
    expected = net(x)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    moved = x.clone()
    moved[:, :6, 1:] = x[:, :6, 1:] @ turn + torch.tensor([3.0, -5.0, 100.0], dtype=torch.float64)
    torch.testing.assert_close(net(moved), expected)
    order = torch.cat([torch.randperm(6), torch.arange(6, 9)])
    torch.testing.assert_close(net(x[:, order]), expected)
    torch.testing.assert_close(net(torch.nn.functional.pad(x, (0, 0, 0, 20))), expected)
    alone = torch.cat([net(x[:1, :6]), net(x[1:])])
    torch.testing.assert_close(alone, expected)


def test_a_block_is_the_sum_over_neighbours_by_hand() -> None:
    net, x = SchNet(4, blocks=1, gaussians=5, cutoff=3.0).double(), molecule(4)[:1]
    block, z, place = net.blocks[0], x[0, :4, 0].long(), x[0, :4, 1:]
    h = net.atoms(z)
    rows = []
    for i in range(4):
        total = torch.zeros(4, dtype=torch.float64)
        for j in range(4):
            d = (place[i] - place[j]).norm()
            if i != j and d < 3:
                near = torch.exp(-(((d - net.centres) / 0.75) ** 2) / 2)
                smooth = (math.cos(math.pi * d / 3) + 1) / 2
                total = total + smooth * (block.filters.weight @ near) * block.spoken(h[j])
        rows.append(h[i] + block.after(total))
    total = torch.stack(rows).sum(0)
    torch.testing.assert_close(net(x)[0], torch.cat([total / 10, total / 4]))


def test_places_change_what_is_told_and_gradients_are_finite_where_atoms_meet() -> None:
    net, x = SchNet(8).double(), molecule()
    near = x.clone()
    near[:, 1, 1] += 0.1
    assert not torch.allclose(net(near), net(x))
    x[:, 1, 1:] = x[:, 0, 1:]
    net(x).sum().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())


def test_it_is_learned_alone_and_together(folder: Path) -> None:
    for only in (None, "zpve"):
        task = QM9(molecules=100, width=8, blocks=1, only=only)
        data = task.data()
        run = start(task, "static", lr=0.01, batch_size=16)
        before = mean_losses(task, run.model, data.train)
        train(run, steps=40)
        after = mean_losses(task, run.model, data.train)
        assert list(after) == ([only] if only else list(TARGETS))
        assert all(after[name] < before[name] for name in after)
        found = metrics(task, run.model, data.test)
        assert set(found) == {f"{name} MAE" for name in after}


def test_errors_are_in_the_units_of_the_files(folder: Path) -> None:
    task = QM9(molecules=100, width=8, blocks=1, only="homo")
    model, (x, y) = task.model(), task.data().test
    apart = (model(x)["homo"] - y).abs() * task._held.spread[2]
    assert metrics(task, model, (x, y))["homo MAE"] == pytest.approx(apart.mean().item(), rel=1e-5)
