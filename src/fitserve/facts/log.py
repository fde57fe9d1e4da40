"""Reads a log: opens it wherever it lies and takes its lines apart."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from fitserve.errors import InputError
from fitserve.facts.line import Line
from fitserve.facts.reading.stream import Unzipped, chunks, physical_lines
from fitserve.facts.reading.taking import all_taken_apart

_GZIP = b"\x1f\x8b"


def open_log(path: Path | None) -> BinaryIO:
    """Open a log for reading bytes; a gzipped one is unpacked, as far as it is whole.

    Args:
        path: the file; None for the standard input.

    Raises:
        InputError: the file is missing, unreadable, a directory, or a gzip file of which nothing can be unpacked.
    """
    try:
        stream = sys.stdin.buffer if path is None else path.open("rb")
        head = cast("io.BufferedReader", stream).peek(len(_GZIP))
    except OSError as error:
        raise InputError(f"the log cannot be read: {_reason(error)}", where=str(path or "-")) from error
    return _unzipped(stream, path) if head.startswith(_GZIP) else stream


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Take the lines of a log apart, oldest first, numbered as they stand in the text.

    Whatever the bytes are, lines come out; the memory needed does not grow with the log.
    """
    return all_taken_apart(physical_lines(chunks(stream)))


def _unzipped(stream: BinaryIO, path: Path | None) -> BinaryIO:
    content = Unzipped(stream)
    reader = io.BufferedReader(content, 1 << 18)
    if not reader.peek(1) and content.damaged:
        raise InputError(
            "the gzip file is damaged, nothing of it can be unpacked",
            where=str(path or "-"),
            hint="copy it again, or give the log as plain text",
        )
    return reader


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
