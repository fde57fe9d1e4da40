"""(o) One request with its deadline, and why it was not answered in time.

A request that was taken and gets no token is looked at while it still waits: the scheduler's gauges, or, where the
server has none, a small request beside it, tell a slow engine from one that never schedules it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from fitserve.verify.answer import Answer
from fitserve.verify.client import Progress
from fitserve.verify.metrics import Gauges
from fitserve.verify.session import Session
from fitserve.verify.verification import Check

BUSY_STATUSES = (429, 503)
BUSY_WAITS_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)
SECOND_LOOK_SECONDS = 0.5
"""Between two readings of the gauges: vLLM updates them once an engine step."""

SMALL_DEADLINE_SECONDS = 10.0
"""How long a small request may take beside the one that waits."""

LOOK_SECONDS = 60.0
"""An unanswered request stays open this much longer than its deadline: all looks at it take less."""

TOKENIZE = "/tokenize"
"""Counts a text; no model is asked, so it is no request of the tally."""

SILENCE = frozenset({"timeout", "request-never-scheduled"})
"""Error types of a request that got no whole answer."""


async def ask_in_turn(
    session: Session, questions: Sequence[Callable[[], Awaitable[Check]]], *, silent: bool = False
) -> None:
    """Answer checks one after the other and record them in their order.

    After a silence the rest are asked together: a server that answers nothing must not cost a deadline for each question.

    Args:
        session: the verification.
        questions: each makes one check.
        silent: the server has been silent before.
    """
    left = list(questions)
    while left:
        batch = left if silent else left[:1]
        left = left[len(batch) :]
        for check in await asyncio.gather(*(question() for question in batch)):
            session.record(check)
            silent = silent or check.error_type in SILENCE


async def ask(session: Session, path: str, body: dict[str, Any]) -> Answer:
    """Send one request and wait for its whole answer, until the deadline.

    A server that says that it is busy is asked again, ever more slowly; nothing else is repeated.

    Args:
        session: the verification.
        path: the endpoint.
        body: the request; a true ``stream`` makes the answer a stream.
    """
    deadline = asyncio.get_running_loop().time() + session.options.deadline_seconds
    answer = await _ask_once(session, path, body, session.options.deadline_seconds)
    for retries, wait in enumerate(BUSY_WAITS_SECONDS, start=1):
        left = deadline - asyncio.get_running_loop().time()
        if answer.status not in BUSY_STATUSES or wait >= left:
            break
        await asyncio.sleep(wait)
        answer = await _ask_once(session, path, body, left - wait)
        answer = msgspec.structs.replace(answer, retries=retries)
    return answer


async def _ask_once(session: Session, path: str, body: dict[str, Any], seconds: float) -> Answer:
    progress = Progress()
    exchange = asyncio.create_task(send(session, path, body, seconds + LOOK_SECONDS, progress))
    try:
        done, _ = await asyncio.wait({exchange}, timeout=seconds)
        if done:
            return exchange.result()
        answer = progress.answer("timeout")
        error_type, error = await explain_silence(session, progress, seconds)
        return msgspec.structs.replace(answer, error_type=error_type, error=error)
    finally:
        exchange.cancel()
        await asyncio.gather(exchange, return_exceptions=True)


async def send(
    session: Session, path: str, body: dict[str, Any], seconds: float, progress: Progress | None = None
) -> Answer:
    """Send one request as a stream or not, as its body says."""
    max_tokens = body.get("max_tokens", 0) if body.get("stream") else None
    return await send_raw(
        session, path, msgspec.json.encode(body), seconds, max_tokens=max_tokens, progress=progress
    )


async def send_raw(
    session: Session,
    path: str,
    raw: bytes,
    seconds: float,
    *,
    max_tokens: int | None,
    progress: Progress | None = None,
) -> Answer:
    """Send one encoded request and count it; ``max_tokens`` is None where the answer is no stream."""
    if path == TOKENIZE:
        return await session.client.post(path, raw, seconds, progress=progress)
    answer = None
    session.counter.begin()
    try:
        if max_tokens is None:
            answer = await session.client.post(path, raw, seconds, progress=progress)
        else:
            answer = await session.client.stream(path, raw, seconds, max_tokens=max_tokens, progress=progress)
    finally:
        session.counter.end(answer)
    return answer


async def explain_silence(session: Session, progress: Progress, seconds: float) -> tuple[str, str]:
    """Why an open request has not been answered: the error type and the words."""
    tokens = len(progress.token_times)
    if tokens:
        return "timeout", f"no whole answer within {seconds:g} s: {tokens} tokens came"
    first = await session.gauges()
    if first is None or first.running is None:
        return await _compare_with_small(session, progress, seconds)
    await asyncio.sleep(min(SECOND_LOOK_SECONDS, seconds / 2))
    return judge_silence(first, await session.gauges() or first, seconds)


def judge_silence(first: Gauges, second: Gauges, seconds: float) -> tuple[str, str]:
    """Tell a slow engine from one that never schedules the request, by two readings while it waits."""
    no_token = f"no token within {seconds:g} s"
    running = (first.running or 0) + (second.running or 0)
    if running == 0 and first.waiting and second.waiting:
        return (
            "request-never-scheduled",
            f"{no_token}: {second.waiting} waiting while nothing runs; the engine is idle and the request stays queued",
        )
    if first.idle and second.idle:
        return (
            "request-never-scheduled",
            f"{no_token}: 0 running, 0 waiting; the engine is idle and never got the request",
        )
    usage = second.kv_cache_usage_fraction
    shown_usage = "" if usage is None else f", {usage:.0%} of the KV cache used"
    return "timeout", f"{no_token}: {second.running} running, {second.waiting} waiting{shown_usage}"


def explain_idle_queue(answer: Answer, readings: list[Gauges], seconds: float) -> Answer:
    """Name a load's unanswered request by the last readings that were taken while it waited."""
    if answer.error_type != "timeout" or answer.events or len(readings) < 2:
        return answer
    error_type, error = judge_silence(readings[-2], readings[-1], seconds)
    return msgspec.structs.replace(answer, error_type=error_type, error=error)


async def _compare_with_small(session: Session, progress: Progress, seconds: float) -> tuple[str, str]:
    """Without gauges: is another request served while this one waits?"""
    accepted = progress.status is not None
    sign = f"though it was accepted (HTTP {progress.status})" if accepted else "nor any sign of it"
    silence = f"no token within {seconds:g} s, {sign}"
    small = {"model": session.served.model, "prompt": "Hello", "max_tokens": 1}
    beside = await send(session, "/v1/completions", small, min(seconds, SMALL_DEADLINE_SECONDS))
    if beside.ok:
        meanwhile = f"while a small one was answered beside it in {beside.seconds:.1f} s"
        return "request-never-scheduled", f"{silence}, {meanwhile}"
    if accepted and beside.error_type == "timeout":
        return "request-never-scheduled", f"{silence}, nor for a small one beside it: the engine is stalled"
    return "timeout", silence
