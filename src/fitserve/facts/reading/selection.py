"""Picks the lines of a large log that hold a literal, and what stands around them."""

from collections import deque
from collections.abc import Iterable, Iterator

from fitserve.facts.reading.needles import Haystack
from fitserve.facts.reading.stream import cut

ENDS_IN_FULL_BYTES = 256 << 10
_LINES_BEFORE = 40
_LINES_AFTER = 10


def selected(
    pieces: Iterable[bytes], haystack: Haystack, ends_bytes: int = ENDS_IN_FULL_BYTES
) -> Iterator[tuple[int, bytes]]:
    """The numbered physical lines that matter, in their order.

    Args:
        pieces: the log's bytes.
        haystack: what to look for.
        ends_bytes: at least so much of both ends is picked whatever it holds.
    """
    number = 1
    above = b""
    owed_lines = 0
    for block, is_whole in _blocks(pieces, ends_bytes):
        spans = [(0, len(block))] if is_whole else _spans(block, haystack.search(block), owed_lines)
        if spans and spans[0][0] == 0 and not owed_lines:
            yield from _numbered(above, number - above.count(b"\n"))
        done = 0
        for start, stop in spans:
            number += block.count(b"\n", done, start)
            yield from _numbered(block[start:stop], number)
            number += block.count(b"\n", start, stop)
            done = stop
        number += block.count(b"\n", done)
        start = _back(block, len(block), _LINES_BEFORE, done)
        above = block[start:] if start else _last_lines(above + block)
        owed_lines = _LINES_AFTER if done == len(block) else 0


def _last_lines(block: bytes) -> bytes:
    return block[_back(block, len(block), _LINES_BEFORE, 0) :]


def _blocks(pieces: Iterable[bytes], ends_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Blocks of whole lines, each with whether it is one of the two ends."""
    blocks = _whole_lines(pieces)
    head_bytes = 0
    while head_bytes < ends_bytes and (block := next(blocks, b"")):
        head_bytes += len(block)
        yield block, True
    waiting: deque[bytes] = deque()
    waiting_bytes = 0
    for block in blocks:
        waiting.append(block)
        waiting_bytes += len(block)
        while waiting_bytes - len(waiting[0]) >= ends_bytes:
            waiting_bytes -= len(waiting[0])
            yield waiting.popleft(), False
            if not waiting:
                break
    for block in waiting:
        yield block, True


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        if end := piece.rfind(b"\n") + 1:
            yield rest + piece[:end]
            rest = piece[end:]
        else:
            rest = cut(rest + piece)
    if rest:
        yield rest


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
