"""Files of checkpoints, written byte by byte."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def safetensors_bytes(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A safetensors file: each tensor's type, shape and bytes, with zeros for weights."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(place)


def llama_tensors() -> dict[str, tuple[str, list[int], int]]:
    """Every tensor of the small Llama in bfloat16."""
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [128, 64], "lm_head.weight": [128, 64]}
    for layer in range(2):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj.weight": [64, 64],
            f"{name}.self_attn.k_proj.weight": [32, 64],
            f"{name}.self_attn.v_proj.weight": [32, 64],
            f"{name}.self_attn.o_proj.weight": [64, 64],
            f"{name}.mlp.gate_proj.weight": [128, 64],
            f"{name}.mlp.up_proj.weight": [128, 64],
            f"{name}.mlp.down_proj.weight": [64, 128],
            f"{name}.input_layernorm.weight": [64],
            f"{name}.post_attention_layernorm.weight": [64],
        }
    shapes["model.norm.weight"] = [64]
    sizes = {name: 2 * shape[0] * (shape[1] if len(shape) > 1 else 1) for name, shape in shapes.items()}
    return {name: ("BF16", shape, sizes[name]) for name, shape in shapes.items()}


@pytest.fixture
def write_llama(tmp_path: Path) -> Callable[..., Path]:
    """Writes the small Llama in as many shards as asked for, and returns its directory."""

    def write(shards: int = 1, **changes: Any) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes), encoding="utf-8")
        tensors = list(llama_tensors().items())
        if shards == 1:
            (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(dict(tensors)))
            return tmp_path
        weight_map = {}
        for index in range(shards):
            name = f"model-{index + 1:05}-of-{shards:05}.safetensors"
            part = dict(tensors[index::shards])
            (tmp_path / name).write_bytes(safetensors_bytes(part))
            weight_map |= dict.fromkeys(part, name)
        total = sum(size for _, _, size in llama_tensors().values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
        (tmp_path / "model.safetensors.index.json").write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def llama_bytes() -> int:
    """Bytes of all its tensors."""
    return sum(size for _, _, size in llama_tensors().values())


def gguf_bytes(metadata: dict[str, tuple[int, bytes]], tensors: dict[str, tuple[list[int], int]]) -> bytes:
    """A GGUF file's header: metadata as type and encoded value, tensors as sides (innermost first) and type."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        out += gguf_text(key) + struct.pack("<I", kind) + value
    for name, (sides, kind) in tensors.items():
        out += gguf_text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, kind, 0)
    return out


def gguf_text(text: str) -> bytes:
    """A text with its length."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


@pytest.fixture
def gguf_llama() -> bytes:
    """The small Llama's GGUF header: Q8_0 matrices of 64 and 128 columns, F32 norms."""
    metadata = {"general.architecture": (8, gguf_text("llama"))}
    for key, number in {
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "context_length": 256,
    }.items():
        metadata[f"llama.{key}"] = (4, struct.pack("<I", number))
    tokens = [gguf_text(f"t{index}") for index in range(128)]
    metadata["tokenizer.ggml.tokens"] = (9, struct.pack("<IQ", 8, len(tokens)) + b"".join(tokens))
    tensors: dict[str, tuple[list[int], int]] = {
        "token_embd.weight": ([64, 128], 8),
        "output.weight": ([64, 128], 8),
    }
    for layer in range(2):
        tensors |= {
            f"blk.{layer}.attn_q.weight": ([64, 64], 8),
            f"blk.{layer}.attn_k.weight": ([64, 32], 8),
            f"blk.{layer}.attn_v.weight": ([64, 32], 8),
            f"blk.{layer}.attn_output.weight": ([64, 64], 8),
            f"blk.{layer}.ffn_gate.weight": ([64, 128], 8),
            f"blk.{layer}.ffn_up.weight": ([64, 128], 8),
            f"blk.{layer}.ffn_down.weight": ([128, 64], 8),
            f"blk.{layer}.attn_norm.weight": ([64], 0),
            f"blk.{layer}.ffn_norm.weight": ([64], 0),
        }
    tensors["output_norm.weight"] = ([64], 0)
    return gguf_bytes(metadata, tensors)
