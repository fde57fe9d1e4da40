"""Free memory at the start is below what ``gpu_memory_utilization`` asks for.

Source: vLLM 0.9.1 and later, ``v1/worker/gpu_worker.py``, ``init_device``; ``v1/worker/utils.py``, ``request_memory``.
"""

import math

from fitserve.diagnose.arithmetic import bytes_of
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.diagnose.usage import foreign_bytes
from fitserve.facts.ledger import read_ledgers
from fitserve.units import Quantity, gib

CAUSE = "gpu-memory-taken"
STAGE = "environment"
_WORTH_TRYING = 0.5


def judge(situation: Situation) -> Finding:
    """Name what is free, what is asked for, and the share that is free."""
    free, total = bytes_of(situation, "gpu_free_gib"), bytes_of(situation, "gpu_total_gib")
    is_oom = situation.event.cause == "out-of-memory"
    foreign = foreign_bytes(situation.event) if is_oom else None
    if foreign is None and free and total:
        foreign = total.expected - free.expected
    held = f"{gib(foreign)} is held by others" if foreign else "others hold the device"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=_message(situation, free, total, foreign if is_oom else None),
        event=situation.event,
        advice=[
            act(
                "free-other-process",
                f"{held}: another process, or an orphan of the last try",
                option="nvidia-smi",
            ),
            *([] if is_oom else _smaller_share(situation, free, total)),
        ],
        not_advised=[
            avoid(
                "gpu_memory_utilization",
                "up",
                "more would be asked for, and less is free than is asked for now",
            ),
            avoid("max_model_len", "down", "the context plays no part in what others hold"),
            avoid("enforce_eager", "set", "nothing is captured yet"),
        ],
    )


def _message(situation: Situation, free: Quantity | None, total: Quantity | None, foreign: int | None) -> str:
    asked = bytes_of(situation, "requested_gib")
    if foreign and total:
        return f"other processes hold {gib(foreign)} of {gib(total.expected)}, so the weights find no room"
    if free and total and asked:
        share = f"gpu_memory_utilization asks for {gib(asked.expected)}"
        return f"{gib(free.expected)} of {gib(total.expected)} is free, {share}"
    if free and total:
        return f"{gib(free.expected)} of {gib(total.expected)} is free before anything is loaded"
    return "the device is full before anything is loaded"


def _smaller_share(situation: Situation, free: Quantity | None, total: Quantity | None) -> list[Advice]:
    """The share that is free, where it can still hold the model."""
    if free is None or total is None:
        return []
    share = math.floor(free.low / total.high * 100) / 100
    weights = _known_weights(situation)
    if weights is not None:
        if share * total.low <= weights * 1.05:
            return []
    elif share < _WORTH_TRYING:
        return []
    why = (
        f"{gib(free.expected)} / {gib(total.expected)}, rounded down; the KV cache shrinks by the difference"
    )
    return change(situation, "gpu_memory_utilization", share, "down", "capacity", why)


def _known_weights(situation: Situation) -> int | None:
    """The weights on one device, if an earlier boot of the same log printed them."""
    for boot in reversed(situation.earlier):
        for ledger in read_ledgers(boot.events):
            if isinstance(ledger.weights_bytes, Quantity):
                return ledger.weights_bytes.expected
    return None
