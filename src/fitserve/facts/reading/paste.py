"""Undoes what pages and editors do to a pasted log: HTML, Markdown, indentation."""

import re
from collections.abc import Iterable, Iterator

from fitserve.facts.reading.ansi import without_colours

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,5});")
_BREAK = re.compile(r"<br {0,9}/?>", re.IGNORECASE)
_ELEMENT = re.compile(
    r"</?(?:pre|code|div|span|samp|font|details|summary|blockquote|html|body|table|tbody|tr|td|p)"
    r"(?: [^<>]{0,400})?/?>",
    re.IGNORECASE,
)
_FENCE = re.compile(r" {0,8}(?:`{3,}|~{3,})[\w+.-]{0,40} *$")
_QUOTE = re.compile(r"(?:> ?){1,9}")


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
    for part in _without_markup(without_colours(text)) if html else (without_colours(text),):
        plain = _from_margin(part, quoted=quoted, indent=indent)
        if not _FENCE.match(plain):
            yield plain


def _from_margin(text: str, *, quoted: bool, indent: int) -> str:
    if quoted and (mark := _QUOTE.match(text)):
        text = text[mark.end() :]
    return text[indent:] if indent and text[:indent].isspace() else text


def _without_markup(text: str) -> Iterator[str]:
    import html

    bare = _ELEMENT.sub("", text)
    if bare.strip() or bare == text:
        for part in _BREAK.split(bare):
            yield html.unescape(part).replace("\N{NO-BREAK SPACE}", " ")
