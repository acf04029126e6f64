"""Backbones: ImageNet networks (from transformers) that turn images into features."""

from trimol.paper._backbones.backbone import Backbone
from trimol.paper._backbones.named import frozen, identity, load, names, width

__all__ = ["Backbone", "frozen", "identity", "load", "names", "width"]
