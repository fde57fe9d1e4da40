"""Message templates: literal text with typed holes, compiled to patterns that run in linear time.

    Free memory on device{} ({gpu_free_gib:dec}/{gpu_total_gib:dec} GiB) on startup is less than

``{}`` is any text, ``{name}`` any text that is kept, ``{name:kind}`` a number of that kind that is kept:

========  ==========================================  =====================
kind      text                                        value
========  ==========================================  =====================
``int``   ``131072`` or ``131,072``                   int
``dec``   ``9.32``                                    float
``size``  ``271.97 MiB`` (the name ends in ``_gib``)  GiB, four decimals
``word``  anything without white space                str
========  ==========================================  =====================

``{{`` and ``}}`` are braces. Every hole takes the shortest text up to the literal that follows it and never gives
it back (an atomic group), so a pattern reads a line once, whatever the line holds.
"""

import re
from typing import Any

_HOLE = re.compile(r"\{\{|\}\}|\{(?P<name>[a-z_0-9]*)(?::(?P<kind>[a-z]+))?\}")
_NUMBERS = {
    "int": r"-?\d++(?:,\d{3})*+",
    "dec": r"-?\d++(?:\.\d++)?+(?:[eE][-+]?\d++)?+",
    "size": r"\d++(?:\.\d++)?+ ?+(?:bytes|[KMGT]i?B)",
    "word": r"\S++",
}
_GIB_PER_UNIT = {
    "bytes": 2**-30,
    "KiB": 2**-20,
    "MiB": 2**-10,
    "GiB": 1.0,
    "TiB": 1024.0,
    "KB": 2**-20,
    "MB": 2**-10,
    "GB": 1.0,
    "TB": 1024.0,
}
_TRIES = 4


class Template:
    """One compiled template.

    Args:
        text: the template.
    """

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        pieces = _pieces(text)
        self.literals = [piece for piece in pieces if isinstance(piece, str)]
        while pieces and pieces[0] == ("", "text"):
            pieces.pop(0)
        self._start = pieces[0] if pieces and isinstance(pieces[0], str) else ""
        self._pattern = re.compile(self._compile(pieces), re.DOTALL)

    def _compile(self, pieces: list[str | tuple[str, str]]) -> str:
        parts = []
        position = 0
        while position < len(pieces):
            piece = pieces[position]
            position += 1
            if isinstance(piece, str):
                parts.append(re.escape(piece))
                continue
            name, kind = piece
            group = f"?P<{name}>" if name else "?:"
            if name:
                self.kinds[name] = kind
            if kind != "text":
                parts.append(f"({group}{_NUMBERS[kind]})")
            elif position == len(pieces):
                parts.append(f"({group}.*+)")
            else:
                following = pieces[position]
                if not isinstance(following, str):
                    raise ValueError(f"two holes without text between them after {piece}")
                position += 1
                parts.append(f"(?>({group}.*?){re.escape(following)})")
        return "".join(parts)

    def match(self, text: str) -> dict[str, Any] | None:
        """The kept values if the template stands somewhere in the text, else None.

        Numbers are converted; the printed form of every number that is not a whole one is under ``printed``.
        """
        position = -1
        for _ in range(_TRIES):
            position = text.find(self._start, position + 1)
            if position < 0:
                return None
            if found := self._pattern.match(text, position):
                return self._values(found)
        return None

    def _values(self, found: re.Match[str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        printed: dict[str, str] = {}
        for name, text in found.groupdict().items():
            kind = self.kinds[name]
            values[name] = _value(kind, text)
            if kind in ("dec", "size"):
                printed[name] = text
        if printed:
            values["printed"] = printed
        return values


def _pieces(text: str) -> list[str | tuple[str, str]]:
    pieces: list[str | tuple[str, str]] = []
    literal = ""
    end = 0
    for hole in _HOLE.finditer(text):
        literal += text[end : hole.start()]
        end = hole.end()
        if hole[0] in ("{{", "}}"):
            literal += hole[0][0]
            continue
        if literal:
            pieces.append(literal)
            literal = ""
        pieces.append((hole["name"], hole["kind"] or "text"))
    literal += text[end:]
    if literal:
        pieces.append(literal)
    return pieces


def _value(kind: str, text: str) -> int | float | str:
    if kind == "int":
        return int(text.replace(",", ""))
    if kind == "dec":
        return float(text)
    if kind == "size":
        return size_gib(text)
    return text


def size_gib(text: str) -> float:
    """A printed size such as ``271.97 MiB`` in GiB, to six decimals, a kilobyte (PyTorch's units are binary, whatever their name)."""
    number = re.match(r"[\d.]+", text)
    amount = number[0] if number else "0"
    return round(float(amount) * _GIB_PER_UNIT[text[len(amount) :].strip()], 6)
