"""What drafting modules and drafting models hold beside the model, on the ranks of the last pipeline stage.

A module of the checkpoint (MTP) and an EAGLE head share the model's embeddings and output layer, unless the head's files hold their own:
where the files are not at hand, the size is an interval. With several pipeline stages embeddings are not shared.

Source: vLLM 0.32 ``models/*_mtp.py``, ``llama_eagle.py``, ``llama_eagle3.py``, ``medusa.py``, ``v1/spec_decode/llm_base_proposer.py``.
"""

from collections.abc import Callable

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.options import Drafting, EngineOptions
from fitserve.memory.weights.families.dense import Dense, attention
from fitserve.memory.weights.families.hybrid import gated_attention
from fitserve.memory.weights.families.mla import deepseek_experts, has_indexer, mla_attention
from fitserve.memory.weights.families.moe import qwen_experts
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.shapes import NotModelledError

_FLOAT32 = 4
_ID_BYTES = 8
_WITHOUT_WEIGHTS = ("ngram", "ngram_gpu", "suffix")
_HEAD_SHARED_SINCE = "0.16.0"
"""From here on each module's own copy of the output layer is given up too; 0.13 to 0.15 were not read."""


class Draft(msgspec.Struct, frozen=True):
    """Bytes of one rank's drafting modules: at least, and at most."""

    low: int
    high: int


Fill = Callable[[Build, int], None]


def draft_bytes(build: Build, draft: Build | None, drafting: Drafting) -> Draft:
    """What drafts, on one rank.

    Args:
        build: the served model, to be filled with its own modules.
        draft: the drafting model, to be filled with its layers.
        drafting: the settings.

    Raises:
        NotModelledError: the method or the model that drafts is not known.
    """
    method = drafting.method
    if method in _WITHOUT_WEIGHTS:
        return Draft(0, 0)
    if method == "mtp":
        return _modules(build)
    if drafting.missing:
        raise NotModelledError(drafting.missing)
    fill = _BESIDE.get(method)
    if fill is None:
        raise NotModelledError(f"drafting by {method or 'an unnamed method'}")
    if draft is None:
        raise NotModelledError(f"the method {method} without a drafting model")
    return fill(draft, build, drafting)


def _modules(build: Build) -> Draft:
    """The checkpoint's own modules."""
    architecture = build.config.architecture
    found = _MODULES.get(architecture)
    if found is None:
        raise NotModelledError(f"the drafting modules of {architecture}")
    names, fill = found
    layers = build.integer("num_hidden_layers")
    count = build.integer(*names, default=1)
    for index in range(layers, layers + count):
        fill(build, index)
    if architecture in _JOINED:
        inventory, hidden = build.inventory, build.hidden
        inventory.column("mtp.fc", 2 * hidden, hidden)
        inventory.numbers(3 * hidden)
    inventory = build.inventory
    if architecture in _WITH_HEADS and not build.at_least(_HEAD_SHARED_SINCE):
        for _ in range(count):
            inventory.head("shared_head.head", build.vocabulary, build.hidden)
    if build.options.pipeline_parallel_size > 1:
        inventory.embedding(build.vocabulary, build.hidden)
    held = inventory.params + inventory.buffers
    return Draft(held, held)


def _deepseek(build: Build, index: int) -> None:
    """DeepSeek V3 and GLM's latent models: norms, a projection of both inputs, one routed layer."""
    _joined_inputs(build)
    name = f"model.layers.{index}"
    mla_attention(build, f"{name}.self_attn", indexer=has_indexer(build, index))
    build.inventory.numbers(2 * build.hidden)
    wide = build.config.architecture == "Glm4MoeLiteForCausalLM"
    deepseek_experts(build, f"{name}.mlp", wide_gate=wide)


def _joined_inputs(build: Build) -> None:
    """Three norms, and what brings the token and the last hidden state together; never quantised."""
    build.inventory.numbers(2 * build.hidden * build.hidden + 3 * build.hidden)


def _glm4(build: Build, index: int) -> None:
    _joined_inputs(build)
    inventory, hidden, experts = build.inventory, build.hidden, build.integer("n_routed_experts")
    name, intermediate = f"model.layers.{index}", build.integer("moe_intermediate_size")
    how = Dense(out_bias=False, qk_norm="head" if build.flag("use_qk_norm") else "")
    attention(build, how, f"{name}.self_attn")
    inventory.numbers(2 * hidden)
    inventory.gate(f"{name}.mlp.gate", hidden, experts, _FLOAT32)
    inventory.numbers(experts, _FLOAT32)
    shared = build.integer("n_shared_experts", default=0)
    if shared:
        inventory.gated_mlp(f"{name}.mlp.shared_experts", hidden, shared * intermediate)
    inventory.experts(f"{name}.mlp.experts", experts, hidden, intermediate)


def _mimo(build: Build, index: int) -> None:
    _joined_inputs(build)
    name = f"model.layers.{index}"
    attention(build, Dense(qkv_bias=True, out_bias=False, mlp_bias=False), f"{name}.self_attn")
    build.inventory.gated_mlp(f"{name}.mlp", build.hidden, build.integer("intermediate_size"))
    build.inventory.numbers(2 * build.hidden)


def _ernie(build: Build, index: int) -> None:
    """ERNIE: two norms, a projection, and one dense layer."""
    bias, hidden = build.flag("use_bias"), build.hidden
    build.inventory.numbers(2 * hidden * hidden + 2 * hidden + (hidden if bias else 0))
    name = f"model.layers.{index}"
    attention(build, Dense(), f"{name}.self_attn")
    build.inventory.gated_mlp(f"{name}.mlp", hidden, build.integer("intermediate_size"))
    build.inventory.numbers(2 * hidden)


def _qwen(build: Build, index: int) -> None:
    """Qwen3-Next and Qwen3.5: full attention, dense or routed."""
    name = f"mtp.layers.{index}"
    gated_attention(build, f"{name}.self_attn")
    build.inventory.numbers(2 * build.hidden)
    experts = build.integer("num_experts", default=0)
    if experts:
        qwen_experts(build, f"{name}.mlp", experts, plain_gate=True)
    else:
        build.inventory.gated_mlp(f"{name}.mlp", build.hidden, build.integer("intermediate_size"))


_NEXT = ("num_nextn_predict_layers",)
_MTP = ("mtp_num_hidden_layers",)
_WITH_HEADS = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "Glm4MoeForCausalLM",
)
_JOINED = (
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
"""Architectures whose modules have one projection of both inputs, and three norms, together."""

_MODULES: dict[str, tuple[tuple[str, ...], Fill]] = {
    "DeepseekV3ForCausalLM": (_NEXT, _deepseek),
    "DeepseekV32ForCausalLM": (_NEXT, _deepseek),
    "GlmMoeDsaForCausalLM": (_NEXT, _deepseek),
    "Glm4MoeLiteForCausalLM": (_NEXT, _deepseek),
    "Glm4MoeForCausalLM": (_NEXT, _glm4),
    "MiMoForCausalLM": (_NEXT, _mimo),
    "Ernie4_5_MoeForCausalLM": (_NEXT, _ernie),
    "Qwen3NextForCausalLM": (_NEXT, _qwen),
    **dict.fromkeys(_JOINED[1:], (_MTP, _qwen)),
}
"""Drafting modules by the served architecture: where their number stands, and what one holds."""


def _shared(draft: Build, drafting: Drafting, part: str, size: int) -> Draft:
    """An own embedding or output layer: kept where its files hold one that differs, given up where they do not."""
    owned = drafting.owns
    if part == "embed_tokens" and draft.options.pipeline_parallel_size > 1:
        return Draft(size, size)
    if owned is not None and part not in owned:
        return Draft(0, 0)
    return Draft(0, size)


def _counted(draft: Build, add: Callable[[], None]) -> int:
    before = draft.inventory.params
    add()
    found = draft.inventory.params - before
    draft.inventory.params = before
    return found


def _eagle(draft: Build, _build: Build, drafting: Drafting) -> Draft:
    """EAGLE: a projection and layers of the Llama kind, the first without its norm before attention."""
    inventory, hidden = draft.inventory, draft.hidden
    embedding = _counted(draft, lambda: inventory.embedding(draft.vocabulary, hidden))
    inventory.column("fc", 2 * hidden, hidden, whole=True)
    layers = draft.integer("num_hidden_layers")
    for index in range(layers):
        _llama_layer(draft, index, hidden)
        inventory.numbers(hidden if index == 0 else 2 * hidden)
    own = _shared(draft, drafting, "embed_tokens", embedding)
    held = inventory.params + inventory.buffers
    return Draft(held + own.low, held + own.high)


def _llama_layer(draft: Build, index: int, inputs: int) -> None:
    inventory, name = draft.inventory, f"model.layers.{index}"
    size = draft.head_dim
    bias = draft.flag("attention_bias")
    inventory.qkv(f"{name}.self_attn.qkv_proj", inputs, draft.heads, draft.kv_heads, size, bias=bias)
    inventory.row(f"{name}.self_attn.o_proj", draft.heads * size, draft.hidden, bias=bias)
    if "Qwen3" in draft.config.architecture:
        inventory.numbers(2 * size)
    inventory.attention()
    inventory.gated_mlp(f"{name}.mlp", draft.hidden, draft.integer("intermediate_size"))


def _eagle3(draft: Build, build: Build, drafting: Drafting) -> Draft:
    """EAGLE 3: hidden states of several layers projected, an output layer over a part of the vocabulary, and its map."""
    inventory, hidden, text = draft.inventory, draft.hidden, draft.text
    vocabulary = draft.integer("draft_vocab_size", default=draft.vocabulary)
    embedding = _counted(draft, lambda: inventory.embedding(draft.vocabulary, hidden))
    head = _counted(draft, lambda: inventory.head("lm_head", vocabulary, hidden))
    eagle = text.get("eagle_config")
    eagle = eagle if isinstance(eagle, dict) else {}
    layers = draft.integer("num_hidden_layers")
    for index in range(layers):
        _llama_layer(draft, index, 2 * hidden if index == 0 else hidden)
        inventory.numbers(3 * hidden)
    inventory.numbers(hidden)
    if eagle.get("use_aux_hidden_state", True):
        chosen = eagle.get("eagle_aux_hidden_state_layer_ids")
        states = draft.integer(
            "num_aux_hidden_states", default=len(chosen) if isinstance(chosen, list) else 3
        )
        width = draft.integer("target_hidden_size", default=hidden) * (states or 3)
        inventory.column("fc", width, hidden, whole=True)
        if eagle.get("norm_before_fc", text.get("norm_before_fc")):
            inventory.numbers(width)
        if text.get("fc_norm"):
            inventory.numbers(width)
    different = vocabulary != build.vocabulary
    if different:
        inventory.params += _ID_BYTES * vocabulary
    own = _shared(draft, drafting, "embed_tokens", embedding)
    # A head over another vocabulary cannot be the model's.
    last = Draft(head, head) if different else _shared(draft, drafting, "lm_head", head)
    held = inventory.params + inventory.buffers
    return Draft(held + own.low + last.low, held + own.high + last.high)


def _medusa(draft: Build, build: Build, _drafting: Drafting) -> Draft:
    """Medusa: every head a few square layers on each rank, and an output layer of its own."""
    inventory, hidden = draft.inventory, draft.hidden
    heads, layers = draft.integer("num_heads"), draft.integer("num_hidden_layers")
    inventory.numbers(heads * layers * (hidden * hidden + (hidden if draft.flag("medusa_fc_bias") else 0)))
    for _ in range(1 if draft.flag("original_lm_head") else heads):
        inventory.head("lm_head", build.vocabulary, hidden)
    return Draft(inventory.params, inventory.params)


_BESIDE: dict[str, Callable[[Build, Build, Drafting], Draft]] = {
    "eagle": _eagle,
    "eagle3": _eagle3,
    "medusa": _medusa,
}

_EAGLE_KINDS = ("llama", "qwen2", "qwen3", "mistral")


def counts_as(config: ModelConfig, method: str) -> str:
    """Why a drafting head cannot be counted; empty where it can."""
    kind = str(config.data.get("model_type", "llama")).lower()
    if method in ("eagle", "eagle3") and not any(name in kind for name in _EAGLE_KINDS):
        return f"an {method} head of the kind {kind}"
    return ""


def without_draft(options: EngineOptions) -> EngineOptions:
    """The settings of a model that drafts as a whole: its own start, on one pipeline stage, without drafting."""
    drafting = options.drafting
    return msgspec.structs.replace(
        options,
        pipeline_parallel_size=1,
        drafting=None,
        lora=None,
        num_speculative_tokens=0,
        speculative_method=None,
        quantization=drafting.quantization if drafting else None,
    )
