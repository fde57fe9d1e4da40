"""What is common to all lines of a log: its width, its order, its indentation, a prefix of its own."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import msgspec

from fitserve.facts.reading.leads import leads_of
from fitserve.facts.reading.order import is_newest_first
from fitserve.facts.reading.paste import is_html, unpasted
from fitserve.facts.reading.peel import Said, peel
from fitserve.facts.reading.pieces import tag_at_end
from fitserve.facts.reading.record import RECORD, TAG
from fitserve.facts.reading.wrap import Wrap, joined, wrap_of

_MOST_LINES = 10_000
_SHARED_CHARACTERS = 6
_SHARED_STARTS = 3
_FEWEST_SHARE = 5


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is common to all lines of a log.

    Attributes:
        html: it comes from a page.
        quoted: it stands in a quotation.
        indent: columns by which all of it is indented.
        wrap: how a terminal has broken its lines; None if it has not.
        leads: patterns of prefixes that only this log's writer has.
        newest_first: the last event stands in the first line.
    """

    html: bool = False
    quoted: bool = False
    indent: int = 0
    wrap: Wrap | None = None
    leads: tuple[re.Pattern[str], ...] = ()
    newest_first: bool = False


def shape_of(sample: Sequence[str]) -> Shape:
    """Find the shape of a log from its first lines."""
    html = is_html(sample)
    filled = [line for line in sample if line.strip()]
    quoted = 2 * sum(line.startswith((">", "&gt;")) for line in filled) > len(filled)
    flat = list(
        islice(chain.from_iterable(unpasted(line, html=html, quoted=quoted) for line in sample), _MOST_LINES)
    )
    indent = _indent_of(flat)
    lines = [text for line in flat for text in unpasted(line, indent=indent)] if indent else flat
    starts = leads_of(line[: found.start()] for line in lines if (found := RECORD.search(line)))
    wrap = wrap_of(lines, (*starts, *_shared_start(lines)))
    whole = [text for _, text in joined(enumerate(lines), wrap)] if wrap else lines
    said = [part for text in whole for part in peel(Said(text=text))]
    leads = leads_of(_lead(part.text) for part in said)
    return Shape(
        html=html,
        quoted=quoted,
        indent=indent,
        wrap=wrap,
        leads=leads,
        newest_first=is_newest_first([_stamp(part) for part in said], [_message(part.text) for part in said]),
    )


def _indent_of(lines: Sequence[str]) -> int:
    """The columns before most of the lines that start with a prefix of vLLM's, or a traceback."""
    indents: Counter[int] = Counter()
    for line in lines:
        bare = line.lstrip(" \t")
        if TAG.match(bare) or RECORD.match(bare) or bare.startswith("Traceback (most recent call last)"):
            indents[len(line) - len(bare)] += 1
    return indents.most_common(1)[0][0] if indents else 0


def _shared_start(lines: Sequence[str]) -> Iterator[re.Pattern[str]]:
    """With what a platform has started many of the lines, if it did."""
    begun = Counter(line[:_SHARED_CHARACTERS] for line in lines if line and not line[0].isspace())
    for start, count in begun.most_common(_SHARED_STARTS):
        if _FEWEST_SHARE * count >= len(lines):
            yield re.compile(re.escape(start))


def _lead(text: str) -> str:
    """What stands before vLLM's own prefix in a line."""
    if not (found := RECORD.search(text)):
        return ""
    lead = text[: found.start()]
    tag = tag_at_end(lead)
    return lead[: tag.start()] if tag else lead


def _stamp(said: Said) -> str | None:
    return said.time or (found["time"] if (found := RECORD.search(said.text)) else None)


def _message(text: str) -> str:
    return text[found.end() :] if (found := RECORD.match(text)) else text
