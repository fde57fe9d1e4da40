"""One answer of a server, and how foreign JSON is read: any shape is possible, none raises."""

import html
import re
from typing import Any

import msgspec

EXCERPT_CHARACTERS = 160
MAX_EVENTS_BEYOND_TOKENS = 64
"""Events of a stream that carry no token: the role, keep-alives, the usage, a split character."""

MAX_PIECES_BEYOND_TOKENS = 4
"""Pieces of text beyond one a token: what a parser of reasoning or tools has held back."""

MAX_WORDS_OF_A_TOKEN = 4
"""Only a vocabulary that joins words has tokens of more than one."""

GIVEN_UP = frozenset({"abort", "error"})
"""Finish reasons of an answer that the server did not bring to its end.

Source: vLLM 0.32.0 ``v1/engine/__init__.py`` ``FinishReason``.
"""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back for one request, or what went wrong.

    Attributes:
        status: the HTTP status; None where no answer began.
        error_type: the kind of trouble, such as ``timeout``, ``http-500`` or ``request-too-long``; None if none.
        error: the trouble in the server's words or ours.
        body: the decoded JSON of an answer that is not a stream.
        text: the generated text, or an excerpt of a body that is no JSON.
        started_seconds: when the request was sent, on the process's own clock; answers are compared by it.
        seconds: from the request to the end of the answer.
        first_token_seconds: from the request to the first token; None where none came.
        token_gaps_seconds: between one token event and the next.
        events: token events seen.
        pieces: events of them that carried text.
        prompt_tokens: as the server counted them.
        output_tokens: as the server counted them.
        cached_tokens: of the prompt, found in the prefix cache; None where the server does not say so in its answers.
        finish_reason: as the server said it.
        retries: how often the server had said that it was busy.
        server: the software as the ``Server`` header names it; empty where it does not.
    """

    status: int | None = None
    error_type: str | None = None
    error: str = ""
    body: Any = None
    text: str = ""
    started_seconds: float = 0.0
    seconds: float = 0.0
    first_token_seconds: float | None = None
    token_gaps_seconds: list[float] = []
    events: int = 0
    pieces: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    retries: int = 0
    server: str = ""

    @property
    def ok(self) -> bool:
        """True where the answer is a whole one."""
        return self.error_type is None

    @property
    def trouble(self) -> str:
        """The trouble as a person reads it: ``http-500: the server's words``."""
        return f"{self.error_type}: {self.error}" if self.error else str(self.error_type)


def given_up_words(finish_reason: str) -> str:
    """An answer that the server broke off by itself, for a person."""
    return f"the server broke the answer off: finish_reason {finish_reason!r}"


def says_more_than(answer: Answer, text: str, tokens: int) -> bool:
    """Is there more text than so many tokens can hold? Where no token is asked for, no text is looked at."""
    words = len(text.split())
    return tokens > 0 and (
        answer.pieces > tokens + MAX_PIECES_BEYOND_TOKENS or words > MAX_WORDS_OF_A_TOKEN * tokens
    )


def miscount(answer: Answer, prompt_tokens: int, max_tokens: int, *, whole_output: bool) -> str | None:
    """Does a whole answer count other tokens than were sent and asked for? The error type, or None.

    Args:
        answer: a whole one.
        prompt_tokens: that were sent.
        max_tokens: output that was asked for; 0 where the model has none.
        whole_output: the model was told to go on to the last token that was asked for.
    """
    if answer.prompt_tokens is None:
        return "not-counted"
    counted = answer.output_tokens or 0
    least = max_tokens if whole_output else min(1, max_tokens)
    right = answer.prompt_tokens == prompt_tokens and (not max_tokens or least <= counted <= max_tokens)
    return None if right and not says_more_than(answer, answer.text, max_tokens) else "wrong-count"


def decode_json(raw: bytes | bytearray) -> Any:
    """A foreign JSON.

    Raises:
        ValueError: it is none, or one so deep that nobody reads it.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def entry(value: Any, *path: str | int) -> Any:
    """The value at a path of a foreign JSON; None where the shape is another."""
    for key in path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return None
    return value


def whole_number(value: Any) -> int | None:
    """An integer, or None (a boolean is none)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(value: Any) -> str:
    """A string, or nothing."""
    return value if isinstance(value, str) else ""


def excerpt(text: str) -> str:
    """The beginning of a foreign text on one line; bytes of a header that are no UTF-8 are shown as unreadable."""
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    line = " ".join(readable.split())
    return line if len(line) <= EXCERPT_CHARACTERS else line[: EXCERPT_CHARACTERS - 3] + "..."


_MARKUP = re.compile(r"\s*(<!doctype html|<html|<head|<body|<\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]*)</title>", re.IGNORECASE)


def body_words(text: str) -> str:
    """A foreign body that is no JSON, for a person: a page's title in place of its markup, else its beginning."""
    if not _MARKUP.match(text):
        return excerpt(text)
    found = _TITLE.search(text)
    title = excerpt(html.unescape(found.group(1))) if found else ""
    return f"an HTML page titled {title!r}" if title else "an HTML page"


def generated_text(choice: Any) -> str:
    """The text of a choice: a completion, a message, a stream's piece of either, or its reasoning."""
    for message in (entry(choice, "message"), entry(choice, "delta")):
        for key in ("content", "reasoning_content", "reasoning"):
            if text := text_of(entry(message, key)):
                return text
    return text_of(entry(choice, "text"))


def usage(body: Any) -> tuple[int | None, int | None]:
    """Tokens in and out, as the server counted them."""
    counted = entry(body, "usage")
    return whole_number(entry(counted, "prompt_tokens")), whole_number(entry(counted, "completion_tokens"))


def cached_tokens(body: Any) -> int | None:
    """Tokens of the prompt that were found in the prefix cache.

    Source: OpenAI's ``usage``; vLLM 0.32.0 fills it with ``--enable-prompt-tokens-details``, llama.cpp's server always.
    """
    return whole_number(entry(body, "usage", "prompt_tokens_details", "cached_tokens"))


def error_message(body: Any) -> str:
    """The server's own words for an error.

    Source: vLLM 0.32.0 ``entrypoints/serve/engine/protocol.py`` (``{"error": {"message"}}``), its 401
    (``{"error": "Unauthorized"}``), releases before 0.10 (``{"object": "error", "message"}``), FastAPI (``{"detail"}``).
    """
    for path in (("error", "message"), ("error",), ("message",), ("detail",)):
        value = entry(body, *path)
        if isinstance(value, str) and value:
            return value
    detail = entry(body, "detail")
    return str(detail) if detail else ""


_MODEL_UNKNOWN = re.compile(
    r"\bmodel\b.{0,300}?(does not exist|not found|not exist|not loaded|unknown)", re.IGNORECASE | re.DOTALL
)
_OUTPUT_TOO_LONG = re.compile(
    r"max(_completion)?_tokens\W.{0,80}?(too large|cannot be greater|at least 1, got 0)",
    re.IGNORECASE | re.DOTALL,
)
_TOO_LONG = re.compile(
    r"(maximum|model's|model) (context|model|input|sequence) length|context (length|size|window)"
    r"|longer than the (maximum|model)|too long to fit|exceeds? .{0,40}(context|max_model_len)",
    re.IGNORECASE | re.DOTALL,
)
_NO_TEMPLATE = re.compile(r"chat[ _]template", re.IGNORECASE)
_NOT_THIS_MODEL = re.compile(
    r"does not support|not supported (for|by) (this|the) (model|task)|no such task", re.IGNORECASE
)


def http_error_type(status: int, message: str) -> str:
    """The name of a refused request.

    Source: the messages of vLLM 0.2 to 0.33 for requests beyond ``max_model_len``. 0.32.0 first cuts ``max_tokens``
    to the room that is left and then refuses a prompt of exactly ``max_model_len`` with "max_tokens must be at least
    1, got 0" (seen at ``/v1/completions``).
    """
    if status == 404 and _MODEL_UNKNOWN.search(message):
        return "model-name-unknown"
    if status in (400, 413, 422):
        if _OUTPUT_TOO_LONG.search(message):
            return "max-tokens-too-large"
        if _TOO_LONG.search(message):
            return "request-too-long"
        if _NO_TEMPLATE.search(message):
            return "no-chat-template"
    if status in (400, 404, 500, 501) and _NOT_THIS_MODEL.search(message):
        return "not-supported"
    return f"http-{status}"
