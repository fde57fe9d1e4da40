"""Blocks of models with states: attention's block grows until its page holds a state.

Source: ``HybridAttentionMambaModelConfig`` in ``models/config.py`` (vLLM 0.10.1 to 0.19),
``Platform._align_hybrid_block_size`` in ``platforms/interface.py`` (0.20 to 0.33), ``models/config.py``
(``MambaModelConfig``) for the modes.
"""

import math

import msgspec

from fitserve.memory.kv.facts import Facts, NotModelledError
from fitserve.memory.kv.pages import round_up


class StateMode(msgspec.Struct, frozen=True):
    """How states are kept.

    Attributes:
        name: ``none``: one state a request; ``align``: two, and those of whole blocks; ``all``: one for each block.
    """

    name: str


class Aligned(msgspec.Struct, frozen=True):
    """Block sizes and pages of a model with states.

    Attributes:
        block_size: tokens a block of attention.
        state_block_size: tokens between two kept states.
        state_page_bytes: bytes of a state with its padding.
    """

    block_size: int
    state_block_size: int
    state_page_bytes: int


def state_mode(facts: Facts, *, hybrid: bool, by_block: bool) -> StateMode:
    """The mode after vLLM's defaults.

    Prefix caching is on by default for models with attention beside states from 0.28 on, never for states alone.

    Args:
        facts: the model and the settings.
        hybrid: attention stands beside the states.
        by_block: every state's kernel can keep one for each block.
    """
    options = facts.options
    caching = options.enable_prefix_caching
    if caching is None:
        caching = hybrid and facts.since("0.28.0")
    if not caching:
        return StateMode("none")
    if not facts.since("0.15.0"):
        raise NotModelledError("states with prefix caching before 0.15")
    asked = options.mamba_cache_mode
    if asked in (None, "none"):
        asked = "align" if facts.since("0.28.0") or not by_block else "all"
    if asked == "all" and (not by_block or facts.since("0.32.0")):
        asked = "align"
    return StateMode(str(asked))


def align(
    facts: Facts,
    *,
    kernel_block: int,
    token_bytes: int,
    state_bytes: int,
    mode: StateMode,
    checkpoint_step: int,
) -> Aligned:
    """Block sizes of a model with attention and states.

    Args:
        facts: the model and the settings.
        kernel_block: tokens a block of attention alone.
        token_bytes: bytes of a token of one attention layer.
        state_bytes: bytes of the largest state.
        mode: how states are kept.
        checkpoint_step: states are kept inside a prompt at multiples of this many tokens; blocks are from 0.33 on, too.
    """
    length = facts.options.max_model_len or 0
    step = kernel_block
    if mode.name == "align" and facts.since("0.33.0"):
        step = math.lcm(step, checkpoint_step)
    if mode.name == "all":
        chunk = facts.positive("mamba_chunk_size", "chunk_size", default=2048)
        step = math.lcm(step, facts.options.mamba_block_size or chunk)
    block = max(kernel_block, round_up(-(-state_bytes // token_bytes), step))
    page = block * token_bytes
    between = (facts.options.mamba_block_size or length) if mode.name == "none" else block
    return Aligned(block, between, max(page, state_bytes))
