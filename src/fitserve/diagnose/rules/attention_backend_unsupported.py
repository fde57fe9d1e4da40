"""No attention backend fits this head size, dtype, device or option.

Source: vLLM 0.2.0 to 0.33.0, ``attention/selector.py``, ``platforms/cuda.py``. The backend is chosen by
``VLLM_ATTENTION_BACKEND`` up to 0.14.1 and by ``--attention-backend`` from 0.13.0 on.
"""

import re

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.memory.history import at_least, has_flag

CAUSE = "attention-backend-unsupported"
STAGE = "config"
_NAMED = re.compile(
    r"(?:VLLM_ATTENTION_BACKEND|attention-backend|attention-config\.backend)[= ]([A-Z_0-9]{3,40})"
)

_ONLY_CACHE = re.compile(r"\[kv_cache_dtype not supported\]")
"""A backend that refuses nothing but the cache's type. Source: vLLM 0.11.1 and later, ``platforms/cuda.py``."""


def judge(situation: Situation) -> Finding:
    """Name what no backend takes, and one that does."""
    head_size = situation.number("head_size")
    backend = str(situation.number("attention_backend") or "").rstrip(".") or None
    if _ONLY_CACHE.search(situation.event.line.text):
        message = f"no attention backend here takes the KV cache's type {situation.case.value('kv_cache_dtype') or 'fp8'}"
    elif head_size is not None:
        message = f"head size {head_size} is not supported by {backend or 'this backend'}"
    elif backend:
        message = f"the attention backend {backend} is not valid here"
    else:
        message = "no attention backend fits this model, dtype and device"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=_advice(situation),
        not_advised=[avoid("gpu_memory_utilization", None, "no backend fits, whatever the memory")],
    )


def _advice(situation: Situation) -> list[Advice]:
    to, why = _other_backend(situation)
    found: list[Advice] = []
    if "fp8" in situation.event.id or _ONLY_CACHE.search(situation.event.line.text):
        found += change(
            situation,
            "kv_cache_dtype",
            "auto",
            "set",
            "capacity",
            "every backend takes the model's own dtype",
        )
    if has_flag("attention_backend", situation.version):
        found += change(situation, "attention_backend", to, "set", "speed", why)
    found += change(situation, "VLLM_ATTENTION_BACKEND", to, "set", "speed", why)
    return [*found, act("upgrade-vllm", "later versions choose a backend that fits by themselves")]


def _other_backend(situation: Situation) -> tuple[str, str]:
    """The backend that the message names, else the most tolerant one of that version."""
    if named := _NAMED.search(situation.event.line.text):
        return named[1], "vLLM names it for this case"
    if at_least(situation.version, "0.11.0"):
        return "TRITON_ATTN", "it is written for any head size and device"
    if at_least(situation.version, "0.9.1"):
        return "FLEX_ATTENTION", "it takes every head size"
    return "XFORMERS", "it takes head sizes and devices that FlashAttention does not"
