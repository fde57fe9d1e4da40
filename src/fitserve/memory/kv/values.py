"""What a KV cache is described by."""

from typing import Literal

import msgspec

Kind = Literal["full", "sliding", "chunked", "mla", "state", "cross"]
"""What a layer keeps: every token, a window, the tokens of its chunk, the compressed tokens of latent attention,
one state, the encoder's tokens."""


class LayerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that keep the same thing, on one rank.

    Attributes:
        kind: what they keep.
        block_size: tokens a block; for a state, the tokens between two kept states.
        page_bytes: bytes of one block of one layer on one rank, with its padding.
        layers: the positions of these layers in the model, in its order.
        stages: the pipeline stage of each of the layers.
        kv_heads: KV heads a rank; 0 for a state.
        head_size: elements of a head's key; 0 for a state.
        window: tokens of the window or of the chunk; of the encoder's input for cross attention.
        state_pages: pages that a request takes however long it is; None where they grow with its length.
        extra_pages: pages beside those that grow, for drafted tokens.
        padded: the page holds padding, so its block size cannot be scaled freely.
    """

    kind: Kind
    block_size: int
    page_bytes: int
    layers: tuple[int, ...]
    stages: tuple[int, ...] = ()
    kv_heads: int = 0
    head_size: int = 0
    window: int | None = None
    state_pages: int | None = None
    extra_pages: int = 0
    padded: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """All but the layers: specs with equal keys describe the same page."""
        return (
            self.kind,
            self.block_size,
            self.page_bytes,
            self.kv_heads,
            self.head_size,
            self.window,
            self.state_pages,
            self.extra_pages,
        )


class KvGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that share one block table.

    Attributes:
        kind: what they keep.
        layers: how many they are, over all pipeline stages.
        block_size: tokens a block.
        page_bytes: bytes of one block of one layer; of all layers together where their pages differ.
    """

    kind: Kind
    layers: int
    block_size: int
    page_bytes: int


class KvCache(msgspec.Struct, frozen=True, kw_only=True):
    """What fits.

    Attributes:
        block_size: tokens of the smallest block.
        num_blocks: the blocks of the pool, on every rank.
        tokens: the number that this vLLM prints as its KV cache size.
        bytes_per_block: bytes that one block takes on the fullest rank.
        bytes_per_token: bytes that one more token of a long request takes on the fullest rank; windows and states
            take no more.
        max_concurrency: requests of ``max_model_len`` tokens that fit at once, as printed.
        groups: the layers that share a block table.
        max_model_len_that_fits: tokens of the longest request that fits, not capped by ``max_model_len``; None where
            every length fits, as with windows and states alone.
    """

    block_size: int
    num_blocks: int
    tokens: int
    bytes_per_block: int
    bytes_per_token: int
    max_concurrency: float
    groups: tuple[KvGroup, ...]
    max_model_len_that_fits: int | None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM would not start with this KV cache.

    Attributes:
        cause: the id of the cause.
        needed_bytes: what one request of ``max_model_len`` tokens needs; 0 where nothing is left at all.
        available_bytes: what vLLM holds against it.
        estimated_max_model_len: what vLLM prints as the largest length that fits; 0 where none does.
        max_model_len: the length that was asked for.
    """

    cause: str
    needed_bytes: int
    available_bytes: int
    estimated_max_model_len: int
    max_model_len: int
