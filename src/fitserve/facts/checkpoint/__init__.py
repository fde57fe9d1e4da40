"""What a model's files say without reading its weights: configuration, tensor names, types, shapes and sizes."""

from fitserve.facts.checkpoint.checkpoint import Checkpoint, Tensor
from fitserve.facts.checkpoint.read import read_checkpoint

__all__ = ["Checkpoint", "Tensor", "read_checkpoint"]
