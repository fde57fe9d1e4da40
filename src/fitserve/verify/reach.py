"""Is it there, and what does it say of itself: ``/health``, ``/version``, ``/v1/models``."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import msgspec

from fitserve.verify.answer import (
    Answer,
    body_words,
    entry,
    error_message,
    excerpt,
    text_of,
    whole_number,
)
from fitserve.verify.ask import ask
from fitserve.verify.session import Served, Session
from fitserve.verify.verification import Check

UNREACHABLE = frozenset(
    {
        "connection-refused",
        "unreachable",
        "host-unknown",
        "tls-failed",
        "proxy-failed",
        "not-http",
        "connection-lost",
        "no-connection",
        "silent-server",
        "timeout",
    }
)
"""Error types that mean that no HTTP answer came at all."""

_OWNERS = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "library": "Ollama"}
"""``owned_by`` of a served model, by the servers that set it."""


PAGE_SECONDS = 30.0
"""How long a page may take that the API server answers by itself, without the engine."""

TLS_SECONDS = 3.0


async def check_reach(session: Session) -> bool:
    """Ask for the models once: any HTTP answer is a reach. False where there was none."""
    answer = await _get(session, "/v1/models")
    reached = answer.status is not None
    error_type, actual = None, f"HTTP {answer.status}" + (f" from {answer.server}" if answer.server else "")
    if not reached:
        error_type, actual = await _explain_no_answer(session, answer)
    session.record(
        Check(
            name="reach",
            passed=reached,
            expected="an HTTP answer",
            actual=actual,
            seconds=round(answer.seconds, 3),
            error_type=error_type,
        )
    )
    return reached


async def _explain_no_answer(session: Session, answer: Answer) -> tuple[str | None, str]:
    """Why no HTTP came: the error type and the words."""
    error_type, words = answer.error_type, answer.error
    if error_type == "timeout":
        error_type = "silent-server"
        words = f"the connection is taken, and not a byte comes within {_page_seconds(session):g} s"
    plain = session.client.target.root.startswith("http://")
    if (
        plain
        and error_type in ("silent-server", "not-http", "connection-lost")
        and await _speaks_tls(session)
    ):
        return "tls-failed", f"{words}; it speaks TLS: write https:// in place of http://"
    return error_type, f"{error_type}: {words}" if words else str(error_type)


async def _speaks_tls(session: Session) -> bool:
    target = session.client.target
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(min(TLS_SECONDS, _page_seconds(session))):
            _, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _page_seconds(session: Session) -> float:
    return min(PAGE_SECONDS, session.options.deadline_seconds)


async def check_health(session: Session, name: str = "health") -> Check:
    """``/health`` answers 200; a server without that path cannot be asked."""
    expected = "200 at /health"
    answer = await _get(session, "/health")
    if answer.status in (404, 405):
        return session.skip(name, expected, f"HTTP {answer.status}: it has no /health")
    return session.record(
        Check(
            name=name,
            passed=answer.ok,
            expected=expected,
            actual=f"HTTP {answer.status}" if answer.ok else answer.trouble,
            seconds=round(answer.seconds, 3),
            error_type=answer.error_type,
        )
    )


async def check_version(session: Session) -> Check:
    """``/version`` tells vLLM's version; another server has none, which is no failure."""
    expected = "vLLM's version at /version"
    answer = await _get(session, "/version")
    version = text_of(entry(answer.body, "version")) if answer.ok else ""
    if version:
        session.served = msgspec.structs.replace(session.served, version=version)
        return session.record(
            Check(
                name="version",
                passed=True,
                expected=expected,
                actual=version,
                seconds=round(answer.seconds, 3),
            )
        )
    if answer.error_type in UNREACHABLE:
        return session.record(
            Check(
                name="version",
                passed=False,
                expected=expected,
                actual=answer.trouble,
                seconds=round(answer.seconds, 3),
                error_type=answer.error_type,
            )
        )
    said = answer.trouble if answer.error_type else "an answer without a version"
    return session.skip("version", expected, f"{said}; another server than vLLM, or a gateway before it")


async def check_models(session: Session) -> Check:
    """``/v1/models`` lists served names; they and the context length are kept for the other checks."""
    answer = await _get(session, "/v1/models")
    cards = entry(answer.body, "data") if answer.ok else None
    cards = [card for card in cards if text_of(entry(card, "id"))] if isinstance(cards, list) else []
    served = _served(cards, session.options.model)
    served["software"] = served["software"] or answer.server
    session.served = msgspec.structs.replace(session.served, **served)
    actual, error_type = _describe_models(answer, session.served, bool(cards))
    return session.record(
        Check(
            name="models",
            passed=bool(cards),
            expected="a name at /v1/models",
            actual=actual,
            seconds=round(answer.seconds, 3),
            error_type=error_type,
        )
    )


def _served(cards: list[Any], wanted: str | None) -> dict[str, Any]:
    """Names, the one to use, and its context length (an adapter's card has none: it takes its base model's)."""
    names = [card["id"] for card in cards]
    model = wanted if wanted in names else next(iter(names), wanted)
    own = [card for card in cards if card["id"] == model]
    lengths = [_context(card) for card in [*own, *cards]]
    owners = [text_of(entry(card, "owned_by")).lower() for card in cards]
    return {
        "names": names,
        "model": model,
        "max_model_len": next((length for length in lengths if length), None),
        "software": next((_OWNERS[owner] for owner in owners if owner in _OWNERS), ""),
    }


def _context(card: Any) -> int | None:
    """The longest request that a model's card promises, in tokens.

    Source: ``max_model_len`` of vLLM and SGLang; ``meta.n_ctx`` of llama.cpp's server (``tools/server/server-context.cpp``), the
    context of one of its slots. A context of training (``n_ctx_train``) is no promise of the server's.
    """
    said = (whole_number(entry(card, *path)) for path in (("max_model_len",), ("meta", "n_ctx")))
    return next((length for length in said if length is not None and length > 0), None)


def _describe_models(answer: Answer, served: Served, listed: bool) -> tuple[str, str | None]:
    if listed:
        length = f"max_model_len {served.max_model_len:,}" if served.max_model_len else "no max_model_len"
        return f"{_named(served.names, str)} ({length})", None
    if answer.status in (401, 403):
        return f"{answer.trouble}; name the variable with the key: --api-key-env VAR", answer.error_type
    if not answer.ok:
        return answer.trouble, answer.error_type
    if answer.body is None:
        return f"no JSON but {body_words(answer.text) or 'an empty answer'}", "not-json"
    return "JSON without a list of models", "not-openai-compatible"


MAX_NAMES = 20
"""More served names are counted, not listed: all of them are in the JSON."""


def _named(names: list[str], word: Callable[[str], str]) -> str:
    """Served names for a person: the first of many, the beginning of a long one."""
    words = [word(excerpt(name)) for name in names[:MAX_NAMES]]
    return ", ".join(words) + (f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else "")


async def _get(session: Session, path: str) -> Answer:
    return await session.client.get(path, _page_seconds(session))


async def check_model_name(session: Session) -> Check:
    """The name that the user's requests carry is served; a 404 for it shows the names that are.

    The other checks go on with the first served name where the user's is unknown.
    """
    served = session.served
    wanted = session.options.model or served.model
    if wanted is None:
        return session.skip("model-name", "requests for a name are taken", session.no_model)
    expected = f"requests for {wanted!r} are taken"
    if wanted in served.names:
        return session.record(
            Check(name="model-name", passed=True, expected=expected, actual=f"{wanted!r} is a served name")
        )
    answer = await _ask_by_name(session, wanted)
    if answer.ok and entry(answer.body, "choices", 0) is None and entry(answer.body, "data", 0) is None:
        answer = msgspec.structs.replace(answer, error_type="not-openai-compatible", error=_said(answer))
    error_type = answer.error_type
    actual = f"{wanted!r} is not listed but taken" if answer.ok else answer.trouble
    if error_type == "model-name-unknown":
        actual = name_help(wanted, served)
    if answer.ok:
        session.served = msgspec.structs.replace(served, model=wanted)
    return session.record(
        Check(
            name="model-name",
            passed=answer.ok,
            expected=expected,
            actual=actual,
            seconds=round(answer.seconds, 3),
            error_type=error_type,
        )
    )


def _said(answer: Answer) -> str:
    """What came in place of an answer to a request."""
    words = error_message(answer.body) or body_words(answer.text) or excerpt(str(answer.body))
    return f"HTTP {answer.status}, and neither choices nor data: {words}"


_SMALL_REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": "Hello", "max_tokens": 1}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}),
    ("/v1/embeddings", {"input": "Hello"}),
)


async def _ask_by_name(session: Session, wanted: str) -> Answer:
    """A small request under that name, at the first endpoint that the server has.

    A 404 that says nothing of a model is an endpoint's or a name's: it is the name's where a served name is answered there.
    """
    answer = Answer()
    for path, body in _SMALL_REQUESTS:
        answer = await ask(session, path, {"model": wanted, **body})
        if answer.error_type not in ("http-404", "http-405", "http-501", "not-supported"):
            break
        if answer.status == 404 and session.served.model not in (None, wanted):
            known = await ask(session, path, {"model": session.served.model, **body})
            if known.ok:
                return msgspec.structs.replace(answer, error_type="model-name-unknown")
    return answer


def name_help(wanted: str, served: Served) -> str:
    """What to change where a name is unknown: the request's field, or the server's flag."""
    names = _named(served.names, repr)
    first = served.names[0] if served.names else "NAME"
    return (
        f"404: {wanted!r} is no served name; served: {names or 'none'}. "
        f'Send "model": "{first}", or start the server with --served-model-name {wanted}'
    )
