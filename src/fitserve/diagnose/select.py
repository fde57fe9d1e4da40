"""Which of the messages of a boot is the first cause.

A message decides by its weight, then by its place: the first line that names a cause wins over everything later,
except that a line which may be the echo of something else (weight 1) or that nobody has looked at (weight 0) gives way
to one that names a cause by itself.
"""

import re

import msgspec

from fitserve.diagnose.boot import Boot, Hit
from fitserve.diagnose.phase import oom_cause
from fitserve.diagnose.usage import is_mostly_foreign

_QUIET_LEVELS = ("INFO", "DEBUG", "WARNING")
_PACKAGED = re.compile(r"site-packages|dist-packages|/lib/python|(?:^|/)(?:vllm|ray|torch)/|\.pyx|<frozen")
_BY_FRAMES = ("arch-key-error-config-mapping", "bare-assertion", "bare-assertion-colon")
_NEAR_LINES = 10
_REQUEST_CAUSES = ("request-too-long", "max-tokens-too-large", "model-name-unknown")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with the message that names it; a guess where an out-of-memory shows neither frames nor progress."""

    cause: str
    hit: Hit
    weight: int
    is_guess: bool = False


def candidates(boot: Boot) -> list[Verdict]:
    """Every message of the boot that can be its first cause, in order of lines."""
    with_frames = next((hit for hit in boot.hits if hit.event.cause == "out-of-memory" and hit.frames), None)
    return [verdict for hit in boot.hits if (verdict := _judge(hit, with_frames)) is not None]


def first_cause(boot: Boot) -> Verdict | None:
    """The first cause of a failed start or of a server that died; None where the boot shows none."""
    found = [verdict for verdict in candidates(boot) if verdict.cause not in _REQUEST_CAUSES]
    if boot.ready:
        found = [verdict for verdict in found if verdict.hit.ready]
    strong = [verdict for verdict in found if verdict.weight >= 2]
    if strong:
        return _clearest(strong)
    if boot.ready and not boot.died:
        return None
    if not (boot.died or boot.tracebacks or boot.unrecognised or _ended_by_itself(found)):
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


def _clearest(strong: list[Verdict]) -> Verdict:
    """The first one, or one of the same cause a few lines on that names it more plainly (a compiler's last words)."""
    first = strong[0]
    number = first.hit.event.line.number
    near = [
        verdict
        for verdict in strong
        if verdict.cause == first.cause and abs(verdict.hit.event.line.number - number) <= _NEAR_LINES
    ]
    return max(near, key=lambda verdict: verdict.weight)


def _ended_by_itself(found: list[Verdict]) -> bool:
    return any(verdict.cause in ("interrupted", "host-memory-exhausted") for verdict in found)


def _judge(hit: Hit, with_frames: Hit | None) -> Verdict | None:
    event = hit.event
    cause, weight = event.cause, event.weight
    if cause is None or _is_another_programs(hit):
        return None
    is_guess = False
    if cause == "out-of-memory":
        shown = hit if hit.frames else with_frames or hit
        cause, is_guess = oom_cause(shown), not shown.frames and shown.phase == "config"
        if cause == "weights-do-not-fit" and is_mostly_foreign(event):
            cause = "gpu-memory-taken"
    if event.line.source and event.line.level in _QUIET_LEVELS and event.stage != "request":
        weight = min(weight, 1)
    if event.id in _BY_FRAMES:
        cause, weight = _by_frames(hit)
    return Verdict(cause=cause, hit=hit, weight=weight, is_guess=is_guess)


def _is_another_programs(hit: Hit) -> bool:
    """True for a traceback in which every frame is a script's own: neither vLLM nor any package stands in it."""
    return bool(hit.frames) and not any(_PACKAGED.search(frame) for frame in hit.frames)


def _by_frames(hit: Hit) -> tuple[str, int]:
    """What a bare ``KeyError`` or ``AssertionError`` means where it was raised; a guess elsewhere."""
    functions = {frame.rpartition(":")[2] for frame in hit.frames}
    if any("/configuration_auto.py:" in frame for frame in hit.frames):
        return "architecture-unsupported", 2
    if functions & {"load_weights", "weight_loader", "default_weight_loader"}:
        return "checkpoint-broken", 2
    if any("/kv_cache_utils.py:" in frame for frame in hit.frames):
        return "kv-pages-not-unifiable", 1
    return hit.event.cause or "unknown-flag", 0
