"""What changed between the releases in how layers become blocks.

Source: ``v1/core/kv_cache_utils.py`` and ``v1/kv_cache_interface.py`` of vLLM 0.8.5 to 0.33.0, release by release;
``worker/worker.py`` and ``worker/cache_engine.py`` of the V0 engine before.
"""

from functools import cache
from typing import Literal

import msgspec

from fitserve.memory.history import release


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """One release's rules.

    Attributes:
        v0: the V0 engine: every layer keeps every token, and the length is checked against the blocks.
        hybrid: windows and chunks have groups of their own; before, they count as full attention beside it.
        mixed_pages: layers of one kind with unequal pages share one group.
        whole_mixed_pages: a stage's block of such a group is as large as all stages' blocks together.
        scales_blocks: unequal pages are made equal by larger blocks.
        pads_states: the page of a state is padded to the largest page.
        pads_pages: pages of attention that cannot be scaled are padded, but for those of latent attention.
        groups_by_stage: every pipeline stage forms its own groups.
        group_ratio: the larger kind's layer count becomes the group size where it is less than this many times
            the smaller one.
        pads_groups: a block's bytes are those of the largest group; before, of the most layers in a group.
        need: what the check for one request sums up.
        check_by_stage: the check looks at each stage's own layers.
        null_block: one block is set aside before the check.
        override_counts: ``num_gpu_blocks_override`` stands in the check instead of the memory.
        tokens: which number is printed as the size of the cache.
        in_flight_batches: batches in flight count for windows.
        prefill_context: ``prefill_context_parallel_size`` splits the tokens of a request.
    """

    v0: bool
    hybrid: bool
    mixed_pages: bool
    whole_mixed_pages: bool
    scales_blocks: bool
    pads_states: bool
    pads_pages: bool
    groups_by_stage: bool
    group_ratio: float
    pads_groups: bool
    need: Literal["layers", "first-group", "groups"]
    check_by_stage: bool
    null_block: bool
    override_counts: bool
    tokens: Literal["blocks", "shared", "concurrency"]
    in_flight_batches: bool
    prefill_context: bool


@cache
def rules_of(version: str | None) -> Rules:
    """The rules of a release; of the newest one where it is unknown."""
    now = release(version)

    def since(first: str) -> bool:
        return now >= release(first)

    return Rules(
        v0=not since("0.8.0"),
        hybrid=since("0.9.1"),
        mixed_pages=since("0.11.0"),
        whole_mixed_pages=since("0.11.0") and not since("0.17.0"),
        scales_blocks=since("0.12.0"),
        pads_states=since("0.26.0"),
        pads_pages=since("0.24.0"),
        groups_by_stage=not since("0.11.0"),
        group_ratio=1.5 if since("0.18.0") else 1.25 if since("0.12.0") else 1.0,
        pads_groups=since("0.29.0"),
        need="groups" if since("0.19.0") else "first-group" if since("0.14.0") else "layers",
        check_by_stage=since("0.17.0") or not since("0.14.0"),
        null_block=since("0.29.0"),
        override_counts=since("0.20.1"),
        tokens="concurrency" if since("0.20.1") else "shared" if since("0.9.1") else "blocks",
        in_flight_batches=since("0.26.0"),
        prefill_context=since("0.12.0") and not since("0.26.0"),
    )
