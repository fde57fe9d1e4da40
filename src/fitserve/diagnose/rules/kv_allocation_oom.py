"""Out of memory while the KV cache's tensors are allocated.

Source: vLLM 0.2.0 to 0.33.0, ``initialize_kv_cache`` (V1), ``CacheEngine`` (V0).
"""

from fitserve.diagnose.arithmetic import bytes_of, is_pinned, lower_utilization
from fitserve.diagnose.finding import Advice, NotAdvised
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.diagnose.usage import foreign_bytes, sentence
from fitserve.units import MIB, Quantity, gib

CAUSE = "kv-allocation-oom"
STAGE = "kv_cache"
_KEPT_FREE_BYTES = 1 << 30


def judge(situation: Situation) -> Finding:
    """Name what was asked for, and make the cache smaller by what sets its size."""
    pin = is_pinned(situation)
    numbers = {}
    pinned = situation.case.whole("kv_cache_memory_bytes")
    if pinned:
        numbers["kv_cache_memory_bytes"] = pinned
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(situation.event, "the KV cache is allocated"),
        event=situation.event,
        numbers=numbers,
        advice=[*_foreign(situation), *(_smaller_pin(situation, pin) if pin else _smaller_share(situation))],
        not_advised=_not_advised(pin),
    )


def _not_advised(pin: str | None) -> list[NotAdvised]:
    found = [avoid("enforce_eager", "set", "no CUDA graph is captured yet")]
    if pin:
        why = f"{pin} sets the size of the KV cache by hand, so utilization does nothing"
        found += [avoid("gpu_memory_utilization", "down", why), avoid("gpu_memory_utilization", "up", why)]
    else:
        found.append(avoid("gpu_memory_utilization", "up", "the cache would ask for still more"))
    return found


def _foreign(situation: Situation) -> list[Advice]:
    held = foreign_bytes(situation.event)
    return [act("free-other-process", f"other processes hold {gib(held)} of this device")] if held else []


def _smaller_pin(situation: Situation, pin: str) -> list[Advice]:
    now = situation.case.whole(pin)
    if pin != "kv_cache_memory_bytes" or not now:
        return (
            change(situation, pin, int((now or 0) * 0.9), "down", "capacity", "a tenth less") if now else []
        )
    shown = situation.boot.first("kv-bytes-pinned", "kv-bytes-pinned-joined")
    weights = situation.ledger.weights_bytes
    if shown and isinstance(weights, Quantity):
        free = round(shown.numbers["gpu_free_gib"] * (1 << 30))
        to = (free - weights.expected - 2 * _KEPT_FREE_BYTES) // MIB * MIB
        why = f"{gib(free)} free at the start - {gib(weights.expected)} of weights - {gib(2 * _KEPT_FREE_BYTES)} for the rest"
        if 0 < to < now:
            return change(situation, pin, to, "down", "capacity", why)
    to = int(now * 0.85) // MIB * MIB
    return change(situation, pin, to, "down", "capacity", f"{gib(now)} does not fit beside the weights")


def _smaller_share(situation: Situation) -> list[Advice]:
    asked = bytes_of(situation, "tried_to_allocate_gib")
    why = "the cache takes what the share leaves; it must leave room for what is not counted"
    if asked is None:
        return change(situation, "gpu_memory_utilization", 0.8, "down", "capacity", why)
    return lower_utilization(situation, asked, why)
