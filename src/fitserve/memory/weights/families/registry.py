"""Which family counts which architecture. The names are those of ``architectures`` in ``config.json``."""

from collections.abc import Callable

import msgspec

from fitserve.memory.weights.families.dense import Dense, dense
from fitserve.memory.weights.families.mla import deepseek
from fitserve.memory.weights.families.moe import gpt_oss, minimax_m2, mixtral, qwen_moe
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
}
