"""Which family counts which architecture. The names are those of ``architectures`` in ``config.json``."""

from collections.abc import Callable

import msgspec

from fitserve.memory.weights.families.classic import (
    bloom,
    chatglm,
    falcon,
    gpt2,
    gpt_bigcode,
    gpt_j,
    gpt_neox,
    mpt,
    opt,
)
from fitserve.memory.weights.families.dense import (
    Dense,
    cohere,
    dense,
    ernie45,
    olmo3,
    seed_oss,
    stablelm,
    starcoder2,
)
from fitserve.memory.weights.families.encoders import bert, modernbert, whisper
from fitserve.memory.weights.families.gemma import gemma, gemma3_vision, gemma4, gemma4_vision
from fitserve.memory.weights.families.hybrid import qwen_hybrid
from fitserve.memory.weights.families.internvl import internvl
from fitserve.memory.weights.families.mla import deepseek, minicpm3
from fitserve.memory.weights.families.moe import (
    dbrx,
    ernie45_moe,
    glm4_moe,
    gpt_oss,
    granite_moe,
    llama4,
    mimo_v2,
    minimax_m2,
    mixtral,
    olmoe,
    phi_moe,
    qwen_moe,
)
from fitserve.memory.weights.families.multimodal import (
    glm4v,
    idefics3,
    kimi_k25,
    kimi_vl,
    llama4_vision,
    llava,
    mistral3,
    paligemma,
    qwen2_vl,
    qwen3_vl,
    qwen3_vl_moe,
    qwen25_vl,
    qwen35,
)
from fitserve.memory.weights.families.nas import decilm
from fitserve.memory.weights.families.nemotron_h import nemotron_h
from fitserve.memory.weights.families.state import (
    falcon_h1,
    granite_hybrid,
    jamba,
    lfm2,
    mamba,
    mamba2_decoder,
)
from fitserve.memory.weights.model import Build


class Family(msgspec.Struct, frozen=True):
    """How an architecture is counted.

    Attributes:
        count: fills the inventory of a rank.
        renames: vLLM's new names of the checkpoint's modules, for rules that name layers.
    """

    count: Callable[[Build], None]
    renames: tuple[tuple[str, str], ...] = ()


def _dense(**how: object) -> Family:
    chosen = msgspec.convert(how, Dense)
    return Family(lambda build: dense(build, chosen))


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
    "MixtralForCausalLM": Family(mixtral),
    "Qwen2MoeForCausalLM": Family(lambda build: qwen_moe(build, _QWEN2)),
    "Qwen3MoeForCausalLM": Family(lambda build: qwen_moe(build, _QWEN3)),
    "MiniMaxM2ForCausalLM": Family(minimax_m2),
    "GptOssForCausalLM": Family(gpt_oss),
    "DeepseekV2ForCausalLM": Family(deepseek),
    "DeepseekV3ForCausalLM": Family(deepseek),
    "DeepseekV32ForCausalLM": Family(deepseek),
    "GlmMoeDsaForCausalLM": Family(deepseek),
    "MiMoV2FlashForCausalLM": Family(mimo_v2),
    "Qwen3NextForCausalLM": Family(lambda build: qwen_hybrid(build, interleaved=True)),
    "Qwen3_5ForCausalLM": Family(qwen_hybrid, (("model.language_model.", "model."),)),
    "Qwen3_5MoeForCausalLM": Family(qwen_hybrid, (("model.language_model.", "model."),)),
    "Qwen3_5ForConditionalGeneration": Family(qwen35, _QWEN_VL),
    "Qwen3_5MoeForConditionalGeneration": Family(qwen35, _QWEN_VL),
    "Qwen3VLForConditionalGeneration": Family(qwen3_vl, _QWEN_VL),
    "Qwen3VLMoeForConditionalGeneration": Family(qwen3_vl_moe, _QWEN_VL),
    "Qwen2VLForConditionalGeneration": Family(qwen2_vl, _QWEN_VL),
    "Qwen2_5_VLForConditionalGeneration": Family(qwen25_vl, _QWEN_VL),
    "Mistral3ForConditionalGeneration": Family(mistral3, _LLAVA),
    "NemotronHForCausalLM": Family(nemotron_h, (("backbone", "model"),)),
    "GemmaForCausalLM": Family(lambda build: gemma(build, norms=2, qk_norm=False)),
    "Gemma2ForCausalLM": Family(lambda build: gemma(build, norms=4, qk_norm=False)),
    "Gemma3ForCausalLM": Family(lambda build: gemma(build, norms=4, qk_norm=True, local_rotary=True)),
    "Gemma3ForConditionalGeneration": Family(gemma3_vision, _LLAVA),
    "Gemma4ForCausalLM": Family(gemma4),
    "Gemma4ForConditionalGeneration": Family(
        gemma4_vision, (*_LLAVA, ("model.embed_vision.", "embed_vision."))
    ),
    "KimiK25ForConditionalGeneration": Family(
        kimi_k25, (("language_model.layers.", "language_model.model.layers."),)
    ),
    "Llama4ForCausalLM": Family(llama4),
    "Llama4ForConditionalGeneration": Family(llama4_vision, _LLAVA),
    "LlavaForConditionalGeneration": Family(lambda build: llava(build, newline=False), _LLAVA),
    "LlavaNextForConditionalGeneration": Family(lambda build: llava(build, newline=True), _LLAVA),
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
    "StableLmForCausalLM": Family(stablelm),
    "Starcoder2ForCausalLM": Family(starcoder2),
    "CohereForCausalLM": Family(cohere),
    "Cohere2ForCausalLM": Family(cohere),
    "OlmoForCausalLM": _dense(
        out_bias=None, mlp_bias=False, norms=0, last_norm=False, through_transformers=True
    ),
    "Olmo2ForCausalLM": _dense(mlp_bias=False, qk_norm="all", through_transformers=True),
    "Olmo3ForCausalLM": Family(olmo3),
    "OlmoeForCausalLM": Family(olmoe),
    "Glm4ForCausalLM": _dense(out_bias=False, mlp_bias=False, norms=4),
    "GlmForCausalLM": _dense(out_bias=False, mlp_bias=False, through_transformers=True),
    "NemotronForCausalLM": _dense(gated=False, norm_bias=True),
    "SeedOssForCausalLM": Family(seed_oss),
    "HunYuanDenseV1ForCausalLM": _dense(qk_norm="head", tied=True, through_transformers=True),
    "Ernie4_5ForCausalLM": Family(ernie45),
    "Ernie4_5_MoeForCausalLM": Family(ernie45_moe),
    "GraniteMoeForCausalLM": Family(granite_moe),
    "GraniteMoeSharedForCausalLM": Family(granite_moe),
    "GraniteMoeHybridForCausalLM": Family(granite_hybrid),
    "PhimoeForCausalLM": Family(phi_moe),
    "PhiMoEForCausalLM": Family(phi_moe),
    "Glm4MoeForCausalLM": Family(glm4_moe),
    "DbrxForCausalLM": Family(dbrx),
    "FalconForCausalLM": Family(falcon),
    "RWForCausalLM": Family(falcon),
    "OPTForCausalLM": Family(opt),
    "GPT2LMHeadModel": Family(gpt2),
    "GPTJForCausalLM": Family(gpt_j),
    "GPTNeoXForCausalLM": Family(gpt_neox),
    "GPTBigCodeForCausalLM": Family(gpt_bigcode),
    "BloomForCausalLM": Family(bloom),
    "MPTForCausalLM": Family(mpt),
    "MptForCausalLM": Family(mpt),
    "JambaForCausalLM": Family(jamba),
    "MambaForCausalLM": Family(mamba),
    "Mamba2ForCausalLM": Family(mamba2_decoder),
    "FalconH1ForCausalLM": Family(falcon_h1),
    "BertModel": Family(bert),
    "RobertaModel": Family(bert),
    "XLMRobertaModel": Family(bert),
    "WhisperForConditionalGeneration": Family(whisper),
    "SmolLM3ForCausalLM": _dense(tied=True, through_transformers=True),
    "Exaone4ForCausalLM": _dense(qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm="head"),
    "ArceeForCausalLM": _dense(gated=False, through_transformers=True),
    "InternLM2ForCausalLM": _dense(mlp_bias=False),
    "MiniCPM3ForCausalLM": Family(minicpm3),
    "ChatGLMModel": Family(chatglm),
    "ChatGLMForConditionalGeneration": Family(chatglm),
    "KimiVLForConditionalGeneration": Family(kimi_vl),
    "Glm4MoeLiteForCausalLM": Family(lambda build: deepseek(build, wide_gate=True)),
    "Idefics3ForConditionalGeneration": Family(idefics3),
    "SmolVLMForConditionalGeneration": Family(idefics3),
    "MiMoForCausalLM": _dense(qkv_bias=True, out_bias=False, mlp_bias=False),
    "MiniCPMForCausalLM": _dense(everywhere="embeddings norm head"),
    "ExaoneForCausalLM": _dense(),
    "SolarForCausalLM": _dense(),
    "OrionForCausalLM": _dense(norm_bias=True, everywhere="embeddings norm head"),
    "Glm4vForConditionalGeneration": Family(glm4v, _QWEN_VL),
    "PaliGemmaForConditionalGeneration": Family(paligemma, _LLAVA),
    "ModernBertModel": Family(modernbert),
    "RobertaForSequenceClassification": Family(lambda build: bert(build, classes=True)),
    "XLMRobertaForSequenceClassification": Family(lambda build: bert(build, classes=True)),
    "Qwen2ForSequenceClassification": _dense(qkv_bias=True, out_bias=False, mlp_bias=False, classes=True),
    "Qwen3ForSequenceClassification": _dense(out_bias=False, mlp_bias=False, qk_norm="head", classes=True),
    "LlamaForSequenceClassification": _dense(classes=True),
    "DeciLMForCausalLM": Family(decilm),
    "Lfm2ForCausalLM": Family(lfm2),
    "InternVLChatModel": Family(internvl),
}
