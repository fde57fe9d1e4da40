"""Which family counts which architecture. The names are those of ``architectures`` in ``config.json``.

A family's module is imported when a model of it is counted.
"""

from importlib import import_module

import msgspec

from fitserve.memory.weights.families.dense import Dense
from fitserve.memory.weights.model import Build

_Renames = tuple[tuple[str, str], ...]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """How an architecture is counted.

    Attributes:
        module: the module beside this one that counts it.
        function: the function there; it takes a ``Build`` and fills its inventory.
        how: what the function takes beside it, where its decoder differs from Llama.
        words: what else it takes.
        renames: vLLM's new names of the checkpoint's modules, for rules that name layers.
    """

    module: str
    function: str
    how: tuple[Dense, ...] = ()
    words: tuple[tuple[str, object], ...] = ()
    renames: _Renames = ()

    def count(self, build: Build) -> None:
        """Fill the inventory of a rank."""
        module = import_module(f"{__package__}.{self.module}")
        getattr(module, self.function)(build, *self.how, **dict(self.words))


def _family(
    module: str, function: str, *, how: Dense | None = None, renames: _Renames = (), **words: object
) -> Family:
    chosen = () if how is None else (how,)
    return Family(module=module, function=function, how=chosen, words=tuple(words.items()), renames=renames)


def _dense(**how: object) -> Family:
    return _family("dense", "dense", how=msgspec.convert(how, Dense))


_LLAMA = _dense()
_QWEN2 = Dense(qkv_bias=True, out_bias=False, mlp_bias=False)
_QWEN3 = Dense(out_bias=False, mlp_bias=False, qk_norm="head")

_QWEN_VL = (
    ("model.language_model.", "language_model.model."),
    ("model.visual.", "visual."),
    ("lm_head.", "language_model.lm_head."),
    ("model.", "language_model.model."),
)
_LLAVA = (
    ("model.language_model.", "language_model.model."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("lm_head.", "language_model.lm_head."),
)

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": _LLAMA,
    "LLaMAForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "YiForCausalLM": _LLAMA,
    "AquilaForCausalLM": _LLAMA,
    "InternLMForCausalLM": _LLAMA,
    "InternLM3ForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _dense(qkv_bias=True, out_bias=False, mlp_bias=False),
    "Qwen3ForCausalLM": _dense(qkv_bias=None, out_bias=False, mlp_bias=False, qk_norm="head"),
    "MixtralForCausalLM": _family("moe", "mixtral"),
    "Qwen2MoeForCausalLM": _family("moe", "qwen_moe", how=_QWEN2),
    "Qwen3MoeForCausalLM": _family("moe", "qwen_moe", how=_QWEN3),
    "MiniMaxM2ForCausalLM": _family("moe", "minimax_m2"),
    "GptOssForCausalLM": _family("moe", "gpt_oss"),
    "DeepseekV2ForCausalLM": _family("mla", "deepseek"),
    "DeepseekV3ForCausalLM": _family("mla", "deepseek"),
    "DeepseekV32ForCausalLM": _family("mla", "deepseek"),
    "GlmMoeDsaForCausalLM": _family("mla", "deepseek"),
    "MiMoV2FlashForCausalLM": _family("moe", "mimo_v2"),
    "Qwen3NextForCausalLM": _family("hybrid", "qwen_hybrid", interleaved=True),
    "Qwen3_5ForCausalLM": _family("hybrid", "qwen_hybrid", renames=(("model.language_model.", "model."),)),
    "Qwen3_5MoeForCausalLM": _family("hybrid", "qwen_hybrid", renames=(("model.language_model.", "model."),)),
    "Qwen3_5ForConditionalGeneration": _family("multimodal", "qwen35", renames=_QWEN_VL),
    "Qwen3_5MoeForConditionalGeneration": _family("multimodal", "qwen35", renames=_QWEN_VL),
    "Qwen3VLForConditionalGeneration": _family("multimodal", "qwen3_vl", renames=_QWEN_VL),
    "Qwen3VLMoeForConditionalGeneration": _family("multimodal", "qwen3_vl_moe", renames=_QWEN_VL),
    "Qwen2VLForConditionalGeneration": _family("multimodal", "qwen2_vl", renames=_QWEN_VL),
    "Qwen2_5_VLForConditionalGeneration": _family("multimodal", "qwen25_vl", renames=_QWEN_VL),
    "Mistral3ForConditionalGeneration": _family("multimodal", "mistral3", renames=_LLAVA),
    "NemotronHForCausalLM": _family("nemotron_h", "nemotron_h", renames=(("backbone", "model"),)),
    "GemmaForCausalLM": _family("gemma", "gemma", norms=2, qk_norm=False),
    "Gemma2ForCausalLM": _family("gemma", "gemma", norms=4, qk_norm=False),
    "Gemma3ForCausalLM": _family("gemma", "gemma", norms=4, qk_norm=True, local_rotary=True),
    "Gemma3ForConditionalGeneration": _family("gemma", "gemma3_vision", renames=_LLAVA),
    "Gemma4ForCausalLM": _family("gemma", "gemma4"),
    "Gemma4ForConditionalGeneration": _family(
        "gemma", "gemma4_vision", renames=(*_LLAVA, ("model.embed_vision.", "embed_vision."))
    ),
    "KimiK25ForConditionalGeneration": _family(
        "multimodal", "kimi_k25", renames=(("language_model.layers.", "language_model.model.layers."),)
    ),
    "Llama4ForCausalLM": _family("moe", "llama4"),
    "Llama4ForConditionalGeneration": _family("multimodal", "llama4_vision", renames=_LLAVA),
    "LlavaForConditionalGeneration": _family("multimodal", "llava", renames=_LLAVA, newline=False),
    "LlavaNextForConditionalGeneration": _family("multimodal", "llava", renames=_LLAVA, newline=True),
    "GraniteForCausalLM": _LLAMA,
    "Phi3ForCausalLM": _dense(qkv_bias=False, out_bias=False, mlp_bias=False),
    "PhiForCausalLM": _dense(
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        gated=False,
        norms=1,
        norm_bias=True,
        through_transformers=True,
    ),
    "StableLmForCausalLM": _family("dense", "stablelm"),
    "Starcoder2ForCausalLM": _family("dense", "starcoder2"),
    "CohereForCausalLM": _family("dense", "cohere"),
    "Cohere2ForCausalLM": _family("dense", "cohere"),
    "OlmoForCausalLM": _dense(
        out_bias=None, mlp_bias=False, norms=0, last_norm=False, through_transformers=True
    ),
    "Olmo2ForCausalLM": _dense(mlp_bias=False, qk_norm="all", through_transformers=True),
    "Olmo3ForCausalLM": _family("dense", "olmo3"),
    "OlmoeForCausalLM": _family("moe", "olmoe"),
    "Glm4ForCausalLM": _dense(out_bias=False, mlp_bias=False, norms=4),
    "GlmForCausalLM": _dense(out_bias=False, mlp_bias=False, through_transformers=True),
    "NemotronForCausalLM": _dense(gated=False, norm_bias=True),
    "SeedOssForCausalLM": _family("dense", "seed_oss"),
    "HunYuanDenseV1ForCausalLM": _dense(qk_norm="head", tied=True, through_transformers=True),
    "Ernie4_5ForCausalLM": _family("dense", "ernie45"),
    "Ernie4_5_MoeForCausalLM": _family("moe", "ernie45_moe"),
    "GraniteMoeForCausalLM": _family("moe", "granite_moe"),
    "GraniteMoeSharedForCausalLM": _family("moe", "granite_moe"),
    "GraniteMoeHybridForCausalLM": _family("state", "granite_hybrid"),
    "PhimoeForCausalLM": _family("moe", "phi_moe"),
    "PhiMoEForCausalLM": _family("moe", "phi_moe"),
    "Glm4MoeForCausalLM": _family("moe", "glm4_moe"),
    "DbrxForCausalLM": _family("moe", "dbrx"),
    "FalconForCausalLM": _family("classic", "falcon"),
    "RWForCausalLM": _family("classic", "falcon"),
    "OPTForCausalLM": _family("classic", "opt"),
    "GPT2LMHeadModel": _family("classic", "gpt2"),
    "GPTJForCausalLM": _family("classic", "gpt_j"),
    "GPTNeoXForCausalLM": _family("classic", "gpt_neox"),
    "GPTBigCodeForCausalLM": _family("classic", "gpt_bigcode"),
    "BloomForCausalLM": _family("classic", "bloom"),
    "MPTForCausalLM": _family("classic", "mpt"),
    "MptForCausalLM": _family("classic", "mpt"),
    "JambaForCausalLM": _family("state", "jamba"),
    "MambaForCausalLM": _family("state", "mamba"),
    "Mamba2ForCausalLM": _family("state", "mamba2_decoder"),
    "FalconH1ForCausalLM": _family("state", "falcon_h1"),
    "BertModel": _family("encoders", "bert"),
    "RobertaModel": _family("encoders", "bert"),
    "XLMRobertaModel": _family("encoders", "bert"),
    "WhisperForConditionalGeneration": _family("encoders", "whisper"),
    "SmolLM3ForCausalLM": _dense(tied=True, through_transformers=True),
    "Exaone4ForCausalLM": _dense(qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm="head"),
    "ArceeForCausalLM": _dense(gated=False, through_transformers=True),
    "InternLM2ForCausalLM": _dense(mlp_bias=False),
    "MiniCPM3ForCausalLM": _family("mla", "minicpm3"),
    "ChatGLMModel": _family("classic", "chatglm"),
    "ChatGLMForConditionalGeneration": _family("classic", "chatglm"),
    "KimiVLForConditionalGeneration": _family("multimodal", "kimi_vl"),
    "Glm4MoeLiteForCausalLM": _family("mla", "deepseek", wide_gate=True),
    "Idefics3ForConditionalGeneration": _family("multimodal", "idefics3"),
    "SmolVLMForConditionalGeneration": _family("multimodal", "idefics3"),
    "MiMoForCausalLM": _dense(qkv_bias=True, out_bias=False, mlp_bias=False),
    "MiniCPMForCausalLM": _dense(everywhere="embeddings norm head"),
    "ExaoneForCausalLM": _dense(),
    "SolarForCausalLM": _dense(),
    "OrionForCausalLM": _dense(norm_bias=True, everywhere="embeddings norm head"),
    "Glm4vForConditionalGeneration": _family("multimodal", "glm4v", renames=_QWEN_VL),
    "PaliGemmaForConditionalGeneration": _family("multimodal", "paligemma", renames=_LLAVA),
    "ModernBertModel": _family("encoders", "modernbert"),
    "RobertaForSequenceClassification": _family("encoders", "bert", classes=True),
    "XLMRobertaForSequenceClassification": _family("encoders", "bert", classes=True),
    "Qwen2ForSequenceClassification": _dense(qkv_bias=True, out_bias=False, mlp_bias=False, classes=True),
    "Qwen3ForSequenceClassification": _dense(out_bias=False, mlp_bias=False, qk_norm="head", classes=True),
    "LlamaForSequenceClassification": _dense(classes=True),
    "DeciLMForCausalLM": _family("nas", "decilm"),
    "Lfm2ForCausalLM": _family("state", "lfm2"),
    "InternVLChatModel": _family("internvl", "internvl"),
}
