"""(o) A whole verification: every question in order, each answered whatever the others said."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Literal
from urllib.request import getproxies, proxy_bypass

import msgspec

from fitserve.errors import EXIT_NO, EXIT_OK, InputError, MachineError, UsageError
from fitserve.verify.boundary import check_boundaries
from fitserve.verify.checks import check_answers
from fitserve.verify.client import open_client
from fitserve.verify.goals import check_full_length, check_goal
from fitserve.verify.load import check_ramp
from fitserve.verify.options import Options
from fitserve.verify.prompts import Prompts
from fitserve.verify.reach import (
    check_health,
    check_model_name,
    check_models,
    check_reach,
    check_version,
)
from fitserve.verify.session import Session
from fitserve.verify.steps import Step, find_knee
from fitserve.verify.target import Target, is_private, parse_target
from fitserve.verify.verification import Check, Verification

Answered = Literal["yes", "no", "not asked"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three questions that a user has, and its answer."""

    question: str
    answer: Answered
    because: str


def verify_server(
    url: str, options: Options | None = None, on_check: Callable[[Check], None] | None = None
) -> Verification:
    """Prove what a running server can do.

    Args:
        url: its address, with or without ``/v1``.
        options: what is asked and how far it may go.
        on_check: called with each check as it is answered.

    Raises:
        UsageError: the URL cannot be used, the target is public and not confirmed, or the key's variable is empty.
    """
    options = options or Options()
    target = parse_target(url)
    _ask_leave(target, options)
    key = _api_key(options)
    return asyncio.run(_verify(target, key, options, on_check or (lambda _: None)))


def exit_code(verification: Verification) -> int:
    """0 where all passed; 1 where a check failed; 3 where it is no OpenAI-compatible server; 4 where none is reached."""
    if verification.passed:
        return EXIT_OK
    by_name = {check.name: check for check in verification.checks}
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
    target: Target, key: str | None, options: Options, on_check: Callable[[Check], None]
) -> Verification:
    async with open_client(target, api_key=key, ca_file=options.ca_file) as client:
        session = Session(client, options, on_check)
        numbers: dict[str, Any] = {}
        if await check_reach(session):
            numbers = await _ask_everything(session)
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


async def _ask_everything(session: Session) -> dict[str, Any]:
    await check_health(session)
    await check_version(session)
    await check_models(session)
    await check_model_name(session)
    await check_answers(session)
    before = await session.gauges()
    prompts = await check_boundaries(session)
    ramp, goal, full = await _ask_load(session, prompts)
    after = await session.gauges()
    await check_health(session, "health-after")
    return {
        "software": session.served.software,
        "metrics_before": msgspec.to_builtins(before),
        "metrics_after": msgspec.to_builtins(after),
        "load": {
            "ramp": msgspec.to_builtins(ramp),
            "knee": msgspec.to_builtins(find_knee(ramp)) if ramp else None,
            "goal_length": msgspec.to_builtins(goal),
            "full_length": msgspec.to_builtins(full),
        },
        "verdicts": msgspec.to_builtins(verdicts(session)),
    }


async def _ask_load(session: Session, prompts: Prompts | None) -> tuple[list[Step], Step | None, Step | None]:
    if prompts is None or not prompts.generates:
        why = "no prompt of exact length can be made" if prompts is None else "the model generates nothing"
        session.skip("load-1", "a ramp of concurrent requests", why)
        session.skip("goal-length", "the goal's requests at once", why)
        session.skip("full-length", "as many at full length", why)
        return [], None, None
    ramp = await check_ramp(session, prompts)
    goal = await check_goal(session, prompts)
    return ramp, goal, await check_full_length(session, prompts, goal)


def verdicts(session: Session) -> list[Verdict]:
    """The three answers: one full-length request; N at the goal's length; N at full length."""
    number = session.options.goal_concurrency or 1
    questions = (
        ("one request of full length", "boundary-exact"),
        (f"{number} at once of the goal's length", "goal-length"),
        (f"{number} at once of full length", "full-length"),
    )
    return [
        Verdict(question=question, answer=_answered(check), because=check.actual if check else "")
        for question, name in questions
        for check in [session.found(name)]
    ]


def _answered(check: Check | None) -> Answered:
    if check is None or (check.passed is None and check.error_type is None):
        return "not asked"
    return "yes" if check.passed else "no"
