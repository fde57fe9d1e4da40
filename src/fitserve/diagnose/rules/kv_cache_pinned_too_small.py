"""The KV cache has a size set by hand, and one sequence of ``max_model_len`` does not fit.

Source: vLLM 0.10.2 and later (``kv_cache_memory_bytes``), 0.4.0 and later (``num_gpu_blocks_override``), the CPU
backend (``VLLM_CPU_KVCACHE_SPACE``, ``worker/cpu_worker.py``).
"""

import math

from fitserve.diagnose.arithmetic import block_size, bytes_of, is_pinned
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.rules import kv_cache_smaller_than_context as context
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.memory.history import at_least
from fitserve.units import GIB, MIB, gib

CAUSE = "kv-cache-pinned-too-small"
STAGE = "kv_cache"


def judge(situation: Situation) -> Finding:
    """Name the pin, and what it must be."""
    pin = is_pinned(situation) or "VLLM_CPU_KVCACHE_SPACE"
    numbers = {}
    if pin == "VLLM_CPU_KVCACHE_SPACE" and (space := situation.case.number(pin)) is not None:
        numbers["vllm_cpu_kvcache_space_gib"] = space
    length = situation.number("max_model_len")
    message = context.message(situation) if length else f"{pin} leaves no room for the KV cache"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{message}; {pin} sets it by hand",
        event=situation.event,
        numbers=numbers,
        advice=[*larger_pin(situation, pin), *(context.shorter_context(situation) if length else [])],
        not_advised=[
            avoid(
                "gpu_memory_utilization", "up", f"{pin} sets the KV cache's size, so utilization does nothing"
            )
        ],
    )


def larger_pin(situation: Situation, pin: str) -> list[Advice]:
    """The pin that holds one sequence: the high end of what is needed, one block kept back from 0.29.0 on."""
    length, tokens = situation.number("max_model_len"), situation.number("kv_tokens")
    needed = bytes_of(situation, "needed_gib")
    if pin == "num_gpu_blocks_override":
        if not length:
            return []
        block = block_size(situation)
        blocks = math.ceil(length / block) + (1 if at_least(situation.version, "0.29.0") else 0)
        why = f"{length:,} tokens in blocks of {block}"
        return change(situation, pin, blocks, "up", "capacity", why)
    if pin == "VLLM_CPU_KVCACHE_SPACE":
        return _larger_cpu_space(situation, length, tokens, needed.high if needed else None)
    if needed is None or not length:
        return []
    per_block = math.ceil(needed.high / max(math.ceil(length / block_size(situation)), 1))
    wanted = needed.high + (per_block if at_least(situation.version, "0.29.0") else 0)
    rounded = math.ceil(wanted / MIB) * MIB
    why = f"{length:,} tokens need {gib(needed.expected)}, rounded up to whole MiB"
    return change(situation, pin, rounded, "up", "capacity", why, predicted={"kv_cache_bytes": rounded})


def _larger_cpu_space(
    situation: Situation, length: int | None, tokens: int | None, needed: int | None
) -> list[Advice]:
    flag = "VLLM_CPU_KVCACHE_SPACE"
    space = situation.case.number(flag)
    if needed:
        to = math.ceil(needed / GIB)
        return change(situation, flag, to, "up", "capacity", f"{gib(needed)} is needed, in whole GiB")
    if not length or not tokens:
        to = math.ceil((space or 4) * 2)
        return change(situation, flag, to, "up", "capacity", "twice what it is, in whole GiB")
    now = space if space is not None else 4
    to = math.ceil(now * length / tokens)
    return change(
        situation, flag, to, "up", "capacity", f"{now:g} GiB x {length:,} / {tokens:,} tokens, in whole GiB"
    )
