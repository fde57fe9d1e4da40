"""Which model runner profiles the start: V1's, or V2's, whose profile run skips top-k and top-p.

Source: ``use_v2_model_runner`` in ``config/vllm.py`` of vLLM 0.22.0 to 0.33.0.
"""

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.history import at_least
from fitserve.memory.overhead.shape import Shape
from fitserve.memory.resolve import Resolved

_FIRST = {
    "Qwen3ForCausalLM": "0.22.0",
    "LlamaForCausalLM": "0.23.0",
    "MistralForCausalLM": "0.23.0",
    "DeepseekV2ForCausalLM": "0.24.0",
    "Qwen2MoeForCausalLM": "0.24.0",
    "GraniteMoeForCausalLM": "0.24.0",
}
"""Models that the V2 runner takes by default, with the first release; without quantisation before 0.24."""


def uses_v2_runner(config: ModelConfig, resolved: Resolved, shape: Shape) -> bool:
    """True where the V2 model runner profiles and captures.

    From 0.25 it takes every dense model without states, from 0.29 what it supports at all.
    """
    version = resolved.options.vllm_version
    if not resolved.is_v1 or not at_least(version, "0.12.0"):
        return False
    if resolved.v2_runner is not None:
        return resolved.v2_runner
    if at_least(version, "0.29.0"):
        return True
    is_dense = not shape.experts_per_token and not shape.has_states
    if at_least(version, "0.25.0"):
        return is_dense or config.architecture in _FIRST
    first = _FIRST.get(config.architecture)
    if first is None or not at_least(version, first):
        return False
    return at_least(version, "0.24.0") or config.quantization is None
