"""Tasks: a model, its losses, data and metrics, ready to be trained by any method."""

from trimol.tasks.base import Batch, Data, Goals, Settings, Task
from trimol.tasks.loading import TaskError, load
from trimol.tasks.multitask import MultiInput, MultiTask, SingleInput, concatenated, masked_mean
from trimol.tasks.registry import get, names

__all__ = [
    "Batch",
    "Data",
    "Goals",
    "MultiInput",
    "MultiTask",
    "Settings",
    "SingleInput",
    "Task",
    "TaskError",
    "concatenated",
    "get",
    "load",
    "masked_mean",
    "names",
]
