"""Tasks: a model, its losses, data and metrics, ready to be trained by any method."""

from trimol.tasks.base import Batch, Data, Settings, Task
from trimol.tasks.loading import TaskError, load
from trimol.tasks.registry import get, names

__all__ = ["Batch", "Data", "Settings", "Task", "TaskError", "get", "load", "names"]
