"""Which releases have an architecture, or a quantisation, of their own.

What came between two releases that were read counts as there in all between them.

Source: ``model_executor/models/registry.py`` and ``layers/quantization/__init__.py`` of vLLM 0.6.6, 0.10.2 and 0.32.0; the
loaders' messages of 0.2.0 to 0.33.0 for GGUF and bitsandbytes.
"""

from fitserve.memory.history import at_least, release

_NEWER_THAN_0_10_2 = """
DeepseekV32ForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM
KimiK25ForConditionalGeneration MiMoV2FlashForCausalLM MiniMaxM2ForCausalLM Olmo3ForCausalLM
Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM
Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
"""
_NEWER_THAN_0_6_6 = """
ArceeForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Exaone4ForCausalLM FalconH1ForCausalLM Gemma3ForCausalLM
Gemma3ForConditionalGeneration Glm4ForCausalLM Glm4MoeForCausalLM Glm4vForConditionalGeneration GptOssForCausalLM
GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM HunYuanDenseV1ForCausalLM InternLM3ForCausalLM
KimiVLForConditionalGeneration Lfm2ForCausalLM Llama4ForCausalLM Llama4ForConditionalGeneration Mamba2ForCausalLM
MiMoForCausalLM Mistral3ForConditionalGeneration ModernBertModel NemotronHForCausalLM Qwen2_5_VLForConditionalGeneration
Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM
SmolVLMForConditionalGeneration WhisperForConditionalGeneration
"""
_LACKED_BY_0_10_2 = frozenset(_NEWER_THAN_0_10_2.split())
_LACKED_BY_0_6_6 = _LACKED_BY_0_10_2 | frozenset(_NEWER_THAN_0_6_6.split())
_ARCHITECTURES_LAST_IN = {
    "InternLMForCausalLM": "0.23.0",
    "AquilaForCausalLM": "0.24.0",
    "MPTForCausalLM": "0.28.0",
    "MptForCausalLM": "0.28.0",
    "RWForCausalLM": "0.28.0",
}
_TRANSFORMERS_SINCE = "0.7.0"
"""The first release that runs the code of transformers where it has no class of its own."""

_METHODS_GONE_IN = {
    "gguf": "0.24.0",
    "bitsandbytes": "0.28.0",
    **dict.fromkeys(("aqlm", "marlin", "neuron_quant", "qqq"), "0.10.2"),
    **dict.fromkeys(
        (
            "bitblas",
            "deepspeedfp",
            "gptq_bitblas",
            "gptq_marlin_24",
            "hqq",
            "ipex",
            "petit_nvfp4",
            "ptpc_fp8",
            "rtn",
            "tpu_int8",
        ),
        "0.32.0",
    ),
}
"""The first release that is known to be without a method."""

_METHODS_LACKED_BY = {
    **dict.fromkeys(
        ("auto-round", "inc", "modelopt_fp4", "moe_wna16", "mxfp4", "quark", "torchao"), "0.6.6.post1"
    ),
    **dict.fromkeys(
        (
            "auto_awq",
            "auto_gptq",
            "deepseek_v4_fp8",
            "fp8_per_block",
            "fp8_per_channel",
            "fp8_per_tensor",
            "fp_quant",
            "gpt_oss_mxfp4",
            "humming",
            "int8_per_channel_weight_only",
            "modelopt_mixed",
            "modelopt_mxfp8",
            "mxfp8",
            "nvfp4_per_token",
            "online",
        ),
        "0.10.2",
    ),
}
"""The last release that is known to be without a method yet."""

_METHODS_ALWAYS = frozenset(
    (
        "awq",
        "awq_marlin",
        "compressed-tensors",
        "experts_int8",
        "fbgemm_fp8",
        "fp8",
        "gptq",
        "gptq_marlin",
        "modelopt",
    )
)


def is_quantization(name: str) -> bool:
    """True for a method that some release has."""
    return name in _METHODS_ALWAYS or name in _METHODS_GONE_IN or name in _METHODS_LACKED_BY


def refused_architecture(name: str, version: str) -> str | None:
    """Why a release cannot run an architecture, as one sentence; None where it can, or where that is not known."""
    last = _ARCHITECTURES_LAST_IN.get(name)
    if last is not None and release(version) > release(last):
        return f"vLLM {release(version)} has no {name} any more, {last} is the last release with it"
    if name in _LACKED_BY_0_6_6 and not at_least(version, _TRANSFORMERS_SINCE):
        return f"vLLM {release(version)} does not know {name}, which a later release has"
    return None


def is_foreign(name: str, version: str) -> bool:
    """True where a release has no class of its own for an architecture, and would run that of transformers at best."""
    return name in _LACKED_BY_0_10_2 and release(version) <= release("0.10.2")


def refused_method(name: str, version: str) -> str | None:
    """Why a release does not take a quantisation, as one sentence; None where it does, or where that is not known."""
    gone = _METHODS_GONE_IN.get(name)
    if gone is not None and at_least(version, gone):
        return f"vLLM {release(version)} does not know the quantisation {name} any more"
    lacking = _METHODS_LACKED_BY.get(name)
    if lacking is not None and release(version) <= release(lacking):
        return f"vLLM {release(version)} does not know the quantisation {name} yet"
    return None
