"""The arithmetic of a diagnosis: safe ends of rounded figures, whole blocks, moves of the utilization."""

import math

import msgspec

from fitserve.diagnose.finding import Advice, NotAdvised
from fitserve.diagnose.situation import Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.facts.ledger import quantity
from fitserve.memory.history import at_least, default_utilization
from fitserve.units import GIB, Quantity, gib

HIGHEST_UTILIZATION = 0.95
"""Above it, what vLLM does not count (contexts, NCCL, graphs before 0.20) no longer finds room beside the cache."""


HIGHEST_HOST_UTILIZATION = 0.9
"""The same for the CPU backend, where the share is one of the host's memory and the system needs some of it."""

LARGEST_DEVICE_BYTES = 288 * GIB
"""Of the devices that are known (``facts/devices.json``), rounded up."""

_MOST_BESIDE_WEIGHTS_AND_CACHE = 1.5
"""Activations and contexts beside weights and cache; half as much again is more than any measured boot had."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says about one device, in bytes; None where it says nothing."""

    total: Quantity | None
    free: Quantity | None


def utilization(situation: Situation) -> float:
    """The utilization of the boot: as printed or given, else the default of that version."""
    value = situation.case.number("gpu_memory_utilization")
    return float(value) if value is not None else default_utilization(situation.version)


def device(situation: Situation) -> Device:
    """The device's total and free memory, as printed or as the printed graph share implies."""
    ledger = situation.ledger
    total = ledger.total_bytes if isinstance(ledger.total_bytes, Quantity) else _implied_total(situation)
    if situation.case.is_cpu and (shown := situation.boot.last("cpu-kv-auto", "cpu-kv-explicit")):
        total = quantity(shown, "host_total_gib")
    free = ledger.free_bytes if isinstance(ledger.free_bytes, Quantity) else None
    if situation.hit is not None and situation.event.cause == "out-of-memory":
        free = None
    return Device(total=total, free=free)


def _implied_total(situation: Situation) -> Quantity | None:
    """The device from the graphs' estimate and the two utilizations that vLLM prints beside it.

    Source: vLLM 0.18.0 and later, ``v1/worker/gpu_worker.py``: equivalent = utilization - estimate / total.
    """
    share = situation.boot.last("graph-estimate-on")
    estimate = situation.boot.last("graph-estimate")
    if share is None or estimate is None:
        return None
    size = quantity(estimate, "graph_estimate_gib")
    difference = share.numbers["gpu_memory_utilization"] - share.numbers["equivalent_utilization"]
    if size is None or difference <= 0.0002:
        return None
    return Quantity(
        low=round(size.low / (difference + 0.0001)),
        expected=round(size.expected / difference),
        high=round(size.high / (difference - 0.0001)),
        basis="computed",
        source=f"lines {estimate.line.number} and {share.line.number}",
    )


def is_pinned(situation: Situation) -> str | None:
    """The name of what sets the KV cache's size by hand, so that utilization does nothing; None if nothing does.

    Where bytes and blocks are both set, the blocks count from 0.20.1 on.
    """
    boot, case = situation.boot, situation.case
    blocks = case.value("num_gpu_blocks_override") is not None or boot.first(
        "kv-blocks-overridden", "kv-blocks-forced"
    )
    pinned_bytes = case.value("kv_cache_memory_bytes") is not None or boot.first(
        "kv-bytes-pinned", "kv-bytes-pinned-joined", "startup-plan-applied"
    )
    space = case.value("VLLM_CPU_KVCACHE_SPACE") or situation.number("knob") == "VLLM_CPU_KVCACHE_SPACE"
    if blocks and (not pinned_bytes or at_least(situation.version, "0.20.1")):
        return "num_gpu_blocks_override"
    if pinned_bytes:
        return "kv_cache_memory_bytes"
    return "VLLM_CPU_KVCACHE_SPACE" if space or boot.first("cpu-kv-explicit") else None


def block_size(situation: Situation) -> int:
    """Tokens in one block: as printed or given, else 16, or 128 on the CPU backend from 0.11.1."""
    size = situation.case.whole("block_size")
    if size:
        return size
    return 128 if situation.case.is_cpu and at_least(situation.version, "0.11.1") else 16


def whole_blocks(tokens: float, block: int) -> int:
    """The largest whole number of blocks that is not more, in tokens; at least one token short of nothing."""
    return max(int(tokens) // block * block, 0) or max(int(tokens), 1)


def raise_utilization(situation: Situation, missing: Quantity) -> tuple[list[Advice], list[NotAdvised]]:
    """The utilization that adds ``missing`` bytes to the KV cache, if the device has them.

    The high end of what is missing is taken, and two decimals upwards, so that the next start does not fail again by
    a rounding.
    """
    now = utilization(situation)
    flag = "gpu_memory_utilization"
    if pinned := is_pinned(situation):
        return [], [
            avoid(flag, "up", f"{pinned} sets the size of the KV cache by hand, so utilization does nothing")
        ]
    found = device(situation)
    if found.total is None:
        return _blind_raise(situation, now, missing)
    wanted = math.ceil((now + max(missing.high, 1) / found.total.low) * 100 - 1e-9) / 100
    ceiling = HIGHEST_HOST_UTILIZATION if situation.case.is_cpu else HIGHEST_UTILIZATION
    if found.free is not None:
        ceiling = min(ceiling, math.floor(found.free.low / found.total.high * 100) / 100)
    more = f"{gib(missing.expected)} more of {gib(found.total.expected)}"
    if wanted <= ceiling:
        why = f"{more} is {missing.high / found.total.low:.3f}; {now:g} + that, rounded up"
        return change(situation, flag, wanted, "up", "free", why), []
    if now >= ceiling:
        return [], [
            avoid(flag, "up", f"it is {now:g} already, and above {ceiling:g} nothing is left for the rest")
        ]
    short = gib(missing.expected - (ceiling - now) * found.total.expected)
    return [], [avoid(flag, "up", f"even {ceiling:g} leaves {short} missing of the {gib(missing.expected)}")]


def _blind_raise(
    situation: Situation, now: float, missing: Quantity
) -> tuple[list[Advice], list[NotAdvised]]:
    """A higher share where the log does not show the device's size: the weights and the cache bound it from below."""
    flag = "gpu_memory_utilization"
    if now >= HIGHEST_UTILIZATION - 0.001:
        return [], [
            avoid(flag, "up", f"it is {now:g} already; the rest of the device is needed beside the cache")
        ]
    least, most = _bounds(situation, now)
    share = HIGHEST_UTILIZATION - now
    if most is not None and share * most < missing.expected:
        why = (
            f"{share:.2f} of such a device is at most {gib(share * most)}, {gib(missing.expected)} is missing"
        )
        return [], [avoid(flag, "up", why)]
    to = HIGHEST_UTILIZATION
    if least is not None and (wanted := math.ceil((now + missing.high / least) * 100) / 100) < to:
        to = wanted
    smallest = missing.expected / (to - now)
    if smallest > LARGEST_DEVICE_BYTES and not situation.case.is_cpu:
        why = f"{gib(missing.expected)} in {to - now:.2f} of a device would take one of {gib(smallest)}, and none is so large"
        return [], [avoid(flag, "up", why)]
    why = f"{gib(missing.expected)} more; enough on a device of {gib(smallest)} or more (the log does not show its size)"
    return change(situation, flag, to, "up", "free", why), []


def _bounds(situation: Situation, now: float) -> tuple[float | None, float | None]:
    """The least and the most that the device can have: the share holds weights, cache and some activations."""
    ledger = situation.ledger
    weights, cache = ledger.weights_bytes, ledger.kv_cache_bytes
    if not isinstance(weights, Quantity) or not isinstance(cache, Quantity):
        return None, None
    held = (weights.expected + cache.expected) / now
    return held, held * _MOST_BESIDE_WEIGHTS_AND_CACHE


def lower_utilization(situation: Situation, bytes_needed: Quantity, why: str) -> list[Advice]:
    """The utilization that leaves ``bytes_needed`` more of the device outside vLLM's share, two decimals downwards."""
    found = device(situation)
    now = utilization(situation)
    step = bytes_needed.high / found.total.low if found.total else 0.05
    wanted = math.floor((now - max(step, 0.02)) * 100 + 1e-9) / 100
    if wanted < 0.1:
        return []
    return change(situation, "gpu_memory_utilization", wanted, "down", "capacity", why)


def difference(high: Quantity, low: Quantity) -> Quantity:
    """The interval of ``high - low``."""
    return Quantity(
        low=high.low - low.high,
        expected=high.expected - low.expected,
        high=high.high - low.low,
        basis="computed",
        source=f"{high.source} - {low.source}",
    )


def bytes_of(situation: Situation, name: str) -> Quantity | None:
    """A GiB figure of the message as bytes."""
    return quantity(situation.hit.event, name) if situation.hit else None
