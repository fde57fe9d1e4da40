"""Picks the lines of a large log that hold a literal, and what stands around them."""

from collections.abc import Iterable, Iterator

from fitserve.facts.reading.needles import Haystack
from fitserve.facts.reading.stream import cut

ENDS_IN_FULL_BYTES = 512 << 10
"""So much of both ends of a log is picked whatever it holds."""

_LINES_BEFORE = 40
_LINES_AFTER = 10


def selected(pieces: Iterable[bytes], haystack: Haystack) -> Iterator[tuple[int, bytes]]:
    """The numbered physical lines that matter, in their order.

    Args:
        pieces: the log's bytes.
        haystack: what to look for.
    """
    number = 1
    above = b""
    owed_lines = 0
    is_first = True
    for block, is_last in _blocks(pieces):
        spans = _spans(block, haystack.search(block), owed_lines)
        if is_first or is_last:
            spans = _with_ends(block, spans, is_first=is_first, is_last=is_last)
        if spans and spans[0][0] == 0 and not owed_lines:
            yield from _numbered(above, number - above.count(b"\n"))
        done = 0
        for start, stop in spans:
            number += block.count(b"\n", done, start)
            yield from _numbered(block[start:stop], number)
            number += block.count(b"\n", start, stop)
            done = stop
        number += block.count(b"\n", done)
        above = block[_back(block, len(block), _LINES_BEFORE, done) :]
        owed_lines = _LINES_AFTER if done == len(block) else 0
        is_first = False


def _blocks(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Blocks of whole lines, each with whether it is the last; that one holds the whole end of the log."""
    held = b""
    rest = b""
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if not end:
            rest = cut(rest + piece)
            continue
        if held:
            yield held, False
        held, rest = rest + piece[:end], piece[end:]
    if len(rest) < ENDS_IN_FULL_BYTES:
        yield held + rest, True
    else:
        yield held, False
        yield rest, True


def _spans(block: bytes, hits: Iterable[tuple[int, bool]], owed_lines: int) -> list[tuple[int, int]]:
    """The parts of the block that are picked, in order and apart from each other."""
    spans = [(0, _forward(block, 0, owed_lines))] if owed_lines else []
    for end, is_rare in hits:
        floor = spans[-1][1] if spans else 0
        stop = _forward(block, end - 1, 1 + (_LINES_AFTER if is_rare else 0))
        if end <= floor:
            spans[-1] = (spans[-1][0], max(floor, stop))
            continue
        start = _back(block, block.rfind(b"\n", 0, end) + 1, _LINES_BEFORE if is_rare else 0, floor)
        if spans and start <= floor:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return spans


def _with_ends(
    block: bytes, spans: list[tuple[int, int]], *, is_first: bool, is_last: bool
) -> list[tuple[int, int]]:
    head = _forward(block, min(ENDS_IN_FULL_BYTES, len(block)), 1) if is_first else 0
    tail = block.rfind(b"\n", 0, max(len(block) - ENDS_IN_FULL_BYTES, 0)) + 1 if is_last else len(block)
    inner = [(max(start, head), min(stop, tail)) for start, stop in spans]
    outer = [(0, head), *inner, (max(tail, head), len(block))]
    return [(start, stop) for start, stop in outer if start < stop]


def _numbered(part: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    lines = part.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for place, line in enumerate(lines):
        yield number + place, cut(line)


def _forward(block: bytes, start: int, lines: int) -> int:
    """Where so many lines from a place on end."""
    for _ in range(lines):
        if not (end := block.find(b"\n", start) + 1):
            return len(block)
        start = end
    return start


def _back(block: bytes, start: int, lines: int, floor: int) -> int:
    """Where so many lines before the start of a line begin; not before the floor."""
    for _ in range(lines):
        if start <= floor:
            break
        start = block.rfind(b"\n", 0, start - 1) + 1
    return max(start, floor)
