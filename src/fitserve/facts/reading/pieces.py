"""Cuts a peeled line into the records and the bare text that share it."""

import re
from collections.abc import Iterator

import msgspec

from fitserve.facts.line import Line
from fitserve.facts.reading.peel import Said, peel, read_tag
from fitserve.facts.reading.record import RECORD, TAG

_QUOTES = ("'", '"', "`")


def lines_from(said: Said, number: int, leads: tuple[re.Pattern[str], ...] = ()) -> Iterator[Line]:
    """The lines that one peeled line holds, all under its number.

    Of a progress bar that overwrote itself the last state stays. A record behind such a bar, or behind another record,
    becomes a line of its own.
    """
    if "\r" not in said.text:
        yield from _records(said, number)
        return
    last_state: Line | None = None
    for segment in _segments(said, leads):
        for line in _records(segment, number):
            if line.source:
                yield line
            elif line.text.strip():
                last_state = line
    if last_state:
        yield last_state


def _segments(said: Said, leads: tuple[re.Pattern[str], ...]) -> Iterator[Said]:
    """The first and the last state of an overwritten line, and the records between them."""
    first, *others = [text for text in said.text.split("\r") if text.strip()] or [""]
    yield msgspec.structs.replace(said, text=first)
    for place, text in enumerate(others, start=1):
        if place == len(others) or RECORD.search(text):
            yield from peel(msgspec.structs.replace(said, text=text), leads)


def _records(said: Said, number: int) -> Iterator[Line]:
    text = said.text
    starts = [
        found for found in RECORD.finditer(text) if not text.startswith(_QUOTES, max(found.start() - 1, 0))
    ]
    lead = text[: starts[0].start()] if starts else text
    if tag := tag_at_end(lead):
        lead = lead[: tag.start()]
    if lead.strip() or not starts:
        yield _line(said, number, lead)
    if tag:
        read_tag(said, tag)
    ends = [found.start() for found in starts[1:]]
    for found, end in zip(starts, [*ends, None] if starts else [], strict=True):
        message = text[found.end() : end]
        tag = tag_at_end(message) if end else None
        yield _line(said, number, message[: tag.start()] if tag else message, found)
        if tag:
            read_tag(said, tag)


def tag_at_end(text: str) -> re.Match[str] | None:
    """The process tag that ends the text, where a record follows it."""
    start = text.rfind("(", 0, max(text.rfind(" pid="), 0))
    return TAG.fullmatch(text, start) if start >= 0 else None


def _line(said: Said, number: int, text: str, record: re.Match[str] | None = None) -> Line:
    return Line(
        number=number,
        text=text,
        process=said.process,
        pid=said.pid,
        rank=said.rank,
        level=record["level"] if record else said.level,
        time=record["time"] if record else said.time,
        source=(record["source"] or record["early_source"]) if record else said.source,
        origin=said.origin,
    )
