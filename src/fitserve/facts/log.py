"""Reads a log: opens it wherever it lies and takes its lines apart."""

import io
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from fitserve.errors import InputError
from fitserve.facts.line import Line
from fitserve.facts.reading.order import turned
from fitserve.facts.reading.paste import unpasted
from fitserve.facts.reading.peel import Said, peel
from fitserve.facts.reading.pieces import lines_from
from fitserve.facts.reading.shape import SAMPLE_LINES, Shape, shape_of
from fitserve.facts.reading.stream import LONGEST_LINE_BYTES, Unzipped, chunks, physical_lines
from fitserve.facts.reading.wrap import joined

_GZIP = b"\x1f\x8b"


def open_log(path: Path | None) -> BinaryIO:
    """Open a log for reading bytes; a gzipped one is unpacked, as far as it is whole.

    Args:
        path: the file; None for the standard input.

    Raises:
        InputError: the file is missing, unreadable or a directory.
    """
    try:
        stream = sys.stdin.buffer if path is None else path.open("rb")
        head = cast("io.BufferedReader", stream).peek(len(_GZIP))
    except OSError as error:
        raise InputError(f"the log cannot be read: {_reason(error)}", where=str(path or "-")) from error
    if head.startswith(_GZIP):
        return io.BufferedReader(Unzipped(stream), 1 << 18)
    return stream


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """Take the lines of a log apart, oldest first, numbered as they stand in the text.

    Whatever the bytes are, lines come out; the memory needed does not grow with the log.
    """
    lines = physical_lines(chunks(stream))
    sample = list(islice(lines, SAMPLE_LINES))
    shape = shape_of([_decoded(line) for _, line in sample])
    return take_apart(chain(sample, lines), shape)


def take_apart(lines: Iterable[tuple[int, bytes]], shape: Shape) -> Iterator[Line]:
    """Take numbered physical lines apart; those of a gap in the numbers are not joined."""
    texts = (
        (number, text)
        for number, line in lines
        for text in unpasted(_decoded(line), indent=shape.indent, quoted=shape.quoted)
    )
    whole = joined(texts, shape.wrap) if shape.wrap else texts
    ordered = turned(whole) if shape.newest_first else whole
    for number, said in _with_parts_joined(
        (number, said) for number, text in ordered for said in peel(Said(text=text), shape.leads)
    ):
        yield from lines_from(said, number, shape.leads)


def _with_parts_joined(parts: Iterable[tuple[int, Said]]) -> Iterator[tuple[int, Said]]:
    """Join the lines that a container runtime has split because of their length."""
    begun: tuple[int, Said] | None = None
    for numbered in parts:
        whole = _appended(begun, numbered[1]) if begun else numbered
        begun = whole if whole[1].is_part and len(whole[1].text) < LONGEST_LINE_BYTES else None
        if not begun:
            yield whole
    if begun:
        yield begun


def _appended(begun: tuple[int, Said], part: Said) -> tuple[int, Said]:
    number, first = begun
    return number, msgspec.structs.replace(first, text=first.text + part.text, is_part=part.is_part)


def _decoded(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
