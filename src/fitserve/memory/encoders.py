"""A multimodal model's encoders as the settings describe them: which run at all, how they are divided, how large an image may be.

Source: ``config/multimodal.py``, ``models/interfaces.py`` (``_mark_tower_model``) of vLLM 0.12 to 0.32.
"""

import json
from collections.abc import Mapping
from typing import Any

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.history import at_least
from fitserve.memory.options import EncoderOptions

_TOWERS_LEFT_OUT_SINCE = "0.16.0"
_VIDEO = ("video_token_id", "video_token_index", "video_token", "video_config")
_SOUND = ("audio_config", "audio_token_id", "audio_token_index", "sound_config")
_DIVIDED_BY_ITEMS = (
    "Glm4vForConditionalGeneration",
    "InternVLChatModel",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
"""Architectures whose encoders take ``--mm-encoder-tp-mode data``; others warn, and divide their weights."""


def encoder_options(config: ModelConfig, given: Mapping[str, Any]) -> EncoderOptions:
    """How the encoders run."""
    asked = given.get("mm_encoder_tp_mode")
    architectures = config.data.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else ""
    mode = "data" if asked == "data" and name in _DIVIDED_BY_ITEMS else "weights"
    return EncoderOptions(tp_mode=mode, most_pixels=_most_pixels(given), limits=limits_of(given))


def limits_of(given: Mapping[str, Any]) -> dict[str, int]:
    """Items of each modality in a prompt: numbers, from 0.11.1 on objects with a ``count``; before 0.8.5 ``image=2,video=1``."""
    found: Any = given.get("limit_mm_per_prompt")
    if isinstance(found, str):
        pairs = [pair.partition("=") for pair in found.split(",")]
        is_plain = all(name and count.isdecimal() for name, _, count in pairs)
        found = {name.strip(): int(count) for name, _, count in pairs} if is_plain else _json(found)
    if not isinstance(found, Mapping):
        return {}
    counts = {
        str(name): value.get("count", 999) if isinstance(value, Mapping) else value
        for name, value in found.items()
    }
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def modalities(config: ModelConfig) -> tuple[str, ...]:
    """What a model takes beside text; images where nothing tells."""
    data = config.data
    found = [
        name
        for name, keys in (("video", _VIDEO), ("audio", _SOUND))
        if any(data.get(key) is not None for key in keys)
    ]
    sees = any(isinstance(data.get(key), dict) for key in ("vision_config", "visual", "vit_config"))
    return ("image", *found) if sees or not found else tuple(found)


def takes_text_alone(config: ModelConfig, given: Mapping[str, Any]) -> bool:
    """True where no item of any modality may stand in a prompt: what is not named may."""
    if given.get("language_model_only"):
        return True
    limits = limits_of(given)
    return bool(limits) and all(limits.get(name, 1) == 0 for name in modalities(config))


def leaves_towers_out(config: ModelConfig, given: Mapping[str, Any], version: str) -> bool:
    """True where encoders are not even built: from 0.16 on where no item may stand in a prompt."""
    return at_least(version, _TOWERS_LEFT_OUT_SINCE) and takes_text_alone(config, given)


def _most_pixels(given: Mapping[str, Any]) -> int | None:
    found: Any = given.get("mm_processor_kwargs")
    if isinstance(found, str):
        found = _json(found)
    if not isinstance(found, Mapping):
        return None
    size = found.get("size")
    value = found.get("max_pixels") or (size.get("longest_edge") if isinstance(size, Mapping) else None)
    return value if isinstance(value, int) and value > 0 else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
