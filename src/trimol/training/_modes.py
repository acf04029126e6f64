"""A model in eval or training mode for a while; every module gets its own mode back."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards every module is in the mode it was in before.

    >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    >>> with evaluating(model):
    ...     print([m.training for m in model])
    [False, False]
    >>> [m.training for m in model]
    [True, False]
    """
    with _in_mode(model, training=False):
        yield


@contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """The model in training mode; afterwards every module is in the mode it was in before."""
    with _in_mode(model, training=True):
        yield


@contextmanager
def _in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode
