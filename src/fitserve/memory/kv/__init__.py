"""The KV cache as vLLM lays it out: layers, groups of layers, blocks, tokens, concurrency."""

from fitserve.memory.kv.capacity import capacity, concurrency_by_length, too_few_states
from fitserve.memory.kv.specs import layer_specs, unsure_blocks
from fitserve.memory.kv.values import KvCache, KvGroup, LayerSpec, Refusal

__all__ = [
    "KvCache",
    "KvGroup",
    "LayerSpec",
    "Refusal",
    "capacity",
    "concurrency_by_length",
    "layer_specs",
    "too_few_states",
    "unsure_blocks",
]
