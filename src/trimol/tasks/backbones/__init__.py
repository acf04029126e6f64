"""Backbones: ImageNet networks (from transformers) that turn images into features."""

from trimol.tasks.backbones.base import Backbone
from trimol.tasks.backbones.registry import frozen, identity, load, names, width

__all__ = ["Backbone", "frozen", "identity", "load", "names", "width"]
