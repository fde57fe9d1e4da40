"""Takes numbered physical lines apart into what processes wrote."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import msgspec

from fitserve.facts.line import Line
from fitserve.facts.reading.order import turned
from fitserve.facts.reading.paste import unpasted
from fitserve.facts.reading.peel import Said, peel
from fitserve.facts.reading.pieces import lines_from
from fitserve.facts.reading.shape import Shape, shape_of
from fitserve.facts.reading.stream import LONGEST_LINE_BYTES
from fitserve.facts.reading.wrap import joined

SAMPLE_LINES = 2000
"""The lines that tell the shape of a log: at most so many are held before the first one is given out."""

_SAMPLE_BYTES = 4 << 20


def all_taken_apart(lines: Iterator[tuple[int, bytes]]) -> Iterator[Line]:
    """Take all lines of a log apart, with the shape that its first ones have."""
    sample: list[tuple[int, bytes]] = []
    sample_bytes = 0
    for line in islice(lines, SAMPLE_LINES):
        sample.append(line)
        sample_bytes += len(line[1])
        if sample_bytes > _SAMPLE_BYTES:
            break
    return take_apart(chain(sample, lines), shape_in(sample))


def shape_in(sample: Iterable[tuple[int, bytes]]) -> Shape:
    """The shape that the first lines of a log have."""
    return shape_of([_decoded(line) for _, line in sample])


def take_apart(lines: Iterable[tuple[int, bytes]], shape: Shape) -> Iterator[Line]:
    """Take numbered physical lines apart; those of a gap in the numbers are not joined."""
    texts = (
        (number, text)
        for number, line in lines
        for text in unpasted(_decoded(line), html=shape.html, quoted=shape.quoted, indent=shape.indent)
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
