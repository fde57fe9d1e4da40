"""A plan that starts from a boot's own numbers: what its log shows counts instead of estimates."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fitserve.diagnose.finding import Diagnosis
from fitserve.facts.ledger import tightest_rank
from fitserve.facts.serve_options import arity
from fitserve.plan.observed import Observed
from fitserve.units import GIB, Quantity

_TERMS = ("weights_bytes", "activation_bytes", "non_torch_bytes", "cuda_graph_bytes", "captured_bytes")
_SETTINGS = (
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "block_size",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "enforce_eager",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "enable_expert_parallel",
    "disable_hybrid_kv_cache_manager",
)


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What a log tells a plan.

    Attributes:
        settings: vLLM's settings as the log shows them.
        version: the release, None where it is not shown.
        total_bytes: the device's memory, None where it is not shown.
        observed: the tightest rank's memory, and what the device held when vLLM first looked.
    """

    settings: dict[str, Any]
    version: str | None
    total_bytes: int | None
    observed: Observed


def calibrate(diagnosis: Diagnosis, source: str) -> Calibration:
    """Take a boot's numbers.

    Args:
        diagnosis: of the log.
        source: the log's name, for the sources of the numbers.
    """
    rank = tightest_rank(diagnosis.budget)
    measured = {name: size for name in _TERMS if (size := _quantity(rank.get(name), source)) is not None}
    total, free = _expected(rank, "total_bytes"), _expected(rank, "free_bytes")
    if total is not None and free is not None:
        measured["used_before_bytes"] = Quantity.exact(max(0, total - free), "measured", source)
    settings = {
        name: value
        for name, value in diagnosis.settings.items()
        if name in _SETTINGS and arity(name) is not None and _is_plain(value)
    }
    return Calibration(
        settings=settings,
        version=diagnosis.vllm_version,
        total_bytes=total,
        observed=Observed(
            source=source,
            given=settings,
            terms=measured,
            kv_cache_bytes=_quantity(rank.get("kv_cache_bytes"), source),
            failed=diagnosis.cause if diagnosis.failed else None,
            missing_bytes=_missing_bytes(diagnosis.numbers),
        ),
    )


def _missing_bytes(numbers: Mapping[str, Any]) -> int:
    """What an allocation asked for beyond what was free."""
    asked, free = numbers.get("tried_to_allocate_gib"), numbers.get("gpu_free_gib")
    if not isinstance(asked, int | float) or not isinstance(free, int | float):
        return 0
    return max(0, round((asked - free) * GIB))


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and value not in ("None", ""))


def _expected(rank: Mapping[str, Any], name: str) -> int | None:
    size = _quantity(rank.get(name), "")
    return None if size is None else size.expected


def _quantity(value: Any, source: str) -> Quantity | None:
    if not isinstance(value, Mapping) or "expected" not in value:
        return None
    try:
        size = msgspec.convert(dict(value), Quantity)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(size, source=f"{source}: {size.source}")
