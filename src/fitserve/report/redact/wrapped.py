"""Text that a terminal has broken at its width: joined, redacted, and broken again where it would be."""

from collections.abc import Callable
from itertools import pairwise

from fitserve.facts.reading.stream import physical_lines
from fitserve.facts.reading.taking import SAMPLE_LINES, shape_in
from fitserve.facts.reading.wrap import Wrap, columns_of, joined


def wrap_in(block: bytes) -> Wrap | None:
    """How the lines of a text's beginning were broken; None where they were not, or where a page's markup stands around them."""
    lines = [line for line, _ in zip(physical_lines([block]), range(SAMPLE_LINES), strict=False)]
    shape = shape_in(lines)
    return None if shape.html or shape.quoted or shape.indent else shape.wrap


def rewrapped(block: bytes, wrap: Wrap, redact: Callable[[bytes], bytes]) -> bytes:
    """The block redacted as if it had not been broken, in as many lines as before.

    What is private may go over the end of a line, and the reader of the result finds the width again.
    """
    if b"\r\n" in block:
        return rewrapped(block.replace(b"\r\n", b"\n"), wrap, redact).replace(b"\n", b"\r\n")
    physical = block.decode(errors="surrogateescape").split("\n")
    whole = list(joined(enumerate(physical), wrap))
    ends = [number for number, _ in whole[1:]] + [len(physical)]
    texts = [text for _, text in whole]
    new = (
        redact("\n".join(texts).encode(errors="surrogateescape")).decode(errors="surrogateescape").split("\n")
    )
    if len(new) != len(texts):
        return redact(block)
    lines: list[str] = []
    for (first, old), end, text in zip(whole, ends, new, strict=True):
        lines += physical[first:end] if text == old else _broken(text, wrap, end - first)
    return "\n".join(lines).encode(errors="surrogateescape")


def _broken(text: str, wrap: Wrap, count: int) -> list[str]:
    """The text in so many lines: the last one may be longer, or hold nothing but spaces."""
    lines: list[str] = []
    while len(lines) < count - 1:
        cut = wrap.columns
        if wrap.at_words and columns_of(text) > cut:
            cut = text.rfind(" ", 0, cut + 1)
            cut = cut if cut > 0 else wrap.columns
        lines.append(text[:cut])
        text = text[cut:].removeprefix(" ") if wrap.at_words else text[cut:]
    lines.append(text)
    if wrap.trimmed:
        lines = [
            line.rstrip(" ") if len(line) == wrap.columns else line for line, _ in pairwise([*lines, ""])
        ]
    return lines
