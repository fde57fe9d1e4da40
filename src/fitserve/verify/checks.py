"""Small requests with whole answers: chat, completion, embedding and pooling, streamed and not."""

from functools import partial
from typing import Any

import msgspec

from fitserve.verify.answer import (
    GIVEN_UP,
    Answer,
    body_words,
    entry,
    excerpt,
    generated_text,
    given_up_words,
    says_more_than,
    text_of,
    whole_number,
)
from fitserve.verify.ask import ask, ask_in_turn
from fitserve.verify.session import Session, unasked
from fitserve.verify.verification import Check

SMALL_OUTPUT_TOKENS = 8
_CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello."}]}
_COMPLETION: dict[str, Any] = {"prompt": "Once upon a time"}
_STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

GENERATING = ("chat", "chat-stream", "completion", "completion-stream")
"""The checks of which one must pass where a model generates text."""

_POOLING: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("embedding", "/v1/embeddings", {"input": "Hello"}),
    ("pooling", "/pooling", {"input": "Hello"}),
    ("classification", "/classify", {"input": "Hello"}),
    ("score", "/score", {"text_1": "Hello", "text_2": "Goodbye"}),
)
"""Each task of a model that generates nothing, with its endpoint in vLLM 0.32.0 ``entrypoints/pooling``."""


async def check_answers(session: Session) -> None:
    """Ask every endpoint that the server has for one small answer.

    A pooling model has no endpoint that generates: then its own ones are asked, and the first that answers is its check.
    An endpoint that has just answered is there: where it then refuses to stream, that is a failure.
    """
    small = {"max_tokens": SMALL_OUTPUT_TOKENS, "temperature": 0}
    requests = (
        ("chat", "/v1/chat/completions", _CHAT | small),
        ("chat-stream", "/v1/chat/completions", _CHAT | small | _STREAM),
        ("completion", "/v1/completions", _COMPLETION | small),
        ("completion-stream", "/v1/completions", _COMPLETION | small | _STREAM),
    )
    await ask_in_turn(session, [partial(_check_generation, session, *request) for request in requests])
    asked = [session.found(name) for name in GENERATING]
    if all(check is not None and check.error_type in _UNASKED for check in asked):
        await _check_pooling(session)


_ABSENT = frozenset({"not-supported", "http-404", "http-405", "http-501"})
"""What a server says of an endpoint that it does not have."""

_UNASKED = _ABSENT | {"no-chat-template"}
"""Where all that generates says so, nothing has been seen to generate."""


async def _check_generation(session: Session, name: str, path: str, body: dict[str, Any]) -> Check:
    expected = "tokens, count, finish_reason"
    model = session.served.model
    if model is None:
        return unasked(name, expected, session.no_model)
    answer = await ask(session, path, {"model": model, **body})
    whole = session.found(name.removesuffix("-stream"))
    if answer.error_type in _UNASKED and not (whole and whole.passed):
        why = f"no such endpoint here: {answer.trouble}"
        if answer.error_type == "no-chat-template":
            why = f"the model has no chat template; completions decide ({excerpt(answer.error)})"
        check = unasked(name, expected, why)
        return msgspec.structs.replace(check, seconds=round(answer.seconds, 3), error_type=answer.error_type)
    error_type, actual = judge_stream(answer) if body.get("stream") else judge_generation(answer)
    return answer_check(name, answer, expected, actual, error_type)


def answer_check(name: str, answer: Answer, expected: str, actual: str, error_type: str | None) -> Check:
    """A check of one answer; it passed where no error type is left."""
    busy = f"; the server had said {answer.retries} times that it was busy" if answer.retries else ""
    return Check(
        name=name,
        passed=error_type is None,
        expected=expected,
        actual=actual + busy,
        seconds=round(answer.seconds, 3),
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        error_type=error_type,
    )


def judge_generation(answer: Answer) -> tuple[str | None, str]:
    """Does a whole answer hold generated tokens? The error type, or None, and the words."""
    if not answer.ok:
        return answer.error_type, answer.trouble
    if answer.body is None:
        return "not-json", f"no JSON but {body_words(answer.text) or 'an empty answer'}"
    choice = entry(answer.body, "choices", 0)
    if choice is None:
        return "not-openai-compatible", f"no choices in the answer: {excerpt(str(answer.body))}"
    reason = text_of(entry(choice, "finish_reason"))
    return _judge_content(answer, generated_text(choice), reason)


def judge_stream(answer: Answer) -> tuple[str | None, str]:
    """Did a stream carry generated tokens to its end? The error type, or None, and the words."""
    if not answer.ok:
        return answer.error_type, answer.trouble
    return _judge_content(answer, answer.text, answer.finish_reason or "")


def _judge_content(answer: Answer, text: str, finish_reason: str) -> tuple[str | None, str]:
    # Special tokens have no text, so the count decides where the server gives one.
    output_tokens = answer.output_tokens
    if not (output_tokens or (output_tokens is None and text)):
        return "empty-answer", "an answer without a token"
    if output_tokens is not None and not 0 < output_tokens <= SMALL_OUTPUT_TOKENS:
        return "wrong-count", f"{output_tokens} tokens counted, at most {SMALL_OUTPUT_TOKENS} were asked for"
    count = "tokens not counted" if output_tokens is None else f"{output_tokens} tokens"
    if says_more_than(answer, text, output_tokens or SMALL_OUTPUT_TOKENS):
        return "wrong-count", f"{count}, and a text that is longer: {excerpt(text)}"
    if not finish_reason:
        return "no-finish-reason", "an answer without a finish_reason"
    if finish_reason in GIVEN_UP:
        return "given-up", given_up_words(finish_reason)
    return None, f"{count}, {finish_reason}: {excerpt(text)[:40]!r}{_odd_text(text)}"


def _odd_text(text: str) -> str:
    """A warning where one character is all that comes: broken weights or a wrong number format look like this."""
    letters = "".join(text.split())
    if len(letters) >= SMALL_OUTPUT_TOKENS // 2 and len(set(letters)) == 1:
        return "; one character over and over: look at the weights, or at --dtype"
    return ""


async def _check_pooling(session: Session) -> None:
    model = session.served.model
    for name, path, body in _POOLING:
        answer = await ask(session, path, {"model": model, **body})
        if answer.error_type in _ABSENT:
            continue
        error_type, actual = judge_pooling(answer)
        session.record(answer_check(name, answer, "a vector or scores of numbers", actual, error_type))
        return
    session.record(
        Check(
            name="endpoints",
            passed=False,
            expected="one endpoint that answers",
            actual="no endpoint that generates, embeds, pools, classifies or scores",
            error_type="not-openai-compatible",
        )
    )


def judge_pooling(answer: Answer) -> tuple[str | None, str]:
    """Does the answer of a pooling endpoint hold finite numbers? The error type, or None, and the words."""
    if not answer.ok:
        return answer.error_type, answer.trouble
    first = entry(answer.body, "data", 0)
    for key in ("embedding", "data", "probs", "score"):
        values = _flat(entry(first, key))
        numbers = [value for value in values if isinstance(value, float) or whole_number(value) is not None]
        if numbers and len(numbers) < len(values):
            missing = len(values) - len(numbers)
            return "not-a-number", f"{missing:,} of {len(values):,} values are no numbers"
        if len(numbers) > 1 and not any(numbers):
            return "empty-answer", f"{len(numbers):,} numbers, all 0"
        if numbers:
            return None, f"{len(numbers):,} numbers"
    return "not-openai-compatible", f"no numbers in the answer: {excerpt(str(answer.body))}"


MAX_DEPTH = 3
"""A vector for each token of each text is the deepest that there is."""


def _flat(value: Any, depth: int = MAX_DEPTH) -> list[Any]:
    """The values of nested lists, as deep as an answer has any."""
    if not isinstance(value, list) or depth == 0:
        return [value]
    return [inner for part in value for inner in _flat(part, depth - 1)]
