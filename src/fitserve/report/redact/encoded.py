"""Base 64: what is private in it is found as if it stood there plainly, and what is long and drawn is hidden as a whole."""

import base64
import binascii
import re
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

from fitserve.report.redact.named import entropy
from fitserve.report.redact.rule import Edit, Memory

_WRITTEN = rb"(?:[CDI-Za-f][0-3ACD-HQS-Xgij-nwyz][014589ABEFIJMNQRUVYZcdghklopstwx][A-Za-z0-9+/_\-]){5}"
"""Five times three characters of ASCII in base 64: printable ones, tabs and line ends."""
_FEWEST_DRAWN = 88
_DRAWN = rb"[A-Za-z0-9+/_\-]{%d}" % _FEWEST_DRAWN
_RUN = re.compile(rb"(?:(?<=%[0-9A-F]{2})|(?<!%)(?<!%[0-9A-F]))[A-Za-z0-9+/_\-]{20,}={0,2}")
_INSIDE = re.compile(rb"(?<=[/_\-])(?=[A-Za-z0-9+/_\-]{20})")
"""Where base 64 may begin behind a path."""
_MOST_STARTS = 32
_CONTROL = re.compile(rb"[^\t\n\r -~]")
_LEAST_ENTROPY = 5.0
"""Bits in a character of 88 that are drawn from 64: 5.2 and more; in paths and class names 4.7 and less."""


def encoded_edits(block: bytes, memory: Memory, is_private: Callable[[bytes], bool]) -> list[Edit]:
    """Where base 64 is replaced in a block.

    Args:
        block: the text.
        memory: the pseudonyms.
        is_private: says so of a decoded text.
    """
    ends: list[int] = []
    _search().scan(block, lambda _which, _start, end, _flags, _context: ends.append(end))
    edits: list[Edit] = []
    done = 0
    for end in sorted(ends):
        if end <= done:
            continue
        line = max(done, block.rfind(b"\n", 0, end) + 1)
        run = next(run for run in _RUN.finditer(block, line) if run.end() >= end)
        done = run.end()
        start = _hidden_from(run, is_private)
        if start is not None:
            edits.append((start, done, memory.names.label("encoded", block[start:done])))
    return edits


def _hidden_from(run: re.Match[bytes], is_private: Callable[[bytes], bool]) -> int | None:
    """Where in a run of letters begins what is to be hidden; None where nothing is."""
    for at in (0, *(inside.start() for inside in islice(_INSIDE.finditer(run[0]), _MOST_STARTS))):
        text = _text(run[0][at:])
        if text is not None and is_private(text):
            return run.start() + at
    return run.start() if is_drawn(run[0]) else None


def is_drawn(run: bytes) -> bool:
    """True for a long run of base 64 that no one has written: an image, a ticket, a key."""
    return len(run) >= _FEWEST_DRAWN and entropy(run) >= _LEAST_ENTROPY


def _text(run: bytes) -> bytes | None:
    """The text that a run stands for; None where it stands for none."""
    plain = run.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    try:
        text = base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + b"===")
    except (binascii.Error, ValueError):
        return None
    return None if _CONTROL.search(text) else text


@cache
def _search() -> Any:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=[_WRITTEN, _DRAWN], ids=[0, 1], flags=[0, 0])
    return database
