"""Training: the loop, which knows no method by name, and what to say about its result."""

from trimol.training.assess import (
    Assessment,
    assess,
    batches,
    evaluating,
    mean_losses,
    metrics,
    next_weights,
)
from trimol.training.failures import Diverged, RunError
from trimol.training.loop import Run, start, train
from trimol.training.records import Record, Sink
from trimol.training.replicas import Neighbours, NotReplicable, Replicas

__all__ = [
    "Assessment",
    "Diverged",
    "Neighbours",
    "NotReplicable",
    "Record",
    "Replicas",
    "Run",
    "RunError",
    "Sink",
    "assess",
    "batches",
    "evaluating",
    "mean_losses",
    "metrics",
    "next_weights",
    "start",
    "train",
]
