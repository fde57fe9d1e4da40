"""Layers that draft tokens: those of a checkpoint's own modules, or of a model beside it.

Source: ``config/speculative.py`` and the ``*_mtp.py`` models of vLLM 0.32.
"""

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.kv.facts import Attention, Facts, Layer, NotModelledError
from fitserve.memory.kv.layouts.latent import deepseek_layer
from fitserve.memory.kv.layouts.registry import layout_of
from fitserve.memory.kv.layouts.states import attention

_WITHOUT_LAYERS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")
"""Methods that draft from the text or from the last hidden state alone."""

_BY_A_MODEL = ("draft_model", "eagle", "eagle3")

_LATENT = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "Glm4MoeLiteForCausalLM",
)
_WHOLE = {
    "Qwen3NextForCausalLM": ("num_nextn_predict_layers",),
    "Qwen3_5ForCausalLM": ("mtp_num_hidden_layers",),
    "Qwen3_5MoeForCausalLM": ("mtp_num_hidden_layers",),
    "Qwen3_5ForConditionalGeneration": ("mtp_num_hidden_layers",),
    "Qwen3_5MoeForConditionalGeneration": ("mtp_num_hidden_layers",),
    "Glm4MoeForCausalLM": ("num_nextn_predict_layers",),
    "MiMoForCausalLM": ("num_nextn_predict_layers",),
    "Ernie4_5_MoeForCausalLM": ("num_nextn_predict_layers",),
}
"""Architectures whose modules keep every token, and where their number stands."""


def draft_layers(facts: Facts, draft: ModelConfig | None) -> list[Layer]:
    """The drafting layers, at positions behind the model's own.

    Args:
        facts: the model that is served.
        draft: the configuration of a drafting model beside it.

    Raises:
        NotModelledError: the method, or the layers it needs.
    """
    method = facts.options.speculative_method
    if not facts.options.num_speculative_tokens or method in _WITHOUT_LAYERS:
        return []
    if method is None:
        raise NotModelledError("speculative decoding without the method that drafts")
    if method == "mtp" or method.endswith("_mtp"):
        return _own_modules(facts)
    if method not in _BY_A_MODEL:
        raise NotModelledError(f"drafting by {method}")
    if draft is None:
        known = facts.options.drafting
        raise NotModelledError(
            (known.missing if known else "") or f"the drafting model of the method {method}"
        )
    inner = Facts(draft, facts.options)
    return [msgspec.structs.replace(layer, layer=facts.layers + layer.layer) for layer in layout_of(inner)]


def _own_modules(facts: Facts) -> list[Layer]:
    architecture = facts.config.architecture
    if architecture in _LATENT:
        number = facts.integer("num_nextn_predict_layers", default=0)
        return [
            part
            for index in range(number)
            for part in deepseek_layer(facts, facts.layers + index, indexer=True)
        ]
    names = _WHOLE.get(architecture)
    if names is None:
        raise NotModelledError(f"the drafting modules of {architecture}")
    number = facts.integer(*names, default=1)
    own: list[Layer] = []
    for index in range(number):
        whole: Attention = attention(facts, facts.layers + index)
        own.append(whole)
    return own
