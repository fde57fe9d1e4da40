"""The KV cache is too small for the live load: sequences are preempted and recomputed.

Source: vLLM 0.4.3 to 0.10.2, V0 scheduler (logged at the first and every 50th preemption); V1 counts them in its
statistics line from 0.11.1 on.
"""

from fitserve.diagnose.arithmetic import HIGHEST_UTILIZATION, is_pinned, utilization
from fitserve.diagnose.boot import Boot
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.facts.messages.event import Event

CAUSE = "preemption-thrash"
STAGE = "serving"
_MANY = 10
_WINDOWS = 3


def find(boot: Boot) -> Event | None:
    """The line of the first preemption where they are many: 50 counted by V0, or in three windows of V1."""
    warned = [event for event in boot.events if event.id in ("preempted", "preempted-cut")]
    counted = max((event.numbers.get("preemptions", 0) for event in warned), default=0)
    if warned and (counted > _MANY or len(warned) >= _MANY):
        return warned[0]
    windows = [event for event in boot.stats if event.numbers.get("preemptions", 0) > 0]
    total = sum(event.numbers["preemptions"] for event in windows)
    if len(windows) >= _WINDOWS and total > _MANY:
        return windows[0]
    return None


def judge(situation: Situation, event: Event) -> Finding:
    """Name how often it happened and how full the cache is."""
    usage = max((one.numbers.get("kv_usage_percent", 0.0) for one in situation.boot.stats), default=0.0)
    running = max((one.numbers["running_reqs"] for one in situation.boot.stats), default=0)
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"sequences are preempted and recomputed: the KV cache is {usage:g}% full with up to {running} running",
        event=event,
        severity="warning",
        numbers=_cache(situation),
        advice=_advice(situation, running),
        not_advised=[avoid("max_num_seqs", "up", "more at once would preempt each other more often")],
    )


def _cache(situation: Situation) -> dict[str, object]:
    found: dict[str, object] = {}
    if shown := situation.boot.last("kv-blocks", "kv-blocks-device"):
        found["gpu_blocks"] = shown.numbers["gpu_blocks"]
    if shown := situation.boot.last("kv-tokens", "kv-tokens-concurrency"):
        found["kv_tokens"] = shown.numbers["kv_tokens"]
    return found


def _advice(situation: Situation, running: int) -> list[Advice]:
    found: list[Advice] = []
    now = utilization(situation)
    if now < HIGHEST_UTILIZATION and not is_pinned(situation):
        why = f"{now:g} leaves memory that the cache could hold"
        found += change(situation, "gpu_memory_utilization", HIGHEST_UTILIZATION, "up", "free", why)
    to = max(running // 2, 1) if running > 1 else 8
    found += change(
        situation,
        "max_num_seqs",
        to,
        "down",
        "capacity",
        f"up to {running} ran at once and did not fit; fewer finish sooner",
    )
    length = situation.case.whole("max_model_len")
    if length:
        why = "shorter sequences hold less of the cache each"
        found += change(situation, "max_model_len", length // 2, "down", "capacity", why)
    ranks = situation.case.whole("tensor_parallel_size") or 1
    found += change(
        situation,
        "tensor_parallel_size",
        ranks * 2,
        "up",
        "hardware",
        "each device then holds less of the weights",
    )
    return [*found, act("add-nodes", "a second replica takes half of the load", "hardware")]
