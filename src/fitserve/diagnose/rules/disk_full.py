"""No space is left for weights or caches.

Source: the kernel's ENOSPC and EDQUOT, as Python, Rust and Kubernetes print them.
"""

import re

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "disk-full"
STAGE = "environment"
_PATH = re.compile(r"['\"](/[^'\"]{1,300})['\"]")


def judge(situation: Situation) -> Finding:
    """Name the path, and another place for it."""
    found = _PATH.search(situation.event.line.text)
    path = found[1] if found else ""
    where = f" under {_folder(path)}" if path else ""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"no space is left{where}",
        event=situation.event,
        advice=[
            act("free-disk", "remove old caches or grow the volume", option="df -h"),
            *_other_place(situation, path),
        ],
        not_advised=[
            avoid("gpu_memory_utilization", None, "a disk is full, the device's memory plays no part")
        ],
    )


def _folder(path: str) -> str:
    return "/".join(path.split("/")[:6])


def _other_place(situation: Situation, path: str) -> list[Advice]:
    """The variable that moves the cache: the compile caches, or the hub's."""
    if "huggingface" in path or "hub" in path or (not path and situation.boot.phase in ("config", "weights")):
        return change(situation, "HF_HOME", "/path/with/space", "set", "free", "weights are downloaded there")
    if "flashinfer" in path:
        return change(
            situation,
            "FLASHINFER_WORKSPACE_BASE",
            "/path/with/space",
            "set",
            "free",
            "kernels are built there",
        )
    if "triton" in path and "vllm" not in path:
        return change(
            situation, "TRITON_CACHE_DIR", "/path/with/space", "set", "free", "kernels are cached there"
        )
    return change(
        situation, "VLLM_CACHE_ROOT", "/path/with/space", "set", "free", "compiled graphs are cached there"
    )
