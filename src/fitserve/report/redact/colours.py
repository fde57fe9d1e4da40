r"""Colours in what is searched: taken out before, and put back where they stood.

A terminal's colour may stand between a name and its value, or inside a value; no rule has to know of it.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

from fitserve.report.redact.rule import Edit

Mark = tuple[int, bytes]
"""Where in the plain text a control sequence stood, and the sequence."""

_SIGNS = (b"\x1b[", b"^[[", b"\\x1b[", b"\\u001b[", b"\\033[", b"#033[", b"\xe2\x90\x9b[")
_SEQUENCE = re.compile(
    rb"\x1b\[[0-9;:?]{0,40}[ -/]?[@-~]|(?:\^\[|\\x1b|\\u001b|\\033|#033|\xe2\x90\x9b)\[[0-9;]{0,20}[mKABJ]"
)
"""Source: as in `facts.reading.ansi`, but for links, whose target is text as well."""


def uncoloured(block: bytes) -> tuple[bytes, list[Mark]]:
    """The text without colours, and the colours."""
    if not any(sign in block for sign in _SIGNS):
        return block, []
    pieces: list[bytes] = []
    marks: list[Mark] = []
    done = size = 0
    for match in _SEQUENCE.finditer(block):
        pieces.append(block[done : match.start()])
        size += match.start() - done
        marks.append((size, match[0]))
        done = match.end()
    pieces.append(block[done:])
    return b"".join(pieces), marks


def coloured(block: bytes, marks: Sequence[Mark]) -> bytes:
    """The text with its colours."""
    return edited(block, [(at, at, sequence) for at, sequence in marks]) if marks else block


def moved(marks: list[Mark], edits: Sequence[Edit]) -> list[Mark]:
    """Where the colours stand once the text is edited; one inside of what is replaced stands behind it."""
    if not marks or not edits:
        return marks
    new: list[Mark] = []
    ends = [end for _, end, _ in edits]
    shifts = [0]
    for start, end, text in edits:
        shifts.append(shifts[-1] + len(text) - (end - start))
    for at, sequence in marks:
        which = bisect_left(ends, at)
        if which < len(edits) and edits[which][0] < at:
            new.append((ends[which] + shifts[which + 1], sequence))
        else:
            new.append((at + shifts[which], sequence))
    return new


def edited(block: bytes, edits: Sequence[Edit]) -> bytes:
    """The text with each edit made; they are in order and do not overlap."""
    if not edits:
        return block
    pieces: list[bytes] = []
    done = 0
    for start, end, new in edits:
        pieces += (block[done:start], new)
        done = end
    return b"".join((*pieces, block[done:]))
