"""A GGUF file's metadata in the words of ``config.json``.

Source: vLLM reads a GGUF model's configuration through Transformers 4.5x ``modeling_gguf_pytorch_utils.py``
(``GGUF_CONFIG_MAPPING``); the names here are those of the GGUF format.
"""

from typing import Any

from fitserve.errors import InputError
from fitserve.facts.config_check import check_config
from fitserve.facts.model_config import ModelConfig

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen2moe": ("Qwen2MoeForCausalLM", "qwen2_moe"),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "starcoder2": ("Starcoder2ForCausalLM", "starcoder2"),
    "gpt2": ("GPT2LMHeadModel", "gpt2"),
}

_NUMBERS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "context_length": "max_position_embeddings",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "vocab_size": "vocab_size",
    "rope.freq_base": "rope_theta",
}


def gguf_config(metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]], source: str) -> ModelConfig:
    """The configuration that the metadata amounts to.

    Args:
        metadata: the file's keys and values.
        shapes: each tensor's shape, outermost side first.
        source: the file.

    Raises:
        InputError: the metadata names no architecture, or a number in it cannot be.
    """
    kind = metadata.get("general.architecture")
    if not isinstance(kind, str):
        raise InputError("the metadata names no architecture", where=f"{source}: general.architecture")
    architecture, model_type = _ARCHITECTURES.get(kind, (f"{kind} (GGUF)", kind))
    data: dict[str, Any] = {"architectures": [architecture], "model_type": model_type}
    for theirs, ours in _NUMBERS.items():
        value = metadata.get(f"{kind}.{theirs}")
        if isinstance(value, list):
            value = value[0] if len(set(value)) == 1 else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            data[ours] = value
    embeddings = shapes.get("token_embd.weight")
    if "vocab_size" not in data and embeddings:
        data["vocab_size"] = embeddings[0]
    data["tie_word_embeddings"] = "output.weight" not in shapes
    data["quantization_config"] = {"quant_method": "gguf"}
    check_config(data, data, source)
    return ModelConfig(data=data, text=data, source=source)
