"""Peels a line: takes off, one after the other, what loggers and platforms have put around it."""

import re
from collections.abc import Iterator
from itertools import chain

import msgspec

from fitserve.facts.reading.ansi import without_colours
from fitserve.facts.reading.objects import Entry, entry_in
from fitserve.facts.reading.record import RECORD, TAG, rank_of
from fitserve.facts.reading.wrappers import AFTER_STAMP, LEVELS, patterns_for

_MOST_LAYERS = 16
_REPEATED = re.compile(
    r" ?\[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs by default\.[^)]{0,300}\))?"
)


class Said(msgspec.Struct):
    """A line while it is taken apart: what is left of it, and what was learned from what is gone."""

    text: str
    process: str | None = None
    pid: int | None = None
    rank: str | None = None
    level: str | None = None
    time: str | None = None
    source: str | None = None
    origin: str | None = None
    is_part: bool = False
    follows_stamp: bool = False


def peel(said: Said, leads: tuple[re.Pattern[str], ...] = (), layers: int = _MOST_LAYERS) -> Iterator[Said]:
    """Take off everything that stands around a line, up to vLLM's own record.

    Several lines come out where one entry holds several.

    Args:
        said: the line, and what is known of it already.
        leads: patterns of prefixes that only this log's writer has.
        layers: how many things are taken off at most.
    """
    for left in range(layers, 0, -1):
        if said.text.startswith("{") and (entry := entry_in(said.text)):
            for inner in _lines_of(said, entry):
                yield from peel(inner, leads, left - 1)
            return
        if not (_take_tag(said) or _take_wrapper(said, leads)):
            break
    if "[repeated " in said.text:
        said.text = _REPEATED.sub("", said.text)
    yield said


def _lines_of(said: Said, entry: Entry) -> Iterator[Said]:
    for text in entry.text.split("\n"):
        yield msgspec.structs.replace(
            said,
            text=without_colours(text.rstrip("\r")),
            process=entry.process or said.process,
            pid=entry.pid if entry.process or entry.pid else said.pid,
            level=entry.level or said.level,
            time=entry.time or said.time,
            source=entry.source or said.source,
            is_part=entry.is_part,
        )


def _take_tag(said: Said) -> bool:
    """Take vLLM's or Ray's process tag; an inner one says more than an outer one."""
    if not (tag := TAG.match(said.text)):
        return False
    said.text = said.text[tag.end() :]
    read_tag(said, tag)
    return True


def read_tag(said: Said, tag: re.Match[str]) -> None:
    """Take over what a process tag says."""
    said.process = tag["process"]
    said.pid = int(tag["pid"])
    said.rank = rank_of(tag) or said.rank


def _take_wrapper(said: Said, leads: tuple[re.Pattern[str], ...]) -> bool:
    text = said.text
    if RECORD.match(text):
        return False
    after_stamp = (AFTER_STAMP,) if said.follows_stamp else ()
    for pattern in chain(after_stamp, patterns_for(text), leads):
        if found := pattern.match(text):
            _read_wrapper(said, found.groupdict())
            said.text = _unquoted(found[0], text[found.end() :])
            return True
    return False


def _unquoted(prefix: str, rest: str) -> str:
    """The rest of a line; if it is the last field of a table of comma-separated values, without the quotes around it."""
    if prefix.endswith(',"') and rest.endswith('"'):
        return rest[:-1].replace('""', '"')
    return rest


def _read_wrapper(said: Said, found: dict[str, str | None]) -> None:
    if level := found.get("level"):
        said.level = LEVELS.get(level, level)
    if "process" in found:
        said.process = found["process"]
        said.pid = None
    if (pid := found.get("pid")) and ("process" in found or not said.process):
        said.pid = int(pid)
    said.follows_stamp = bool(found.get("time")) and "process" not in found
    said.time = found.get("time") or said.time
    said.rank = found.get("rank") or said.rank
    said.origin = said.origin or found.get("origin")
    said.is_part = said.is_part or found.get("part") == "P"
