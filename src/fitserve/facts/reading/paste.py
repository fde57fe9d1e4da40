"""Undoes what pages and editors do to a pasted log: HTML, Markdown, indentation."""

import re
from collections.abc import Iterator

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


def unpasted(text: str, *, indent: int = 0, quoted: bool = False) -> Iterator[str]:
    """The lines in one physical line of a paste; none where it is only a fence or an element of a page.

    Args:
        text: the physical line.
        indent: columns by which the whole paste is indented.
        quoted: the paste stands in a quotation.
    """
    bare = without_colours(text)
    if "<" in bare:
        marked, bare = bare, _ELEMENT.sub("", bare)
        if bare != marked and not bare.strip():
            return
    for part in _BREAK.split(bare) if "<" in bare else (bare,):
        plain = _unescaped(part)
        if quoted and (mark := _QUOTE.match(plain)):
            plain = plain[mark.end() :]
        if indent and plain[:indent].isspace():
            plain = plain[indent:]
        if not _FENCE.match(plain):
            yield plain


def _unescaped(text: str) -> str:
    if "&" not in text or not _ENTITY.search(text):
        return text
    import html

    return html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
