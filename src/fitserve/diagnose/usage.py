"""What PyTorch's out-of-memory text says beside its first sentence."""

import re

from fitserve.diagnose.arithmetic import bytes_of
from fitserve.diagnose.situation import Situation
from fitserve.facts.messages.template import size_gib
from fitserve.units import GIB, gib

_OWN = re.compile(r"this process has (\d[\d.]* ?\w+) memory in use")
_OTHER = re.compile(r"Process (\d+) has (\d[\d.]* ?\w+) memory in use")
_UNALLOCATED = re.compile(r"(\d[\d.]* ?\w+) is reserved by PyTorch but unallocated")
_FOREIGN_SHARE = 0.05


def sentence(situation: Situation, doing: str) -> str:
    """``out of memory while ...: 1.03 GiB asked, 0.71 GiB of 47.40 GiB free``."""
    asked, free, total = (
        bytes_of(situation, name) for name in ("tried_to_allocate_gib", "gpu_free_gib", "gpu_total_gib")
    )
    if asked and free and total:
        return (
            f"out of memory while {doing}: {gib(asked.expected)} asked, "
            f"{gib(free.expected)} of {gib(total.expected)} free"
        )
    return f"out of memory while {doing}"


def foreign_bytes(situation: Situation) -> int | None:
    """What other processes hold on the device, None where the text does not say; small remainders count as nothing."""
    total, free = bytes_of(situation, "gpu_total_gib"), bytes_of(situation, "gpu_free_gib")
    own = _size(_OWN, situation)
    if total is None or free is None or own is None:
        return None
    foreign = total.expected - free.expected - own
    return foreign if foreign > _FOREIGN_SHARE * total.expected else 0


def unallocated_bytes(situation: Situation) -> int | None:
    """What PyTorch holds without using it."""
    return _size(_UNALLOCATED, situation)


def _size(pattern: re.Pattern[str], situation: Situation) -> int | None:
    usage = situation.number("usage")
    found = pattern.search(usage) if isinstance(usage, str) else None
    if found is None:
        return None
    try:
        return round(size_gib(found[1]) * GIB)
    except (KeyError, ValueError):
        return None
