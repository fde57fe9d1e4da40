"""A checkpoint without weights: the header that a real one has, and a hole of the right size behind it (o: files).

Source: the tensors of ``transformers``' Llama, Qwen2, Qwen3, Gemma, Phi-3, Mistral, Mixtral and Granite models, and the format of safetensors.
"""

import json
import math
from pathlib import Path
from typing import Any

_ELEMENT = 2
_DENSE = frozenset(["llama", "qwen2", "qwen3", "gemma", "mistral", "granite", "phi3", "mixtral"])
Shapes = dict[str, tuple[int, ...]]


def write_checkpoint(folder: Path, config: dict[str, Any]) -> Path | None:
    """Write ``model.safetensors`` for a model whose tensors are known and not quantised; None for another."""
    if config.get("model_type") not in _DENSE or "quantization_config" in config:
        return None
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors(config).items():
        size = math.prod(shape) * _ELEMENT
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    return path


def tensors(config: dict[str, Any]) -> Shapes:
    """Every tensor's shape."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    found: Shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config.get("tie_word_embeddings", config["model_type"] == "gemma"):
        found["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        before = f"model.layers.{layer}."
        for name, shape in {**_attention(config), **_inner(config)}.items():
            found[f"{before}{name}"] = shape
        found[f"{before}input_layernorm.weight"] = (hidden,)
        found[f"{before}post_attention_layernorm.weight"] = (hidden,)
    return found


def _attention(config: dict[str, Any]) -> Shapes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    groups = config.get("num_key_value_heads") or heads
    queries, keys = heads * size, groups * size
    found: Shapes = {"self_attn.o_proj.weight": (hidden, queries)}
    if config["model_type"] == "phi3":
        return {**found, "self_attn.qkv_proj.weight": (queries + 2 * keys, hidden)}
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        found[f"self_attn.{name}_proj.weight"] = (rows, hidden)
        if config["model_type"] == "qwen2":
            found[f"self_attn.{name}_proj.bias"] = (rows,)
    if config["model_type"] == "qwen3":
        found |= {"self_attn.q_norm.weight": (size,), "self_attn.k_norm.weight": (size,)}
    return found


def _inner(config: dict[str, Any]) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    if config["model_type"] == "mixtral":
        experts = config["num_local_experts"]
        found: Shapes = {"block_sparse_moe.gate.weight": (experts, hidden)}
        for expert in range(experts):
            before = f"block_sparse_moe.experts.{expert}."
            found |= {
                f"{before}w1.weight": (inner, hidden),
                f"{before}w2.weight": (hidden, inner),
                f"{before}w3.weight": (inner, hidden),
            }
        return found
    if config["model_type"] == "phi3":
        return {"mlp.gate_up_proj.weight": (2 * inner, hidden), "mlp.down_proj.weight": (hidden, inner)}
    return {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
