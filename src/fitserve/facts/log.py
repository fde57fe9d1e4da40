"""Reads a log: opens it wherever it lies and takes its lines apart."""

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from fitserve.errors import InputError
from fitserve.facts.line import Line
from fitserve.facts.reading.record import RECORD, TAG, rank_of

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[ -/]?[@-~]")
_WRAPPER = re.compile(
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,100} [^\s:\[]{1,100}(?:\[\d+\])?: "
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"
    r"|[A-Za-z0-9][\w.@-]{0,200} *\| "
    r"|> "
)


def open_log(path: Path | None) -> BinaryIO:
    """Open a log for reading bytes.

    Args:
        path: the file, gzipped or not; None for the standard input.

    Raises:
        InputError: the file is missing, unreadable or a directory.
    """
    if path is None:
        return sys.stdin.buffer
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"the log cannot be read: {error.strerror}", where=str(path)) from error
    if stream.peek(2)[:2] == b"\x1f\x8b":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    return stream


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Take the lines of a log apart, oldest first, numbered as they stand in the text."""
    for number, raw in enumerate(stream, start=1):
        yield _take_apart(_ANSI.sub("", raw.decode(errors="replace").rstrip("\r\n")), number)


def _take_apart(text: str, number: int) -> Line:
    text = text.rsplit("\r", 1)[-1]
    for _ in range(4):
        if not (wrapper := _WRAPPER.match(text)):
            break
        text = text[wrapper.end() :]
    if tag := TAG.match(text):
        text = text[tag.end() :]
    record = RECORD.match(text)
    return Line(
        number=number,
        text=text[record.end() :] if record else text,
        process=tag["process"] if tag else None,
        pid=int(tag["pid"]) if tag else None,
        rank=rank_of(tag) if tag else None,
        level=record["level"] if record else None,
        time=record["time"] if record else None,
        source=(record["source"] or record["early_source"]) if record else None,
    )
