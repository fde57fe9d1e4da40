"""What users wrote and what models answered: vLLM's request log, and bodies of the API in JSON or as Python prints them.

Source: ``RequestLogger.log_inputs`` and ``log_outputs`` in ``entrypoints/logger.py`` (``entrypoints/serve/utils/request_logger.py``)
of vLLM 0.6.6 to 0.33.0: ``Received request ID: prompt: '...', params: SamplingParams(...), prompt_token_ids: [...], ...`` and
``Generated response ID: output: '...', output_token_ids: [...], finish_reason: ...``.
"""

import re
from collections.abc import Iterator

from fitserve.report.redact.rule import Edit, Memory, Rule

_QUOTED = rb"(?:\\?'(?P<{0}a>(?:[^'\\\n]|\\[^\n])*+)|\\?\"(?P<{0}b>(?:[^\"\\\n]|\\[^\n])*+))"
_TEXT = rb"(?:'(?:[^'\\\n]|\\[^\n])*+'?|\"(?:[^\"\\\n]|\\[^\n])*+\"?)"
_LOGGED = re.compile(
    rb"(?P<what>\b(?:prompt|output|outputs|delta|decoded_prompt|text))(?P<colon>: )(?P<text>" + _TEXT + rb")|"
    rb"\b(?:prompt_token_ids|output_token_ids|token_ids): (?P<ids>\[[0-9, ]+\]?)|"
    rb"\bparams: (?P<params>\w+\([^\n]*?)(?=, (?:prompt_token_ids|prompt_embeds|lora_request|prompt_adapter_request): |$)"
)
_STRING = re.compile(_TEXT)
_WORDS = frozenset(
    (
        b"auto",
        b"none",
        b"required",
        b"length",
        b"stop",
        b"cumulative",
        b"delta",
        b"final_only",
        b"user",
        b"system",
        b"assistant",
        b"tool",
        b"text",
    )
)
_ITEM = rb"(?:\\{1,3}\"(?:(?!\\{1,3}\")[^\n])*+(?:\\{1,3}\")?|'(?:[^'\\\n]|\\[^\n])*+'?|\"(?:[^\"\\\n]|\\[^\n])*+\"?)"
"""A text in quotes, which may be escaped, and may be cut off."""
_ITEMS = rb"(?P<value>(?:" + _ITEM + rb"|\[\s{0,3}" + _ITEM + rb"(?:\s{0,3},\s{0,3}" + _ITEM + rb")*+))"
"""One, or a list of them."""

_KEYS = (
    rb"content|prompt|input|instructions|reasoning|reasoning_content|arguments|output_text|suffix|system_prompt|query|documents|text_1|text_2|"
    rb"image_url|input_audio|completion"
)
_FIELD = re.compile(rb"(?P<quote>\\{0,3}[\"'])(?:" + _KEYS + rb"|text)(?P=quote)\s{0,3}:\s{0,3}" + _ITEMS)


_ARGUMENTS = _KEYS.replace(b"|suffix", b"").replace(b"|query", b"") + b"|text"
"""Of functions: other ones have a suffix and a query as well."""
_ARGUMENT = re.compile(
    rb"(?:(?<![A-Za-z0-9_.\-])(?:"
    + _ARGUMENTS
    + rb")=|\b(?:llm|engine|model|client|LLM)\.(?:generate|chat|encode|embed|score|classify|reward)\()"
    + _ITEMS
)
_TOKEN_IDS = re.compile(
    rb"(?<![A-Za-z0-9_])(?:(?:(?:encoder_)?prompt|output|new|all|generated|sampled|draft|spec|resumed|decoder|encoder)_)?"
    rb"(?:token_ids|input_ids|tokens|prompt|input)[\"'\\]{0,4}\s{0,3}[:=]\s{0,3}(?:(?:np\.|torch\.)?(?:array|tensor)\()?[\[(]{1,3}"
    rb"(?P<ids>\d+(?:\s*,\s*\d+){2,}[\d,\s]*)"
)


def content_rules() -> list[Rule]:
    """Lines of the request log, and fields of a request or an answer."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?:Received request|Generated response|Generated streaming|Adding request|Prompt:|prompt: )[^\n]*"
            ),
            replace=_logged,
            probe=rb"Received request|Generated response|Generated streaming|prompt: ['\"]",
        ),
        Rule(
            pattern=_FIELD,
            replace=_field,
            probe=rb"[\"'](?:" + _KEYS + rb"|text)\\{0,3}[\"'][ \t]{0,3}:",
        ),
        Rule(
            pattern=_ARGUMENT,
            replace=_field,
            probe=rb"(?:"
            + _KEYS
            + rb"|text)=[\[\\\"']|\.(?:generate|chat|encode|embed|score|classify|reward)\(",
        ),
        Rule(
            pattern=_TOKEN_IDS,
            replace=_token_ids,
            probe=rb"(?:token_ids|input_ids|tokens|prompt|input)[\"'\\]{0,4}\s{0,3}[:=]\s{0,3}(?:[a-z.]{0,12}\()?[\[(]{1,3}[0-9]",
        ),
    ]


def _logged(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    at = match.start()
    for found in _LOGGED.finditer(match[0]):
        if found["text"]:
            start, value = at + found.start("text"), found["text"]
            yield from _inside(start, value, memory)
        elif found["ids"]:
            start = at + found.start("ids") + 1
            body = found["ids"].strip(b"[]")
            yield start, start + len(body), memory.names.label("token-ids", body)
        elif found["params"]:
            for text in _STRING.finditer(found["params"]):
                yield from _inside(at + found.start("params") + text.start(), text[0], memory)


def _token_ids(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    ids = match["ids"].rstrip(b" ,")
    yield match.start("ids"), match.start("ids") + len(ids), memory.names.label("token-ids", ids)


def _inside(start: int, quoted: bytes, memory: Memory) -> Iterator[Edit]:
    """What stands between the quotes."""
    body = quoted[1:-1] if len(quoted) > 1 and quoted[-1:] == quoted[:1] else quoted[1:]
    if body and not memory.names.is_label(body) and body.lower() not in _WORDS:
        yield start + 1, start + 1 + len(body), memory.names.label("text", body)


def _field(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    for item in re.finditer(_ITEM, match["value"]):
        quote = re.match(rb"\\{0,3}[\"']", item[0])
        lead = len(quote[0]) if quote else 0
        body = item[0][lead:].removesuffix(quote[0] if quote else b"")
        if len(body) > 1 and not memory.names.is_label(body) and body.lower() not in _WORDS:
            start = match.start("value") + item.start() + lead
            yield start, start + len(body), memory.names.label("text", body)
