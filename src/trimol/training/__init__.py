"""Training: the loop, which knows no method by name, and what to say about its result."""

from trimol.training.assess import Assessment, assess, batches, evaluating
from trimol.training.loop import Run, start, train

__all__ = ["Assessment", "Run", "assess", "batches", "evaluating", "start", "train"]
