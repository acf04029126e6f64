"""What `trimol.diagnose` leaves in its folder."""

from pathlib import Path
from typing import Any

from trimol._failures import BadValue
from trimol.runs import _storage as files

FILE = "diagnosis.json"


def read(folder: Path | str) -> dict[str, Any]:
    """What `diagnose` left in a folder.

    Raises:
        BadValue: Nothing that it would have written.
    """
    content = files.read_json(Path(folder) / FILE)
    wanted = {"task": str, "regime": str, "use": str, "sentence": str, "evidence": dict}
    for name, kind in wanted.items():
        if not isinstance(content, dict) or not isinstance(content.get(name), kind):
            raise BadValue(f"{Path(folder) / FILE} must have {name} ({kind.__name__})")
    return dict(content)
