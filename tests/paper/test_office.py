"""Office-31 and Office-Home: a small folder in the same layout, and the real lists."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.optim import Adam

from trimol import methods
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData, MissingData
from trimol.paper import _backbones as backbones
from trimol.paper._data import arrays
from trimol.paper.tasks.office import Neck, Office, Office31, OfficeHome
from trimol.tasks import Data, Settings
from trimol.training import Run, start, train
from trimol.training._checkpoint import restore, state

pytest.importorskip("transformers")

COUNTS = {"train": (6, 4, 2), "val": (3, 2, 2), "test": (2, 4, 3)}  # of amazon, dslr, webcam
TINY: dict[str, Any] = {"pretrained": False, "image_size": 32}
COLOURS = [(230, 30, 30), (30, 30, 230)]


def name_of(domain: str, split: str, k: int) -> str:
    return f"{domain}/images/class {k % 2}/{split}_{k:04d}.jpg"


def make(root: Path) -> None:
    """Noisy images in the colour of their class, two classes."""
    generator = np.random.default_rng(0)
    (root / "splits").mkdir(parents=True)
    for split, counts in COUNTS.items():
        for domain, count in zip(Office31.objectives, counts, strict=True):
            lines = []
            for k in range(count):
                name = name_of(domain, split, k)
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                noise = generator.integers(-25, 25, (40, 30, 3))
                pixels = (np.array(COLOURS[k % 2]) + noise).astype(np.uint8)
                Image.fromarray(pixels).save(root / name)
                lines.append(f"{name} {k % 2}\n")
            (root / "splits" / f"{domain}_{split}.txt").write_text("".join(lines))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    make(tmp_path / "office-31")
    return tmp_path / "office-31"


def parts(data: Data) -> dict[str, tuple[torch.Tensor, ...]]:
    assert data.validation is not None
    return {"train": data.train, "val": data.validation, "test": data.test}


def pixels_of(path: Path) -> torch.Tensor:
    image = Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    return torch.tensor(np.array(image)).permute(2, 0, 1)


def test_every_image_is_where_its_label_and_domain_say(root: Path) -> None:
    for split, (x, y, domain) in parts(Office31(regime="finetune", **TINY).data()).items():
        assert domain.bincount().tolist() == list(COUNTS[split])
        assert y.dtype == domain.dtype == torch.int64
        row = 0
        for place, name in enumerate(Office31.objectives):
            for k in range(COUNTS[split][place]):
                assert torch.equal(x[row], pixels_of(root / name_of(name, split, k)))
                assert (int(y[row]), int(domain[row])) == (k % 2, place)
                row += 1


def test_images_are_read_from_one_file_without_a_copy(root: Path) -> None:
    data = parts(Office31(regime="finetune", **TINY).data())
    assert {x.dtype for x, _, _ in data.values()} == {torch.uint8}
    assert len({x.untyped_storage().data_ptr() for x, _, _ in data.values()}) == 1


def test_frozen_features_are_the_backbone_s(root: Path) -> None:
    network = backbones.frozen("mobilenet_v2", pretrained=False)
    data = parts(Office31(**TINY).data())
    raw = parts(Office31(regime="finetune", **TINY).data())
    for split, (x, y, domain) in data.items():
        with torch.no_grad():
            torch.testing.assert_close(x, network(raw[split][0]), rtol=1e-4, atol=1e-5)
        assert torch.equal(y, raw[split][1])
        assert torch.equal(domain, raw[split][2])


def test_the_second_time_nothing_is_computed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Office31(**TINY).data().train[0]
    monkeypatch.setattr(arrays, "compute_features", None)
    monkeypatch.setattr(arrays, "decode", None)
    assert torch.equal(Office31(**TINY).data().train[0], first)
    Office31(only="dslr", weight_decay=0.1, **TINY).data()  # neither changes an image


@pytest.mark.parametrize("regime", ["frozen", "finetune"])
@pytest.mark.parametrize("only", Office31.objectives)
def test_only_one_domain(root: Path, regime: Any, only: str) -> None:
    task, every = Office31(regime=regime, only=only, **TINY), Office31(regime=regime, **TINY)
    assert task.objectives == (only,)
    assert task.goals == {only: {f"{only} accuracy": "higher"}}
    assert list(task.model().heads) == [only]
    place = every.objectives.index(only)
    alone, together = parts(task.data()), parts(every.data())
    for split, (x, y, domain) in alone.items():
        own = together[split][2] == place
        assert torch.equal(x, together[split][0][own])
        assert torch.equal(y, together[split][1][own])
        assert domain.tolist() == [0] * COUNTS[split][place]


def test_goals_are_accuracies() -> None:
    assert OfficeHome().goals == {
        name: {f"{name} accuracy": "higher"} for name in ("Art", "Clipart", "Product", "Real_World")
    }


def test_the_neck_is_the_paper_s() -> None:
    torch.manual_seed(0)
    linear, norm, relu, dropout = Neck(1280)
    assert isinstance(linear, nn.Linear)
    assert linear.weight.shape == (512, 1280)
    # 655 360 draws: the deviation is known to one part in 1145.
    assert linear.weight.std().item() == pytest.approx(0.005, rel=5e-3)
    assert (linear.bias == 0.1).all()
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(relu, nn.ReLU)
    assert isinstance(dropout, nn.Dropout)
    assert dropout.p == 0.5


def test_what_is_shared_is_the_trunk() -> None:
    frozen, whole = Office31(), Office31(regime="finetune", **TINY)
    neck = 1280 * 512 + 512 + 2 * 512
    shared = [sum(p.numel() for p in t.shared(t.model())) for t in (frozen, whole)]
    assert shared == [neck, neck + 2_223_872]
    heads = [
        sum(p.numel() for p in frozen.model().heads[m].parameters()) for m in frozen.objectives
    ]
    assert heads == [512 * 31 + 31] * 3
    assert OfficeHome().model().heads["Art"].out_features == 65


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
@pytest.mark.parametrize("regime", ["frozen", "finetune"])
def test_losses_are_means_over_the_samples_of_each_domain(
    root: Path, regime: Any, name: str
) -> None:
    task = Office31(regime=regime, backbone=name, **TINY)
    model = task.model().double().eval()
    x, y, domain = task.data().train
    batch = (x.double() if x.is_floating_point() else x, y, domain)
    losses = torch.stack(list(task.losses(model, batch)))
    for place, objective in enumerate(task.objectives):
        rows = [k for k in range(len(y)) if int(domain[k]) == place]
        logits = model(batch[0][rows], objective)
        entropy = -logits.log_softmax(1)[range(len(rows)), y[rows]].mean()
        torch.testing.assert_close(losses[place], entropy)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "steps"), [("frozen", 40), ("finetune", 8)])
def test_it_learns_the_colours(root: Path, regime: Any, steps: int) -> None:
    task = Office31(regime=regime, backbone="resnet18", **TINY)
    run = train(start(task, "static", lr=3e-3, batch_size=6, seed=0), steps)
    run.model.trunk.apply(still)  # statistics of the batch: the others have not settled so early
    with torch.no_grad():
        found = task.metrics(run.model, task.data().train)
    assert {name: float(value) for name, value in found.items()} == dict.fromkeys(found, 1.0)
    assert list(found) == ["amazon accuracy", "dslr accuracy", "webcam accuracy"]


def still(module: nn.Module) -> None:
    if isinstance(module, nn.Dropout):
        module.eval()


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "steps"), [("frozen", 4), ("finetune", 2)])
def test_it_resumes_bit_for_bit(root: Path, tmp_path: Path, regime: Any, steps: int) -> None:
    def new(seed: int = 0) -> Run:
        task = Office31(regime=regime, **TINY)
        return start(task, "modo", lr=1e-3, batch_size=4, seed=seed)

    whole, half = train(new(), 2 * steps), train(new(), steps)
    torch.save(state(half), tmp_path / "checkpoint.pt")
    rest = new(seed=1)
    restore(rest, torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    train(rest, steps)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], tensor), name
    assert torch.equal(rest.method.weights, whole.method.weights)


def test_adam_with_the_weight_decay_that_is_asked_for() -> None:
    optimizer = Office31(weight_decay=1e-3).optimizer([nn.Parameter(torch.zeros(2))], lr=1e-4)
    assert type(optimizer) is Adam
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-4, 1e-3)


def test_settings_are_the_paper_s_and_there_for_every_method() -> None:
    assert set(Office.settings) == set(methods.names())
    assert Office.settings["static"] == Office.settings["mgda"] == Settings(lr=1e-4)
    assert Office.settings["modo"] == Settings(lr=1e-4, method={"gamma": 1e-3})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a/b.jpg 31", "a class below 31, found 'a/b.jpg 31'"),
        ("a/b.jpg -1", "found 'a/b.jpg -1'"),
        ("a/b.jpg ²", "found 'a/b.jpg ²'"),
        ("a/b.jpg", "found 'a/b.jpg'"),
        ("", "found ''"),
    ],
)
def test_a_bad_line_of_a_split_is_named(root: Path, line: str, message: str) -> None:
    path = root / "splits" / "dslr_val.txt"
    path.write_text(f"{name_of('dslr', 'val', 0)} 0\n{line}\n")
    with pytest.raises(BadData, match=f"line 2 of {path} must be .*{message}") as error:
        Office31(**TINY).data()
    assert "\n" not in str(error.value)


def test_empty_and_missing_splits_are_named(root: Path) -> None:
    path = root / "splits" / "dslr_val.txt"
    path.write_text("")
    with pytest.raises(BadData, match=f"{path} must list images, found none"):
        Office31(**TINY).data()
    path.unlink()
    with pytest.raises(MissingData, match=r"office-31/splits/dslr_val\.txt is not in"):
        Office31(**TINY).data()


def test_missing_and_damaged_images_are_named(root: Path) -> None:
    path = root / name_of("webcam", "test", 1)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadData, match=f"{path} is no image that can be decoded"):
        Office31(**TINY).data()
    path.unlink()
    with pytest.raises(MissingData, match=f"{path} is not there"):
        Office31(**TINY).data()


def test_images_under_another_ending(root: Path) -> None:
    path = root / name_of("webcam", "test", 1)
    Image.open(path).save(path.with_suffix(".webp"))
    path.unlink()
    assert len(Office31(**TINY).data().test[0]) == sum(COUNTS["test"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regime": "half"}, "regime must be 'frozen' or 'finetune', found 'half'"),
        ({"backbone": "vgg"}, r"backbone must be one of mobilenet_v2, .*, found 'vgg'"),
        ({"image_size": 31}, "image_size"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number of at least 0, found -1.0"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite .* found nan"),
        ({"only": "Art"}, "only must be one of amazon, dslr, webcam, found 'Art'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Office31(**options)


REAL = {  # train, validation, test: the splits that the paper used
    "amazon": (1680, 552, 585),
    "dslr": (287, 89, 122),
    "webcam": (466, 149, 180),
    "Art": (1435, 465, 527),
    "Clipart": (2596, 846, 923),
    "Product": (2635, 860, 944),
    "Real_World": (2586, 846, 925),
}


@pytest.mark.data
@pytest.mark.parametrize("kind", [Office31, OfficeHome])
def test_the_real_lists_where_they_are(kind: type[Office]) -> None:
    task = kind()
    listings = task._listings
    for domain in task.objectives:
        own = [listings[split, domain] for split in ("train", "val", "test")]
        assert tuple(len(listed) for listed in own) == REAL[domain]
        assert {label for _, label in own[0]} == set(range(task.classes))
        names = [name for listed in own for name, _ in listed]
        assert len(set(names)) == len(names)  # no image in two splits
    every = [name for listed in listings.values() for name, _ in listed]
    assert len(datasets.resolve(task._root, every)) == len(every)


@pytest.mark.data
@pytest.mark.slow
def test_a_linear_probe_on_the_real_features_where_they_are_cached() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    task = Office31()
    names = [name for listed in task._listings.values() for name, _ in listed]
    key = arrays.Images(task._root, names, size=224)
    path = arrays.features_path(key, backbones.identity("mobilenet_v2"))
    if not path.is_file():
        pytest.skip(
            f"the features of Office-31 are not in {datasets.cache()}: computing takes minutes"
        )
    (x, y, domain), (tx, ty, tdomain) = task.data().train, task.data().test
    for place, expected in enumerate((0.850, 0.959, 0.972)):
        own, other = domain == place, tdomain == place
        probe = linear_model.LogisticRegression(max_iter=2000).fit(x[own], y[own])
        assert probe.score(tx[other], ty[other]) == pytest.approx(expected, abs=0.02)
