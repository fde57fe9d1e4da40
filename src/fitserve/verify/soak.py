"""(o) The load kept up for minutes: errors that grow, answers that slow down, and memory that does not come back."""

import asyncio
import time
from collections.abc import Iterator

import msgspec

from fitserve.verify.answer import Answer
from fitserve.verify.device_memory import DeviceMemory, read_device_memory
from fitserve.verify.load import encode_request, send_sized, size_words, watched
from fitserve.verify.metrics import Gauges
from fitserve.verify.prompts import Prompts
from fitserve.verify.session import Session
from fitserve.verify.steps import Spread, most_in_flight, spread
from fitserve.verify.verification import Check
from fitserve.verify.workload import Size, Workload

TELL_SECONDS = 10.0
"""Between two words of progress."""

SLICES = 6
"""Parts of the soak that are compared."""

DRAIN_SECONDS = 30.0
"""How long the scheduler may take to give back the last requests' blocks; vLLM does it within a step or two."""

USAGE_TOLERANCE = 0.005
"""KV cache usage after the soak above that before it: less is rounding, more is a leak."""

MEMORY_TOLERANCE_FRACTION = 0.01
"""Of a device's memory: what an allocator may take more, once."""

SLOWDOWN_RATIO = 2.0
MIN_SLICE_SECONDS = 10.0
MIN_ANSWERS_OF_A_SLICE = 8
"""A drift is read from parts that are long and full enough: a busy second of the machine is none."""

MAX_ERRORS = 20
"""The soak ends there: more errors would prove nothing, and harm a server in trouble."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the soak.

    Attributes:
        from_seconds: its beginning, from the soak's.
        answered: requests that ended in it, whole.
        errors: the others that ended in it.
        output_tokens_per_second: of the answered ones.
        first_token_seconds: time to the first token; None of nothing.
        end_to_end_seconds: the whole request.
    """

    from_seconds: float
    answered: int
    errors: int
    output_tokens_per_second: float
    first_token_seconds: Spread | None = None
    end_to_end_seconds: Spread | None = None


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """The load kept up, and what was left when it ended.

    Attributes:
        seconds: how long it lasted.
        concurrency: requests in flight at once.
        answered: requests answered whole.
        errors: the others by error type.
        prompt_tokens: in, as the server counted them.
        output_tokens: out.
        slices: the parts, in order.
        kv_cache_usage_before_fraction: before it; None where ``/metrics`` does not tell.
        kv_cache_usage_after_fraction: when the server was idle again, or after waiting for that.
        idle_after: nothing ran or waited after it; None where ``/metrics`` does not tell.
        memory_before: the devices before it.
        memory_after: and after it.
    """

    seconds: float
    concurrency: int
    answered: int
    errors: dict[str, int]
    prompt_tokens: int
    output_tokens: int
    slices: list[Slice]
    kv_cache_usage_before_fraction: float | None = None
    kv_cache_usage_after_fraction: float | None = None
    idle_after: bool | None = None
    memory_before: list[DeviceMemory] = []
    memory_after: list[DeviceMemory] = []


async def check_soak(session: Session, prompts: Prompts, workload: Workload, concurrency: int) -> Soak | None:
    """Keep so many requests in flight for the minutes that were asked for. None where none were."""
    if session.options.minutes is None:
        return None
    seconds = 60 * session.options.minutes
    sizes = workload.sizes(session.served.max_model_len, generates=prompts.generates)
    words = workload.words if prompts.generates else size_words([next(sizes)])
    expected = (
        f"{concurrency} at once for {session.options.minutes:g} min, {words}: no error, no slowing down"
    )
    before, memory_before = await session.gauges(), await read_device_memory(session.client.target)
    start = time.perf_counter()
    async with watched(session):
        answers = await _keep_up(session, prompts, sizes, concurrency, start + seconds)
    lasted = time.perf_counter() - start
    if not answers:
        session.skip("soak", expected, "no prompt of exactly that many tokens could be fitted")
        return None
    after = await _drained(session, before)
    soak = Soak(
        seconds=round(lasted, 3),
        concurrency=most_in_flight(answers),
        answered=sum(answer.ok for answer in answers),
        errors=_errors(answers),
        prompt_tokens=sum(answer.prompt_tokens or 0 for answer in answers),
        output_tokens=sum(answer.output_tokens or 0 for answer in answers),
        slices=cut_slices(answers, start, lasted),
        kv_cache_usage_before_fraction=before.kv_cache_usage_fraction if before else None,
        kv_cache_usage_after_fraction=after.kv_cache_usage_fraction if after else None,
        idle_after=after.idle if after else None,
        memory_before=memory_before,
        memory_after=await read_device_memory(session.client.target),
    )
    _record(session, soak, expected)
    return soak


async def _keep_up(
    session: Session, prompts: Prompts, sizes: Iterator[Size], concurrency: int, end: float
) -> list[Answer]:
    """Every answer, without its words: an hour holds many."""
    answers: list[Answer] = []
    errors = 0
    begin = time.perf_counter()

    async def place() -> None:
        nonlocal errors
        while time.perf_counter() < end and errors < MAX_ERRORS:
            size = next(sizes)
            raw = await encode_request(session, prompts, size)
            if raw is None:
                return
            answer = await send_sized(session, prompts, raw, size)
            errors += not answer.ok
            answers.append(msgspec.structs.replace(answer, text="", body=None, token_gaps_seconds=[]))

    async def tell() -> None:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            minutes = (time.perf_counter() - begin) / 60
            session.tell(f"soak: {minutes:.1f} min, {len(answers):,} answers, {errors} errors")

    teller = asyncio.create_task(tell())
    try:
        await asyncio.gather(*(place() for _ in range(concurrency)))
    finally:
        teller.cancel()
        await asyncio.gather(teller, return_exceptions=True)
    return answers


async def _drained(session: Session, before: Gauges | None) -> Gauges | None:
    """The scheduler when it is idle and its cache is as empty as before, or after waiting long enough for that."""
    end = time.perf_counter() + min(DRAIN_SECONDS, session.options.deadline_seconds)
    while True:
        now = await session.gauges()
        if now is None or before is None or time.perf_counter() > end:
            return now
        if now.idle and not is_leak(before.kv_cache_usage_fraction, now.kv_cache_usage_fraction):
            return now
        await asyncio.sleep(0.2)


def is_leak(before: float | None, after: float | None) -> bool:
    """Is more of the KV cache used than before?"""
    return before is not None and after is not None and after > before + USAGE_TOLERANCE


def _errors(answers: list[Answer]) -> dict[str, int]:
    kinds = [answer.error_type for answer in answers if answer.error_type is not None]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def cut_slices(answers: list[Answer], start: float, seconds: float) -> list[Slice]:
    """The answers by the part of the soak in which they ended."""
    width = seconds / SLICES
    parts: list[list[Answer]] = [[] for _ in range(SLICES)]
    for answer in answers:
        ended = answer.started_seconds + answer.seconds - start
        parts[min(SLICES - 1, max(0, int(ended / width)))].append(answer)
    return [_slice(index * width, width, part) for index, part in enumerate(parts)]


def _slice(from_seconds: float, width: float, part: list[Answer]) -> Slice:
    whole = [answer for answer in part if answer.ok]
    firsts = [answer.first_token_seconds for answer in whole if answer.first_token_seconds is not None]
    return Slice(
        from_seconds=round(from_seconds, 3),
        answered=len(whole),
        errors=len(part) - len(whole),
        output_tokens_per_second=round(sum(answer.output_tokens or 0 for answer in whole) / width, 1),
        first_token_seconds=spread(firsts),
        end_to_end_seconds=spread([answer.seconds for answer in whole]),
    )


def _record(session: Session, soak: Soak, expected: str) -> None:
    for name, wanted, (passed, actual, error_type) in (
        ("soak", expected, judge_drift(soak)),
        ("soak-kv-cache", "idle, and the KV cache as empty as before", judge_cache(soak)),
        ("soak-memory", "no more device memory used than before", judge_memory(soak)),
    ):
        main = name == "soak"
        session.record(
            Check(
                name=name,
                passed=passed,
                expected=wanted,
                actual=actual,
                seconds=soak.seconds if main else 0.0,
                prompt_tokens=soak.prompt_tokens if main else None,
                output_tokens=soak.output_tokens if main else None,
                concurrency=soak.concurrency if main else 1,
                error_type=error_type,
            )
        )


Judged = tuple[bool | None, str, str | None]


def judge_drift(soak: Soak) -> Judged:
    """Did errors come, or did answers slow down? Passed or not, the words, the error type."""
    if soak.errors:
        total = sum(soak.errors.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in soak.errors.items())
        parts = ", ".join(str(part.errors) for part in soak.slices)
        kind = max(soak.errors, key=soak.errors.__getitem__)
        return False, f"{total} of {soak.answered + total} failed ({kinds}); by sixths: {parts}", kind
    speeds = f"{soak.answered:,} answered in {soak.seconds:,.0f} s"
    if soak.seconds < SLICES * MIN_SLICE_SECONDS or any(
        part.answered < MIN_ANSWERS_OF_A_SLICE for part in soak.slices
    ):
        return True, f"{speeds}; too short, or too few, to see a drift", None
    times = [part.end_to_end_seconds.p50 for part in soak.slices if part.end_to_end_seconds is not None]
    drift = f"answer p50 by sixths: {', '.join(f'{time:.2f}' for time in times)} s"
    half = len(times) // 2
    if min(times[half:]) > SLOWDOWN_RATIO * max(times[:half]):
        return False, f"{speeds}; {drift}", "slowing-down"
    return True, f"{speeds}; {drift}", None


def judge_cache(soak: Soak) -> Judged:
    """Did every block of the KV cache come back?"""
    before, after = soak.kv_cache_usage_before_fraction, soak.kv_cache_usage_after_fraction
    if before is None or after is None or soak.idle_after is None:
        return None, "cannot be asked: the server does not say how much of its KV cache is used", None
    usage = f"{before:.1%} used before, {after:.1%} after"
    if not soak.idle_after:
        return False, f"requests still run or wait though none is open; {usage}", "requests-left-behind"
    if is_leak(before, after):
        return False, f"idle, and yet {usage}", "kv-cache-leak"
    return True, f"idle; {usage}", None


def judge_memory(soak: Soak) -> Judged:
    """Did the devices' memory grow? Others may use them too: what is seen is the device's, not the server's."""
    if not soak.memory_before or len(soak.memory_before) != len(soak.memory_after):
        return None, "cannot be asked: no device of this machine tells its memory", None
    words, grown = [], False
    for before, after in zip(soak.memory_before, soak.memory_after, strict=True):
        change = after.used_bytes - before.used_bytes
        grown = grown or change > MEMORY_TOLERANCE_FRACTION * before.total_bytes
        words.append(
            f"device {before.index}: {before.used_bytes / 2**30:.2f} GiB, {change / 2**20:+,.0f} MiB"
        )
    return not grown, "; ".join(words), "device-memory-grows" if grown else None
