"""Which of the messages of a boot is the first cause.

A message decides by its weight, then by its place: the first line that names a cause wins over everything later,
except that a line which may be the echo of something else (weight 1) or that nobody has looked at (weight 0) gives way
to one that names a cause by itself.
"""

import msgspec

from fitserve.diagnose.boot import Boot, Hit
from fitserve.diagnose.phase import oom_cause

_QUIET_LEVELS = ("INFO", "DEBUG", "WARNING")
_REQUEST_CAUSES = ("request-too-long", "max-tokens-too-large", "model-name-unknown")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with the message that names it."""

    cause: str
    hit: Hit
    weight: int


def candidates(boot: Boot) -> list[Verdict]:
    """Every message of the boot that can be its first cause, in order of lines."""
    return [verdict for hit in boot.hits if (verdict := _judge(hit)) is not None]


def first_cause(boot: Boot) -> Verdict | None:
    """The first cause of a failed start or of a server that died; None where the boot shows none."""
    found = [verdict for verdict in candidates(boot) if verdict.cause not in _REQUEST_CAUSES]
    if boot.ready:
        found = [verdict for verdict in found if verdict.hit.ready]
    strong = [verdict for verdict in found if verdict.weight >= 2]
    if strong:
        return strong[0]
    if boot.ready and not _died(boot):
        return None
    if not (boot.wrappers or boot.tracebacks or boot.unrecognised or _ended_by_itself(found)):
        return None
    for weight in (1, 0):
        if level := [verdict for verdict in found if verdict.weight == weight]:
            return level[0]
    return None


def first_refusal(boot: Boot) -> Verdict | None:
    """The first request that the server refused, None if there is none."""
    found = [verdict for verdict in candidates(boot) if verdict.cause in _REQUEST_CAUSES]
    return found[0] if found else None


def repeats(boot: Boot, verdict: Verdict) -> list[Hit]:
    """The other lines that name the same cause."""
    return [
        other.hit
        for other in candidates(boot)
        if other.cause == verdict.cause and other.hit.event.line.number != verdict.hit.event.line.number
    ]


def _died(boot: Boot) -> bool:
    return any(
        event.id not in ("leaked-semaphore", "leaked-shared-memory", "nanobind-leak")
        for event in boot.wrappers
    )


def _ended_by_itself(found: list[Verdict]) -> bool:
    return any(verdict.cause in ("interrupted", "host-memory-exhausted") for verdict in found)


def _judge(hit: Hit) -> Verdict | None:
    event = hit.event
    cause, weight = event.cause, event.weight
    if cause is None:
        return None
    if cause == "out-of-memory":
        cause, weight = oom_cause(hit), max(weight, 2)
    if event.line.level in _QUIET_LEVELS and event.stage != "request":
        weight = min(weight, 1)
    if event.id == "arch-key-error-config-mapping":
        cause, weight = _key_error(hit)
    return Verdict(cause=cause, hit=hit, weight=weight)


def _key_error(hit: Hit) -> tuple[str, int]:
    files = {frame.partition(":")[0] for frame in hit.frames}
    functions = {frame.partition(":")[2] for frame in hit.frames}
    if "configuration_auto.py" in files:
        return "architecture-unsupported", 2
    if "load_weights" in functions:
        return "checkpoint-broken", 2
    return "architecture-unsupported", 0
