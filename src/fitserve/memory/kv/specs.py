"""The specs of a model's layers, as vLLM's workers report them.

Source: ``get_kv_cache_spec`` of the layers in ``model_executor/layers`` of vLLM 0.9.1 to 0.33.0.
"""

import math

import msgspec

from fitserve.errors import InputError
from fitserve.facts.model_config import ModelConfig
from fitserve.memory.kv.align import Aligned, StateMode, align, state_mode
from fitserve.memory.kv.backends import kernel_block_size, resolved_dtype, wide_blocks
from fitserve.memory.kv.dtypes import STATE_BYTES, cache_dtype, model_bytes, token_bytes
from fitserve.memory.kv.facts import Attention, Facts, Layer, NotModelledError, State
from fitserve.memory.kv.layouts.registry import layout_of
from fitserve.memory.kv.pages import on_cpu
from fitserve.memory.kv.stages import stage_of_layers
from fitserve.memory.kv.values import LayerSpec
from fitserve.memory.options import EngineOptions
from fitserve.units import Unknown


def layer_specs(
    config: ModelConfig, options: EngineOptions, draft: ModelConfig | None = None
) -> tuple[LayerSpec, ...] | Unknown:
    """What every layer of a model keeps on one rank.

    Args:
        config: the model's configuration.
        options: vLLM's settings, ``max_model_len`` among them.
        draft: the configuration of the model that drafts tokens, if there is one.

    Returns:
        The specs, each with its layers; empty where nothing is kept. An unknown names the piece that is not modelled.
    """
    facts = Facts(config, options)
    if draft is None and options.drafting is not None:
        draft = options.drafting.config
    try:
        layers = layout_of(facts) + _draft_layers(facts, draft)
        specs = _specs(facts, layers)
    except NotModelledError as missing:
        return Unknown(f"not modelled: {missing}")
    except InputError as error:
        return Unknown(f"not readable: {error.what} ({error.where})")
    return _with_stages(specs, layers, facts)


def unsure_blocks(config: ModelConfig, options: EngineOptions, block_size: int) -> str:
    """The kernel that would take blocks of 64 tokens where it is installed and the layout has smaller ones; else empty."""
    if options.block_size is not None or block_size >= 64:
        return ""
    facts = Facts(config, options)
    attentions = [layer for layer in layout_of(facts) if isinstance(layer, Attention)]
    return wide_blocks(facts, cache_dtype(config, options), attentions)


def _draft_layers(facts: Facts, draft: ModelConfig | None) -> list[Layer]:
    """What drafts; a start that drafts nothing imports nothing for it."""
    if not facts.options.num_speculative_tokens:
        return []
    from fitserve.memory.kv.drafts import draft_layers

    return draft_layers(facts, draft)


def _specs(facts: Facts, layers: list[Layer]) -> list[LayerSpec]:
    attentions = [layer for layer in layers if isinstance(layer, Attention)]
    states = [layer for layer in layers if isinstance(layer, State)]
    latent = any(layer.kind == "mla" for layer in attentions)
    sparse = any(layer.kernel_block_size == 64 for layer in attentions)
    fixed = math.lcm(*(layer.kernel_block_size or 1 for layer in attentions))
    dtype = resolved_dtype(facts, cache_dtype(facts.config, facts.options), sparse=sparse)
    asked = facts.options.block_size
    block = asked if asked and asked % fixed == 0 and facts.since("0.18.0") else fixed
    if attentions and fixed == 1:
        block = kernel_block_size(facts, dtype, attentions, latent=latent)
    if latent and states:
        block = max(block, 128)
    tokens = {layer: _token_bytes(layer, dtype, facts) for layer in attentions}
    if not states:
        return _attention_specs(facts, attentions, tokens, block)
    if not facts.since("0.11.0"):
        raise NotModelledError("models with states before 0.11")
    mode = state_mode(facts, hybrid=bool(attentions), by_block=all(state.kept_by_block for state in states))
    sizes = {state: _state_bytes(state, facts) for state in states}
    if not attentions:
        return _state_specs(facts, states, sizes, mode, None)
    aligned = align(
        facts,
        kernel_block=block,
        token_bytes=min(tokens.values()),
        state_bytes=max(sizes.values()),
        mode=mode,
        checkpoint_step=math.lcm(*(state.checkpoint_step or 1 for state in states)),
    )
    return [
        *_state_specs(facts, states, sizes, mode, aligned),
        *_attention_specs(facts, attentions, tokens, aligned.block_size),
    ]


def _token_bytes(layer: Attention, dtype: str, facts: Facts) -> int:
    heads = 1 if layer.kind == "mla" else facts.rank_heads(layer.kv_heads)
    return token_bytes(layer, heads, dtype, facts)


def _state_bytes(state: State, facts: Facts) -> int:
    """Bytes of a state: the convolution in the cache's type, the recurrent part in its own."""
    options = facts.options
    _require_known_state_type(state, facts)
    conv = STATE_BYTES.get(options.mamba_cache_dtype) or model_bytes(options)
    named = options.mamba_ssm_cache_dtype
    if named == "auto":
        named = state.ssm_dtype or "auto"
    ssm = STATE_BYTES.get(named) or conv
    return state.conv_elements * conv + state.ssm_elements * ssm


def _require_known_state_type(state: State, facts: Facts) -> None:
    """On a CPU the type of recurrent states depends on its instructions.

    Source: ``platforms/cpu.py``, vLLM 0.26 to 0.33.
    """
    named = facts.options.mamba_ssm_cache_dtype
    fixed = named == "float32" or (named == "auto" and state.ssm_dtype == "float32")
    if state.ssm_elements and on_cpu(facts.options) and facts.since("0.26.0") and not fixed:
        raise NotModelledError("the type of recurrent states on this CPU: float32 where it has AVX-512 BF16")


def _attention_specs(
    facts: Facts, layers: list[Attention], tokens: dict[Attention, int], block: int
) -> list[LayerSpec]:
    found: dict[tuple[object, ...], LayerSpec] = {}
    for layer in layers:
        spec = LayerSpec(
            kind=layer.kind,
            block_size=block,
            page_bytes=block * tokens[layer],
            layers=(layer.layer,),
            kv_heads=1 if layer.kind == "mla" else facts.rank_heads(layer.kv_heads),
            head_size=layer.head_size,
            window=layer.window,
        )
        _add(found, spec)
    return list(found.values())


def _state_specs(
    facts: Facts,
    layers: list[State],
    sizes: dict[State, int],
    mode: StateMode,
    aligned: Aligned | None,
) -> list[LayerSpec]:
    drafted = facts.options.num_speculative_tokens if facts.since("0.15.0") else 0
    length = facts.options.max_model_len or 0
    found: dict[tuple[object, ...], LayerSpec] = {}
    for layer in layers:
        checkpoints = int(layer.checkpoint_step is not None)
        pages = {"none": 1 + drafted, "align": 2 + drafted + checkpoints}.get(mode.name)
        spec = LayerSpec(
            kind="state",
            block_size=aligned.state_block_size if aligned else facts.options.mamba_block_size or length or 1,
            page_bytes=aligned.state_page_bytes if aligned else sizes[layer],
            layers=(layer.layer,),
            state_pages=pages,
            extra_pages=0 if pages is not None or not facts.since("0.20.0") else drafted,
            padded=aligned is not None and aligned.state_page_bytes != sizes[layer],
        )
        _add(found, spec)
    return list(found.values())


def _add(found: dict[tuple[object, ...], LayerSpec], spec: LayerSpec) -> None:
    known = found.get(spec.key)
    if known is not None:
        spec = msgspec.structs.replace(known, layers=known.layers + spec.layers)
    found[spec.key] = spec


def _with_stages(specs: list[LayerSpec], layers: list[Layer], facts: Facts) -> tuple[LayerSpec, ...]:
    """The specs in the order of their first layers, with the pipeline stage of every layer."""
    ordered = sorted(specs, key=lambda spec: spec.layers[0])
    stages = facts.options.pipeline_parallel_size
    if stages == 1:
        return tuple(ordered)
    own = facts.layers if facts.has_layer_count else 1 + max((layer.layer for layer in layers), default=0)
    stage = stage_of_layers(own, stages, facts.options.vllm_version)
    drafted = max((layer.layer for layer in layers), default=0) + 1 - own
    stage += [stages - 1] * drafted
    return tuple(
        msgspec.structs.replace(spec, stages=tuple(stage[layer] for layer in spec.layers)) for spec in ordered
    )
