"""Nothing is left for the KV cache.

Source: vLLM 0.2.0 to 0.33.0: the share of the device that utilization allows is used up by weights, activations and,
in V0 and V1 up to 0.9.0, by other processes.
"""

import math

from fitserve.diagnose.arithmetic import HIGHEST_UTILIZATION, device, is_pinned, utilization
from fitserve.diagnose.finding import Advice, NotAdvised
from fitserve.diagnose.rules import graph_estimate_too_large, kv_cache_pinned_too_small
from fitserve.diagnose.rules.profile_run_oom import batch_tokens, needs_chunks
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.memory.history import at_least, default_utilization
from fitserve.units import Quantity, gib

CAUSE = "no-kv-cache-blocks"
STAGE = "kv_cache"
_SMALL_BATCH = 2048


def judge(situation: Situation) -> Finding:
    """Name what is used up, and whether a larger share helps."""
    if is_pinned(situation):
        return kv_cache_pinned_too_small.judge(situation)
    if graph_estimate_too_large.has_eaten_the_cache(situation):
        return graph_estimate_too_large.judge(situation)
    now = utilization(situation)
    advice, not_advised = _share(situation, now)
    left = _left(situation)
    rest = f": {gib(left.expected)} is left" if left else ""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"nothing is left for the KV cache at gpu_memory_utilization {now:g}{rest}",
        event=situation.event,
        numbers=_numbers(situation),
        advice=advice,
        not_advised=[
            *not_advised,
            avoid("enforce_eager", "set", "the failure comes before any CUDA graph is captured"),
        ],
    )


def _left(situation: Situation) -> Quantity | None:
    kept = situation.ledger.kv_cache_bytes
    return kept if isinstance(kept, Quantity) else None


def _numbers(situation: Situation) -> dict[str, object]:
    shown = situation.boot.last("kv-blocks", "kv-blocks-device")
    return {"gpu_blocks": shown.numbers["gpu_blocks"]} if shown else {}


def _share(situation: Situation, now: float) -> tuple[list[Advice], list[NotAdvised]]:
    """A larger share if it can give the cache something, else less to hold."""
    flag = "gpu_memory_utilization"
    left, total = _left(situation), device(situation).total
    highest = HIGHEST_UTILIZATION
    if now < highest:
        gained = (highest - now) * total.expected if total else None
        if gained is None or left is None or left.high + gained > 0:
            to, why = _target(situation, now, left, total)
            return [*change(situation, flag, to, "up", "free", why), *_foreign(situation)], []
        why = f"even {highest:g} adds only {gib(gained)} to {gib(left.expected)}"
        return _hold_less(situation), [avoid(flag, "up", why)]
    return _hold_less(situation), [avoid(flag, "up", f"it is {now:g} already")]


def _target(
    situation: Situation, now: float, left: Quantity | None, total: Quantity | None
) -> tuple[float, str]:
    """The default share, or as much more as the log's own figures ask for."""
    usual = default_utilization(situation.version)
    if left is None or total is None:
        to = usual if now < usual else HIGHEST_UTILIZATION
        return to, f"{now:g} of the device is used up by weights and activations alone"
    least = now - left.low / total.low
    to = max(usual, math.ceil((least + 0.02) * 100) / 100)
    to = min(to, HIGHEST_UTILIZATION) if to > now else HIGHEST_UTILIZATION
    gained = left.expected + (to - now) * total.expected
    return (
        to,
        f"weights and activations alone need {least:.2f} of {gib(total.expected)}; {to:g} leaves {gib(gained)}",
    )


def _foreign(situation: Situation) -> list[Advice]:
    """V1 up to 0.9.0 takes what other processes hold out of its own share."""
    if situation.case.engine != "V1" or at_least(situation.version, "0.9.1"):
        return []
    return [
        act("free-other-process", "this version counts what other processes hold on the device as its own")
    ]


def _hold_less(situation: Situation) -> list[Advice]:
    """A smaller batch where activations are large, more devices, a smaller model."""
    ranks = situation.case.whole("tensor_parallel_size") or 1
    weights = situation.ledger.weights_bytes
    held = "weights and activations take all of the share"
    if isinstance(weights, Quantity):
        held = f"the weights take {gib(weights.expected)} of each device"
    why = f"{held}; twice the devices halve that"
    return [
        *_smaller_batch(situation),
        *change(situation, "tensor_parallel_size", ranks * 2, "up", "hardware", why),
        act("smaller-or-quantized-model", held, "output"),
    ]


def _smaller_batch(situation: Situation) -> list[Advice]:
    batch = batch_tokens(situation)
    activation = situation.ledger.activation_bytes
    taken = f" ({gib(activation.expected)})" if isinstance(activation, Quantity) else ""
    found: list[Advice] = []
    if needs_chunks(situation, batch):
        why = f"without it a batch must hold the whole context, and its activations{taken} come first"
        found += change(situation, "enable_chunked_prefill", True, "set", "speed", why)
    if batch > _SMALL_BATCH:
        why = f"the activations of {batch:,} tokens{taken} shrink with the batch"
        found += change(situation, "max_num_batched_tokens", _SMALL_BATCH, "down", "speed", why)
    return found
