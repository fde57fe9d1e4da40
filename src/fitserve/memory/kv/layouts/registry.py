"""Which layout an architecture has. The names are those of ``architectures`` and ``model_type`` in ``config.json``."""

from collections.abc import Callable

from fitserve.memory.kv.facts import Facts, Layer, NotModelledError
from fitserve.memory.kv.layouts import dense, latent, states, windows

Layout = Callable[[Facts], list[Layer]]

_ALIKE = [
    "LlamaForCausalLM",
    "LLaMAForCausalLM",
    "YiForCausalLM",
    "AquilaForCausalLM",
    "AquilaModel",
    "InternLMForCausalLM",
    "InternLM2ForCausalLM",
    "InternLM3ForCausalLM",
    "BaichuanForCausalLM",
    "BaiChuanForCausalLM",
    "GraniteForCausalLM",
    "GraniteMoeForCausalLM",
    "GraniteMoeSharedForCausalLM",
    "OlmoForCausalLM",
    "Olmo2ForCausalLM",
    "OlmoeForCausalLM",
    "StableLmForCausalLM",
    "StableLMEpochForCausalLM",
    "NemotronForCausalLM",
    "OrionForCausalLM",
    "PersimmonForCausalLM",
    "PhiForCausalLM",
    "PhiMoEForCausalLM",
    "Phi3ForCausalLM",
    "SolarForCausalLM",
    "Starcoder2ForCausalLM",
    "MixtralForCausalLM",
    "QuantMixtralForCausalLM",
    "GemmaForCausalLM",
    "CohereForCausalLM",
    "OPTForCausalLM",
    "BloomForCausalLM",
    "GPT2LMHeadModel",
    "GPTJForCausalLM",
    "GPTNeoXForCausalLM",
    "JAISLMHeadModel",
    "QWenLMHeadModel",
    "XverseForCausalLM",
    "ExaoneForCausalLM",
    "ArcticForCausalLM",
    "MiniCPMForCausalLM",
    "Glm4ForCausalLM",
    "GlmForCausalLM",
    "Glm4MoeForCausalLM",
    "Ernie4_5ForCausalLM",
    "Ernie4_5_MoeForCausalLM",
    "Dots1ForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "SeedOssForCausalLM",
    "ApertusForCausalLM",
    "ArceeForCausalLM",
    "FairseqGPTForCausalLM",
    "MiniMaxM2ForCausalLM",
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    "TeleChat2ForCausalLM",
    "SmolLM3ForCausalLM",
]
_QWEN = [
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "MiMoForCausalLM",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
]
_LATENT = [
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "KimiK2ForCausalLM",
    "Glm4MoeLiteForCausalLM",
]
_ENCODERS = [
    "BertModel",
    "BertForSequenceClassification",
    "RobertaModel",
    "RobertaForMaskedLM",
    "RobertaForSequenceClassification",
    "XLMRobertaModel",
    "XLMRobertaForSequenceClassification",
    "NomicBertModel",
    "ModernBertModel",
    "ModernBertForSequenceClassification",
    "GteModel",
    "BertForTokenClassification",
]
_WINDOWS_BY_TYPE = ["Exaone4ForCausalLM", "Olmo3ForCausalLM", "AfmoeForCausalLM"]
_NESTED = [
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "PixtralForConditionalGeneration",
    "VipLlavaForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    "PaliGemmaForConditionalGeneration",
    "AriaForConditionalGeneration",
    "InternVLChatModel",
    "InternVLForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    "UltravoxModel",
    "VoxtralForConditionalGeneration",
    "GraniteSpeechForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Gemma3ForConditionalGeneration",
    "Gemma3nForConditionalGeneration",
    "Gemma4ForConditionalGeneration",
    "Glm4vForConditionalGeneration",
    "Glm4vMoeForConditionalGeneration",
    "Ovis2_5",
    "H2OVLChatModel",
    "NVLM_D",
    "SkyworkR1VChatModel",
    "AyaVisionForConditionalGeneration",
    "Cohere2VisionForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen3OmniMoeForConditionalGeneration",
    "Step3p7ForConditionalGeneration",
]

LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(_ALIKE, dense.dense),
    **dict.fromkeys(_QWEN, dense.qwen),
    **dict.fromkeys(_LATENT, latent.deepseek),
    **dict.fromkeys(_ENCODERS, dense.encoder_only),
    **dict.fromkeys(_WINDOWS_BY_TYPE, windows.by_types),
    "MistralForCausalLM": dense.mistral,
    "FalconForCausalLM": dense.falcon,
    "RWForCausalLM": dense.falcon,
    "Ministral3ForCausalLM": dense.dense,
    "FlexOlmoForCausalLM": dense.dense,
    "EagleLlamaForCausalLM": dense.full,
    "LlamaForCausalLMEagle": dense.full,
    "LlamaForCausalLMEagle3": dense.full,
    "Eagle3LlamaForCausalLM": dense.full,
    "Eagle3Qwen3ForCausalLM": dense.full,
    "WhisperForConditionalGeneration": dense.whisper,
    "GPTBigCodeForCausalLM": dense.gpt_bigcode,
    "ChatGLMModel": dense.chatglm,
    "ChatGLMForConditionalGeneration": dense.chatglm,
    "MPTForCausalLM": dense.mpt,
    "MptForCausalLM": dense.mpt,
    "DbrxForCausalLM": dense.mpt,
    "DeciLMForCausalLM": dense.nemotron_nas,
    "Gemma2ForCausalLM": windows.gemma2,
    "Gemma3ForCausalLM": windows.gemma3,
    "Gemma3nForCausalLM": windows.gemma3n,
    "Gemma4ForCausalLM": windows.gemma4,
    "GptOssForCausalLM": windows.gpt_oss,
    "VaultGemmaForCausalLM": windows.gemma2,
    "Cohere2ForCausalLM": windows.command_r2,
    "Cohere2MoeForCausalLM": windows.command_r2,
    "Llama4ForCausalLM": windows.llama4,
    "MiMoV2FlashForCausalLM": windows.mimo_v2,
    "Step3p5ForCausalLM": windows.step3,
    "MiniMaxM3SparseForCausalLM": latent.minimax_m3,
    "MiniMaxM3SparseForConditionalGeneration": latent.minimax_m3,
    "KimiLinearForCausalLM": states.kimi_linear,
    "KimiK3ForConditionalGeneration": states.kimi_linear,
    "Qwen3NextForCausalLM": states.qwen_hybrid,
    "Qwen3_5ForCausalLM": states.qwen_hybrid,
    "Qwen3_5MoeForCausalLM": states.qwen_hybrid,
    "Qwen3_5ForConditionalGeneration": states.qwen_hybrid,
    "Qwen3_5MoeForConditionalGeneration": states.qwen_hybrid,
    "OlmoHybridForCausalLM": states.olmo_hybrid,
    "NemotronHForCausalLM": states.nemotron_h,
    "NemotronHPuzzleForCausalLM": states.nemotron_h,
    "GraniteMoeHybridForCausalLM": states.granite_hybrid,
    "BambaForCausalLM": states.bamba,
    "FalconH1ForCausalLM": states.falcon_h1,
    "Zamba2ForCausalLM": states.zamba2,
    "JambaForCausalLM": states.jamba,
    "MambaForCausalLM": states.mamba,
    "FalconMambaForCausalLM": states.mamba,
    "Mamba2ForCausalLM": states.mamba2_only,
    "Lfm2ForCausalLM": states.lfm2,
    "Lfm2MoeForCausalLM": states.lfm2,
}

_TEXT_TYPES: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen2_5_omni_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "granite": "GraniteForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4v_text": "Glm4ForCausalLM",
    "glm4v_moe_text": "Glm4MoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "KimiK2ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "aria_text": "LlamaForCausalLM",
    "step3p5": "Step3p5ForCausalLM",
}
"""The architecture of a language model inside a multimodal one, by its ``model_type``."""


def layout_of(facts: Facts) -> list[Layer]:
    """The layers of a model that keep something.

    Raises:
        NotModelledError: the architecture or one of its layers is not known.
    """
    architecture = facts.config.architecture
    if architecture in LAYOUTS:
        return LAYOUTS[architecture](facts)
    if architecture in _NESTED:
        return LAYOUTS[_text_architecture(facts)](facts)
    raise NotModelledError(f"the architecture {architecture}")


def _text_architecture(facts: Facts) -> str:
    listed = facts.strings("architectures")
    if facts.text is not facts.config.data and listed and listed[0] in LAYOUTS:
        return listed[0]
    found = _TEXT_TYPES.get(str(facts.text.get("model_type")))
    if found is None:
        raise NotModelledError(
            f"the language model of type {facts.text.get('model_type')} in {facts.config.architecture}"
        )
    return found
