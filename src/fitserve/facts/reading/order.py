"""The order of a log's lines: found from stamps and tracebacks, and turned where the newest line stands first."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

_ISO = re.compile(r"\d{4}[-/]\d\d[-/]\d\d.{1,2}\d\d:\d\d:\d\d")
_VLLM = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")
_SYSLOG = re.compile(r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w{0,6} ([ \d]\d \d\d:\d\d:\d\d)")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = '  File "'
_ENOUGH_EVIDENCE = 2
_BLOCK_BYTES = 16 << 20
_LINE_BYTES = 200
"""What a line costs beyond its text."""

_BLOCK_ENCODER = msgspec.msgpack.Encoder()
_BLOCK_DECODER = msgspec.msgpack.Decoder(list[tuple[int, str]])


def is_newest_first(stamps: Sequence[str | None], texts: Sequence[str]) -> bool:
    """True where time runs backwards from line to line, or tracebacks stand upside down.

    Args:
        stamps: the stamp of each line, as printed.
        texts: the message of each line.
    """
    later, earlier = _steps([kept for stamp in stamps if stamp and (kept := _comparable(stamp))])
    upright = upside_down = 0
    for place, text in enumerate(texts):
        if text.startswith(_TRACEBACK):
            upright += place + 1 < len(texts) and texts[place + 1].startswith(_FRAME)
            upside_down += place > 0 and texts[place - 1].startswith((_FRAME, "    "))
    against = earlier + upside_down
    return against >= _ENOUGH_EVIDENCE and against > later + upright


def _comparable(stamp: str) -> tuple[str, str] | None:
    """The kind of a stamp, and its text down to the second in a form that sorts."""
    if iso := _ISO.match(stamp):
        return "iso", re.sub(r"\D+", "-", iso[0])
    if _VLLM.match(stamp):
        return "vllm", stamp[:14]
    if syslog := _SYSLOG.match(stamp):
        return "syslog", f"{_MONTHS.index(syslog[1]) + 1:02}-{syslog[2]}"
    return None


def _steps(stamps: list[tuple[str, str]]) -> tuple[int, int]:
    """How often time steps forward, and how often back; a step over new year is one forward."""
    if not stamps:
        return 0, 0
    kind = Counter(kind for kind, _ in stamps).most_common(1)[0][0]
    later = earlier = 0
    for one, other in pairwise(stamp for its_kind, stamp in stamps if its_kind == kind):
        over_new_year = kind != "iso" and {one[:2], other[:2]} == {"12", "01"}
        if one != other:
            forward = (other > one) != over_new_year
            later += forward
            earlier += not forward
    return later, earlier


def turned(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The numbered lines from the last to the first, in constant memory: all but the last block wait in a file."""
    import tempfile

    with tempfile.TemporaryFile() as spill:
        sizes: list[int] = []
        block: list[tuple[int, str]] = []
        block_bytes = 0
        for line in lines:
            block.append(line)
            block_bytes += len(line[1]) + _LINE_BYTES
            if block_bytes > _BLOCK_BYTES:
                sizes.append(spill.write(_BLOCK_ENCODER.encode(block)))
                block, block_bytes = [], 0
        yield from reversed(block)
        for size in reversed(sizes):
            spill.seek(-size, 1)
            yield from reversed(_BLOCK_DECODER.decode(spill.read(size)))
            spill.seek(-size, 1)
