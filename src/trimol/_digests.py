"""A digest of a file's content, inside the file: the two cannot come apart.

The content has a place for it, near its end (`PLACE`): JSON as ``digest``, parquet in its metadata,
saved tensors in the comment of their zip archive. Other programs read such files as ever.
"""

import hashlib
import io

KEY = "digest"  # in JSON and in the metadata of parquet
MARK = b"trimol-sha256:"
_BLANK = b"0" * 64  # what a digest is taken with in its place
PLACE = MARK + _BLANK


def seal(buffer: io.BytesIO) -> str:
    """Put the digest of a content in the place that it has for it; the digest.

    >>> buffer = io.BytesIO(b"some text " + PLACE)
    >>> seal(buffer) == written(buffer.getvalue()), intact(buffer.getvalue())
    (True, True)
    >>> intact(buffer.getvalue().replace(b"text", b"test")), intact(b"no digest")
    (False, True)
    """
    content = buffer.getbuffer()  # no copy: a checkpoint may be large
    place = _place(content)
    digest = _digest(content, place)
    content[place : place + len(_BLANK)] = digest.encode()
    return digest


def written(content: bytes) -> str | None:
    """The digest that a content holds, right or wrong; None if it has none."""
    place = content.rfind(MARK)
    return content[place + len(MARK) :][: len(_BLANK)].decode("latin1") if place >= 0 else None


def intact(content: bytes) -> bool:
    """Whether a content is what its digest says, or has none."""
    digest = written(content)
    return digest is None or digest == _digest(content, content.rfind(MARK) + len(MARK))


def _place(content: memoryview) -> int:
    """Find where the digest goes, looking at ever larger ends: wide tables have it far inside."""
    size = 2**12
    while MARK not in (end := bytes(content[-size:])) and size < len(content):
        size *= 2
    return len(content) - len(end) + end.rindex(MARK) + len(MARK)


def _digest(content: bytes | memoryview, place: int) -> str:
    """The digest of a content, whatever digest it has at this place."""
    view = memoryview(content)
    found = hashlib.sha256(view[:place])
    found.update(_BLANK)
    found.update(view[place + len(_BLANK) :])
    return found.hexdigest()
