"""Is it there, and what does it say of itself: ``/health``, ``/version``, ``/v1/models``."""

from typing import Any

import msgspec

from fitserve.verify.answer import Answer, entry, text_of, whole_number
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
        "timeout",
    }
)
"""Error types that mean that no HTTP answer came at all."""

_OWNERS = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "library": "Ollama"}
"""``owned_by`` of a served model, by the servers that set it."""


async def check_reach(session: Session) -> bool:
    """Ask for the models once: any HTTP answer is a reach. False where there was none."""
    answer = await _get(session, "/v1/models")
    reached = answer.status is not None
    session.record(
        Check(
            name="reach",
            passed=reached,
            expected="an HTTP answer",
            actual=f"HTTP {answer.status}" if reached else answer.trouble,
            seconds=round(answer.seconds, 3),
            error_type=None if reached else answer.error_type,
        )
    )
    return reached


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
    return session.skip(
        "version", expected, f"{said}; it may be another server than vLLM, or a gateway before it"
    )


async def check_models(session: Session) -> Check:
    """``/v1/models`` lists served names; they and the context length are kept for the other checks."""
    answer = await _get(session, "/v1/models")
    cards = entry(answer.body, "data") if answer.ok else None
    cards = [card for card in cards if text_of(entry(card, "id"))] if isinstance(cards, list) else []
    session.served = msgspec.structs.replace(session.served, **_served(cards, session.options.model))
    actual, error_type = _describe_models(answer, session.served, bool(cards))
    return session.record(
        Check(
            name="models",
            passed=bool(cards),
            expected="at least one served name at /v1/models",
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
    lengths = [whole_number(entry(card, "max_model_len")) for card in [*own, *cards]]
    owners = [text_of(entry(card, "owned_by")).lower() for card in cards]
    return {
        "names": names,
        "model": model,
        "max_model_len": next((length for length in lengths if length), None),
        "software": next((_OWNERS[owner] for owner in owners if owner in _OWNERS), ""),
    }


def _describe_models(answer: Answer, served: Served, listed: bool) -> tuple[str, str | None]:
    if listed:
        length = f"max_model_len {served.max_model_len:,}" if served.max_model_len else "no max_model_len"
        return f"{', '.join(served.names)} ({length})", None
    if answer.status in (401, 403):
        return f"{answer.trouble}; name the variable with the key: --api-key-env VAR", answer.error_type
    if not answer.ok:
        return answer.trouble, answer.error_type
    if answer.body is None:
        return f"no JSON: {answer.text[:80]}" if answer.text else "an empty answer", "not-json"
    return "JSON without a list of models", "not-openai-compatible"


async def _get(session: Session, path: str) -> Answer:
    return await session.client.get(path, session.options.deadline_seconds)


async def check_model_name(session: Session) -> Check:
    """The name that the user's requests carry is served; a 404 for it shows the names that are.

    The other checks go on with the first served name where the user's is unknown.
    """
    served = session.served
    wanted = session.options.model or served.model
    expected = f"requests for model {wanted!r} are taken"
    if wanted is None:
        return session.skip("model-name", expected, "no name is served or given")
    if wanted in served.names:
        return session.record(
            Check(name="model-name", passed=True, expected=expected, actual=f"{wanted!r} is a served name")
        )
    answer = await ask(session, "/v1/completions", {"model": wanted, "prompt": "Hello", "max_tokens": 1})
    error_type = answer.error_type
    if answer.status == 404 and served.names:
        error_type = "model-name-unknown"
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


def name_help(wanted: str, served: Served) -> str:
    """What to change where a name is unknown: the request's field, or the server's flag."""
    names = ", ".join(repr(name) for name in served.names)
    first = served.names[0] if served.names else "NAME"
    return (
        f"404: {wanted!r} is no served name; served: {names or 'none'}. "
        f'Send "model": "{first}", or start the server with --served-model-name {wanted}'
    )
