"""The server came up and nothing failed; or nothing has failed yet.

A start with the same settings and weights as the one before but much less room for the cache is healthy and worth a
note: a neighbour took the difference while it profiled.
"""

from fitserve.diagnose.boot import Boot
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid
from fitserve.units import GIB, gib

CAUSE = "healthy"
STAGE = "-"
_LESS = 0.8
_SIMILAR = 0.02


def judge(situation: Situation) -> Finding:
    """Say that it serves, with what vLLM printed about its cache."""
    boot = situation.boot
    numbers = _numbers(situation)
    before = _cache_before(situation)
    advice: list[Advice] = []
    if boot.ready:
        message = "the server came up, nothing failed"
    else:
        message = f"nothing failed; the log ends in the phase {boot.phase}"
    if before is not None:
        available = boot.last("available-kv")
        now = available.numbers["available_gib"] if available else 0.0
        numbers["previous_available_gib"] = before
        message = (
            f"the server came up, but its KV cache has {now:g} GiB where the last start had {before:g} GiB"
        )
        why = f"weights and settings are the same; {gib((before - now) * GIB)} was taken by something else while it profiled"
        advice = [act("check-neighbours", why, option="nvidia-smi"), act("isolate-gpu", why)]
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=None,
        severity="note",
        confidence="certain" if boot.ready else "possible",
        numbers=numbers,
        advice=advice,
        not_advised=[avoid("gpu_memory_utilization", "up", "a neighbour takes the difference")]
        if before is not None
        else [],
    )


def _numbers(situation: Situation) -> dict[str, object]:
    found: dict[str, object] = {}
    for event in situation.boot.events:
        for name in ("kv_tokens", "gpu_blocks", "available_gib", "auto_fit_max_model_len"):
            if event.role == "fact" and name in event.numbers:
                found[name] = event.numbers[name]
    return found


def _cache_before(situation: Situation) -> float | None:
    """The cache of the last start with the same model, settings and weights, where it was much larger."""
    if not situation.earlier or not situation.boot.ready:
        return None
    previous = situation.earlier[-1]
    now, then = _available(situation.boot), _available(previous)
    if now is None or then is None or now >= then * _LESS:
        return None
    weights, weights_then = _weights(situation.boot), _weights(previous)
    if weights is None or weights_then is None or abs(weights - weights_then) > _SIMILAR * weights_then:
        return None
    given, given_then = situation.case, previous.case
    same = all(
        given.value(name) == given_then.value(name)
        for name in (
            "model",
            "max_model_len",
            "gpu_memory_utilization",
            "tensor_parallel_size",
            "max_num_batched_tokens",
        )
    )
    return then if same else None


def _available(boot: Boot) -> float | None:
    shown = boot.last("available-kv")
    return shown.numbers["available_gib"] if shown else None


def _weights(boot: Boot) -> float | None:
    shown = boot.last("weights-done", "weights-done-v0", "weights-done-gb")
    return shown.numbers["weights_gib"] if shown else None
