"""One pipeline stage's pool of blocks, and what a request takes of it.

Source: ``get_kv_cache_config_from_groups`` and ``max_memory_usage_bytes`` in ``v1/core/kv_cache_utils.py`` and
``v1/kv_cache_interface.py``, vLLM 0.8.5 to 0.33.0.
"""

from collections.abc import Sequence

import msgspec

from fitserve.memory.kv.groups import Group
from fitserve.memory.kv.pages import context_parallel, in_flight_tokens, request_pages
from fitserve.memory.kv.rules import Rules, rules_of
from fitserve.memory.kv.values import LayerSpec
from fitserve.memory.options import EngineOptions

Term = tuple[int, LayerSpec]
"""Bytes for each page of a spec that a request takes."""


class Pool(msgspec.Struct, frozen=True):
    """One stage's pool: what a block takes, what a request needs, what is there."""

    bytes_per_block: int
    terms: tuple[Term, ...]
    available_bytes: int


class RequestPages(msgspec.Struct, frozen=True):
    """What a request's pages depend on beside its length."""

    in_flight: int
    shards: int

    def pages(self, spec: LayerSpec, tokens: int) -> int:
        """Pages of one layer."""
        return request_pages(spec, tokens, self.in_flight, self.shards)

    def needed_bytes(self, terms: Sequence[Term], tokens: int) -> int:
        """Bytes that a request of so many tokens takes."""
        return sum(weight * self.pages(spec, tokens) for weight, spec in terms)

    def longest(self, terms: Sequence[Term], available_bytes: int) -> int | None:
        """The largest number of tokens that needs no more; 0 where none does, None where every length fits."""
        growing = [
            (weight, spec)
            for weight, spec in terms
            if spec.state_pages is None and spec.kind in ("full", "mla") and weight
        ]
        if self.needed_bytes(terms, 1) > available_bytes:
            return 0
        if growing:
            high = min(
                (available_bytes // weight + 1) * spec.block_size * self.shards for weight, spec in growing
            )
        else:
            high = max((spec.window or 0) for _, spec in terms) + self.in_flight + 1
            if self.needed_bytes(terms, high) <= available_bytes:
                return None
        low = 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.needed_bytes(terms, middle) <= available_bytes:
                low = middle
            else:
                high = middle - 1
        return low


def request_of(options: EngineOptions, rules: Rules) -> RequestPages:
    """What requests have in common with these settings."""
    return RequestPages(in_flight_tokens(options, rules), context_parallel(options, rules))


def pool_of(
    groups: Sequence[Group], specs: Sequence[LayerSpec], stage: int, size: int, options: EngineOptions
) -> Pool:
    """The pool of one stage.

    Args:
        groups: the layers that share a block table.
        specs: all layers.
        stage: the pipeline stage.
        size: bytes of its KV cache.
        options: vLLM's settings.
    """
    rules = rules_of(options.vllm_version)
    block = _bytes_per_block(groups, stage, rules)
    checked = block if rules.check_by_stage else max(_whole_bytes_per_block(groups), block)
    override = options.num_gpu_blocks_override
    if override is not None and rules.override_counts:
        size = override * block
    return Pool(block, request_terms(groups, specs, stage, checked, rules), size)


def _bytes_per_block(groups: Sequence[Group], stage: int, rules: Rules) -> int:
    if rules.whole_mixed_pages and len(groups) == 1 and len(groups[0].parts) > 1:
        return _whole_bytes_per_block(groups)
    if rules.pads_groups or len(groups) == 1:
        return max(group.stage_bytes(stage) for group in groups)
    return groups[0].spec.page_bytes * max(group.stage_layers(stage) for group in groups)


def _whole_bytes_per_block(groups: Sequence[Group]) -> int:
    """A block of all stages' layers, which 0.14 to 0.16 check against one rank's memory."""
    if len(groups) == 1:
        return sum(spec.page_bytes * sum(counts) for spec, counts in groups[0].parts)
    return groups[0].spec.page_bytes * max(group.layers for group in groups)


def request_terms(
    groups: Sequence[Group], specs: Sequence[LayerSpec], stage: int, block: int, rules: Rules
) -> tuple[Term, ...]:
    """What the check for one request sums up, for one stage."""
    if rules.need == "layers" and not rules.v0:
        return tuple(
            (
                spec.page_bytes * (spec.stages.count(stage) if spec.stages else len(spec.layers)),
                spec,
            )
            for spec in specs
        )
    chosen = groups[:1] if rules.need == "first-group" else groups
    weights: dict[tuple[object, ...], Term] = {}
    for group in chosen:
        known = weights.get(group.spec.key, (0, group.spec))
        weights[group.spec.key] = (known[0] + block, known[1])
    return tuple(weights.values())
