"""Which layers of an architecture an adapter may change, and which of its fused layers have one adapter for each part.

Source: ``packed_modules_mapping``, ``embedding_modules`` and ``is_3d_moe_weight`` of the model classes in vLLM 0.6.6 to 0.32.
"""

import msgspec

from fitserve.memory.history import at_least

_FUSED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_DEEPSEEK: dict[str, tuple[str, ...]] = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
}
_ONE: tuple[str, ...] = ("",)
_QKV = ("q_proj", "k_proj", "v_proj")
_OWN: dict[str, dict[str, tuple[str, ...]]] = {
    "Phi3ForCausalLM": {"qkv_proj": _ONE, "gate_up_proj": _ONE},
    "ChatGLMModel": {"query_key_value": _ONE, "dense_h_to_4h": _ONE},
    "ChatGLMForConditionalGeneration": {"query_key_value": _ONE, "dense_h_to_4h": _ONE},
    "InternLM2ForCausalLM": {"qkv_proj": _ONE, "gate_up_proj": ("w1", "w3")},
    "MiniCPM3ForCausalLM": {"gate_up_proj": ("gate_proj", "up_proj")},
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": _DEEPSEEK,
    "Glm4MoeLiteForCausalLM": _DEEPSEEK,
    "Qwen3NextForCausalLM": {**_FUSED, "in_proj_qkvz": _ONE, "in_proj_ba": _ONE},
    "GraniteMoeHybridForCausalLM": {
        "qkv_proj": _QKV,
        "conv1d": _ONE,
        "in_proj": _ONE,
        "input_linear": _ONE,
    },
    "JambaForCausalLM": {**_FUSED, "in_proj": _ONE},
    "Lfm2ForCausalLM": {"qkv_proj": _QKV, "gate_up_proj": ("w1", "w3"), "in_proj": _ONE},
    "Glm4vForConditionalGeneration": {"qkv_proj": _QKV, "gate_up_proj": _ONE},
    "GPTNeoXForCausalLM": {"query_key_value": _ONE},
    "ModernBertModel": {"Wqkv": _ONE, "Wi": _ONE},
    "WhisperForConditionalGeneration": {"qkv_proj": _QKV, "kv_proj": ("k_proj", "v_proj")},
}
_QWEN35: dict[str, tuple[str, ...]] = {
    **_FUSED,
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
for _name in ("ForCausalLM", "MoeForCausalLM", "ForConditionalGeneration", "MoeForConditionalGeneration"):
    _OWN[f"Qwen3_5{_name}"] = _QWEN35

_EMBEDDINGS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(
        (
            "LlamaForCausalLM",
            "LLaMAForCausalLM",
            "InternLM3ForCausalLM",
            "MixtralForCausalLM",
            "Qwen3_5ForCausalLM",
            "Qwen3_5MoeForCausalLM",
            "NemotronHForCausalLM",
            "Llama4ForCausalLM",
            "GraniteForCausalLM",
            "Phi3ForCausalLM",
            "CohereForCausalLM",
            "Cohere2ForCausalLM",
            "NemotronForCausalLM",
            "Ernie4_5ForCausalLM",
            "GraniteMoeForCausalLM",
            "GraniteMoeSharedForCausalLM",
            "GraniteMoeHybridForCausalLM",
            "PhiMoEForCausalLM",
            "JambaForCausalLM",
            "FalconH1ForCausalLM",
            "Exaone4ForCausalLM",
            "MiniCPM3ForCausalLM",
            "MiniCPMForCausalLM",
            "ExaoneForCausalLM",
            "SolarForCausalLM",
            "DeciLMForCausalLM",
            "Lfm2ForCausalLM",
        ),
        ("0.2.0", None),
    ),
    "MistralForCausalLM": ("0.2.0", "0.16.0"),
    "LlavaForConditionalGeneration": ("0.16.0", None),
    "LlavaNextForConditionalGeneration": ("0.32.0", None),
    "Qwen3VLForConditionalGeneration": ("0.16.0", None),
    "Qwen3VLMoeForConditionalGeneration": ("0.16.0", None),
    "Qwen3_5ForConditionalGeneration": ("0.2.0", None),
    "Qwen3_5MoeForConditionalGeneration": ("0.2.0", None),
    "Llama4ForConditionalGeneration": ("0.12.0", None),
    "Qwen3ForCausalLM": ("0.16.0", None),
    "Qwen3MoeForCausalLM": ("0.16.0", None),
}
"""Architectures whose embeddings and output layer take adapters, from one release on and before another."""

_FUSED_EXPERTS = (
    "GptOssForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
)
"""Architectures whose experts have one adapter for gate and up together."""

_WITHOUT = {
    "MiMoV2FlashForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "StableLmForCausalLM",
    "DbrxForCausalLM",
    "FalconForCausalLM",
    "RWForCausalLM",
    "GPT2LMHeadModel",
    "GPTJForCausalLM",
    "BloomForCausalLM",
    "MPTForCausalLM",
    "MptForCausalLM",
    "MambaForCausalLM",
    "Mamba2ForCausalLM",
    "OrionForCausalLM",
}
"""Architectures that vLLM refuses to serve with adapters."""

_SINCE: dict[str, str] = {
    "DeepseekV2ForCausalLM": "0.12.0",
    "DeepseekV3ForCausalLM": "0.12.0",
    "OlmoeForCausalLM": "0.12.0",
    "OPTForCausalLM": "0.12.0",
    "Qwen2MoeForCausalLM": "0.12.0",
    "Qwen3MoeForCausalLM": "0.12.0",
    "Ernie4_5_MoeForCausalLM": "0.12.0",
    "MiniMaxM2ForCausalLM": "0.16.0",
    "LlavaNextForConditionalGeneration": "0.32.0",
    "LlavaForConditionalGeneration": "0.16.0",
    "PaliGemmaForConditionalGeneration": "0.16.0",
    "WhisperForConditionalGeneration": "0.20.0",
    **dict.fromkeys(("Starcoder2ForCausalLM", "SmolLM3ForCausalLM", "GPTNeoXForCausalLM"), "0.32.0"),
    **dict.fromkeys(("OlmoForCausalLM", "Olmo2ForCausalLM"), "0.12.0"),
    "BertModel": "0.32.0",
    "RobertaModel": "0.32.0",
    "XLMRobertaModel": "0.32.0",
    "ModernBertModel": "0.32.0",
}
"""Releases read in which an architecture takes adapters that the one read before does not; it may have begun between the two."""

VERIFIED: frozenset[str] = frozenset(
    (
        "ArceeForCausalLM",
        "MiniMaxM2ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "DeepseekV32ForCausalLM",
        "NemotronHForCausalLM",
        "Llama4ForConditionalGeneration",
        "Gemma4ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "BertModel",
        "Cohere2ForCausalLM",
        "CohereForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Ernie4_5ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneForCausalLM",
        "FalconH1ForCausalLM",
        "GPTBigCodeForCausalLM",
        "GPTNeoXForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm4vForConditionalGeneration",
        "GlmForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "Idefics3ForConditionalGeneration",
        "InternLM2ForCausalLM",
        "JambaForCausalLM",
        "LLaMAForCausalLM",
        "Lfm2ForCausalLM",
        "Llama4ForCausalLM",
        "LlamaForCausalLM",
        "LlavaForConditionalGeneration",
        "MiMoForCausalLM",
        "MiniCPM3ForCausalLM",
        "MiniCPMForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "ModernBertModel",
        "NemotronForCausalLM",
        "OPTForCausalLM",
        "Olmo2ForCausalLM",
        "Olmo3ForCausalLM",
        "OlmoForCausalLM",
        "OlmoeForCausalLM",
        "PaliGemmaForConditionalGeneration",
        "Phi3ForCausalLM",
        "PhiForCausalLM",
        "PhimoeForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "RobertaModel",
        "SeedOssForCausalLM",
        "SmolLM3ForCausalLM",
        "SolarForCausalLM",
        "Starcoder2ForCausalLM",
        "WhisperForConditionalGeneration",
        "XLMRobertaForSequenceClassification",
        "XLMRobertaModel",
    )
)
"""Architectures whose slots were compared with vLLM 0.32's own layers, byte for byte."""

_LANGUAGE = ("language_model", "model.text_model")


_THROUGH_TRANSFORMERS = (
    "ArceeForCausalLM",
    "GlmForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "Olmo2ForCausalLM",
    "Olmo3ForCausalLM",
    "OlmoForCausalLM",
    "PhiForCausalLM",
    "PhimoeForCausalLM",
    "SeedOssForCausalLM",
    "SmolLM3ForCausalLM",
    "Starcoder2ForCausalLM",
)
_TRANSFORMERS_SINCE = "0.32.0"
_OF_TRANSFORMERS: dict[str, dict[str, tuple[str, ...]]] = {
    "GlmForCausalLM": {"gate_up_proj": _ONE},
}
"""Architectures that vLLM runs through Transformers since 0.32: their embeddings take adapters, their output layer does not."""


class Targets(msgspec.Struct, frozen=True):
    """What of an architecture takes adapters.

    Attributes:
        fused_layers: fused layers and their parts; one part where an adapter changes the fused layer as a whole.
        embeddings: so do the embeddings.
        head: so does the output layer.
        fused_experts: gate and up of the experts have one adapter.
        prefix: only layers below these names do: an encoder's do not.
    """

    fused_layers: dict[str, tuple[str, ...]]
    embeddings: bool
    head: bool
    fused_experts: bool
    prefix: tuple[str, ...]

    def fused(self, name: str) -> int:
        """How many adapters a fused layer is said to have; 0 where nothing is said."""
        return len(self.parts(name))

    def parts(self, name: str) -> tuple[str, ...]:
        """The names of a fused layer's parts."""
        return self.fused_layers.get(name.rpartition(".")[2], ())

    def reaches(self, name: str) -> bool:
        """True for a layer of the language model."""
        return name.startswith(self.prefix)


def targets_of(architecture: str, version: str) -> Targets:
    """What of an architecture takes adapters in a release."""
    if architecture in _THROUGH_TRANSFORMERS and at_least(version, _TRANSFORMERS_SINCE):
        fused = {**_FUSED, **_OF_TRANSFORMERS.get(architecture, {})}
        return Targets(fused, embeddings=True, head=False, fused_experts=False, prefix=("",))
    since, until = _EMBEDDINGS.get(architecture, ("99", None))
    embeddings = at_least(version, since) and not (until and at_least(version, until))
    nested = architecture.endswith("ForConditionalGeneration") and not architecture.startswith(
        ("Whisper", "ChatGLM")
    )
    return Targets(
        _OWN.get(architecture, _FUSED),
        embeddings=embeddings,
        head=embeddings and not architecture.startswith("Cohere"),
        fused_experts=architecture in _FUSED_EXPERTS,
        prefix=_LANGUAGE if nested else ("",),
    )


def why_no_adapters(architecture: str, version: str) -> str:
    """Why adapters are not counted: vLLM refuses them, or the release may; empty where it takes them."""
    if architecture in _WITHOUT:
        return f"vLLM takes no LoRA adapters with {architecture}"
    since = _SINCE.get(architecture)
    if since is not None and not at_least(version, since):
        return f"it is not known that vLLM takes LoRA adapters with {architecture} before {since}"
    return ""
