"""Which family counts which architecture. The names are those of ``architectures`` in ``config.json``."""

from collections.abc import Callable

import msgspec

from fitserve.memory.weights.families.dense import Dense, dense
from fitserve.memory.weights.families.hybrid import qwen_hybrid
from fitserve.memory.weights.families.mla import deepseek
from fitserve.memory.weights.families.moe import gpt_oss, mimo_v2, minimax_m2, mixtral, qwen_moe
from fitserve.memory.weights.families.multimodal import (
    mistral3,
    qwen2_vl,
    qwen3_vl,
    qwen3_vl_moe,
    qwen25_vl,
    qwen35,
)
from fitserve.memory.weights.families.nemotron_h import nemotron_h
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
}
