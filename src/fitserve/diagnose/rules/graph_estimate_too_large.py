"""The CUDA graphs' estimate has eaten the KV cache.

Source: vLLM 0.18.0 and later, ``v1/worker/gpu_worker.py``, ``determine_available_memory``; taken from the cache by
default from 0.20.0 on.
"""

from fitserve.diagnose.arithmetic import bytes_of
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.facts.ledger import quantity
from fitserve.facts.messages.event import Event
from fitserve.memory.history import reserves_graphs
from fitserve.units import Quantity, gib

CAUSE = "graph-estimate-too-large"
STAGE = "kv_cache"
_VARIABLE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"


def has_eaten_the_cache(situation: Situation) -> bool:
    """True where the cache would be large enough without the estimate, and the estimate is the larger of the two."""
    found = _figures(situation)
    if found is None:
        return False
    estimate, available = found
    if not reserves_graphs(situation.version, situation.case.value(_VARIABLE)):
        return False
    needed = bytes_of(situation, "needed_gib")
    without = available.expected + estimate.expected
    if needed is None:
        return available.expected <= 0 < without
    return without >= needed.expected and estimate.expected > max(available.expected, 0)


def judge(situation: Situation) -> Finding:
    """Name the estimate and what is left."""
    found = _figures(situation)
    event = _estimate_event(situation)
    if found is None or event is None:
        raise ValueError("no estimate in this boot")
    estimate, available = found
    without = available.expected + estimate.expected
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"the CUDA graphs' estimate of {gib(estimate.expected)} leaves {gib(available.expected)} for the KV cache",
        event=event,
        support=[situation.event],
        numbers={"graph_estimate_gib": event.numbers["graph_estimate_gib"]},
        advice=[
            *change(
                situation,
                _VARIABLE,
                "0",
                "set",
                "free",
                f"without the estimate {gib(without)} is left for the KV cache; the graphs then come out of the rest",
                predicted={"kv_cache_bytes": without},
            ),
            act("disable-graph-estimate", "the estimate is measured on a few captures and extrapolated"),
            *change(situation, "enforce_eager", True, "set", "speed", "no graphs, so nothing is estimated"),
        ],
        not_advised=[
            avoid(
                "gpu_memory_utilization",
                "up",
                "the estimate grows into whatever is added; the device is not full",
            )
        ],
    )


def _estimate_event(situation: Situation) -> Event | None:
    rank = situation.event.line.rank
    own = [
        one for one in situation.boot.events if one.id == "graph-estimate" and rank in (None, one.line.rank)
    ]
    return own[0] if own else situation.boot.first("graph-estimate")


def _figures(situation: Situation) -> tuple[Quantity, Quantity] | None:
    event = _estimate_event(situation)
    estimate = quantity(event, "graph_estimate_gib") if event else None
    available = bytes_of(situation, "available_gib")
    if available is None and (shown := situation.boot.last("available-kv")):
        available = quantity(shown, "available_gib")
    if estimate is None or available is None:
        return None
    return estimate, available
