"""(o) A whole verification: every question in order, each answered whatever the others said."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any
from urllib.request import getproxies, proxy_bypass

import msgspec

from fitserve.errors import EXIT_NO, EXIT_OK, InputError, MachineError, UsageError
from fitserve.verify.boundary import check_boundaries
from fitserve.verify.checks import check_answers
from fitserve.verify.client import open_client
from fitserve.verify.curve import LoadCurve, draw_points
from fitserve.verify.device_memory import read_device_memory
from fitserve.verify.goals import check_full_length, check_goal
from fitserve.verify.load import check_ramp
from fitserve.verify.open_files import more_open_files
from fitserve.verify.open_loop import check_open_loop
from fitserve.verify.options import MAX_IN_FLIGHT, Options
from fitserve.verify.prompts import Prompts
from fitserve.verify.reach import (
    check_health,
    check_model_name,
    check_models,
    check_reach,
    check_version,
)
from fitserve.verify.session import Session
from fitserve.verify.soak import Soak, check_soak
from fitserve.verify.steps import Step, find_knee
from fitserve.verify.target import Target, is_private, parse_target
from fitserve.verify.verdicts import verdicts
from fitserve.verify.verification import Check, Verification
from fitserve.verify.workload import Workload, plan_workload


class _Listener(msgspec.Struct, frozen=True):
    """Who is told of a verification while it lasts."""

    on_check: Callable[[Check], None]
    on_progress: Callable[[str], None]


def verify_server(
    url: str,
    options: Options | None = None,
    on_check: Callable[[Check], None] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Verification:
    """Prove what a running server can do.

    Args:
        url: its address, with or without ``/v1``.
        options: what is asked and how far it may go.
        on_check: called with each check as it is answered.
        on_progress: called with a few words while something lasts.

    Raises:
        UsageError: the URL cannot be used, the target is public and not confirmed, or the key's variable is empty.
        InputError: the trace cannot be used.
    """
    options = options or Options()
    target = parse_target(url)
    _ask_leave(target, options)
    key = _api_key(options)
    workload = plan_workload(options)
    listener = _Listener(on_check or (lambda _: None), on_progress or (lambda _: None))
    with more_open_files():
        return asyncio.run(_verify(target, key, options, workload, listener))


def exit_code(verification: Verification, options: Options | None = None) -> int:
    """0 where all passed; 1 where a check failed; 3 where it is no OpenAI-compatible server; 4 where none is reached.

    Args:
        verification: the checks.
        options: what was asked: a goal that could not be proven is no 0.
    """
    by_name = {check.name: check for check in verification.checks}
    if verification.passed:
        return EXIT_NO if options and verification.unproven(options.goal_context) else EXIT_OK
    if by_name["reach"].passed is False:
        return MachineError.exit_code
    models = by_name.get("models")
    spoke = any(check.passed for name, check in by_name.items() if name not in _ANY_SERVER)
    if models is not None and models.error_type in _NO_API and not spoke:
        return InputError.exit_code
    return EXIT_NO


_ANY_SERVER = frozenset({"reach", "health", "health-after", "version"})
"""What a server of another kind may pass too."""

_NO_API = frozenset({"http-404", "http-405", "not-json", "not-openai-compatible"})


def _ask_leave(target: Target, options: Options) -> None:
    """Load on somebody else's server needs a word from the user.

    Raises:
        UsageError: an address of the target is public, or a proxy alone knows it, and the user has not confirmed.
    """
    if options.allow_public or target.loopback:
        return
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses = [str(entry[4][0]) for entry in found]
    scheme = target.root.partition(":")[0]
    by_proxy = scheme in getproxies() and not proxy_bypass(target.host)
    if is_private(addresses) or (not addresses and not by_proxy):
        return
    raise UsageError(
        "the server is neither on this machine nor in a private network, and would be put under load",
        where=target.root,
        hint="if it is yours, confirm with --yes",
    )


def _api_key(options: Options) -> str | None:
    if options.api_key_env is None:
        return None
    key = os.environ.get(options.api_key_env, "").strip()
    if not key or not key.isprintable():
        raise UsageError(
            f"the environment variable {options.api_key_env} holds no key",
            where="--api-key-env",
            hint=f"export {options.api_key_env}=...",
        )
    return key


async def _verify(
    target: Target, key: str | None, options: Options, workload: Workload, tell: _Listener
) -> Verification:
    async with open_client(target, api_key=key, ca_file=options.ca_file) as client:
        session = Session(client, options, tell.on_check, tell.on_progress)
        numbers: dict[str, Any] = {}
        if await check_reach(session):
            numbers = await _ask_everything(session, workload)
        served = session.served
        return Verification(
            url=target.root,
            model=served.model,
            served_names=served.names,
            max_model_len=served.max_model_len,
            server_version=served.version,
            checks=session.checks,
            numbers=numbers,
        )


async def _ask_everything(session: Session, workload: Workload) -> dict[str, Any]:
    target = session.client.target
    memory_before = await read_device_memory(target)
    await check_health(session)
    await check_version(session)
    await check_models(session)
    await check_model_name(session)
    await check_answers(session)
    before = await session.gauges()
    prompts = await check_boundaries(session)
    load = await _ask_load(session, prompts, workload)
    after = await session.gauges()
    await check_health(session, "health-after")
    ramp = load.ramp
    numbers: dict[str, Any] = {
        "software": session.served.software,
        "requests": session.counter.tally(),
        "metrics_before": before,
        "metrics_after": after,
        "device_memory_before": memory_before,
        "device_memory_after": await read_device_memory(target),
        "load": {
            "ramp": ramp,
            "knee": find_knee(ramp) if ramp else None,
            "goal_length": load.goal,
            "full_length": load.full,
            "open_loop": load.open_loop,
            "soak": load.soak,
        },
        "curve": LoadCurve(workload=load.words, points=draw_points(ramp), knee=find_knee(ramp))
        if ramp
        else None,
        "verdicts": verdicts(session),
    }
    built: dict[str, Any] = msgspec.to_builtins(numbers)
    return built


class _Load(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was put on the server, and a request of it in words."""

    words: str = ""
    ramp: list[Step] = []
    goal: Step | None = None
    full: Step | None = None
    open_loop: Step | None = None
    soak: Soak | None = None


async def _ask_load(session: Session, prompts: Prompts | None, workload: Workload) -> _Load:
    if prompts is None:
        why = "no prompt of exact length can be made" if session.served.model else session.no_model
        session.skip("load-1", "a ramp of concurrent requests", why)
        session.skip("goal-length", "the goal's requests at once", why)
        session.skip("full-length", "as many at full length", why)
        return _Load()
    words = workload.words if prompts.generates else workload.prompt_words
    ramp = await check_ramp(session, prompts, workload)
    goal = await check_goal(session, prompts)
    full = await check_full_length(session, prompts, goal)
    healthy = bool(ramp) and not any(step.errors for step in ramp)
    if not healthy:
        for name, wanted in (
            ("open-loop", workload.timed or session.options.request_rate),
            ("soak", session.options.minutes),
        ):
            if wanted:
                session.skip(name, "the load goes on", "the ramp has already failed")
        return _Load(words=words, ramp=ramp, goal=goal, full=full)
    concurrency = min(session.options.goal_concurrency or find_knee(ramp).highest_clean or 1, MAX_IN_FLIGHT)
    return _Load(
        words=words,
        ramp=ramp,
        goal=goal,
        full=full,
        open_loop=await check_open_loop(session, prompts, workload),
        soak=await check_soak(session, prompts, workload, concurrency),
    )
