"""Reads a large log: finds the lines that matter at hundreds of megabytes a second, and takes only those apart."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import BinaryIO

from fitserve.facts.boots import BOOT_NEEDLES
from fitserve.facts.line import Line
from fitserve.facts.reading.needles import Haystack
from fitserve.facts.reading.selection import selected
from fitserve.facts.reading.stream import chunks, physical_lines
from fitserve.facts.reading.taking import SAMPLE_LINES, all_taken_apart, shape_in, take_apart

READ_IN_FULL_BYTES = 4 << 20
"""A log up to this size is taken apart line by line."""


def read_candidates(stream: BinaryIO, needles: Sequence[bytes]) -> Iterator[Line]:
    """The lines of a log that can matter, oldest first, numbered as they stand in the text.

    A log of up to four MiB comes in full, and so does one whose lines a terminal has broken. Of a larger one come the
    lines that hold one of the literals or a boot's beginning or end, the lines around them (a traceback stands before
    its error), and both ends of the log. Literals that mark ordinary traffic are sampled. The memory needed does not
    grow with the log.

    Args:
        stream: the log's bytes.
        needles: literals of a line's message, at least one of which is in every message that matters.
    """
    pieces = chunks(stream)
    head: list[bytes] = []
    while sum(map(len, head)) <= READ_IN_FULL_BYTES:
        if not (piece := next(pieces, b"")):
            return all_taken_apart(physical_lines(head))
        head.append(piece)
    shape = shape_in(islice(physical_lines(head), SAMPLE_LINES))
    whole = chain(head, pieces)
    if shape.wrap:
        return take_apart(physical_lines(whole), shape)
    return take_apart(selected(whole, Haystack([*needles, *BOOT_NEEDLES])), shape)
