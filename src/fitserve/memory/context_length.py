"""The longest context that a model's configuration allows, as vLLM derives it.

Source: vLLM 0.32.0 ``transformers_utils/model_arch_config_convertor.py`` (``derive_max_model_len_and_key``) and
``config/model.py`` (``_get_and_verify_max_len``); older releases as named below.
"""

from typing import Any

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.history import at_least

_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_UNSCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
_WITHOUT_A_KEY = 2048


class ContextLength(msgspec.Struct, frozen=True):
    """A derived ``max_model_len``.

    Attributes:
        tokens: what vLLM takes where nothing is given.
        limit: what it refuses to go beyond.
        source: the keys that it comes from.
    """

    tokens: int
    limit: int
    source: str


def context_length(config: ModelConfig, version: str | None) -> ContextLength:
    """The context that a configuration allows.

    ``yarn`` scales the original length in older releases, while 0.32 takes ``max_position_embeddings`` as scaled; in which
    release that changed is not known, so where the two differ the releases before 0.32 count as older ones, and the limit is
    the longer of the two. The cap at the sliding window, which 0.4.3 to 0.11 have with some backends, is not modelled.
    """
    text = config.text
    found = [(value, key) for key in _KEYS if (value := _length(text.get(key))) is not None]
    if not found:
        return ContextLength(_WITHOUT_A_KEY, 1 << 40, "vLLM's default where the configuration says nothing")
    tokens, key = min(found)
    if own := _length(text.get("model_max_length")):
        tokens, key = own, "model_max_length"
    unscaled, source = tokens, f"{config.source}: {key}"
    ropes = _ropes(config)
    if ropes and "gemma3" not in str(config.data.get("model_type", "")):
        factor, original = _factor(ropes, version)
        if original is not None:
            tokens = original
        tokens = int(tokens * factor)
        source += f" x {factor:g} (rope)" if factor != 1 else ""
    limit = max(tokens, unscaled, _length(text.get("model_max_length")) or 0)
    if any(rope_type(rope) == "longrope" for rope in ropes):
        short = _length(text.get("original_max_position_embeddings"))
        if short:
            return ContextLength(short, limit, f"{config.source}: original_max_position_embeddings")
    return ContextLength(tokens, limit, source)


def rope_type(rope: dict[str, Any]) -> str:
    """The kind of scaling, under its new or old name."""
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _ropes(config: ModelConfig) -> list[dict[str, Any]]:
    """The scaling sections: one, or one for each kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        found = config.text.get(name) or config.data.get(name)
        if isinstance(found, dict):
            nested = [part for part in found.values() if isinstance(part, dict)]
            return nested if nested and "rope_type" not in found and "type" not in found else [found]
    return []


def _factor(ropes: list[dict[str, Any]], version: str | None) -> tuple[float, int | None]:
    """What multiplies the length, and the length that is multiplied where it is not the configuration's own."""
    factor, original = 1.0, None
    for rope in ropes:
        kind, scale = rope_type(rope), _scale(rope.get("factor"))
        if kind == "yarn" and not at_least(version, "0.32.0"):
            original = _length(rope.get("original_max_position_embeddings"))
            factor = scale if scale and original else factor
        elif kind not in _UNSCALED and scale:
            factor = scale
    return factor, original


def _scale(value: object) -> float:
    """A factor above 0; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return max(0.0, float(value))


def _length(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40 else None
