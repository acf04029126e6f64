"""Images decoded once: the pixels Pillow gives, files found by stem, bad ones named."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trimol.data._files.datasets import BadData, MissingData
from trimol.paper._data import arrays as module
from trimol.paper._data.arrays import Images

NAMES = [f"class {k % 3}/{k:03d}.png" for k in range(12)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for k, name in enumerate(NAMES):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (20 + k, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "images"


def by_hand(path: Path, size: int) -> torch.Tensor:
    resized = Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return torch.tensor(np.array(resized)).permute(2, 0, 1)


def test_pixels_are_pillow_s_in_the_order_of_the_list(root: Path) -> None:
    names = NAMES[::-1]
    pixels = Images(root, names, size=16).pixels()
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels, torch.stack([by_hand(root / name, 16) for name in names]))


def test_resizing_averages_where_it_shrinks(root: Path) -> None:
    # Columns of black and white: without antialiasing a small image would be one or the other.
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(root / "stripes.png")
    pixels = Images(root, ["stripes.png"], size=8).pixels()[0, :, 1:-1, 1:-1]
    assert 100 < pixels.min() <= pixels.max() < 156


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_other_colours_become_rgb(root: Path, mode: str) -> None:
    path = root / f"other.{'jpg' if mode == 'CMYK' else 'png'}"
    Image.new("RGB", (9, 9), (255, 0, 0)).convert(mode).save(path)
    pixels = Images(root, [path.name], size=4).pixels()
    assert pixels.shape == (1, 3, 4, 4)
    assert torch.equal(pixels[0], by_hand(path, 4))


def test_the_second_time_nothing_is_decoded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    first = Images(root, NAMES, size=8).pixels(lambda done, total: seen.append((done, total)))
    assert seen == [(k, 12) for k in range(1, 13)]
    monkeypatch.setattr(module, "decode", None)
    assert torch.equal(Images(root, NAMES, size=8).pixels(), first)


def test_the_key_tells_what_matters_apart(root: Path) -> None:
    def key(names: list[str] = NAMES, size: int = 8) -> str:
        return Images(root, names, size=size).key

    keys = [key(), key(size=9), key(NAMES[:-1]), key(NAMES[::-1])]
    path = root / NAMES[0]
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
    keys.append(key())
    path.write_bytes((root / NAMES[1]).read_bytes())
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key() == keys[-1]


def test_the_key_is_the_same_wherever_the_folder_is(root: Path) -> None:
    before = Images(root, NAMES, size=8).key
    moved = root.rename(root.with_name("moved"))
    assert Images(moved, NAMES, size=8).key == before


def test_a_name_stands_for_its_stem(root: Path) -> None:
    Image.new("RGB", (9, 9)).save(root / "a.webp")
    assert Images(root, ["a.jpg"], size=4).names == ["a.webp"]
    Image.new("RGB", (9, 9)).save(root / "a.jpg")
    assert Images(root, ["a.jpg"], size=4).names == ["a.jpg"]
    with pytest.raises(BadData, match=r"a\.png is not there, .* could be meant: a\.jpg, a\.webp"):
        Images(root, ["a.png"], size=4)


@pytest.mark.parametrize("name", ["class 0/missing.png", "no folder/000.png"])
def test_a_missing_image_is_named(root: Path, name: str) -> None:
    with pytest.raises(MissingData, match=rf"{name} is not there") as error:
        Images(root, [*NAMES, name], size=8)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["empty", "truncated", "no image"])
def test_a_damaged_image_is_named_and_nothing_is_left(root: Path, cache: Path, damage: str) -> None:
    path = root / NAMES[7]
    whole = path.read_bytes()
    kinds = {"empty": b"", "truncated": whole[: len(whole) // 2], "no image": b"hello" * 100}
    path.write_bytes(kinds[damage])
    with pytest.raises(BadData, match=rf"{NAMES[7]} is no image that can be decoded") as error:
        Images(root, NAMES, size=8).pixels()
    assert "\n" not in str(error.value)
    kept = [file for file in cache.rglob("*") if file.is_file()]
    assert not [file for file in kept if file.suffix != ".lock"]


def test_bad_size(root: Path) -> None:
    with pytest.raises(ValueError, match="size"):
        Images(root, NAMES, size=0)
