"""Backbones: the official weights in their places, outputs as torchvision's, ImageNet's classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from covering import FULL
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData, MissingData
from trimol.paper import _backbones as backbones
from trimol.paper import _mobilenet as mobilenet
from trimol.paper._backbones import MEAN, RESNET18, RESNET50, STD
from trimol.paper._data import arrays
from trimol.paper._data.arrays import Images

transformers = pytest.importorskip("transformers")

State = Mapping[str, torch.Tensor]


def random_state() -> dict[str, torch.Tensor]:
    """A file in torchvision's layout whose every tensor matters and differs from the defaults."""
    torch.manual_seed(0)
    shapes = mobilenet.build(pretrained=False).state_dict()
    state = {}
    for ours, theirs in mobilenet.translation().items():
        shape = shapes[ours].shape
        if theirs.endswith("num_batches_tracked"):
            state[theirs] = torch.tensor(7)
        elif len(shape) == 4:
            fan_in = shape[1] * shape[2] * shape[3]
            state[theirs] = torch.randn(shape, dtype=torch.float64) * (2 / fan_in) ** 0.5
        elif theirs.endswith(("weight", "running_var")):
            state[theirs] = torch.rand(shape, dtype=torch.float64) + 0.5
        else:
            state[theirs] = torch.randn(shape, dtype=torch.float64) * 0.3
    state["classifier.1.weight"] = torch.randn(1000, 1280, dtype=torch.float64)
    state["classifier.1.bias"] = torch.randn(1000, dtype=torch.float64)
    return state


def classifier(state: State) -> torch.nn.Linear:
    """ImageNet's own classifier on these features: logits of its 1000 classes."""
    layer = torch.nn.Linear(mobilenet.WIDTH, 1000)
    weight, bias = (state[name] for name in mobilenet.CLASSIFIER)
    layer.load_state_dict({"weight": weight, "bias": bias}, strict=True)
    return layer


def by_hand(state: State, images: torch.Tensor) -> torch.Tensor:
    """torchvision's mobilenet_v2, written out: pooled features of raw images."""

    def layer(x: torch.Tensor, conv: str, norm: str, *, act: bool = True, **how: int) -> Any:
        x = F.conv2d(x, state[f"{conv}.weight"], **how)
        parts = [state[f"{norm}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")]
        x = F.batch_norm(x, *parts, training=False, eps=1e-5)
        return x.clamp(0, 6) if act else x

    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))  # float32, as there
    x = (images.double() / 255 - mean) / std
    x = layer(x, "features.0.0", "features.0.1", stride=2, padding=1)
    x = layer(x, "features.1.conv.0.0", "features.1.conv.0.1", padding=1, groups=32)
    x = layer(x, "features.1.conv.1", "features.1.conv.2", act=False)
    block = 2
    # Channels, repeats and first stride of each stage: Table 2 of the paper.
    for channels, repeats, stride in (
        (24, 2, 2),
        (32, 3, 2),
        (64, 4, 2),
        (96, 3, 1),
        (160, 3, 2),
        (320, 1, 1),
    ):
        for repeat in range(repeats):
            name, before = f"features.{block}.conv", x
            wide = 6 * x.shape[1]
            x = layer(x, f"{name}.0.0", f"{name}.0.1")
            step = stride if repeat == 0 else 1
            x = layer(x, f"{name}.1.0", f"{name}.1.1", stride=step, padding=1, groups=wide)
            x = layer(x, f"{name}.2", f"{name}.3", act=False)
            assert x.shape[1] == channels
            x = x + before if step == 1 and before.shape[1] == channels else x
            block += 1
    return layer(x, "features.18.0", "features.18.1").mean((2, 3))


def test_mobilenet_computes_what_torchvision_s_does() -> None:
    state = random_state()
    network = mobilenet.build(pretrained=False).double()
    network.load_state_dict(mobilenet.translated(state), strict=True)
    images = torch.randint(0, 256, (2, 3, 65, 64), dtype=torch.uint8)  # odd: padding matters
    found = backbones.Backbone(network, 1280).double().eval()(images)
    expected = by_hand(state, images)
    assert expected.std() > 0.05
    torch.testing.assert_close(found, expected)


def test_every_key_is_used_once() -> None:
    names = mobilenet.translation()
    assert set(names) == set(mobilenet.build(pretrained=False).state_dict())
    assert len(set(names.values())) == len(names) == 312
    assert not set(names.values()) & set(mobilenet.CLASSIFIER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("features.9.conv.3.bias"), "lack 'features.9.conv.3.bias'"),
        (lambda s: s.pop("classifier.1.bias"), "lack 'classifier.1.bias'"),
        (lambda s: s.update(extra=torch.zeros(1)), "must not hold 'extra'"),
    ],
)
def test_a_key_too_few_or_too_many_is_named(change: Any, message: str) -> None:
    state = random_state()
    change(state)
    with pytest.raises(BadData, match=message):
        mobilenet.translated(state)


def test_statistics_follow_slowly_in_training() -> None:
    network = mobilenet.build(pretrained=False)
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.1, 1e-5)}


def write(folder: Path, state: State) -> Path:
    path = folder / "weights" / mobilenet.FILE
    path.parent.mkdir(exist_ok=True)
    torch.save(state, path)
    return path


def test_the_file_is_loaded_and_names_its_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    state = random_state()
    path = write(tmp_path, state)
    images = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    network = backbones.frozen("mobilenet_v2")
    assert not network.training
    torch.testing.assert_close(
        network(images).double(), by_hand(state, images), rtol=1e-4, atol=1e-4
    )
    before = backbones.identity("mobilenet_v2")
    state["features.0.0.weight"] = state["features.0.0.weight"] + 1e-3
    write(tmp_path, state)
    assert backbones.identity("mobilenet_v2") != before
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadData, match=r"b0353104\.pth is no file of weights that can be read") as e:
        backbones.load("mobilenet_v2")
    assert "\n" not in str(e.value)


def test_missing_weights_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "places", lambda: iter([tmp_path]))
    with pytest.raises(MissingData, match=r"weights/mobilenet_v2-b0353104\.pth is not in"):
        backbones.load("mobilenet_v2")
    with pytest.raises(MissingData, match=r"weights/mobilenet_v2-b0353104\.pth is not in"):
        backbones.identity("mobilenet_v2")


@pytest.mark.parametrize(
    ("name", "parameters"),
    # torchvision's counts, less those of the classifier.
    [
        ("mobilenet_v2", 3_504_872 - 1_281_000),
        ("resnet18", 11_689_512 - 513_000),
        ("resnet50", 25_557_032 - 2_049_000),
    ],
)
def test_random_backbones(name: str, parameters: int) -> None:
    network = backbones.load(name, pretrained=False)
    assert sum(p.numel() for p in network.parameters()) == parameters
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    found = network(images)
    assert found.shape == (2, network.width) == (2, backbones.width(name))
    assert found.isfinite().all()
    assert found.std() > 0


def test_random_weights_follow_torch_s_random_state_and_frozen_ones_do_not() -> None:
    def first(seed: int, make: Any) -> list[float]:
        torch.manual_seed(seed)
        found: list[float] = (
            next(make("resnet18", pretrained=False).parameters()).flatten()[:3].tolist()
        )
        return found

    assert first(1, backbones.load) == first(1, backbones.load) != first(2, backbones.load)
    assert first(1, backbones.frozen) == first(2, backbones.frozen)
    torch.manual_seed(5)
    backbones.frozen("resnet18", pretrained=False)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after)


def test_identity_tells_backbones_and_weights_apart() -> None:
    found = backbones.identity("resnet18", pretrained=False)
    assert found == backbones.identity("resnet18", pretrained=False)
    assert found.startswith("resnet18 ")
    assert len(found) == len("resnet18 ") + 64


def test_resnets_are_asked_for_by_their_official_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hub(name: str, *, output_loading_info: bool) -> Any:
        asked.append(name)
        resnet = {"microsoft/resnet-18": RESNET18, "microsoft/resnet-50": RESNET50}[name]
        return resnet.build(pretrained=False), {"missing_keys": set()}

    monkeypatch.setattr(transformers.ResNetModel, "from_pretrained", hub)
    assert [backbones.load(name).width for name in ("resnet18", "resnet50")] == [512, 2048]
    assert asked == ["microsoft/resnet-18", "microsoft/resnet-50"]


def test_resnet_without_the_network_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise OSError("We couldn't connect to the hub.\nCheck your connection.")

    monkeypatch.setattr(transformers.ResNetModel, "from_pretrained", offline)
    with pytest.raises(MissingData, match=r"microsoft/resnet-18 are .* pretrained=False") as error:
        backbones.load("resnet18")
    assert "\n" not in str(error.value)


def test_a_resnet_that_would_be_partly_random_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(*_: Any, **__: Any) -> Any:
        return RESNET18.build(pretrained=False), {"missing_keys": {"encoder.x", "embedder.y"}}

    monkeypatch.setattr(transformers.ResNetModel, "from_pretrained", partly)
    with pytest.raises(BadData, match=r"microsoft/resnet-18 lack 'embedder\.y'"):
        backbones.load("resnet18")


def test_unknown_backbone() -> None:
    with pytest.raises(ValueError, match=r"backbone must be one of mobilenet_v2, .* found 'vgg'"):
        backbones.load("vgg")


# Office-31's folders and the numbers of their classes among ImageNet's.
IMAGENET = {"back_pack": 414, "mouse": 673, "printer": 742, "desktop_computer": 527}


@pytest.mark.data
def test_the_official_weights_name_office_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = mobilenet.read(datasets.locate("weights", mobilenet.FILE))
    root = datasets.locate("office-31", "splits/amazon_test.txt").parent.parent
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path))
    network, classify = backbones.frozen("mobilenet_v2"), classifier(state)
    for folder, label in IMAGENET.items():
        names = [f"amazon/images/{folder}/frame_{k:04d}.jpg" for k in range(1, 9)]
        with torch.no_grad():
            logits = classify(network(Images(root, names, size=224).pixels()))
        top5 = (logits.topk(5).indices == label).any(1)
        assert top5.sum() >= 6, folder
        if folder in ("back_pack", "mouse"):
            assert (logits.argmax(1) == label).sum() >= 7, folder


def lines(root: Path, split: str) -> tuple[list[str], list[int]]:
    found = [line.rsplit(" ", 1) for line in (root / "splits" / split).read_text().splitlines()]
    return [name for name, _ in found], [int(label) for _, label in found]


PROBED = [("dslr", 0.959), ("webcam", 0.972)]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(900)  # a thousand images
@pytest.mark.parametrize(("domain", "expected"), PROBED if FULL else PROBED[:1])
def test_a_linear_probe_tells_office_objects_apart(
    domain: str, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets.locate("weights", mobilenet.FILE)
    root = datasets.locate("office-31", f"splits/{domain}_test.txt").parent.parent
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path))
    linear_model = pytest.importorskip("sklearn.linear_model")
    network = backbones.frozen("mobilenet_v2")
    rows, labels = {}, {}
    for split in ("train", "test"):
        names, labels[split] = lines(root, f"{domain}_{split}.txt")
        rows[split] = np.empty((len(names), network.width), np.float32)
        arrays.compute_features(Images(root, names, size=224).pixels(), network, rows[split])
    probe = linear_model.LogisticRegression(max_iter=2000).fit(rows["train"], labels["train"])
    assert probe.score(rows["test"], labels["test"]) == pytest.approx(expected, abs=0.02)
