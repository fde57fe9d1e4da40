"""What PyTorch's out-of-memory text says beside its first sentence."""

import re

from fitserve.facts.ledger import quantity
from fitserve.facts.messages.event import Event
from fitserve.facts.messages.template import size_gib
from fitserve.units import GIB, short_size

_OWN = re.compile(r"this process has (\d[\d.]* ?\w+) memory in use")
_FOREIGN_SHARE = 0.05
_MOST = 0.5


def sentence(event: Event, doing: str) -> str:
    """``out of memory while ...: 1.03 GiB asked, 0.71 GiB of 47.40 GiB free``."""
    asked, free, total = (
        quantity(event, name) for name in ("tried_to_allocate_gib", "gpu_free_gib", "gpu_total_gib")
    )
    if asked and free and total:
        return (
            f"out of memory while {doing}: {short_size(asked.expected)} asked, "
            f"{short_size(free.expected)} of {short_size(total.expected)} free"
        )
    return f"out of memory while {doing}"


def foreign_bytes(event: Event) -> int | None:
    """What other processes hold on the device, None where the text does not say; small remainders count as nothing."""
    total, free = quantity(event, "gpu_total_gib"), quantity(event, "gpu_free_gib")
    own = _own_bytes(event)
    if total is None or free is None or own is None:
        return None
    foreign = total.expected - free.expected - own
    return foreign if foreign > _FOREIGN_SHARE * total.expected else 0


def is_mostly_foreign(event: Event) -> bool:
    """True where other processes hold more than half of the device."""
    total, foreign = quantity(event, "gpu_total_gib"), foreign_bytes(event)
    return total is not None and foreign is not None and foreign > _MOST * total.expected


def _own_bytes(event: Event) -> int | None:
    usage = event.numbers.get("usage")
    found = _OWN.search(usage) if isinstance(usage, str) else None
    if found is None:
        return None
    try:
        return round(size_gib(found[1]) * GIB)
    except (KeyError, ValueError):
        return None
