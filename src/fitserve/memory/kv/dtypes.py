"""The type of the cache's elements, and what a token takes.

Source: ``utils/torch_utils.py`` (``resolve_kv_cache_dtype_string``), ``layers/attention/attention.py`` and
``v1/kv_cache_interface.py`` of vLLM 0.12 to 0.33.
"""

from typing import Any

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.history import at_least
from fitserve.memory.kv.facts import Attention, Facts, NotModelledError
from fitserve.memory.options import EngineOptions

_PLAIN = {"auto": 0, "half": 2, "float16": 2, "bfloat16": 2, "float32": 4, "float": 4}
_BYTE = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8")
_PER_HEAD = ("int8_per_token_head", "fp8_per_token_head", "int4_per_token_head")
_SCALES_BYTES = 8
"""Two float32 scales for each token and head."""

STATE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}


def model_bytes(options: EngineOptions) -> int:
    """Bytes of an element of the model's own type: 4 only where float32 is asked for.

    A checkpoint in float32 is loaded in a type of two bytes where ``dtype`` is ``auto``.

    Source: ``_get_and_verify_dtype`` in ``config/model.py``, vLLM 0.32.
    """
    return 4 if options.dtype in ("float32", "float") else 2


def cache_dtype(config: ModelConfig, options: EngineOptions) -> str:
    """``kv_cache_dtype`` after vLLM has asked the checkpoint; ``auto`` is the model's own type.

    MiMo V2 does not pass it on to its layers before 0.32: they keep the model's own type whatever is asked for.
    """
    if config.architecture.startswith("MiMoV2") and not at_least(options.vllm_version, "0.32.0"):
        return "auto"
    if options.kv_cache_dtype != "auto":
        return options.kv_cache_dtype
    quantization = config.quantization or {}
    named = _modelopt_dtype(quantization) if at_least(options.vllm_version, "0.14.0") else None
    if named is not None:
        return "auto" if named == "nvfp4" and not at_least(options.vllm_version, "0.20.0") else named
    since_scheme = at_least(options.vllm_version, "0.15.0")
    if since_scheme and _is_compressed(quantization) and quantization.get("kv_cache_scheme"):
        return "fp8"
    return "auto"


def _is_compressed(quantization: dict[str, Any]) -> bool:
    return str(quantization.get("quant_method", "")).replace("_", "-") == "compressed-tensors"


def _modelopt_dtype(quantization: dict[str, Any]) -> str | None:
    """What a ModelOpt checkpoint says of its KV cache."""
    inner = quantization.get("quantization")
    inner = inner if isinstance(inner, dict) else {}
    producer = quantization.get("producer")
    made_by = producer.get("name") if isinstance(producer, dict) else None
    method = str(quantization.get("quant_method", ""))
    if not method.startswith("modelopt") and not (made_by == "modelopt" and inner.get("quant_algo")):
        return None
    found = (
        inner.get("kv_cache_scheme")
        or quantization.get("kv_cache_scheme")
        or inner.get("kv_cache_quant_algo")
        or quantization.get("kv_cache_quant_algo")
    )
    if isinstance(found, dict):
        if found.get("type") != "float":
            return "auto"
        if found.get("num_bits") == 8 and found.get("dynamic") is False:
            return "fp8_e4m3"
        return "nvfp4" if found.get("num_bits") == 4 else "auto"
    if isinstance(found, str):
        return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(found.lower(), "auto")
    return None


def is_quantized(dtype: str) -> bool:
    """True for types that are not the model's own."""
    return dtype not in _PLAIN


def element_bytes(dtype: str, options: EngineOptions) -> int:
    """Bytes of an element of a cache without scales."""
    if dtype in _BYTE:
        return 1
    if dtype in _PLAIN:
        return _PLAIN[dtype] or model_bytes(options)
    raise NotModelledError(f"kv_cache_dtype {dtype}")


def token_bytes(layer: Attention, kv_heads: int, dtype: str, facts: Facts) -> int:
    """Bytes that a token takes of one layer on one rank."""
    if layer.token_bytes is not None:
        return layer.token_bytes
    if layer.kind == "mla":
        return _latent_bytes(layer, dtype, facts)
    key = layer.head_size
    value = key if layer.value_size is None else layer.value_size
    if dtype in _PER_HEAD:
        halves = 2 if dtype.startswith("int4") else 1
        return kv_heads * (key // halves + value // halves + _SCALES_BYTES)
    if dtype in ("nvfp4", "nvfp4_4over6"):
        return kv_heads * (_nvfp4_bytes(key) + _nvfp4_bytes(value))
    return kv_heads * (key + value) * element_bytes(dtype, facts.options)


def _nvfp4_bytes(elements: int) -> int:
    """Half a byte an element and one byte of scale for each 16."""
    return elements // 2 + elements // 16


def _latent_bytes(layer: Attention, dtype: str, facts: Facts) -> int:
    """One vector for all heads; 656 and 352 bytes in the layouts of sparse attention."""
    packed = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}.get(dtype)
    return packed or layer.head_size * element_bytes(dtype, facts.options)
