"""What a layout reads: the language model's configuration, and the settings that shape its cache."""

from typing import Any

import msgspec

from fitserve.errors import InputError
from fitserve.facts.model_config import ModelConfig, read_integer
from fitserve.memory.history import at_least
from fitserve.memory.kv.values import Kind
from fitserve.memory.options import EngineOptions


class NotModelledError(Exception):
    """A piece of a model that is not modelled; the message names it."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's attention, as the model builds it.

    Attributes:
        layer: its position in the model.
        kind: what it keeps.
        kv_heads: KV heads of the whole model.
        head_size: elements of a key.
        value_size: elements of a value where they differ.
        window: tokens of its window or chunk.
        token_bytes: bytes of a token where they do not follow from the heads.
        part: orders several caches of one layer.
        kernel_block_size: tokens a block that its kernel works on, where it takes no other.
    """

    layer: int
    kind: Kind = "full"
    kv_heads: int
    head_size: int
    value_size: int | None = None
    window: int | None = None
    token_bytes: int | None = None
    part: int = 0
    kernel_block_size: int | None = None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's recurrent state, on one rank.

    Attributes:
        layer: its position in the model.
        conv_elements: elements of the convolution's state.
        ssm_elements: elements of the recurrent state.
        ssm_dtype: the type of the recurrent state where the model fixes it.
        checkpoint_step: a state is kept inside a prompt at multiples of this many tokens, for prefix caching; None where
            none is.
        kept_by_block: its kernel can keep a state for every block, which vLLM does by default with prefix caching from
            0.15 to 0.27.
    """

    layer: int
    conv_elements: int
    ssm_elements: int = 0
    ssm_dtype: str | None = None
    checkpoint_step: int | None = None
    kept_by_block: bool = False


Layer = Attention | State

_MOST_LAYERS = 4096
"""No model has more layers; more is damage."""


class Facts:
    """A configuration with its settings.

    Args:
        config: the model's configuration.
        options: vLLM's settings.
    """

    def __init__(self, config: ModelConfig, options: EngineOptions) -> None:
        self.config = config
        self.options = options
        self.text = config.text
        self.tp = options.tensor_parallel_size

    def since(self, version: str) -> bool:
        """True from this release on."""
        return at_least(self.options.vllm_version, version)

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of these numbers that is there."""
        return read_integer(self.text, names, self.config.source, default)

    def positive(self, *names: str, default: int | None = None) -> int:
        """The first of these numbers that is there; it divides or counts something, so it is not 0."""
        found = self.integer(*names, default=default)
        if not found:
            raise InputError("0 is too small", where=f"{self.config.source}: {' or '.join(names)}")
        return found

    def optional(self, *names: str) -> int | None:
        """The first of these numbers that is there, or None."""
        return self.integer(*names) if any(self.text.get(name) is not None for name in names) else None

    def part(self, name: str) -> dict[str, Any]:
        """A nested object; empty where there is none."""
        found = self.text.get(name)
        return found if isinstance(found, dict) else {}

    def strings(self, *names: str) -> list[str]:
        """The first of these lists of names, such as ``layer_types``; empty where there is none."""
        for name in names:
            found = self.text.get(name)
            if isinstance(found, list):
                return [str(item) for item in found]
        return []

    @property
    def layers(self) -> int:
        """The number of layers."""
        found = self.positive("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
        if found > _MOST_LAYERS:
            raise InputError(f"{found} layers are too many", where=f"{self.config.source}: num_hidden_layers")
        return found

    @property
    def has_layer_count(self) -> bool:
        """The configuration says how many layers there are, instead of listing them."""
        return (
            self.optional("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
            is not None
        )

    @property
    def hidden(self) -> int:
        """The width of the residual stream."""
        return self.integer("hidden_size", "n_embd", "d_model", "n_embed")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.positive("num_attention_heads", "n_head", "n_heads")

    @property
    def kv_heads(self) -> int:
        """KV heads: as many as query heads where nothing is said.

        Source: vLLM 0.32 ``transformers_utils/model_arch_config_convertor.py``.
        """
        found = self.optional(
            "n_head_kv",
            "num_kv_heads",
            "num_key_value_heads",
            "multi_query_group_num",
            "num_attention_groups",
        )
        return self.heads if found is None else found

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        found = self.optional("head_dim", "hidden_size_per_head", "attention_head_dim")
        return found or self.hidden // self.heads

    def shard(self, amount: int, what: str) -> int:
        """A rank's part of something that every rank must have an equal part of."""
        if amount % self.tp:
            raise NotModelledError(f"{what} {amount} is not divisible by tensor_parallel_size {self.tp}")
        return amount // self.tp

    def rank_heads(self, kv_heads: int) -> int:
        """KV heads of one rank: replicated where there are fewer than ranks."""
        if kv_heads >= self.tp:
            return self.shard(kv_heads, "the number of KV heads")
        if kv_heads and self.tp % kv_heads:
            raise NotModelledError(
                f"tensor_parallel_size {self.tp} is not divisible by the number of KV heads {kv_heads}"
            )
        return 1
