"""TensorBoard as a sink of `trimol.Monitor`: every number of a record as a scalar."""

from pathlib import Path

from trimol._extras import require
from trimol.training.records import Record


class TensorBoard:
    """Write records for TensorBoard, under their own names: ``loss/<objective>``, ``R_opt``, …

    Needs the ``tensorboard`` extra.

    Args:
        logdir: The folder to write into, which ``tensorboard --logdir`` shows.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> sink = TensorBoard(folder)
        >>> sink({"step": 1, "R_opt": 0.5})
        >>> sink.close()
        >>> len(list(folder.glob("events.out.tfevents.*")))
        1
    """

    def __init__(self, logdir: str | Path) -> None:
        require("tensorboard", extra="tensorboard", purpose="the TensorBoard sink")
        # torch's writer imports tensorboard, and would name it in a longer error.
        torchs = require("torch.utils.tensorboard", extra="tensorboard", purpose="the sink")
        self.writer = torchs.SummaryWriter(str(logdir))

    def __call__(self, record: Record) -> None:
        """Write one record, at its step."""
        step = record["step"]
        for key, value in record.items():
            if key != "step":
                self.writer.add_scalar(key, value, global_step=step)
        self.writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()
