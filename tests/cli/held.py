"""Commands that wait in the middle: a signal reaches them there, however busy the machine."""

from pathlib import Path

CODE = """
import time
from pathlib import Path
{source}

HERE = Path(__file__).parent


def hold():
    number, pattern = (HERE / "hold").read_text().split()
    while len(list(HERE.glob(pattern))) >= int(number) and not (HERE / "go").exists():
        time.sleep(0.01)


class Held({kind}):
    name = "held"

    def losses(self, model, batch):
        hold()
        return super().losses(model, batch)
"""


def write(folder: Path, kind: str, source: str) -> None:
    """``held.py``: a task that waits as `wait` says, until `go`; ``source`` has what it else is."""
    (folder / "held.py").write_text(CODE.format(source=source, kind=kind))


def wait(folder: Path, pattern: str, number: int = 1) -> None:
    """From now on, tasks in the folder wait once so many files are there."""
    (folder / "go").unlink(missing_ok=True)
    (folder / "hold").write_text(f"{number} {pattern}")


def go(folder: Path) -> None:
    """They wait no more."""
    (folder / "go").touch()
