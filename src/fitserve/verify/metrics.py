"""What ``/metrics`` says of the scheduler and its cache, over the names that vLLM has used.

Source: vLLM 0.32.0 ``v1/metrics/loggers.py``. V0 and the first V1 releases call the usage ``gpu_cache_usage_perc`` and
the prefix cache's counters ``gpu_prefix_cache_*``, and do not split the waiting requests by reason.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_PREFIX = "vllm:"
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
_HITS = (
    "vllm:prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits_total",
    "vllm:prefix_cache_hits",
    "vllm:gpu_prefix_cache_hits",
)
_QUERIES = tuple(name.replace("hits", "queries") for name in _HITS)
_CACHE_CONFIG = "vllm:cache_config_info"
_WANTED = (
    *(_RUNNING + _WAITING + _USAGE + _PREEMPTIONS + _HITS + _QUERIES),
    _WAITING_BY_REASON,
    _CACHE_CONFIG,
)


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """One reading; None where the server does not say. Sums over the engines of a data-parallel server.

    Attributes:
        running: requests in the batch.
        waiting: requests that wait for room (not for a transfer or an adapter, where the server tells them apart).
        kv_cache_usage_fraction: 0 to 1; the fullest engine's.
        preemptions: since the server's start.
        prefix_cache_hit_tokens: prompt tokens found in the prefix cache since the start.
        prefix_cache_query_tokens: prompt tokens looked up.
        kv_cache_tokens: what the cache holds, over all engines.
        kv_cache_blocks: of one engine.
        block_size_tokens: tokens of a block.
    """

    running: int | None = None
    waiting: int | None = None
    kv_cache_usage_fraction: float | None = None
    preemptions: int | None = None
    prefix_cache_hit_tokens: int | None = None
    prefix_cache_query_tokens: int | None = None
    kv_cache_tokens: int | None = None
    kv_cache_blocks: int | None = None
    block_size_tokens: int | None = None

    @property
    def idle(self) -> bool:
        """True where the server says that nothing runs and nothing waits."""
        return self.running == 0 and self.waiting == 0


def parse_metrics(text: str) -> Gauges | None:
    """Read the text of ``/metrics``; None where it holds nothing of vLLM's scheduler.

    Lines of other metrics are dropped before parsing: vLLM's page has hundreds of histogram buckets and is read several
    times a second. A line that is no metric is dropped too.
    """
    samples = [sample for line in text.splitlines() if _is_wanted(line) for sample in _parse_line(line)]
    if not samples:
        return None
    usages = [sample.value for sample in samples if sample.name in _USAGE and math.isfinite(sample.value)]
    by_reason = [
        sample
        for sample in samples
        if sample.name == _WAITING_BY_REASON and sample.labels.get("reason") == "capacity"
    ]
    caches = [sample.labels for sample in samples if sample.name == _CACHE_CONFIG]
    blocks = [_label(labels, "num_gpu_blocks") for labels in caches]
    block_size = _label(caches[0], "block_size") if caches else None
    return Gauges(
        running=_total(samples, _RUNNING),
        waiting=_total(by_reason, (_WAITING_BY_REASON,)) if by_reason else _total(samples, _WAITING),
        kv_cache_usage_fraction=max(usages) if usages else None,
        preemptions=_total(samples, _PREEMPTIONS),
        prefix_cache_hit_tokens=_total(samples, _HITS),
        prefix_cache_query_tokens=_total(samples, _QUERIES),
        kv_cache_tokens=_cache_tokens(caches),
        kv_cache_blocks=blocks[0] if blocks else None,
        block_size_tokens=block_size,
    )


def _is_wanted(line: str) -> bool:
    return line.startswith(_PREFIX) and line.startswith(_WANTED)


def _parse_line(line: str) -> list["Sample"]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
    except (ValueError, IndexError, KeyError):
        return []


def _total(samples: Iterable["Sample"], names: tuple[str, ...]) -> int | None:
    """The sum over engines of the first name that is there."""
    by_name: dict[str, list[float]] = {}
    for sample in samples:
        if sample.name in names and math.isfinite(sample.value):
            by_name.setdefault(sample.name, []).append(sample.value)
    for name in names:
        if name in by_name:
            return round(sum(by_name[name]))
    return None


def _label(labels: dict[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) if text.isdecimal() else None


def _cache_tokens(caches: list[dict[str, str]]) -> int | None:
    """The cache's tokens over all engines: vLLM's own figure where it gives one (0.32), else blocks times block size."""
    total = 0
    for labels in caches:
        tokens = _label(labels, "kv_cache_size_tokens")
        blocks, size = _label(labels, "num_gpu_blocks"), _label(labels, "block_size")
        if tokens is None and blocks is not None and size is not None:
            tokens = blocks * size
        if tokens is None:
            return None
        total += tokens
    return total or None
