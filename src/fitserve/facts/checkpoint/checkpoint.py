"""The value that a model's files become."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from fitserve.facts.model_config import ModelConfig

Format = Literal["config", "safetensors", "gguf"]


class Tensor(msgspec.Struct, frozen=True):
    """One tensor of a checkpoint.

    Attributes:
        dtype: its type as the file names it: ``BF16``, ``F8_E4M3``, ``Q4_K``.
        shape: its dimensions, outermost first.
        size_bytes: what it takes in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its files describe it; the weights themselves need not be there.

    Attributes:
        config: its configuration.
        tensors: each tensor by name; empty where not all headers are at hand.
        size_bytes: bytes of all tensors; None where neither headers nor an index tell.
        format: where the tensors stand, or ``config`` where only the configuration is known.
        source: the directory, file or Hub id.
        missing: files of its index that are not there, where others are.
    """

    config: ModelConfig
    tensors: Mapping[str, Tensor] = {}
    size_bytes: int | None = None
    format: Format = "config"
    source: str = ""
    missing: tuple[str, ...] = ()

    @property
    def quantization(self) -> dict[str, Any] | None:
        """The section that describes its quantisation, if there is one."""
        return self.config.quantization
