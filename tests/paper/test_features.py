"""Features kept on disk: what the network gives, computed once for these weights and images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from trimol.paper._data.arrays import Images, digest, features

COUNT, WIDTH = 21, 5  # more than two batches, and not a multiple of one


class Network(nn.Module):
    """Depends on its mode, as networks do: batch normalisation."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(
            nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH), nn.Dropout(), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(images.float() / 255).flatten(1)
        return found


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Images:
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    names = [f"{k}.png" for k in range(COUNT)]
    for name in names:
        pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    return Images(tmp_path, names, size=8)


def get(images: Images, network: nn.Module) -> torch.Tensor:
    return features(images, lambda: network, weights=digest(network), width=WIDTH)


def test_they_are_the_network_s_in_eval_mode(images: Images) -> None:
    network = Network()
    found = get(images, network)
    with torch.no_grad():
        whole = network.eval()(images.pixels())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, whole)  # in batches of another size: up to rounding


def test_the_second_time_neither_images_nor_network_are_loaded(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = get(images, Network())
    monkeypatch.setattr(Images, "pixels", None)

    def network() -> nn.Module:
        raise AssertionError("the network was built")

    again = features(images, network, weights=digest(Network()), width=WIDTH)
    assert torch.equal(again, first)


def test_other_weights_or_images_are_other_features(images: Images, tmp_path: Path) -> None:
    network = Network()
    first = get(images, network)
    network.layers[1].running_mean += 1  # a buffer, not a parameter
    changed = get(images, network)
    assert not torch.equal(changed, first)
    fewer = get(Images(tmp_path, ["3.png", "0.png"], size=8), network)
    torch.testing.assert_close(fewer, changed[[3, 0]])


def test_progress_is_told(images: Images) -> None:
    seen: list[tuple[int, int]] = []
    features(
        images, Network, weights="w", width=WIDTH, watch=lambda done, of: seen.append((done, of))
    )
    assert seen[-1] == (COUNT, COUNT)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_a_network_that_fails_leaves_nothing(images: Images, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="could not broadcast"):
        features(images, Network, weights="w", width=WIDTH + 1)
    assert not list((tmp_path / "cache" / "features").rglob("*.np*"))


def test_the_digest_sees_every_tensor_and_its_name() -> None:
    base = digest(Network())
    assert base == digest(Network()) != digest(Network(seed=1))
    for name in Network().state_dict():
        network = Network()
        tensor = network.get_buffer(name) if "running" in name or "num" in name else None
        tensor = network.get_parameter(name) if tensor is None else tensor
        tensor.data.add_(1)
        assert digest(network) != base, name
