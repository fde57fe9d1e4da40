"""Undoes what pages and editors do to a pasted log: HTML, Markdown, indentation."""

import re
from collections.abc import Iterable, Iterator

from fitserve.facts.reading.ansi import without_colours

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,5});")
_BREAK = re.compile(r"<br {0,9}/?>", re.IGNORECASE)
_LAST_BREAK = re.compile(r"<br {0,9}/?>\s{0,9}$", re.IGNORECASE)
_ELEMENT = re.compile(
    r"</?(?:pre|code|div|span|samp|font|details|summary|blockquote|html|body|table|tbody|tr|td|p)"
    r"(?: [^<>]{0,400})?/?>",
    re.IGNORECASE,
)
_FENCE = re.compile(r" {0,8}(?:`{3,}|~{3,})[\w+.-]{0,40} *$")
_QUOTE = re.compile(r"(?:> ?){1,9}")
_TYPOGRAPHY = str.maketrans(
    {
        "\N{NO-BREAK SPACE}": " ",
        "\N{NARROW NO-BREAK SPACE}": " ",
        "\N{ZERO WIDTH SPACE}": None,
        "\N{WORD JOINER}": None,
        "\N{ZERO WIDTH NO-BREAK SPACE}": None,
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    }
)
"""What chats and word processors make of spaces and quotes."""


def is_html(sample: Iterable[str]) -> bool:
    """True where the lines come from a page: they hold its entities, or only an element."""
    return any(
        _ENTITY.search(line)
        or _BREAK.search(line)
        or ("<" in line and line.strip() and not _ELEMENT.sub("", line).strip())
        for line in sample
    )


def unpasted(text: str, *, html: bool = False, quoted: bool = False, indent: int = 0) -> Iterator[str]:
    """The lines in one physical line of a paste; none where it is only a fence or an element of a page.

    Args:
        text: the physical line.
        html: it comes from a page.
        quoted: the paste stands in a quotation.
        indent: columns by which the whole paste is indented.
    """
    plain = without_colours(text)
    for part in _without_markup(plain) if html else (plain,):
        line = _from_margin(
            part if part.isascii() else part.translate(_TYPOGRAPHY), quoted=quoted, indent=indent
        )
        if not _FENCE.match(line):
            yield line


def _from_margin(text: str, *, quoted: bool, indent: int) -> str:
    if quoted and (mark := _QUOTE.match(text)):
        text = text[mark.end() :]
    return text[indent:] if indent and text[:indent].isspace() else text


def _without_markup(text: str) -> Iterator[str]:
    import html

    bare = _ELEMENT.sub("", text)
    if bare.strip() or bare == text:
        for part in _BREAK.split(_LAST_BREAK.sub("", bare)):
            yield from html.unescape(part).split("\n")
