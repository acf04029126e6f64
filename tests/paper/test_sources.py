"""The catalogue: every entry is whole, and its rules give the layout that the readers expect."""

import re

import pytest

from trimol.paper._data.datasets import File, Source, source, sources


@pytest.mark.parametrize("entry", sources().values(), ids=lambda entry: entry.name)
def test_every_source_is_whole(entry: Source) -> None:
    assert entry.names
    assert entry.licence
    assert entry.home.startswith("http")
    assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in entry.mirrors)
    assert all(count > 0 for count in entry.contents.values())
    files = [*entry.files, *([entry.archive.file] if entry.archive else [])]
    for file in files:
        kind, value = file.checksum
        assert len(bytes.fromhex(value)) == {"sha256": 32, "md5": 16}[kind]
        assert file.size is None or file.size > 0
        assert file.addresses or entry.mirrors
    # Folders of many files come from somewhere: an archive, or the user.
    assert bool(entry.contents) == bool(entry.archive or entry.by_hand)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"must be one of mnist, fashion, .* found 'mnits'"):
        source("mnits")


@pytest.mark.parametrize("sums", [{}, {"sha256": "00", "md5": "00"}])
def test_one_checksum(sums: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either sha256 or md5 of a must be given"):
        File("a", 1, **sums)


def placed(name: str, member: str) -> str | None:
    archive = source(name).archive
    assert archive is not None
    for pattern, path in archive.rules:
        if found := re.fullmatch(pattern, member):
            return found.expand(path)
    return None


@pytest.mark.parametrize(
    ("name", "member", "path"),
    [
        ("office-31", "amazon/images/mug/frame_0001.jpg", "amazon/images/mug/frame_0001.jpg"),
        ("office-31", "top/dslr/images/mug/frame_0001.jpg", "dslr/images/mug/frame_0001.jpg"),
        ("office-31", "./webcam/images/pen/frame_0001.jpg", "webcam/images/pen/frame_0001.jpg"),
        ("office-31", "amazon/images/mug/._frame_0001.jpg", None),
        ("office-31", "amazon/interest_points/mug/frame_0001.jpg", None),
        ("office-home", "OfficeHomeDataset_10072016/Art/Mug/00001.jpg", "Art/Mug/00001.jpg"),
        ("office-home", "OfficeHomeDataset_10072016/Real World/TV/1.jpg", "Real_World/TV/1.jpg"),
        ("office-home", "OfficeHomeDataset_10072016/imagelist.txt", None),
        ("office-home", "__MACOSX/OfficeHomeDataset_10072016/Art/Mug/._00001.jpg", None),
    ],
)
def test_members_get_the_layout_of_the_readers(name: str, member: str, path: str | None) -> None:
    assert placed(name, member) == path


def test_torchvision_names_weights_by_their_checksum() -> None:
    (weights,) = source("mobilenet_v2").files
    assert weights.checksum[1].startswith("b0353104")
    assert "b0353104" in weights.name
